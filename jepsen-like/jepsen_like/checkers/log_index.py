"""What a history tells about one partition's log: who was told what stands where.

Two kinds of witness speak of offsets: the answer to a send, and the answer to a poll. The index
keeps them by key, so that each check is a walk over dictionaries. Only answers count (ok); from a
send that is unknown nothing follows until somebody reads its value.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jepsen_like.checkers.trace import Call, Trace


@dataclass(slots=True)
class Poll:
    """One answered poll: it went over the offsets from `position` to below `next_position`."""

    call: Call
    records: list[list[Any]]
    position: int
    next_position: int


@dataclass
class KeyLog:
    """One key. `sends` holds every send by its value; `read_at` every value read, by offset."""

    key: str
    sends: dict[Any, Call] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    ends: list[Call] = field(default_factory=list)
    # Offset to value to the first call that said so; nearly always one value.
    values_at: dict[int, dict[Any, Call]] = field(default_factory=dict)
    offsets_of: dict[Any, dict[int, Call]] = field(default_factory=dict)
    first_read: dict[Any, Call] = field(default_factory=dict)

    def _says(self, offset: int, value: Any, call: Call) -> None:
        self.values_at.setdefault(offset, {}).setdefault(value, call)
        self.offsets_of.setdefault(value, {}).setdefault(offset, call)

    def add_send(self, call: Call) -> None:
        self.sends[call.invoke.v] = call
        if call.ok and call.answer.off is not None and call.answer.off >= 0:
            self._says(call.answer.off, call.invoke.v, call)

    def add_poll(self, call: Call) -> None:
        records = call.answer.v or []
        for offset, value in records:
            if value not in self.first_read:
                self.first_read[value] = call
            at = self.values_at.get(offset)
            if at is None or value not in at:
                self._says(offset, value, call)
        offsets = [offset for offset, _ in records]
        position = call.invoke.off
        if position is None:
            position = min(offsets) if offsets else 0
        next_position = call.answer.off
        if next_position is None:
            next_position = max(offsets) + 1 if offsets else position
        self.polls.append(Poll(call, records, position, next_position))

    @cached_property
    def offsets_read(self) -> list[int]:
        """Every offset that a poll returned, sorted."""
        return sorted({offset for poll in self.polls for offset, _ in poll.records})

    def read_between(self, start: int, end: int) -> list[int]:
        """Offsets from start to below end that somebody read."""
        return self.offsets_read[
            bisect_left(self.offsets_read, start) : bisect_left(self.offsets_read, end)
        ]

    @cached_property
    def covered(self) -> tuple[list[int], list[int]]:
        """Starts and ends of the runs of offsets that polls went over, joined where they touch."""
        starts: list[int] = []
        ends: list[int] = []
        spans = {(p.position, p.next_position) for p in self.polls if p.next_position > p.position}
        for start, end in sorted(spans):
            if starts and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        return starts, ends

    def went_over(self, offset: int) -> bool:
        """Whether a poll began at or before this offset and ended behind it."""
        starts, ends = self.covered
        place = bisect_right(starts, offset) - 1
        return place >= 0 and offset < ends[place]

    def passed_by(self, offset: int) -> Poll | None:
        """The first poll that went over this offset."""
        found = (p for p in self.polls if p.position <= offset < p.next_position)
        return next(found, None)

    def acknowledged(self) -> Iterator[tuple[Any, int, Call]]:
        """Value, offset and call of every acknowledged send; -1 if it was not told the offset."""
        for value, call in self.sends.items():
            if call.ok:
                offset = call.answer.off
                yield value, -1 if offset is None or offset < 0 else offset, call


def logs_of(trace: Trace) -> dict[str, KeyLog]:
    """The index of every key that was sent to, polled, or asked for its end; built once."""
    if "logs" not in trace.memo:
        trace.memo["logs"] = _build(trace)
    logs: dict[str, KeyLog] = trace.memo["logs"]
    return logs


def _build(trace: Trace) -> dict[str, KeyLog]:
    logs: dict[str, KeyLog] = {}
    for call in trace.of("send", "poll", "end"):
        key = call.k or ""
        log = logs.get(key)
        if log is None:
            log = logs[key] = KeyLog(key)
        if call.f == "send":
            log.add_send(call)
        elif call.ok and call.f == "poll":
            log.add_poll(call)
        elif call.ok:
            log.ends.append(call)
    return dict(sorted(logs.items()))
