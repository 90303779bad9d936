"""Kafka's anomalies of order: what one consumer and one producer may expect of offsets.

A consumer that was assigned a partition (not one that shares it in a group) reads offset after
offset from the position it was given. So, between two assigns, for one process and one key:

nonmonotonic-poll  an offset is not above every offset that came before, or is below the position.
poll-skip          a poll went over an offset that somebody read, and did not return it. "Somebody
                   read it" is what makes this a proof: transaction markers and compacted records
                   leave holes that nobody ever reads. What nobody read is the business of
                   lost-write.

A producer that waits for each answer before it sends again is answered with growing offsets, since
the log had reached the first offset when the second record was appended:

nonmonotonic-send  a later send of the same process to the same key got a lower or the same offset.

A process has one operation open at a time and is retired after an unknown outcome, so the order of
its operations is certain. With `subscribe` the two anomalies of polls are allowed (partitions move
between members); then they are counted and are not fatal.
"""

from dataclasses import dataclass
from typing import Final

from jepsen_like.checkers.log_index import KeyLog, Poll, logs_of
from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "log-order"


@dataclass(slots=True)
class _Cursor:
    """Where a consumer stands: the next offset it expects, and the poll that brought it there."""

    position: int
    last: Call | None = None


def check(trace: Trace) -> CheckResult:
    """Polls and sends of every process, key by key."""
    findings = Findings(NAME)
    fatal = not trace.option("subscribe", False)
    logs = logs_of(trace)
    cursors: dict[tuple[int | str, str], _Cursor] = {}
    polls = {poll.call.number: poll for log in logs.values() for poll in log.polls}
    for call in trace.of("assign", "poll"):
        key = call.k or ""
        if call.f == "assign":
            cursors.pop((call.p, key), None)
            if call.ok and call.invoke.off is not None:
                cursors[call.p, key] = _Cursor(call.invoke.off)
        elif call.ok:
            findings.examined += 1
            poll = polls[call.number]
            cursor = cursors.setdefault((call.p, key), _Cursor(poll.position))
            _poll(findings, logs[key], cursor, poll, fatal=fatal)
    for log in logs.values():
        _sends(findings, log)
    return findings.result()


def _poll(findings: Findings, log: KeyLog, cursor: _Cursor, poll: Poll, *, fatal: bool) -> None:
    start = cursor.position
    shown = numbers((poll.call,) if cursor.last is None else (cursor.last, poll.call))
    expected = start
    back: tuple[int, int] | None = None
    for offset, _ in poll.records:
        if offset < expected and back is None:
            back = (offset, expected)
        expected = max(expected, offset + 1)
    end = max(expected, poll.next_position)
    if back is None and poll.next_position < expected:
        back = (poll.next_position, expected)
    if back is not None:
        message = f"{log.key}: process {poll.call.p} came to offset {back[0]}, {back[1]} was next"
        findings.add(
            Anomaly(
                kind="nonmonotonic-poll",
                message=message,
                fatal=fatal,
                key=log.key,
                ops=shown,
                offsets=(min(back), max(back)),
            )
        )
    skipped = _skipped(log, poll, start, end)
    if skipped:
        message = (
            f"{log.key}: process {poll.call.p} read from {start} to {end} and was not given"
            f" {_some(skipped)}, which others read"
        )
        findings.add(
            Anomaly(
                kind="poll-skip",
                message=message,
                fatal=fatal,
                key=log.key,
                ops=shown,
                offsets=(skipped[0], skipped[-1]),
            )
        )
    cursor.position, cursor.last = end, poll.call


def _skipped(log: KeyLog, poll: Poll, start: int, end: int) -> list[int]:
    given = {offset for offset, _ in poll.records}
    return [offset for offset in log.read_between(start, end) if offset not in given]


def _some(offsets: list[int]) -> str:
    shown = ", ".join(str(offset) for offset in offsets[:3])
    rest = len(offsets) - 3
    return f"offset {shown}" + (f" and {rest} more" if rest > 0 else "")


def _sends(findings: Findings, log: KeyLog) -> None:
    last: dict[int | str, tuple[int, Call]] = {}
    for value, offset, call in log.acknowledged():
        if offset < 0:
            continue
        findings.examined += 1
        before = last.get(call.p)
        if before is not None and offset <= before[0]:
            findings.add(
                Anomaly(
                    kind="nonmonotonic-send",
                    message=f"{log.key}: process {call.p} sent {value} after"
                    f" {before[1].invoke.v} and got offset {offset} after {before[0]}",
                    key=log.key,
                    ops=numbers((before[1], call)),
                    offsets=(offset, before[0]),
                )
            )
        if before is None or offset > before[0]:
            last[call.p] = (offset, call)
