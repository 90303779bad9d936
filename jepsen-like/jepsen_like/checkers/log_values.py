"""Kafka's anomalies of values: what was acknowledged is there, once, and nothing else is.

Each argument starts from two facts. Values are unique, so a value names its send. And an
acknowledged or readable record is committed, so its place in the log is fixed for ever.

inconsistent-offsets  two values were seen at one offset. A committed offset holds one record: one
                      of the two witnesses was told something that was not, or was no longer,
                      true.
duplicate             one value was seen at two offsets. It was sent once. An idempotent producer
                      excludes it, also over its retries; without idempotence a retry may do it,
                      so then it is counted and is not fatal.
lost-write            an acknowledged value that nobody ever read, although somebody's poll went
                      over its offset. A poll that starts at or before an offset and ends behind
                      it returns what stands there; what stood there is gone.
unseen                an acknowledged value that nobody read and no poll went over. It may only be
                      late. After final polls that reached the end of the log (the last one came
                      back empty) it is not late but lost: fatal. Without them it is undecided:
                      unknown.
g1a                   a poll returned a value whose send certainly failed. Fail promises that the
                      value never appears.
corrupt-read          a poll was given bytes that are no records: a checksum is wrong. The reader
                      noticed, but a broker may not serve what it has not checked, or what rotted
                      since.
phantom               a poll returned a value that nobody sent, or sent only afterwards, or sent
                      to another partition.

Not flagged: a send of unknown outcome that appears, late or never; values that are read late.
"""

from typing import Any, Final

from jepsen_like.checkers.log_index import KeyLog, Poll, logs_of
from jepsen_like.checkers.trace import Call, Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "log-values"
CORRUPT: Final = "CORRUPT"  # How an error begins that says so.


def check(trace: Trace) -> CheckResult:
    """All of the above, for every key."""
    findings = Findings(NAME)
    idempotent = bool(trace.option("idempotent", False))
    for log in logs_of(trace).values():
        findings.examined += len(log.sends) + len(log.polls)
        _inconsistent_offsets(findings, log)
        _duplicates(findings, log, fatal=idempotent)
        _wrong_reads(findings, log)
        _missing(findings, trace, log)
    _corrupt_reads(findings, trace)
    return findings.result()


def _inconsistent_offsets(findings: Findings, log: KeyLog) -> None:
    for offset, values in log.values_at.items():
        if len(values) > 1:
            named = ", ".join(str(value) for value in sorted(values, key=str))
            findings.add(
                Anomaly(
                    kind="inconsistent-offsets",
                    message=f"{log.key} offset {offset} was seen to hold {named}",
                    key=log.key,
                    ops=numbers(values.values()),
                    offsets=(offset, offset),
                )
            )


def _duplicates(findings: Findings, log: KeyLog, *, fatal: bool) -> None:
    for value, offsets in log.offsets_of.items():
        if len(offsets) > 1:
            places = sorted(offsets)
            findings.add(
                Anomaly(
                    kind="duplicate",
                    message=f"{log.key} holds {value} at offsets {', '.join(map(str, places))}",
                    fatal=fatal,
                    key=log.key,
                    ops=numbers(offsets[offset] for offset in places),
                    offsets=(places[0], places[-1]),
                )
            )


def _wrong_reads(findings: Findings, log: KeyLog) -> None:
    """Values that were read and should not have been."""
    for value, poll in log.first_read.items():
        send = log.sends.get(value)
        offset = min(log.offsets_of[value])
        if send is None:
            kind, why = "phantom", "which nobody sent there"
        elif send.failed:
            kind, why = "g1a", f"whose send had failed ({send.answer.err or 'no reason given'})"
        elif poll.answer.i < send.invoke.i:
            kind, why = "phantom", "before it was sent"
        else:
            continue
        findings.add(
            Anomaly(
                kind=kind,
                message=f"{log.key} offset {offset}: a poll returned {value}, {why}",
                key=log.key,
                ops=numbers((poll,) if send is None else (send, poll)),
                offsets=(offset, offset),
            )
        )


def _corrupt_reads(findings: Findings, trace: Trace) -> None:
    for call in trace.of("poll"):
        if call.failed and (call.answer.err or "").startswith(CORRUPT):
            findings.add(
                Anomaly(
                    kind="corrupt-read",
                    message=f"{call.k} from {call.invoke.off} on: {call.answer.err}",
                    key=call.k,
                    ops=numbers((call,)),
                )
            )


def _missing(findings: Findings, trace: Trace, log: KeyLog) -> None:
    """Values that were acknowledged and nobody read."""
    read_to_the_end = _final_polls_came_to_an_end(trace, log)
    for value, offset, send in log.acknowledged():
        if value in log.first_read:
            continue
        if offset >= 0 and log.went_over(offset):
            poll = log.passed_by(offset) if findings.keeps("lost-write") else None
            findings.add(_lost_write(log, value, offset, send, poll))
            continue
        if not read_to_the_end:
            findings.doubt(f"{log.key}: not read to its end after the faults")
        where = f"at offset {offset}" if offset >= 0 else "without an offset"
        findings.add(
            Anomaly(
                kind="unseen",
                message=f"{log.key}: {value}, acknowledged {where}, was never read",
                fatal=read_to_the_end,
                key=log.key,
                ops=numbers((send,)),
                offsets=(offset, offset) if offset >= 0 else None,
            )
        )


def _lost_write(log: KeyLog, value: Any, offset: int, send: Call, poll: Poll | None) -> Anomaly:
    shown = (send,) if poll is None else (send, poll.call)
    instead = ", ".join(str(v) for v in log.values_at.get(offset, {}) if v != value)
    now = f"{instead} stands there now" if instead else "a poll went over it and found nothing"
    return Anomaly(
        kind="lost-write",
        message=f"{log.key}: {value} was acknowledged at offset {offset}; {now}",
        key=log.key,
        ops=numbers(shown),
        offsets=(offset, offset),
    )


def _final_polls_came_to_an_end(trace: Trace, log: KeyLog) -> bool:
    """Whether the last poll after the faults found nothing more to read."""
    final = [poll for poll in log.polls if trace.in_final_phase(poll.call)]
    return bool(final) and not final[-1].records
