"""Registers (one topic config is one register): are they linearizable, and do brokers follow them?

Each key is judged alone: a history is linearizable exactly if its part on every object is
(Herlihy and Wing, locality), and small searches stay small.

Two independent judges look at every key. `register_order` is exact and quick, but knows only
reads and writes of unique values. The search of `wgl` knows any operation, versions and cas too,
and may run out of steps. If either says invalid, the key is invalid. If the search runs out of
steps, the key is unknown, unless the other judge's conditions hold: then its answer stands, and
the figures say how often.

not-linearizable  no order of the operations explains the answers of linearizable reads.
goes-back         late reads (from a broker's cache) show values in an order that contradicts the
                  register's or went back on one node while it ran.
g1a               a read returned a value whose write had certainly failed.
phantom           a read returned a value that nobody wrote, or that was written only afterwards.

What the search is given: writes that failed are left out, reads without an answer as well; an
unknown write has no return, and is left out if nobody saw its value and versions are not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from jepsen_like.checkers import register_order, wgl
from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings, Verdict

NAME: Final = "registers"
STEPS_PER_KEY_MAX: Final = 2_000_000
STEPS_MAX: Final = 20_000_000

_State = tuple[int, Any]  # Version (the number of writes so far) and value.
INITIAL: Final[_State] = (0, None)


@dataclass(slots=True)
class _Key:
    name: str
    writes: list[Call] = field(default_factory=list)
    changes: list[Call] = field(default_factory=list)  # cas
    reads: list[Call] = field(default_factory=list)
    late: list[Call] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Nothing but reads and writes of unique values, without versions."""
        values = [call.invoke.v for call in self.writes]
        versions = any(c.ok and c.answer.off is not None for c in (*self.writes, *self.reads))
        return not self.changes and not versions and len(set(values)) == len(values)


def step(state: _State, call: Call) -> _State | None:
    """A register with versions. An answer may carry the version in `off`; without, any will do."""
    version, value = state
    told = call.end.off if call.end is not None and call.ok else None
    if call.f == "read":
        fits = call.answer.v == value and told in (None, version)
        return state if fits else None
    if call.f == "cas":
        expected, new = call.invoke.v
        if expected != value:
            return None
    else:
        new = call.invoke.v
    return (version + 1, new) if told in (None, version + 1) else None


def check(
    trace: Trace, steps_per_key_max: int = STEPS_PER_KEY_MAX, steps_max: int = STEPS_MAX
) -> CheckResult:
    """Every key, the shortest first, so that the budget goes as far as it can."""
    findings = Findings(NAME)
    keys = sorted(_keys(trace), key=lambda key: (len(key.writes) + len(key.reads), key.name))
    steps_left = steps_max
    undecided = 0
    for key in keys:
        findings.examined += len(key.writes) + len(key.reads) + len(key.late) + len(key.changes)
        _wrong_reads(findings, key)
        contradicted = key.plain and _contradictions(findings, trace, key)
        answer = search(key.writes + key.changes, key.reads, min(steps_per_key_max, steps_left))
        steps_left -= answer.steps
        if answer.verdict is Verdict.INVALID and not contradicted:
            findings.add(_not_linearizable(key, answer))
        if answer.verdict is Verdict.UNKNOWN:
            undecided += 1
            if not key.plain:
                findings.doubt(f"{key.name}: the search ran out of steps ({answer.steps})")
    findings.figures = {
        "keys": len(keys),
        "search_steps": steps_max - steps_left,
        "keys_out_of_steps": undecided,
    }
    return findings.result()


def _keys(trace: Trace) -> list[_Key]:
    keys: dict[str, _Key] = {}
    for call in trace.of("write", "cas", "read", "stale-read"):
        key = keys.setdefault(call.k or "", _Key(call.k or ""))
        if call.f == "write":
            key.writes.append(call)
        elif call.f == "cas":
            key.changes.append(call)
        elif call.ok:
            (key.reads if call.f == "read" else key.late).append(call)
    return list(keys.values())


