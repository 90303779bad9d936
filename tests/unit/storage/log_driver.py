"""A log and its ledger side by side: every change is made to the one and told to the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kraftpy.clock import ManualClock
from kraftpy.errors import StorageError
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.raw_records import rebuild
from kraftpy.storage.record_batch import BatchHeader
from kraftpy.storage.replacement import CleanedSegment
from kraftpy.storage.scan import scan_batches
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import SimulatedFiles
from tests.unit.storage.log_model import (
    BASE_MS,
    Entry,
    Ledger,
    OracleViolation,
    State,
    as_found,
    batch_of,
    check_equal,
    check_same_batches,
    demand,
    place_all,
)

DIRECTORY = "/logs/topic-0"
# Small enough that a few batches roll segments and get index entries.
SEGMENT = SegmentConfig(segment_bytes=700, segment_ms=60_000, index_interval_bytes=100)
LAZY = LogConfig(segment=SEGMENT, retention_ms=3_600_000)
ALWAYS = LogConfig(segment=SEGMENT, retention_ms=3_600_000, flush_interval_messages=1)

Batches = Sequence[bytes | bytearray]
BatchFilter = Callable[[BatchHeader, bytes], bytes | None]


@dataclass
class Driver:
    """Changes a log as told, and keeps the ledger true at every moment in between."""

    files: FileLayer
    config: LogConfig
    directory: str = DIRECTORY
    ledger: Ledger = field(default_factory=Ledger)
    clock: ManualClock = field(default_factory=lambda: ManualClock(BASE_MS))
    log: Log = field(init=False)

    @property
    def end_offset(self) -> int:
        return self.ledger.state.end_offset

    def open(self) -> None:
        self.log = open_log(self.files, self.config, self.clock, self.directory)

    def append(self, *requests: Batches, epoch: int) -> None:
        """Requests of producers, with one write."""
        batches = [batch for request in requests for batch in request]
        self.ledger.appending(place_all(batches, self.end_offset, epoch))
        start = self.log.end_offset
        checked = [self.log.check(b"".join(request)) for request in requests]
        appended = self.log.append_all(checked, epoch)
        demand(appended[0].base_offset == start, "the first request is not where the log ended")
        demand(appended[-1].end_offset == self.end_offset, "the last request does not end the log")
        self._note_flushed()

    def append_replicated(self, entries: Sequence[Entry]) -> None:
        self.ledger.appending(entries)
        self.log.append_replicated(b"".join(entry.data for entry in entries))
        self._note_flushed()

    def flush(self) -> None:
        self.log.flush()
        self.ledger.flushed()

    def truncate_to(self, offset: int) -> None:
        cut = self.ledger.truncating(offset)
        found = self.log.truncate_to(offset)
        self.ledger.became(cut)
        demand(found == cut.end_offset, f"truncated to {found}, not to {cut.end_offset}")

    def move_start_offset(self, offset: int) -> None:
        self.ledger.moving_start([offset])
        self.log.move_start_offset(offset)
        self.ledger.became(self.ledger.state.with_start(offset))

    def delete_old_segments(self, upto: int | None = None) -> int:
        before = self.log.segment_bases
        starts = [*before[1:], self.log.end_offset]
        self.ledger.moving_start(start for start in starts if start > self.log.start_offset)
        count = self.log.delete_old_segments(upto=upto)
        start = max(self.log.start_offset, starts[count - 1]) if count else self.log.start_offset
        demand(self.log.start_offset == start, "segments went without the start offset")
        self.ledger.became(self.ledger.state.with_start(start))
        return count

    def compact(self, first: int, count: int, filter_batch: BatchFilter) -> None:
        """Replace sealed segments by what the filter leaves of their batches."""
        sources = self.log.sealed_segments()[first : first + count]
        cleaned = CleanedSegment(self.files, self.directory, sources, self.config.segment)
        end_offset = sources[-1].end_offset
        for source in sources:
            segment = source.segment
            for _, header, data in scan_batches(segment.file, 0, segment.size, segment.base_offset):
                kept = filter_batch(header, bytes(data))
                if kept is None and header.end_offset == end_offset:
                    kept = rebuild(header, [])
                if kept is not None:
                    cleaned.append(kept)
        cleaned.finish()
        after = self.ledger.state.compacted(sources[0].segment.base_offset, stored_in(cleaned))
        self.ledger.replacing(after)
        self.log.replace_segments(cleaned)
        self.ledger.became(after)

    def start_anew_at(self, offset: int) -> None:
        empty = self.ledger.emptying(offset)
        self.log.truncate_fully_and_start_at(offset)
        self.ledger.became(empty)

    def close(self) -> None:
        self.log.close()
        self.ledger.flushed()

    def files_in_directory(self) -> dict[str, bytes]:
        """Every file of the log, by its name."""
        names = self.files.names(self.directory)
        return {name: self.files.read_whole(f"{self.directory}/{name}") for name in names}

    def _note_flushed(self) -> None:
        if self.config.flush_interval_messages == 1:
            demand(self.log.flushed_end_offset == self.log.end_offset, "an append was not flushed")
        # What the log says of itself is a promise too.
        self.ledger.promised_end = max(self.ledger.promised_end, self.log.flushed_end_offset)


def stored_in(cleaned: CleanedSegment) -> tuple[Entry, ...]:
    segment = cleaned.segment
    found = scan_batches(segment.file, 0, segment.size, segment.base_offset)
    return tuple(as_found(bytes(data)) for _, _, data in found)


def open_log(
    files: FileLayer, config: LogConfig, clock: ManualClock, directory: str = DIRECTORY
) -> Log:
    """Open what must be a sound log."""
    try:
        return Log.open(files, directory, config, clock)
    except StorageError as error:
        raise OracleViolation(f"the log does not open: {error}") from error


def check_after_crash(
    files: SimulatedFiles, ledger: Ledger, config: LogConfig, *, directory: str = DIRECTORY
) -> State:
    """Open what a crash left: it keeps the promises of the ledger, and goes on working."""
    clock = ManualClock(BASE_MS)
    try:
        log = open_log(files, config, clock, directory)
        found = ledger.check(log)
        demand(log.flushed_end_offset == log.end_offset, "recovery left something unflushed")
        check_same_batches(open_log(files.power_loss(), config, clock, directory), found)
        _check_goes_on(files, log, found)
    except StorageError as error:
        raise OracleViolation(f"the log cannot be read: {error}") from error
    return found


def _check_goes_on(files: SimulatedFiles, log: Log, found: State) -> None:
    """New batches are taken, rolled, and kept over a clean restart."""
    epoch = log.epochs.latest + 1
    batches = [batch_of([BASE_MS + 90_000 + i], bytes(100)) for i in range(3)]
    log.append(b"".join(batches), epoch)
    after = found.with_entries(place_all(batches, found.end_offset, epoch))
    log.close()
    again = open_log(files, log.config, ManualClock(BASE_MS), log.directory)
    check_equal(again, after)
