"""One segment: a `.log` file of batches and the two sparse indexes beside it.

`size` is what the log has published; bytes behind it, left by a write that failed, do not exist.
Positions returned are always batch boundaries.
"""

import os
from dataclasses import dataclass
from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.storage.epochs import LeaderEpochs
from kraftpy.storage.file_layer import Buffer, FileLayer
from kraftpy.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    damage,
    header_damage,
    iter_records,
    read_header,
)
from kraftpy.storage.scan import scan_batches
from kraftpy.storage.unchecked import Unchecked, check_batches, out_of_place

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
# A segment's offsets are kept relative to its base in 31 bits, as Kafka does.
_OFFSET_SPAN_MAX: Final = (1 << 31) - 1
_INDEX_ENTRIES_UNWRITTEN_MAX: Final = 256
_CHUNK_BYTES: Final = 1024 * 1024


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
        self,
        files: FileLayer,
        directory: str,
        base_offset: int,
        config: SegmentConfig,
        suffix: str = "",
    ) -> None:
        self._files = files
        self.config = config
        self._stem = os.path.join(directory, segment_name(base_offset))
        self._suffix = suffix  # Of a segment that is not, or not yet, part of the log.
        self.base_offset = base_offset
        self.file = files.open(self._path(LOG_SUFFIX))
        self.size = self.file.size()
        self.index = OffsetIndex(files, self._path(INDEX_SUFFIX), base_offset)
        self.times = TimeIndex(files, self._path(TIME_INDEX_SUFFIX), base_offset)
        self.cuts = 0  # How often batches were taken from it: who read it before read another one.
        self.max_timestamp = NO_TIMESTAMP
        self.dirty = False
        self._sealed = False
        # Where batches stand whose timestamps nobody compared with the time index since opening.
        self._unproven = range(0)
        self.unchecked = Unchecked()
        self._max_timestamp_offset = base_offset
        self._bytes_since_entry = 0
        self._first_timestamp: int | None = None

    def _path(self, kind: str) -> str:
        return self._stem + kind + self._suffix

    # -- writing --------------------------------------------------------------------------

    def must_roll_before(
        self, header: BatchHeader, pending_bytes: int = 0, first_pending: BatchHeader | None = None
    ) -> bool:
        """Whether this batch belongs into a new segment; pending ones go into this one first."""
        if self.size + pending_bytes == 0:
            return False
        config = self.config
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
        self.file.write(self.size, buffers)
        # Not before: a sync that runs beside this must not take the mark for older bytes.
        self.dirty = True
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
        if self._bytes_since_entry > self.config.index_interval_bytes and self._spans(
            header.last_offset
        ):
            self.index.append(header.last_offset, position)
            self.times.append(self.max_timestamp, self._max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def write_indexes(self, *, final: bool = False) -> None:
        """Hand index entries to their files; at the end of the segment, all of them."""
        if final:
            self._append_final_time()
        if final or self.index.unwritten >= _INDEX_ENTRIES_UNWRITTEN_MAX:
            # Times first: recovery scans from the last index entry on and takes the timestamps
            # before it from the other file.
            self.times.write()
            self.index.write()

    def _spans(self, offset: int) -> bool:
        """Whether an index can name this offset. Not behind a gap of billions in a compacted log:
        what stands there is found by a scan."""
        return offset - self.base_offset <= _OFFSET_SPAN_MAX

    def _append_final_time(self) -> None:
        if self.max_timestamp != NO_TIMESTAMP and self._spans(self._max_timestamp_offset):
            self.times.append(self.max_timestamp, self._max_timestamp_offset)

    def seal(self) -> None:
        """No batch will follow. The next sync covers the indexes too: nobody scans them again."""
        self.write_indexes(final=True)
        self._sealed = True
        self.dirty = True

    def sync(self) -> None:
        """Make the batches durable. May run beside `write`: what comes meanwhile is dirty again."""
        if self.dirty:
            self.dirty = False
            self.file.sync()
            if self._sealed:
                self.times.sync()
                self.index.sync()

    # -- opening and cutting --------------------------------------------------------------

    def load_indexes(self, scan_from: int) -> int:
        """Load the indexes up to `scan_from` and say where a scan must begin, to `note` the rest.

        Changes no file. Where an index is missing or does not fit, that is the beginning.
        """
        self.forget_indexes()
        if scan_from == 0 or not (self.index.load(self.size) and self.times.load()):
            self.forget_indexes()
            return 0
        self.index.cut(scan_from + 1)
        self.times.cut(self.index.last_offset() + 1)
        youngest = self._position_of_youngest()
        if youngest is None:
            self.forget_indexes()
            return 0
        self._recall_timestamps()
        self._unproven = range(youngest, self.index.last_position())
        self.unchecked = Unchecked(self._unproven.stop)
        return self._unproven.stop

    def forget_indexes(self) -> None:
        """Begin the indexes anew, in memory; a scan of all batches must follow."""
        self.index.clear()
        self.times.clear()
        self.max_timestamp = NO_TIMESTAMP
        self._bytes_since_entry = 0
        self._unproven = range(0)
        self.unchecked = Unchecked()

    def _position_of_youngest(self) -> int | None:
        """Where the batch of the last time entry stands; None unless both last entries are true."""
        last = self.times.last()
        header = self._sound_header(self.index.last_position())
        if last is None or header is None or header.last_offset != self.index.last_offset():
            return None
        position = self.index.lookup(last[1])[1]
        while position <= self.index.last_position():
            header = self._sound_header(position)
            if header is None or header.last_offset >= last[1]:
                break
            position += header.size
        if header is None or (header.max_timestamp, header.last_offset) != last:
            return None
        return position

    def repair_indexes(self, *, sealed: bool, anew: bool) -> None:
        """Make the index files what memory holds, whatever they held; `anew`: every byte.

        Entries of batches that are gone may not stay: new batches would grow into them.
        """
        if not sealed:
            self.prove_max_timestamp()  # New entries will repeat it.
            self.index.drop_stale()
            self.times.drop_stale()
            return
        self._sealed = True
        self._append_final_time()
        if anew or not (self.times.is_in_file() and self.index.is_in_file()):
            self.prove_max_timestamp()
            self._append_final_time()
            self.times.rewrite()
            self.index.rewrite()
            self.dirty = True

    def rewrite(self, position: int = 0, *, is_last: bool) -> None:
        """Put every byte from `position` on, and the end, in its place once more.

        After an fsync that failed, the kernel takes pages for clean that never reached the disk;
        only a new write makes the next fsync cover them.
        """
        if is_last:
            # The length as well: a cut may not have arrived. A stop between the two leaves a torn
            # tail, which only the last segment may have; and only that one is ever cut.
            self.file.truncate(self.size + 1)
            self.file.truncate(self.size)
        while position < self.size:
            chunk = self.file.read(position, min(_CHUNK_BYTES, self.size - position))
            self.file.write(position, [chunk])
            position += len(chunk)
        self.dirty = True

    def _recall_timestamps(self) -> None:
        last = self.times.last()
        if last is not None:
            self.max_timestamp, self._max_timestamp_offset = last

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the batches, which must follow one another."""
        unchecked, due = self.unchecked, self.base_offset
        self.forget_indexes()
        self.unchecked = unchecked  # Epochs, and what follows the segment, are not looked at.
        for position, header, _ in scan_batches(self.file, 0, self.size, due):
            if header.base_offset < due:
                raise out_of_place(self.file, position, due, header.base_offset)
            self.note(header, position)
            due = header.end_offset

    def cut(self, position: int, end_offset: int) -> None:
        """Remove the batches from `position` on, durably."""
        self.cuts += 1
        self.prove_max_timestamp()
        self.file.truncate(position)
        self.file.sync()
        self.size = position
        self.unchecked.cut(position)
        self._sealed = False
        self.index.cut(position)
        self.times.cut(end_offset)
        # The files as well, before new batches stand where the old ones did. Index first: see
        # `write_indexes`.
        self.index.drop_stale()
        self.times.drop_stale()
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

    def check(
        self, offset: int, end: int, following: int, epochs: LeaderEpochs, start_offset: int
    ) -> None:
        """Look at what nobody has, from where `find(offset)` looks first up to `end`.

        CorruptRecord if it is not what was written. `following` is the offset behind the segment.
        """
        start = self.index.lookup(offset)[1]
        for low, high in self.unchecked.within(start, end):
            due = check_batches(self.file, low, high, self.base_offset, epochs, start_offset)
            after = self.header_at(high).base_offset if high < self.size else following
            if after < due:
                raise out_of_place(self.file, high, due, after)
            self.unchecked.checked(low, high)

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or behind `offset`, or None if all end before it."""
        position = self._checked(*self.index.lookup(offset))
        while position < self.size:
            header = self.header_at(position)
            if header.last_offset >= offset:
                return position, header
            position += header.size
        return None

    def end_offset_before(self, position: int) -> int:
        """Where the batch ends that stands before a batch boundary."""
        if position == 0:
            return self.base_offset
        at = self._checked(*self.index.lookup_position(position - 1))
        header = self.header_at(at)
        while at + header.size < position:
            at += header.size
            header = self.header_at(at)
        return header.end_offset

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
        header = self._sound_header(position)
        if header is None or header.last_offset != last_offset:
            self.rebuild_indexes()
            return 0  # Correct, if slow: the next lookup has the new index.
        return position

    def find_record(self, timestamp: int, from_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp`, from an offset on."""
        position = self.find_timestamp(timestamp, from_offset)
        while position is not None and position < self.size:
            data = self.read_batch(position)
            for record in iter_records(data):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return record.offset, record.timestamp
            position += len(data)
        return None

    def find_timestamp(self, timestamp: int, from_offset: int) -> int | None:
        """Where the first batch stands that may hold a record at or after `timestamp`."""
        if self.max_timestamp < timestamp:
            self.prove_max_timestamp()
        if self.max_timestamp < timestamp:
            return None
        first = max(from_offset, self._checked_time(timestamp))
        found = self.find(first)
        position = found[0] if found else self.size
        while position < self.size:
            header = self.header_at(position)
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                break
            position += header.size
        self._check_whole(self.index.lookup(first)[1], position)
        return position if position < self.size else None

    def _check_whole(self, start: int, end: int) -> None:
        """No checksum of what was gone over is wrong: they cover timestamps."""
        for low, high in self.unchecked.within(start, end):
            for _ in scan_batches(self.file, low, high, self.base_offset):
                pass

    def prove_max_timestamp(self) -> None:
        """Make sure that no batch is younger than the time index says, once after opening.

        A time index that lost its last entries looks like one of batches out of order.
        """
        unproven, self._unproven = self._unproven, range(0)
        position = unproven.start
        while position < unproven.stop:
            header = self.header_at(position)
            if header.max_timestamp > self.max_timestamp:
                self.rebuild_indexes()
                return
            position += header.size

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
        data = self.file.read(position, self.header_at(position).size)
        wrong = damage(data, 0, len(data)) if self.unchecked else None
        if wrong is not None:
            raise CorruptRecord(self.file.path, position, self.base_offset, wrong)
        return data

    def _sound_header(self, position: int) -> BatchHeader | None:
        """The header at what may not be a batch boundary."""
        head = self.file.read(position, HEADER_BYTES)
        header = read_header(head) if len(head) == HEADER_BYTES else None
        return None if header is None or header_damage(header) is not None else header

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

    def rename(self, suffix: str) -> None:
        """Move the files to another suffix. The batches go last: only they make it a segment."""
        kinds = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)
        before = [self._path(kind) for kind in kinds]
        self._suffix = suffix
        for source, kind in zip(before, kinds, strict=True):
            self._files.rename(source, self._path(kind))
        self.file.path = self._path(LOG_SUFFIX)
        self.index.path = self._path(INDEX_SUFFIX)
        self.times.path = self._path(TIME_INDEX_SUFFIX)

    def remove(self) -> None:
        """Take the files away. The batches go first: indexes alone are nothing."""
        for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self._path(kind)
            if self._files.exists(path):
                self._files.remove(path)
