"""Is a partition's log linearizable? Decided in O(n log n), because answers carry offsets.

For most objects the order of operations must be searched for. A log's acknowledgements say where
each append stands, so the order is given and only has to be compared with real time. In the order
of offsets, each append must be placed between its call and its return. That is possible exactly
if

(1) an offset holds one value, (2) a value has one offset (both are `log-values`' business),
(3) no append was called after something at or behind its offset was already shown:
    for every offset o, call(o) < the return of every witness of an offset >= o;
(4) no end is too low: of what was shown before an end h was asked for, nothing stands at or
    above h.

A witness of offset w is an acknowledgement of w, a poll that returned w, or an end of w + 1.

Why that is enough. Append o must take effect after its own call, after those before it in the
log, and after every end at or below o was asked for: let low(o) be the latest of these. It must
take effect before the return of every witness of an offset at or above o: let high(o) be the
earliest of these. Both grow with o, so points low(o) <= p(o) <= high(o) can be chosen in the
order of offsets exactly if low(o) <= high(o) for each; written out, that is (3) for the calls and
(4) for the ends. An end h then has its place between p(h-1) and p(h).

An append of unknown outcome takes part once its value was read: it has a call, a place, and no
return. All of (3) is one pass from the highest offset down with the earliest return so far; (4)
is one pass over the witnesses by time with the highest offset so far, and a binary search for
each end.

realtime-inversion  (3) is broken between two appends, or by a poll or an end: it saw a later
                    offset before the append of an earlier one was called.
stale-end           (4) is broken: an end below something that was shown before it was asked for.
                    Kafka does not promise this: a leader that was deposed and does not know it
                    yet answers with its old end. So it is counted, and fatal only with
                    `linearizable_ends`.
"""

from bisect import bisect_left
from typing import Final

from jepsen_like.checkers.log_index import KeyLog, logs_of
from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "log-linearizable"

# Offset up to which a witness says that the log was filled, line of its return, the call.
_Witness = tuple[int, int, Call]


def check(trace: Trace) -> CheckResult:
    """(3) and (4) for every key."""
    findings = Findings(NAME)
    fatal = bool(trace.option("linearizable_ends", False))
    for log in logs_of(trace).values():
        witnesses = _witnesses(log)
        _inversions(findings, log, witnesses)
        _stale_ends(findings, log, witnesses, fatal=fatal)
    return findings.result()


def _witnesses(log: KeyLog) -> list[_Witness]:
    """Who said that the log was filled up to where, by falling offset."""
    found: list[_Witness] = [
        (offset, call.answer.i, call) for _, offset, call in log.acknowledged() if offset >= 0
    ]
    found.extend(
        (max(offset for offset, _ in poll.records), poll.call.answer.i, poll.call)
        for poll in log.polls
        if poll.records
    )
    found.extend(
        (call.answer.off - 1, call.answer.i, call)
        for call in log.ends
        if call.answer.off is not None
    )
    found.sort(key=_offset, reverse=True)
    return found


def _offset(witness: _Witness) -> int:
    return witness[0]


def _appends(log: KeyLog) -> list[tuple[int, Call]]:
    """Every append whose place is known, by falling offset."""
    found = []
    for value, send in log.sends.items():
        offsets = log.offsets_of.get(value)
        if offsets:
            found.append((min(offsets), send))
    found.sort(key=lambda append: -append[0])
    return found


def _inversions(findings: Findings, log: KeyLog, witnesses: list[_Witness]) -> None:
    earliest: _Witness | None = None
    w = 0
    for offset, send in _appends(log):
        findings.examined += 1
        # Its own acknowledgement may be among them: it returns after the call, so it harms nothing.
        while w < len(witnesses) and witnesses[w][0] >= offset:
            if earliest is None or witnesses[w][1] < earliest[1]:
                earliest = witnesses[w]
            w += 1
        if earliest is None or earliest[1] > send.invoke.i:
            continue
        seen, _, call = earliest
        findings.add(
            Anomaly(
                kind="realtime-inversion",
                message=f"{log.key}: {send.invoke.v} went to offset {offset}, but was sent after"
                f" a {call.f} had shown offset {seen}",
                key=log.key,
                ops=numbers((call, send)),
                offsets=(offset, seen),
            )
        )


def _stale_ends(findings: Findings, log: KeyLog, witnesses: list[_Witness], *, fatal: bool) -> None:
    shown = sorted(witnesses, key=lambda witness: witness[1])
    returns = [line for _, line, _ in shown]
    highest: list[_Witness] = []  # The highest offset among the first n witnesses.
    for witness in shown:
        highest.append(witness if not highest else max(highest[-1], witness, key=_offset))
    for end in log.ends:
        findings.examined += 1
        before = bisect_left(returns, end.invoke.i)
        reported = end.answer.off
        if not before or reported is None or highest[before - 1][0] < reported:
            continue
        offset, _, call = highest[before - 1]
        findings.add(
            Anomaly(
                kind="stale-end",
                message=f"{log.key}: the end was said to be {reported} after a {call.f} had shown"
                f" offset {offset}",
                fatal=fatal,
                key=log.key,
                ops=numbers((call, end)),
                offsets=(reported, offset),
            )
        )
