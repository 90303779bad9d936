"""Compacts logs, one after the other: chooses the dirtiest, reads and writes in a thread, swaps.

Who owns the logs plans a Cleaning and takes up what it made (`begin`, `take_up`); only `run` is for
a thread of its own. In between the log goes on: it gets new batches, is read, may even be cut, and
then what was made of its old segments is thrown away. Segments are replaced from the oldest on and
none is left out, since a tombstone may only go after all that it deletes.

A cleaning thread takes turns with the rest of the process: after each slice of work it rests as
long as it worked, and longer if log.cleaner.io.max.bytes.per.second says so.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kraftpy.broker.compaction import (
    BatchFilter,
    CompactionConfig,
    Counters,
    Due,
    OffsetMap,
    SegmentFacts,
    assess,
    fill,
    group_segments,
)
from kraftpy.clock import Clock
from kraftpy.errors import CorruptRecord, DiskFault, InvalidBatch, StorageError
from kraftpy.limits import CLEANER_SLICE_MS
from kraftpy.logs import get_logger
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.storage.record_batch import NO_TIMESTAMP, BatchHeader
from kraftpy.storage.replacement import CleanedSegment, SealedSegment
from kraftpy.storage.scan import scan_batches
from kraftpy.storage.segment import SegmentConfig

log = get_logger(__name__)

Batches = Iterator[tuple[BatchHeader, memoryview]]


class CleaningStopped(Exception):
    """The process ends, or the log has changed: nothing of this is needed any more."""


class Throttle:
    """Bounds how much of the machine cleaning takes. `rest` waits, and is told to stop waiting."""

    def __init__(
        self,
        clock: Clock,
        bytes_per_second: Callable[[], float],
        rest: Callable[[float], bool] | None = None,
    ) -> None:
        self.stopping = threading.Event()
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._rest = rest or self.stopping.wait
        self._bytes = 0
        self._since_ms = clock.monotonic_ms()

    def count(self, size: int) -> None:
        """So many bytes were read or written. CleaningStopped if it is time to end."""
        self._bytes += size
        worked_ms = self._clock.monotonic_ms() - self._since_ms
        due_ms = self._bytes * 1000 / max(self._bytes_per_second(), 1.0)
        if self.stopping.is_set():
            raise CleaningStopped
        if max(worked_ms, due_ms) >= CLEANER_SLICE_MS:
            self._rest(max(worked_ms, due_ms - worked_ms) / 1000)
            self._bytes = 0
            self._since_ms = self._clock.monotonic_ms()


@dataclass(slots=True)
class Cleaning:
    """One compaction of one log, from its plan to its result."""

    files: FileLayer
    directory: str
    segment_config: SegmentConfig
    config: CompactionConfig
    due: Due
    sources: list[SealedSegment]
    last_of_producers: Collection[int]
    now_ms: int
    counters: Counters = field(default_factory=Counters)
    end_offset: int = -1  # Clean up to here, once all is taken up.
    cleaned: list[CleanedSegment] = field(default_factory=list)

    def run(self, memory_bytes: int, throttle: Throttle) -> None:
        """In a thread: write what will take the place of the segments.

        CleaningStopped if the log was cut meanwhile; CorruptRecord or DiskFault as they are.
        """
        try:
            offset_map = OffsetMap(memory_bytes)
            dirty = [s for s in self.sources if s.end_offset > self.due.first_dirty_offset]
            self.end_offset = fill(
                offset_map, self._batches(dirty, throttle), self.due.first_dirty_offset
            )
            batch_filter = BatchFilter(
                offset_map=offset_map,
                now_ms=self.now_ms,
                delete_retention_ms=self.config.delete_retention_ms,
                last_of_producers=self.last_of_producers,
            )
            touched = [s for s in self.sources if s.segment.base_offset < self.end_offset]
            for group in _groups(touched, self.config.segment_bytes):
                self._write(group, batch_filter, throttle)
        except (CorruptRecord, InvalidBatch) as error:
            if not all(source.is_unchanged for source in self.sources):
                raise CleaningStopped from None  # It was cut while it was read.
            if isinstance(error, InvalidBatch):
                path = self.sources[0].segment.file.path
                raise CorruptRecord(path, 0, self.due.first_dirty_offset, str(error)) from error
            raise
        except OSError as error:
            raise DiskFault(f"cannot compact the log in {self.directory}: {error}") from error

    def _write(
        self, group: Sequence[SealedSegment], batch_filter: BatchFilter, throttle: Throttle
    ) -> None:
        target = CleanedSegment(self.files, self.directory, group, self.segment_config)
        self.cleaned.append(target)
        end_offset = group[-1].end_offset
        for header, data in self._batches(group, throttle):
            kept = batch_filter.apply(
                header, data, self.counters, is_last=header.end_offset == end_offset
            )
            if kept is not None:
                target.append(kept)
                throttle.count(len(kept))
        target.finish()

    def _batches(self, sources: Sequence[SealedSegment], throttle: Throttle) -> Batches:
        for source in sources:
            segment = source.segment
            found = scan_batches(segment.file, 0, segment.size, segment.base_offset)
            for _, header, data in found:
                throttle.count(header.size)
                yield header, data

    def discard(self) -> None:
        """Remove what is not part of the log yet."""
        for each in self.cleaned:
            each.discard()
        self.cleaned.clear()


def _groups(sources: Sequence[SealedSegment], segment_bytes: int) -> Iterator[list[SealedSegment]]:
    at = 0
    for count in group_segments([facts_of(source) for source in sources], segment_bytes):
        yield list(sources[at : at + count])
        at += count


def facts_of(source: SealedSegment) -> SegmentFacts:
    segment = source.segment
    return SegmentFacts(
        segment.base_offset,
        source.end_offset,
        segment.size,
        segment.first_timestamp() if segment.size else NO_TIMESTAMP,
        segment.max_timestamp,
    )


def dirtiness(
    partition_log: Log,
    config: CompactionConfig,
    *,
    checkpoint: int | None,
    committed_end: int,
    now_ms: int,
) -> Due:
    """What there is to compact in a log."""
    return assess(
        [facts_of(source) for source in partition_log.sealed_segments()],
        config,
        checkpoint=checkpoint,
        start_offset=partition_log.start_offset,
        committed_end=committed_end,
        now_ms=now_ms,
    )


def begin(
    files: FileLayer,
    partition_log: Log,
    config: CompactionConfig,
    due: Due,
    last_of_producers: Collection[int],
    now_ms: int,
) -> Cleaning:
    """Take down what a thread needs to know. Its log must be flushed up to the active segment."""
    sealed = partition_log.sealed_segments()
    return Cleaning(
        files=files,
        directory=partition_log.directory,
        segment_config=partition_log.config.segment,
        config=config,
        due=due,
        sources=[source for source in sealed if source.end_offset <= due.end_offset],
        last_of_producers=frozenset(last_of_producers),
        now_ms=now_ms,
    )


def take_up_next(partition_log: Log, cleaning: Cleaning) -> bool:
    """Put the oldest of the new segments into the log; False if the log has changed meanwhile."""
    try:
        partition_log.replace_segments(cleaning.cleaned[0])
    except StorageError as error:
        log.info("cleaning_dropped", dir=cleaning.directory, why=str(error))
        cleaning.discard()
        return False
    del cleaning.cleaned[0]
    return True


def take_up(partition_log: Log, cleaning: Cleaning) -> bool:
    """All of them."""
    while cleaning.cleaned:
        if not take_up_next(partition_log, cleaning):
            return False
    return True
