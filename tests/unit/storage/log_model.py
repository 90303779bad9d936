"""What a log must be, kept beside it as plain values, and what a crash may make of it.

A State is a log without files: a start offset and a list of batches. `check_equal` demands that a
Log shows exactly one state, by every way of reading that it has. A Ledger is told of each change
before and after it is made, and knows the states that a crash in between may leave:
- an append, a flush or a truncation in progress leaves a prefix of the longer state, cut between
  two batches, that holds everything promised so far;
- the start moves at once: before the change it is the old one, after it the new one;
- what was truncated does not come back once the truncation has returned;
- emptying a log leaves a prefix of what it was, or the new empty log;
- compaction replaces segments at once: they are the old ones or the new one.
A prefix that ends before the start of the log is a log without records at that start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pytest

from kraftpy.errors import OffsetOutOfRange
from kraftpy.storage.log import Log
from kraftpy.storage.record_batch import Record, build_batch, iter_records, read_header, stamp

BASE_MS = 1_700_000_000_000


class OracleViolation(AssertionError):
    """The log broke a promise; a type of its own, so that planted bugs are told from typos."""


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise OracleViolation(message)


@dataclass(frozen=True)
class Entry:
    """One batch as it must be found again."""

    base_offset: int
    epoch: int
    timestamps: tuple[int, ...]
    data: bytes

    @property
    def end_offset(self) -> int:
        return read_header(self.data).end_offset

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of the records that compaction has left."""
        return offsets_of(self.data)


@lru_cache(maxsize=10_000)
def offsets_of(data: bytes) -> tuple[int, ...]:
    return tuple(record.offset for record in iter_records(data))


def batch_of(timestamps: Sequence[int], value: bytes = b"value", attributes: int = 0) -> bytearray:
    """A producer's batch: one record for each timestamp, offsets from 0 on."""
    records = [
        Record(offset=i, timestamp=timestamp, key=b"%d" % i, value=value)
        for i, timestamp in enumerate(timestamps)
    ]
    return build_batch(records, attributes=attributes)


def placed(data: bytes | bytearray, offset: int, epoch: int) -> Entry:
    """The batch as the log must keep it: only base offset and epoch differ."""
    copy = bytearray(data)
    stamp(copy, 0, read_header(copy), offset, epoch)
    timestamps = tuple(record.timestamp for record in iter_records(copy))
    return Entry(offset, epoch, timestamps, bytes(copy))


def as_found(data: bytes) -> Entry:
    """A batch that already has its place."""
    header = read_header(data)
    return placed(data, header.base_offset, header.leader_epoch)


def place_all(batches: Iterable[bytes | bytearray], offset: int, epoch: int) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for batch in batches:
        entries.append(placed(batch, offset, epoch))
        offset = entries[-1].end_offset
    return tuple(entries)