@dataclass(frozen=True, slots=True)
class Searched:
    verdict: Verdict
    steps: int
    placed: tuple[Call, ...]
    stuck: Call | None


def search(changes: Sequence[Call], reads: Sequence[Call], steps_max: int) -> Searched:
    """The search of `wgl` on writes, cas and linearizable reads."""
    seen = {call.answer.v for call in reads}
    seen |= {call.invoke.v[0] for call in changes if call.f == "cas"}
    versions = any(c.ok and c.answer.off is not None for c in (*changes, *reads))
    calls = [c for c in changes if c.ok or (not c.failed and (versions or _new(c) in seen))]
    calls = sorted((*calls, *reads), key=lambda call: call.number)
    intervals = [
        wgl.Interval(call, call.invoke.i, call.answer.i if call.ok else None) for call in calls
    ]
    answer = wgl.check(intervals, INITIAL, step, steps_max)
    return Searched(
        answer.verdict,
        answer.steps,
        tuple(calls[i] for i in answer.placed),
        None if answer.stuck is None else calls[answer.stuck],
    )


def _new(call: Call) -> Any:
    return call.invoke.v[1] if call.f == "cas" else call.invoke.v


def _wrong_reads(findings: Findings, key: _Key) -> None:
    writers = {_new(call): call for call in (*key.writes, *key.changes)}
    for read in (*key.reads, *key.late):
        value = read.answer.v
        writer = writers.get(value)
        if value is None:
            continue
        if writer is None:
            kind, why = "phantom", "which nobody wrote"
        elif writer.failed:
            kind, why = "g1a", f"whose write had failed ({writer.answer.err or 'no reason given'})"
        elif read.answer.i < writer.invoke.i:
            kind, why = "phantom", "before it was written"
        else:
            continue
        findings.add(
            Anomaly(
                kind=kind,
                message=f"{key.name}: a {read.f} returned {value}, {why}",
                key=key.name,
                ops=numbers((read,) if writer is None else (writer, read)),
            )
        )


def _contradictions(findings: Findings, trace: Trace, key: _Key) -> bool:
    """Report what no order explains; whether linearizable reads alone are contradicted."""
    writes = [call for call in key.writes if not call.failed]
    strict = register_order.contradictions(writes, key.reads)
    for found in strict:
        findings.add(
            Anomaly(
                kind="not-linearizable",
                message=f"{key.name}: each of {_listed(found.values)} would have to be written"
                " before the other",
                key=key.name,
                ops=numbers(found.calls),
            )
        )
    if not strict:
        orders = _late_orders(trace, key.late)
        for found in register_order.contradictions(writes, key.reads, key.late, orders):
            findings.add(
                Anomaly(
                    kind="goes-back",
                    message=f"{key.name}: brokers showed {_listed(found.values)} in an order that"
                    " contradicts itself or the writes",
                    key=key.name,
                    ops=numbers(found.calls),
                )
            )
    return bool(strict)


def _late_orders(trace: Trace, late: Sequence[Call]) -> list[list[Call]]:
    """Late reads that follow each other on one node in one life."""
    orders: dict[tuple[str, int], list[Call]] = {}
    result = []
    for call in sorted(late, key=lambda call: call.answer.i):
        node = call.node
        life = trace.life_of(node, call.answer.i)
        if node is None or life != trace.life_of(node, call.invoke.i):
            continue
        order = orders.setdefault((node, life), [])
        # Two reads that overlap may have been answered in either order: they say nothing.
        if order and order[-1].answer.i > call.invoke.i:
            continue
        order.append(call)
    for _, order in sorted(orders.items()):
        result.append(order)
    return result


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join("nothing" if value is None else str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _not_linearizable(key: _Key, answer: Searched) -> Anomaly:
    stuck = answer.stuck
    assert stuck is not None
    what = stuck.answer.v if stuck.f == "read" else stuck.invoke.v
    return Anomaly(
        kind="not-linearizable",
        message=f"{key.name}: after {len(answer.placed)} operations in order, no place for the"
        f" {stuck.f} of {what}",
        key=key.name,
        ops=numbers((*answer.placed[-4:], stuck)),
    )
