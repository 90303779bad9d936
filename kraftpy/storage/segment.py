"""One segment: a `.log` file of batches and the two sparse indexes beside it.

`size` is what the log has published; bytes behind it, left by a write that failed, do not exist.
Positions returned are always batch boundaries.
"""

import os
from dataclasses import dataclass
from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.storage.file_layer import Buffer, FileLayer
from kraftpy.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    header_damage,
    read_header,
)
from kraftpy.storage.scan import scan_batches

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
# A segment's offsets are kept relative to its base in 31 bits, as Kafka does.
_OFFSET_SPAN_MAX: Final = (1 << 31) - 1
_INDEX_ENTRIES_UNWRITTEN_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentConfig:
    """When a segment is full, and how sparse its indexes are. The defaults are Kafka's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3_600_000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024 * 1024


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """A run of batches from `base_offset` on."""

    def __init__(
        self, files: FileLayer, directory: str, base_offset: int, config: SegmentConfig
    ) -> None:
        self._files = files
        self._config = config
        self._stem = os.path.join(directory, segment_name(base_offset))
        self.base_offset = base_offset
        self.file = files.open(self._stem + LOG_SUFFIX)
        self.size = self.file.size()
        self.index = OffsetIndex(files, self._stem + INDEX_SUFFIX, base_offset)
        self.times = TimeIndex(files, self._stem + TIME_INDEX_SUFFIX, base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.dirty = False
        self._max_timestamp_offset = base_offset
        self._bytes_since_entry = 0
        self._first_timestamp: int | None = None

    # -- writing --------------------------------------------------------------------------

    def must_roll_before(
        self, header: BatchHeader, pending_bytes: int = 0, first_pending: BatchHeader | None = None
    ) -> bool:
        """Whether this batch belongs into a new segment; pending ones go into this one first."""
        if self.size + pending_bytes == 0:
            return False
        config = self._config
        # At most one index entry per interval, and one more for where the last interval stands.
        entries = pending_bytes // max(config.index_interval_bytes, 1) + 2
        if self.size == 0 and first_pending is not None:
            first_timestamp = first_pending.max_timestamp
        else:
            first_timestamp = self.first_timestamp()
        return (
            self.size + pending_bytes + header.size > config.segment_bytes
            or header.last_offset - self.base_offset > _OFFSET_SPAN_MAX
            or (len(self.index) + entries) * OFFSET_ENTRY_BYTES > config.index_bytes_max
            or (len(self.times) + entries) * TIME_ENTRY_BYTES > config.index_bytes_max
            or header.max_timestamp - first_timestamp > config.segment_ms
        )

    def first_timestamp(self) -> int:
        """The first batch's timestamp: the segment's age is counted from it."""
        if self._first_timestamp is None:
            self._first_timestamp = self.header_at(0).max_timestamp
        return self._first_timestamp

    def write(self, buffers: list[Buffer], headers: list[BatchHeader]) -> None:
        """Append whole batches. On OSError nothing of them is published."""
        self.dirty = True
        self.file.write(self.size, buffers)
        for header in headers:
            self.note(header, self.size)
            self.size += header.size

    def note(self, header: BatchHeader, position: int) -> None:
        """Take a batch that stands at `position` into the indexes."""
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._bytes_since_entry > self._config.index_interval_bytes:
            self.index.append(header.last_offset, position)
            self.times.append(self.max_timestamp, self._max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def write_indexes(self, *, final: bool = False) -> None:
        """Hand index entries to their files; at the end of the segment, all of them."""
        if final and self.max_timestamp != NO_TIMESTAMP:
            self.times.append(self.max_timestamp, self._max_timestamp_offset)
        if final or self.index.unwritten >= _INDEX_ENTRIES_UNWRITTEN_MAX:
            self.index.write()
            self.times.write()

    def sync(self) -> None:
        """Make the batches durable. May run beside `write`: what comes meanwhile is dirty again."""
        if self.dirty:
            self.dirty = False
            self.file.sync()

    # -- opening and cutting --------------------------------------------------------------

    def load_indexes(self, scan_from: int) -> int:
        """Load the indexes up to `scan_from` and say where a scan must begin, to `note` the rest.

        Changes no file. Where an index is missing or does not fit, that is the beginning.
        """
        self.max_timestamp = NO_TIMESTAMP
        self._bytes_since_entry = 0
        if self.index.load(self.size) and self.times.load():
            self.index.cut(scan_from + 1)
            position = self.index.last_position()
            if position == 0 or self._entry_is_true():
                self.times.cut(self.index.last_offset() + 1)
                self._recall_timestamps()
                return position
        self.index.clear()
        self.times.clear()
        return 0

    def _entry_is_true(self) -> bool:
        """Whether the last index entry leads to the batch that it names."""
        head = self.file.read(self.index.last_position(), HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return False
        header = read_header(head)
        return header_damage(header) is None and header.last_offset == self.index.last_offset()

    def _recall_timestamps(self) -> None:
        last = self.times.last()
        if last is not None:
            self.max_timestamp, self._max_timestamp_offset = last

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the batches."""
        self.index.clear()
        self.times.clear()
        self.max_timestamp = NO_TIMESTAMP
        self._bytes_since_entry = 0
        for position, header, _ in scan_batches(self.file, 0, self.size, self.base_offset):
            self.note(header, position)

    def cut(self, position: int, end_offset: int) -> None:
        """Remove the batches from `position` on, durably."""
        self.file.truncate(position)
        self.file.sync()
        self.size = position
        self.index.cut(position)
        self.times.cut(end_offset)
        self.max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._recall_timestamps()
        self._recount_tail()
        if position == 0:
            self._first_timestamp = None

    def _recount_tail(self) -> None:
        """Note again what lies behind the last index entry: it may hold the largest timestamp."""
        start = self.index.last_position()
        self._bytes_since_entry = 0
        while start < self.size:
            header = self.header_at(start)
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
            self._bytes_since_entry += header.size
            start += header.size

    # -- reading --------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or behind `offset`, or None if all end before it."""
        position = self._checked(*self.index.lookup(offset))
        while position < self.size:
            header = self.header_at(position)
            if header.last_offset >= offset:
                return position, header
            position += header.size
        return None

    def boundary_before(self, start: int, limit: int) -> int:
        """The last batch boundary at or before `limit`, not before `start`."""
        if limit >= self.size:
            return self.size
        position = max(start, self._checked(*self.index.lookup_position(limit)))
        while position < self.size:
            after = position + self.header_at(position).size
            if after > limit:
                break
            position = after
        return position

    def _checked(self, last_offset: int, position: int) -> int:
        """The position of an index entry if it is true; if not, all of them are made anew."""
        if position == 0:
            return 0
        head = self.file.read(position, HEADER_BYTES)
        header = read_header(head) if len(head) == HEADER_BYTES else None
        if header is None or header_damage(header) or header.last_offset != last_offset:
            self.rebuild_indexes()
            return 0  # Correct, if slow: the next lookup has the new index.
        return position

    def find_timestamp(self, timestamp: int, from_offset: int) -> int | None:
        """Where the first batch stands that may hold a record at or after `timestamp`."""
        if self.max_timestamp < timestamp:
            return None
        found = self.find(max(from_offset, self._checked_time(timestamp)))
        position = found[0] if found else self.size
        while position < self.size:
            header = self.header_at(position)
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                return position
            position += header.size
        return None

    def _checked_time(self, timestamp: int) -> int:
        """An offset before which all is older, from the time index if its entry is true."""
        entry = self.times.lookup(timestamp)
        if entry is None:
            return self.base_offset
        found = self.find(entry[1])
        if found is None or (found[1].max_timestamp, found[1].last_offset) != entry:
            self.rebuild_indexes()
            return self.base_offset
        return entry[1]

    def read_batch(self, position: int) -> bytes:
        return self.file.read(position, self.header_at(position).size)

    def header_at(self, position: int) -> BatchHeader:
        head = self.file.read(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            raise CorruptRecord(self.file.path, position, self.base_offset, "the file is too short")
        header = read_header(head)
        wrong = header_damage(header)
        if wrong is not None:
            raise CorruptRecord(self.file.path, position, self.base_offset, wrong)
        return header

    # -- the end --------------------------------------------------------------------------

    def close(self) -> None:
        self.file.close()

    def remove(self) -> None:
        """Take the files away. The batches go first: indexes alone are nothing."""
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self._stem + suffix
            if self._files.exists(path):
                self._files.remove(path)