@dataclass(frozen=True)
class State:
    """A log. `entries` may hold batches before the start: they do not count."""

    start_offset: int = 0
    entries: tuple[Entry, ...] = ()

    @property
    def end_offset(self) -> int:
        end = self.entries[-1].end_offset if self.entries else 0
        return max(end, self.start_offset)

    @property
    def visible(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.end_offset > self.start_offset)

    def with_entries(self, entries: Iterable[Entry]) -> "State":
        return replace(self, entries=(*self.visible, *entries))

    def with_start(self, offset: int) -> "State":
        return replace(self, start_offset=offset)

    def cut_at(self, offset: int) -> "State":
        """Without the batches that reach behind `offset`; all are gone if one held the start."""
        kept = tuple(entry for entry in self.visible if entry.end_offset <= offset)
        return replace(self, entries=kept)

    def compacted(self, base_offset: int, entries: Sequence[Entry]) -> "State":
        """With these batches for all that were where they are."""
        end_offset = entries[-1].end_offset
        before = (entry for entry in self.entries if entry.end_offset <= base_offset)
        after = (entry for entry in self.entries if entry.base_offset >= end_offset)
        return replace(self, entries=(*before, *entries, *after))

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset that is still there)."""
        found: list[tuple[int, int]] = []
        for entry in self.visible:
            if not found or found[-1][0] < entry.epoch:
                found.append((entry.epoch, max(entry.base_offset, self.start_offset)))
        return found

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        known = [entry for entry in self.visible if entry.epoch <= epoch]
        return (known[-1].epoch, known[-1].end_offset) if known else (-1, -1)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        for entry in self.visible:
            for offset, each in zip(entry.offsets, entry.timestamps, strict=True):
                if offset >= self.start_offset and each >= timestamp:
                    return offset, each
        return None

    def timestamps(self) -> list[int]:
        """Timestamps worth asking for: those of the records, one before all, one behind all.

        The youngest first: a wrong index is made anew at the first entry that is seen to lie, and
        entries before it give no wrong answer.
        """
        found = {timestamp for entry in self.visible for timestamp in entry.timestamps}
        return [max(found, default=0) + 1, *sorted(found, reverse=True), 0]


def stored(log: Log) -> tuple[Entry, ...]:
    """What the log holds, by its own iterator."""
    return tuple(
        Entry(
            header.base_offset,
            header.leader_epoch,
            tuple(record.timestamp for record in iter_records(data)),
            bytes(data),
        )
        for header, data in log.batches(log.start_offset)
    )


def check_equal(log: Log, state: State) -> None:
    """Demand that the log is this state, by every way of reading that it has."""
    demand(
        (log.start_offset, log.end_offset) == (state.start_offset, state.end_offset),
        f"[{log.start_offset}, {log.end_offset}) where [{state.start_offset}, "
        f"{state.end_offset}) was due",
    )
    demand(stored(log) == state.visible, "the batches are not those that were appended")
    demand(list(log.epochs.entries) == state.epochs(), f"epochs are {log.epochs.entries}")
    check_reads(log, state)
    check_timestamps(log, state)


def check_same_batches(log: Log, state: State) -> None:
    """Demand the same batches in the same range, by one way of reading."""
    found = State(log.start_offset, stored(log))
    demand(found.visible == state.visible, "the batches are not those that were there")
    demand(found.start_offset == state.start_offset, "the start has moved")


def check_reads(log: Log, state: State) -> None:
    """Every offset leads to its batch; large reads together give every byte."""
    for entry in state.visible:
        for offset in {max(entry.base_offset, state.start_offset), entry.end_offset - 1}:
            found = log.read(offset, bytes_max=1).read()
            demand(found == entry.data, f"reading {offset} gives another batch")
    demand(log.read(log.end_offset, 1).count == 0, "there is something at the end")
    parts = []
    offset = state.start_offset
    while data := log.read(offset, bytes_max=1 << 30).read():
        parts.append(data)
        offset = _end_of(data)
    demand(b"".join(parts) == b"".join(e.data for e in state.visible), "large reads differ")
    for outside in (state.start_offset - 1, state.end_offset + 1):
        with pytest.raises(OffsetOutOfRange):
            log.read(outside, 1)


def _end_of(data: bytes) -> int:
    at, end_offset = 0, 0
    while at < len(data):
        header = read_header(data, at)
        at, end_offset = at + header.size, header.end_offset
    demand(at == len(data), "a read does not end at a batch boundary")
    return end_offset


def check_timestamps(log: Log, state: State) -> None:
    for timestamp in state.timestamps():
        found = log.offset_for_timestamp(timestamp)
        due = state.offset_for_timestamp(timestamp)
        demand(found == due, f"timestamp {timestamp} leads to {found}, not {due}")


@dataclass(frozen=True)
class Candidate:
    """A state that a crash may leave, or any prefix of it that holds `promised_end`."""

    state: State
    promised_end: int

    def allows(self, log: Log, entries: tuple[Entry, ...]) -> bool:
        """Whether such a log, with these batches, may be what is left."""
        state = self.state
        if log.start_offset != state.start_offset:
            return False
        if not min(self.promised_end, state.end_offset) <= log.end_offset <= state.end_offset:
            return False
        if entries != state.visible[: len(entries)]:
            return False
        return log.end_offset == replace(state, entries=entries).end_offset


class Ledger:
    """What was asked of a log, and what it must therefore hold after a crash."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.promised_end = self.state.end_offset
        self._others: list[Candidate] = []

    def candidates(self) -> list[Candidate]:
        return [Candidate(self.state, self.promised_end), *self._others]

    def appending(self, entries: Iterable[Entry]) -> None:
        """Batches go in one after the other: a crash may leave the first few."""
        self.state = self.state.with_entries(entries)

    def flushed(self) -> None:
        self.promised_end = self.state.end_offset

    def truncating(self, offset: int) -> State:
        """The state that will be. Until then, any part of what is behind `offset` may be left."""
        cut = self.state.cut_at(offset)
        self.promised_end = min(self.promised_end, cut.end_offset)
        return cut

    def emptying(self, offset: int) -> State:
        """The state that will be, or is already, or any prefix of what was."""
        self.promised_end = 0
        empty = State(offset)
        self._others = [Candidate(empty, offset)]
        return empty

    def moving_start(self, offsets: Iterable[int]) -> None:
        """The start may be any of these already."""
        self._others = [
            Candidate(self.state.with_start(offset), self.promised_end) for offset in offsets
        ]

    def replacing(self, state: State) -> None:
        """Compaction: all of the old batches are there, or all of the new ones."""
        self._others = [Candidate(state, self.promised_end)]

    def became(self, state: State) -> None:
        """A change has returned: there is one state again."""
        self.state = state
        self._others = []

    def check(self, log: Log) -> State:
        """Demand that the log is one that a crash may leave; give back which."""
        entries = stored(log)
        for candidate in self.candidates():
            if candidate.allows(log, entries):
                found = State(log.start_offset, entries)
                check_equal(log, found)
                return found
        due = [
            f"[{c.state.start_offset}, {max(c.promised_end, c.state.start_offset)}.."
            f"{c.state.end_offset})"
            for c in self.candidates()
        ]
        raise OracleViolation(
            f"[{log.start_offset}, {log.end_offset}) is no prefix of what was appended: {due}"
        )
