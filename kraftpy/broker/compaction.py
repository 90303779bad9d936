"""Log compaction: what is due, what stays, and what of a batch is written again. Pure.

A compacted log keeps, for every key, at least the last record. It is clean up to the first dirty
offset, where the last compaction ended. A compaction reads the dirty records into an OffsetMap (key
to last offset), as many as the map holds, and then copies all segments up to there, leaving out the
records that the map knows a later one for. What always holds:
- the active segment, what is not committed yet and what is younger than min.compaction.lag.ms is
  not touched. Whole segments only.
- offsets do not change, nor does their order; a batch keeps its base and last offset, its epoch and
  its producer's numbers. Control batches stay.
- a tombstone (a key without a value) stays until delete.retention.ms after the first compaction
  that kept it: that one writes the delete horizon into the batch (KIP-534), so that a consumer
  that reads to the end within that time sees every deletion, however old the tombstone is.
- a batch of which no record is left is dropped, except where its header is needed: it holds the
  last sequence number of a producer that is still known, or it is the last one of its segment,
  which must end where it ended.
Records without a key cannot be told from others of their kind. They are not accepted by compacted
topics, and those from before a topic became one are dropped, as Kafka does.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftpy.limits import OFFSET_MAP_ENTRY_BYTES
from kraftpy.storage.raw_records import (
    RawRecord,
    delete_horizon_ms,
    read_raw_records,
    rebuild,
)
from kraftpy.storage.record_batch import NO_TIMESTAMP, BatchHeader

_DIGEST_BYTES: Final = 16
_OFFSET_SPAN_MAX: Final = (1 << 31) - 1
NOTHING_ABORTED: Final[Callable[[BatchHeader], bool]] = lambda _: False  # noqa: E731


# -- what is due --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """A topic's settings, by Kafka's names."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 24 * 3_600_000
    segment_bytes: int = 1024 * 1024 * 1024


class SegmentFacts(NamedTuple):
    """What planning knows of a segment that gets no more batches."""

    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int  # Of its first batch.
    max_timestamp: int


class Due(NamedTuple):
    """What a compaction would do for a log. Of several logs the dirtiest goes first."""

    first_dirty_offset: int
    end_offset: int  # No segment is touched that ends behind it.
    dirty_ratio: float
    is_late: bool  # A record waits for longer than max.compaction.lag.ms.

    def is_due(self, config: CompactionConfig) -> bool:
        if self.first_dirty_offset >= self.end_offset:
            return False
        return self.is_late or self.dirty_ratio > config.min_cleanable_dirty_ratio


def assess(
    sealed: Sequence[SegmentFacts],
    config: CompactionConfig,
    *,
    checkpoint: int | None,
    start_offset: int,
    committed_end: int,
    now_ms: int,
) -> Due:
    """How dirty a log is. `checkpoint` is where it was clean up to; `committed_end` the high
    watermark, or the start of the first open transaction."""
    cleanable = list(_cleanable(sealed, config, committed_end, now_ms))
    end_offset = cleanable[-1].end_offset if cleanable else start_offset
    first_dirty = start_offset
    if checkpoint is not None and start_offset <= checkpoint <= _end(sealed, start_offset):
        first_dirty = checkpoint  # Else the log was cut or started over since: all of it is dirty.
    clean_bytes = sum(each.size for each in cleanable if each.end_offset <= first_dirty)
    dirty = [each for each in cleanable if each.end_offset > first_dirty]
    dirty_bytes = sum(each.size for each in dirty)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    is_late = any(
        each.first_timestamp != NO_TIMESTAMP
        and now_ms - each.first_timestamp > config.max_compaction_lag_ms
        for each in dirty
    )
    return Due(first_dirty, max(end_offset, start_offset), ratio, is_late)


def _end(sealed: Sequence[SegmentFacts], start_offset: int) -> int:
    return sealed[-1].end_offset if sealed else start_offset


def _cleanable(
    sealed: Sequence[SegmentFacts], config: CompactionConfig, committed_end: int, now_ms: int
) -> Iterator[SegmentFacts]:
    for segment in sealed:
        young = (
            config.min_compaction_lag_ms > 0
            and now_ms - segment.max_timestamp < config.min_compaction_lag_ms
        )
        if segment.end_offset > committed_end or young:
            return
        yield segment


