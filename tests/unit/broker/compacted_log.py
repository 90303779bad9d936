"""A log that is compacted, and beside it all that was ever written to it: what must be left of it.

`check` demands, after anything that happened:
- what is left was written, at the same offsets, in the same order, byte for byte the same record;
- of every key the last record is there, unless it is a tombstone whose time has come;
- a tombstone is there until delete.retention.ms after the first compaction that could have seen it;
- what is not committed, and the active segment, are as they were appended;
- reading at any offset gives the first record at or behind it that is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftpy.broker.cleaner import Throttle, begin, dirtiness, take_up
from kraftpy.broker.compaction import CompactionConfig
from kraftpy.clock import ManualClock
from kraftpy.limits import OFFSET_MAP_ENTRY_BYTES
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import Record, build_batch, iter_records, read_header
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import SimulatedFiles

DIRECTORY = "/logs/topic-0"
CONFIG = LogConfig(
    segment=SegmentConfig(segment_bytes=400, index_interval_bytes=100),
    of_topic=True,
    retention_ms=None,
)
DELETE_RETENTION_MS = 1000


class Violation(AssertionError):
    """Compaction broke a promise."""


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


@dataclass
class CompactedLog:
    files: SimulatedFiles = field(default_factory=SimulatedFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    written: list[Record] = field(default_factory=list)
    # When each tombstone was first in the reach of a compaction that was taken up.
    reached_ms: dict[int, int] = field(default_factory=dict)
    last_of_producer: dict[int, int] = field(default_factory=dict)
    committed_end: int = 0
    clean_end: int | None = None
    config: CompactionConfig = field(
        default_factory=lambda: CompactionConfig(
            delete_retention_ms=DELETE_RETENTION_MS,
            min_cleanable_dirty_ratio=0.0,
            segment_bytes=CONFIG.segment.segment_bytes,
        )
    )

    def __post_init__(self) -> None:
        self.log = Log.open(self.files, DIRECTORY, CONFIG, self.clock)

    def append(
        self, pairs: Sequence[tuple[bytes, bytes | None]], codec: int = 0, producer_id: int = -1
    ) -> None:
        base = self.log.end_offset
        records = [
            Record(
                offset=base + i,
                timestamp=self.clock.now_ms() + i % 3,
                key=key,
                value=value,
                headers=(("n", b"%d" % i),),
            )
            for i, (key, value) in enumerate(pairs)
        ]
        numbers = {}
        if producer_id >= 0:
            numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": base}
            self.last_of_producer[producer_id] = base + len(pairs) - 1
        self.log.append(build_batch(records, attributes=codec, **numbers), epoch=1)
        self.written += records

    def commit(self, part: float = 1.0) -> None:
        """Everything, or a part of what is not committed yet."""
        open_offsets = self.log.end_offset - self.committed_end
        self.committed_end += int(open_offsets * part)

    def compact(self, keys_max: int = 1 << 20) -> bool:
        """One compaction, if there is anything to do."""
        due = dirtiness(
            self.log,
            self.config,
            checkpoint=self.clean_end,
            committed_end=self.committed_end,
            now_ms=self.clock.now_ms(),
        )
        if not due.is_due(self.config):
            return False
        untouched = self._bytes_from(due.end_offset)
        cleaning = begin(
            self.files,
            self.log,
            self.config,
            due,
            self.last_of_producer.values(),
            self.clock.now_ms(),
        )
        self.log.flush()
        cleaning.run(keys_max * OFFSET_MAP_ENTRY_BYTES, Throttle(self.clock, lambda: 1e18))
        demand(cleaning.end_offset > due.first_dirty_offset, "compaction does not get on")
        demand(take_up(self.log, cleaning), "the log did not take the new segments")
        self.clean_end = cleaning.end_offset
        for record in self.written:
            if record.value is None and record.offset < cleaning.end_offset:
                self.reached_ms.setdefault(record.offset, self.clock.now_ms())
        demand(due.end_offset <= self.committed_end, "what is not committed was compacted")
        demand(due.end_offset <= self.log.segment_bases[-1], "the active segment was compacted")
        demand(self._bytes_from(due.end_offset) == untouched, "more was changed than was due")
        return True

    def reopen(self) -> None:
        self.log.close()
        self.log = Log.open(self.files, DIRECTORY, CONFIG, self.clock)

    def _bytes_from(self, offset: int) -> bytes:
        return b"".join(bytes(data) for _, data in self.log.batches(offset))

    # -- what must hold -------------------------------------------------------------------------

    def left(self) -> list[Record]:
        batches = self.log.batches(self.log.start_offset)
        return [record for _, data in batches for record in iter_records(data)]

    def check(self) -> None:
        left = self.left()
        known = {record.offset: record for record in self.written}
        offsets = [record.offset for record in left]
        demand(offsets == sorted(set(offsets)), "records are not in their order")
        demand(all(known[r.offset] == r for r in left), "a record is not what was written")
        end = self.written[-1].offset + 1 if self.written else 0
        demand(self.log.end_offset == end, "the end has moved")
        self._check_last_of_keys(set(offsets))
        self._check_producers()
        self._check_reads(offsets)

    def _check_last_of_keys(self, offsets: set[int]) -> None:
        last = {record.key: record for record in self.written}
        now_ms = self.clock.now_ms()
        for record in last.values():
            if record.offset in offsets:
                continue
            reached_ms = self.reached_ms.get(record.offset)
            is_over = reached_ms is not None and now_ms >= reached_ms + DELETE_RETENTION_MS
            demand(record.value is None, f"the last record of {record.key!r} is gone")
            demand(is_over, f"the tombstone of {record.key!r} went before its time")

    def _check_producers(self) -> None:
        found = {
            header.last_offset
            for header, _ in self.log.batches(self.log.start_offset)
            if header.producer_id >= 0
        }
        demand(set(self.last_of_producer.values()) <= found, "a producer's numbers are gone")

    def _check_reads(self, offsets: list[int]) -> None:
        for offset in range(self.log.start_offset, self.log.end_offset):
            due = next((each for each in offsets if each >= offset), None)
            demand(self._read_next(offset) == due, f"reading at {offset} misses {due}")

    def _read_next(self, offset: int) -> int | None:
        """As a consumer does, who skips what is before its offset."""
        position = offset
        while position < self.log.end_offset:
            data = self.log.read(position, bytes_max=1).read()
            header = read_header(data)
            demand(header.end_offset > position, "a read does not get on")
            later = [each.offset for each in iter_records(data) if each.offset >= offset]
            if later:
                return later[0]
            position = header.end_offset
        return None

    def keys_in_clean_part(self) -> list[bytes | None]:
        clean_end = self.clean_end or 0
        return [record.key for record in self.left() if record.offset < clean_end]
