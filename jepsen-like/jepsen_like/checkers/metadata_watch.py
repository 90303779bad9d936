"""Metadata: every node shows one and the same order of batches, and no broker's view goes back.

The metadata log is one sequence of committed batches. What any node shows of it, at any time, is
a piece of that sequence, so all that was ever shown must fit together:

divergent       two answers hold different batches (epoch or checksum) at one base offset.
gap             an answer went over a base offset that another node showed and did not show it, or
                its own batches are not in growing order.
epoch-falls     a later batch has a lower epoch than an earlier one.
view-goes-back  in one life of a broker, the leader epoch that it names for a partition fell. It
                replays one log in order, and leader epochs only grow there.
two-leaders     two views name different leaders for one leader epoch of one partition. (No leader
                is no statement: a broker that does not see the leader alive says so.)

That every applied stream is a prefix of one order follows: by the first three, all pieces are
pieces of one sequence without holes.
"""

from bisect import bisect_left
from itertools import pairwise
from typing import Any, Final

from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "metadata-watch"


def check(trace: Trace) -> CheckResult:
    findings = Findings(NAME)
    follows = trace.ok("follow")
    views = trace.ok("view")
    findings.examined = len(follows) + len(views)
    batches = _one_order(findings, follows)
    _no_gaps(findings, follows, sorted(batches))
    _epochs_grow(findings, batches)
    _views(findings, trace, views)
    findings.figures = {"batches": len(batches), "follows": len(follows), "views": len(views)}
    return findings.result()


# Base offset to (epoch, checksum) and the call that first showed it.
_Batches = dict[int, tuple[tuple[int, int], Call]]


def _one_order(findings: Findings, follows: list[Call]) -> _Batches:
    batches: _Batches = {}
    for call in follows:
        for base_offset, epoch, crc in call.answer.v or ():
            known = batches.setdefault(base_offset, ((epoch, crc), call))
            if known[0] != (epoch, crc):
                findings.add(
                    Anomaly(
                        kind="divergent",
                        message=f"offset {base_offset}: {_who(known[1])} showed a batch of epoch"
                        f" {known[0][0]}, {_who(call)} another of epoch {epoch}",
                        key=call.k,
                        ops=numbers((known[1], call)),
                        offsets=(base_offset, base_offset),
                    )
                )
    return batches


def _no_gaps(findings: Findings, follows: list[Call], bases: list[int]) -> None:
    for call in follows:
        shown = [batch[0] for batch in call.answer.v or ()]
        if any(a >= b for a, b in pairwise(shown)):
            message = f"{_who(call)} showed batches out of order"
            findings.add(Anomaly(kind="gap", message=message, key=call.k, ops=numbers((call,))))
            continue
        if not shown:
            continue
        end = call.answer.off if call.answer.off is not None else shown[-1] + 1
        start = shown[0] if call.invoke.off is None else min(shown[0], call.invoke.off)
        there = bases[bisect_left(bases, start) : bisect_left(bases, end)]
        missing = sorted(set(there).difference(shown))
        if missing:
            findings.add(
                Anomaly(
                    kind="gap",
                    message=f"{_who(call)} went from offset {start} to {end} without"
                    f" {missing[0]}, which another node showed",
                    key=call.k,
                    ops=numbers((call,)),
                    offsets=(missing[0], missing[-1]),
                )
            )


def _epochs_grow(findings: Findings, batches: _Batches) -> None:
    before: tuple[int, int, Call] | None = None
    for base_offset in sorted(batches):
        (epoch, _), call = batches[base_offset]
        if before is not None and epoch < before[1]:
            findings.add(
                Anomaly(
                    kind="epoch-falls",
                    message=f"offset {base_offset} has epoch {epoch}, offset {before[0]} had"
                    f" {before[1]}",
                    key=call.k,
                    ops=numbers((before[2], call)),
                    offsets=(before[0], base_offset),
                )
            )
        else:
            before = (base_offset, epoch, call)


def _views(findings: Findings, trace: Trace, views: list[Call]) -> None:
    leaders: dict[tuple[str, int], tuple[Any, Call]] = {}
    lives: dict[tuple[str, int], dict[str, tuple[int, Call]]] = {}
    for call in sorted(views, key=lambda call: call.answer.i):
        for tp, (leader, epoch, _) in sorted(call.answer.v.items()):
            if leader in (None, -1):
                continue
            known = leaders.setdefault((tp, epoch), (leader, call))
            if known[0] != leader:
                findings.add(
                    Anomaly(
                        kind="two-leaders",
                        message=f"{tp} epoch {epoch}: {_who(known[1])} names {known[0]},"
                        f" {_who(call)} names {leader}",
                        key=tp,
                        ops=numbers((known[1], call)),
                    )
                )
        node = call.node
        life = trace.life_of(node, call.answer.i)
        if node is not None and life == trace.life_of(node, call.invoke.i):
            lives[node, life] = _one_view(findings, lives.get((node, life), {}), call)


def _one_view(
    findings: Findings, before: dict[str, tuple[int, Call]], call: Call
) -> dict[str, tuple[int, Call]]:
    """Compare with what this process showed before; what it no longer shows is forgotten."""
    now: dict[str, tuple[int, Call]] = {}
    for tp, (_, epoch, _) in sorted(call.answer.v.items()):
        known = before.get(tp)
        if known is not None and known[0] > epoch and known[1].answer.i > call.invoke.i:
            now[tp] = known  # The two overlap: which was answered first, nobody knows.
            continue
        if known is not None and known[0] > epoch:
            findings.add(
                Anomaly(
                    kind="view-goes-back",
                    message=f"{_who(call)} named epoch {known[0]} of {tp}, and later {epoch}",
                    key=tp,
                    ops=numbers((known[1], call)),
                )
            )
        now[tp] = (epoch, call)
    return now


def _who(call: Call) -> str:
    return call.node or "a node"