def group_segments(sealed: Sequence[SegmentFacts], segment_bytes: int) -> list[int]:
    """How many segments each new one takes the place of: as many as surely fit into one."""
    counts: list[int] = []
    size = base_offset = 0
    for segment in sealed:
        fits = (
            size + segment.size <= segment_bytes
            and segment.end_offset - base_offset <= _OFFSET_SPAN_MAX
        )
        if counts and fits:
            counts[-1] += 1
            size += segment.size
        else:
            counts.append(1)
            size, base_offset = segment.size, segment.base_offset
    return counts


# -- the last offset of each key ----------------------------------------------------------------


class OffsetMap:
    """Key to last offset, of as many keys as the memory allows.

    Long keys are known by a hash of 128 bits, as in Kafka; short ones by themselves.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._entries_max = max(1, memory_bytes // OFFSET_MAP_ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.end_offset = -1  # What was read ends here.

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, header: BatchHeader, records: Iterable[RawRecord]) -> bool:
        """Read a batch; False, and it is not in the map, if its keys do not fit any more.

        The first batch is always taken: a log would never get clean otherwise.
        """
        offsets = self._offsets
        keys = {_short(each.key): each.offset for each in records if each.key is not None}
        if offsets and len(offsets) + len(keys) > self._entries_max:
            new = sum(key not in offsets for key in keys)
            if len(offsets) + new > self._entries_max:
                return False
        offsets.update(keys)
        self.end_offset = header.end_offset
        return True

    def is_last(self, record: RawRecord) -> bool:
        """Whether no later record of its key, which it must have, is known."""
        key = record.key
        assert key is not None
        known = self._offsets.get(key if len(key) <= _DIGEST_BYTES else _short(key), -1)
        return record.offset >= known


def _short(key: bytes) -> bytes:
    if len(key) <= _DIGEST_BYTES:
        return key
    # One byte more than any short key has: the two kinds never meet.
    return b"#" + hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def fill(
    offset_map: OffsetMap,
    batches: Iterable[tuple[BatchHeader, bytes | memoryview]],
    first_dirty_offset: int,
    *,
    is_aborted: Callable[[BatchHeader], bool] = NOTHING_ABORTED,
) -> int:
    """Read the dirty batches until the map is full; the offset up to which it knows all."""
    end_offset = first_dirty_offset
    for header, data in batches:
        if header.end_offset <= first_dirty_offset:
            continue
        ignored = header.is_control or is_aborted(header)
        records = [] if ignored else read_raw_records(data, header)
        if not offset_map.add(header, records):
            break
        end_offset = header.end_offset
    return end_offset


# -- what stays ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Counters:
    """What compactions have done: for metrics."""

    batches_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFilter:
    """Decides what of each batch is left."""

    offset_map: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Collection[int]  # Last offsets of batches whose numbers are still needed.
    is_aborted: Callable[[BatchHeader], bool] = NOTHING_ABORTED

    def apply(
        self, header: BatchHeader, data: bytes | memoryview, counters: Counters, *, is_last: bool
    ) -> bytes | memoryview | None:
        """The batch as it will be, or None. `is_last`: it ends its new segment."""
        counters.batches_read += 1
        counters.bytes_read += header.size
        counters.records_read += header.record_count
        kept = data if header.is_control else self._filtered(header, data, counters)
        if kept is None and (is_last or header.last_offset in self.last_of_producers):
            kept = rebuild(header, [])
        counters.bytes_written += len(kept) if kept is not None else 0
        return kept

    def _filtered(
        self, header: BatchHeader, data: bytes | memoryview, counters: Counters
    ) -> bytes | memoryview | None:
        if header.base_offset >= self.offset_map.end_offset:
            counters.records_kept += header.record_count
            return data  # The map has not read it.
        if header.record_count == 0 or self.is_aborted(header):
            return None
        records = read_raw_records(data, header)
        horizon_ms = delete_horizon_ms(header)
        tombstones_go = horizon_ms is not None and self.now_ms >= horizon_ms
        kept = self._left(records, tombstones_go)
        counters.records_kept += len(kept)
        counters.records_without_key += sum([record.key is None for record in records])
        if not kept:
            return None
        new_horizon_ms = None
        if horizon_ms is None and not all(record.has_value for record in kept):
            new_horizon_ms = self.now_ms + self.delete_retention_ms
        if len(kept) == len(records) and new_horizon_ms is None:
            return data
        return rebuild(header, kept, horizon_ms=new_horizon_ms)

    def _left(self, records: list[RawRecord], tombstones_go: bool) -> list[RawRecord]:
        is_last = self.offset_map.is_last
        return [
            record
            for record in records
            if record.key is not None
            and (record.has_value or not tombstones_go)
            and is_last(record)
        ]
