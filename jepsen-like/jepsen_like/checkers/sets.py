"""A set of topics: what was added is listed, what was removed is not, and nothing else ever is.

A name is added once and removed at most once, so it goes through at most three states, in order:
not yet there, there, gone. Lists of a broker's cache (`list`) may be late, but a process follows
one log in order, so what it shows of a name never goes back. Final lists, after everything was
healed, may not be late.

lost          a final list lacks a name whose add was acknowledged before the list was asked for,
              and whose removal nobody began.
resurrected   a final list has a name whose removal was acknowledged before; or one node, in one
              life, showed a name, then not, then again.
vanished      one node, in one life, showed a name and later did not, and nobody had begun to
              remove it.
phantom       a list has a name that nobody had begun to add when it was answered.
failed-add    a list has a name whose add certainly failed; a failed remove is no remove.
final-differ  two final lists disagree about a name of unknown outcome: not fatal, since it may
              have been decided between the two.

Without an answered final list nothing was read in the end, and the verdict is unknown. Names that
the harness did not make are not in the lists (its client leaves them out).
"""

from dataclasses import dataclass, field
from typing import Final

from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "set"


@dataclass(slots=True)
class _Names:
    adds: dict[str, Call] = field(default_factory=dict)
    removes: dict[str, Call] = field(default_factory=dict)  # Those that may have happened.

    def removal_begun(self, name: str, line: int) -> bool:
        """Whether somebody had begun to remove it before this line."""
        remove = self.removes.get(name)
        return remove is not None and remove.invoke.i < line


def check(trace: Trace) -> CheckResult:
    findings = Findings(NAME)
    names = _Names()
    for call in trace.of("add", "remove"):
        if call.f == "add":
            names.adds[call.invoke.v] = call
        elif not call.failed:
            names.removes[call.invoke.v] = call
    final = trace.ok("final-list")
    lists = trace.ok("list", "final-list")
    findings.examined = len(names.adds) + len(lists)
    if names.adds and not final:
        findings.doubt("no final list was answered")
    reported: set[str] = set()
    for call in lists:
        _strangers(findings, names, call, reported)
    _histories(findings, trace, names, lists)
    for call in final:
        _final(findings, names, call)
    _differences(findings, names, final)
    findings.figures = {
        "added": sum(1 for call in names.adds.values() if call.ok),
        "removed": sum(1 for call in names.removes.values() if call.ok),
        "lists": len(lists),
        "final_lists": len(final),
    }
    return findings.result()


def _strangers(findings: Findings, names: _Names, call: Call, reported: set[str]) -> None:
    for name in call.answer.v:
        add = names.adds.get(name)
        if add is not None and not add.failed and add.invoke.i < call.answer.i:
            continue
        if name in reported:
            continue
        reported.add(name)
        if add is None or not add.failed:
            kind, why = "phantom", "that nobody had begun to add"
        else:
            kind, why = "failed-add", f"whose add had failed ({add.answer.err or 'no reason'})"
        findings.add(
            Anomaly(
                kind=kind,
                message=f"{call.node or 'a node'} listed {name}, {why}",
                key=name,
                ops=numbers((call,) if add is None else (add, call)),
            )
        )


def _histories(findings: Findings, trace: Trace, names: _Names, lists: list[Call]) -> None:
    """What one process showed, list by list."""
    last: dict[tuple[str, int], tuple[Call, set[str]]] = {}
    gone: dict[tuple[str, int], dict[str, Call]] = {}
    for call in sorted(lists, key=lambda call: call.answer.i):
        node = call.node
        life = trace.life_of(node, call.answer.i)
        if node is None or life != trace.life_of(node, call.invoke.i):
            continue
        shown = set(call.answer.v)
        before = last.get((node, life))
        if before is not None and before[0].answer.i > call.invoke.i:
            continue  # They overlap: which was answered first, nobody knows.
        went = gone.setdefault((node, life), {})
        for name in sorted(shown & went.keys()):
            message = f"{node} listed {name} again after it was gone"
            ops = numbers((went.pop(name), call))
            findings.add(Anomaly(kind="resurrected", message=message, key=name, ops=ops))
        if before is not None:
            for name in sorted(before[1] - shown):
                went[name] = call
                if not names.removal_begun(name, call.answer.i):
                    message = f"{node} listed {name} and later did not; nobody had removed it"
                    ops = numbers((before[0], call))
                    findings.add(Anomaly(kind="vanished", message=message, key=name, ops=ops))
        last[node, life] = (call, shown)


def _final(findings: Findings, names: _Names, call: Call) -> None:
    shown = set(call.answer.v)
    where = call.node or "a node"
    for name, add in names.adds.items():
        remove = names.removes.get(name)
        if name not in shown and add.ok and add.answer.i < call.invoke.i and remove is None:
            message = f"{name} was added, and {where} does not list it in the end"
            ops = numbers((add, call))
            findings.add(Anomaly(kind="lost", message=message, key=name, ops=ops))
        if remove is None or not remove.ok or name not in shown:
            continue
        if remove.answer.i < call.invoke.i:
            message = f"{name} was removed, and {where} lists it in the end"
            ops = numbers((remove, call))
            findings.add(Anomaly(kind="resurrected", message=message, key=name, ops=ops))


def _differences(findings: Findings, names: _Names, final: list[Call]) -> None:
    if len(final) < 2:
        return
    sets = [set(call.answer.v) for call in final]
    for name in sorted(set.union(*sets) - set.intersection(*sets)):
        add, remove = names.adds.get(name), names.removes.get(name)
        if add is not None and (not add.ok or (remove is not None and not remove.ok)):
            message = f"final lists disagree about {name}, whose outcome is unknown"
            ops = numbers((add, *final))
            findings.add(
                Anomaly(kind="final-differ", message=message, fatal=False, key=name, ops=ops)
            )
