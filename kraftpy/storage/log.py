"""One log: segments of record batches in a directory, as Kafka keeps them.

What always holds:
- offsets and epochs never go back, from `start_offset` to `end_offset` (exclusive), and but for
  what compaction takes out of a topic's log, offsets are contiguous.
- a request is checked whole before any of it is written, and visible only once all of it is.
- after `flush` returned, everything before the `end_offset` of that moment survives a power loss,
  and is found again or missed loudly; nothing that `truncate_to` removed ever comes back.
- after a write or fsync that failed, the log refuses every further change: what the page cache
  holds is then unknown, and a second fsync would only seem to help.

One thread changes a log; `flush` may run in another one meanwhile. A read gives a slice of a file,
valid for as long as it is held, even if its segment is deleted.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kraftpy.clock import Clock
from kraftpy.errors import DiskFault, OffsetOutOfRange, StorageError
from kraftpy.storage.epochs import FILE_NAME as EPOCHS_FILE
from kraftpy.storage.epochs import LeaderEpochs
from kraftpy.storage.file_layer import Buffer, FileLayer
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.log_slice import LogSlice
from kraftpy.storage.log_state import FILE_NAME as STATE_FILE
from kraftpy.storage.log_state import LogStateFile, Mark
from kraftpy.storage.record_batch import BatchHeader
from kraftpy.storage.recovery import Recovery
from kraftpy.storage.replacement import CleanedSegment, SealedSegment, finish_swaps, seal_all
from kraftpy.storage.request import (
    Appended,
    PlacedBatch,
    Request,
    check_continues,
    check_request,
    read_replicated,
)
from kraftpy.storage.retention import count_deletable
from kraftpy.storage.scan import scan_batches
from kraftpy.storage.segment import Segment


class _End(NamedTuple):
    """The end of the log. One tuple, so that `flush` in another thread sees it whole."""

    offset: int
    segment: Segment
    position: int


class Log:
    """A log, open for appending. Close it: what it leaves is then found without a scan."""

    def __init__(
        self, files: FileLayer, directory: str, config: LogConfig, clock: Clock, start_offset: int
    ) -> None:
        self.directory = directory
        self.config = config
        self._files = files
        self._clock = clock
        self._state = LogStateFile(files, os.path.join(directory, STATE_FILE))
        self.epochs = LeaderEpochs(files, os.path.join(directory, EPOCHS_FILE))
        finish_swaps(files, directory)
        recovery = Recovery(files, directory, config, self._state, self.epochs)
        recovery.survey(new_start_offset=start_offset, verify_all=config.verify_all)
        recovery.repair()
        self._segments = recovery.segments
        self._bases = [segment.base_offset for segment in self._segments]
        self.start_offset = recovery.start_offset
        self._end = _End(recovery.end_offset, self._segments[-1], self._segments[-1].size)
        self._mark = Mark(recovery.end_offset, self._segments[-1].size)
        self._flushed_ms = clock.monotonic_ms()
        self._names_changed = True  # An empty last segment may not be in the directory for good.
        self._closed: str | None = None
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        files: FileLayer,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        start_offset: int = 0,
    ) -> "Log":
        """Open a directory and repair what a crash left; a new log begins at `start_offset`.

        CorruptRecord if anything but a torn tail is wrong; no batch was changed then.
        """
        try:
            files.make_directory(directory)
            return cls(files, directory, config, clock, start_offset)
        except OSError as error:
            raise DiskFault(f"cannot open the log in {directory}: {error}") from error

    # -- what there is --------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self._end.offset

    @property
    def flushed_end_offset(self) -> int:
        """Everything before it survives a power loss."""
        return self._mark.offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def bytes_from(self, offset: int) -> int:
        """The size of the batches from the one that holds `offset` on."""
        found = self._find(offset)
        later = self._segments[bisect_right(self._bases, offset) :] if found else []
        return sum(each.size for each in later) + (found[0].size - found[1] if found else 0)

    @property
    def segment_bases(self) -> tuple[int, ...]:
        return tuple(self._bases)

    # -- appending ------------------------------------------------------------------------

    def check(self, data: Buffer) -> Request:
        """A request as `append_all` takes it; InvalidBatch if any of its batches is not whole.

        Offsets and epoch will be stamped in place, unless the buffer is read-only.
        """
        return check_request(data, self.config.batch_bytes_max)

    def append(self, data: Buffer, epoch: int) -> Appended:
        """Give the batches of one request the next offsets and this epoch, and write them."""
        return self.append_all([self.check(data)], epoch)[0]

    def append_all(self, requests: Sequence[Request], epoch: int) -> list[Appended]:
        """Several requests with one write, and one fsync if the log flushes at every append."""
        self._refuse_if_closed()
        if epoch < self.epochs.latest:
            raise StorageError(f"epoch {epoch} is older than the log's epoch {self.epochs.latest}")
        offset = self.end_offset
        placed: list[PlacedBatch] = []
        appended = []
        for request in requests:
            placed += request.place(offset, epoch)
            base_offset, offset = offset, placed[-1].header.end_offset
            appended.append(Appended(base_offset, offset))
        if placed:
            self._write(placed)
        return appended

    def append_replicated(self, data: Buffer) -> Appended:
        """Batches of another replica, as they are: they must continue this log."""
        return self.append_placed(read_replicated(data))

    def append_placed(self, placed: list[PlacedBatch]) -> Appended:
        """The same for batches that whoever calls has found whole."""
        self._refuse_if_closed()
        base_offset = self.end_offset
        bytes_max = None if self.config.of_topic else self.config.batch_bytes_max
        check_continues(placed, bytes_max, base_offset, self.epochs.latest)
        self._write(placed)
        return Appended(base_offset, self.end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """An epoch begins here, durably, even if it never has a record."""
        self._refuse_if_closed()
        with self._alone("append to"):
            self.epochs.assign(epoch, start_offset)

    def _write(self, placed: list[PlacedBatch]) -> None:
        """Write checked batches, one write per segment, then show them."""
        with self._fatal("append to"):
            for header, _ in placed:
                if header.leader_epoch > self.epochs.latest:
                    # Durable before its first batch, so that no batch has an epoch unknown here.
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            try:
                self._write_groups(placed)
                self._segments[-1].write_indexes()
            except OSError:
                self._take_back()
                raise
        segment = self._segments[-1]
        self._end = _End(placed[-1].header.end_offset, segment, segment.size)
        messages = self.config.flush_interval_messages
        if messages is not None and self.end_offset - self.flushed_end_offset >= messages:
            self.flush()

    def _write_groups(self, placed: list[PlacedBatch]) -> None:
        headers: list[BatchHeader] = []
        buffers: list[Buffer] = []
        pending_bytes = 0
        due = self._end.offset  # Not the batch's own: before it there may be a gap.
        for header, data in placed:
            first = headers[0] if headers else None
            if self._segments[-1].must_roll_before(header, pending_bytes, first):
                if headers:
                    self._segments[-1].write(buffers, headers)
                self._roll(due)
                headers, buffers, pending_bytes = [], [], 0
            headers.append(header)
            buffers.append(data)
            pending_bytes += header.size
            due = header.end_offset
        self._segments[-1].write(buffers, headers)

    def _take_back(self) -> None:
        """Free the bytes of a failed append if the disk lets us; recovery copes if not."""
        with suppress(OSError):
            self._remove_segments_after(self._end.segment)
            self._end.segment.size = self._end.position
            self._end.segment.file.truncate(self._end.position)

    def _roll(self, base_offset: int) -> None:
        self._segments[-1].seal()
        segment = Segment(self._files, self.directory, base_offset, self.config.segment)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._names_changed = True

    # -- making durable -------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything up to the end durable."""
        self._refuse_if_closed()
        if self._end.offset <= self._mark.offset:
            return  # Seen without the lock: the mark only ever follows the end.
        with self._alone("flush"):
            end = self._end
            if end.offset <= self._mark.offset:
                return
            names_changed, self._names_changed = self._names_changed, False
            # Oldest first: what survives of an unfinished flush has no gap.
            for segment in [each for each in self._segments if each.dirty]:
                segment.sync()
            if names_changed:
                self._files.sync_directory(self.directory)
            # Seldom synced: should it be lost, an older mark is still true. Once per segment it
            # is, to keep the part small that a power loss leaves without a mark.
            self._set_mark(end.offset, end.position, sync=names_changed)
            self._flushed_ms = self._clock.monotonic_ms()

    def flush_if_due(self) -> bool:
        """Flush if `flush_interval_ms` has passed since the last time."""
        interval = self.config.flush_interval_ms
        if interval is None or self._clock.monotonic_ms() - self._flushed_ms < interval:
            return False
        self.flush()
        return True

    # -- reading --------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        end_offset: int | None = None,
        first_batch_whole: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset` on, before `end_offset`, of one segment.

        The first batch is given even if it is larger than `bytes_max`, so that a reader with a
        small buffer gets on, unless `first_batch_whole` is off. Empty at the end.
        """
        self._check_range(offset)
        end_offset = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        found = self._find(offset) if offset < end_offset else None
        if found is None or found[2].end_offset > end_offset:
            return LogSlice(None, 0, 0)
        segment, position, header = found
        limit = segment.size
        if end_offset < self.end_offset:
            beyond = segment.find(end_offset)
            limit = beyond[0] if beyond else segment.size
        if position + bytes_max < limit:
            limit = segment.boundary_before(position, position + bytes_max)
        if limit == position and first_batch_whole:
            limit = position + header.size
        self._check(segment, offset, limit)
        return LogSlice(segment.file, position, limit - position)

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that holds `offset` to the end, CRC checked."""
        self._check_range(offset)
        found = self._find(offset)
        if found is None:
            return
        segment, position, header = found
        for each in self._segments[self._segments.index(segment) :]:
            start = position if each is segment else 0
            due = header.base_offset if each is segment else each.base_offset
            for _, batch, data in scan_batches(each.file, start, each.size, due):
                yield batch, data

    @property
    def max_timestamp(self) -> int:
        """The largest of all records; -1 if none has one."""
        for segment in self._segments:
            segment.prove_max_timestamp()
        return max(segment.max_timestamp for segment in self._segments)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp`."""
        found = (each.find_record(timestamp, self.start_offset) for each in self._segments)
        return next((record for record in found if record is not None), None)

    def _check_range(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)

    def _find(self, offset: int) -> tuple[Segment, int, BatchHeader] | None:
        if offset >= self.end_offset:
            return None
        for segment in self._segments[bisect_right(self._bases, offset) - 1 :]:
            found = segment.find(offset)
            self._check(segment, offset, found[0] + found[1].size if found else segment.size)
            if found is not None:
                return segment, *found
        raise AssertionError(f"no batch before the end holds or follows {offset}")

    def _check(self, segment: Segment, offset: int, end: int) -> None:
        if segment.unchecked:
            following = self._ends()[self._segments.index(segment)]
            segment.check(offset, end, following, self.epochs, self.start_offset)

    # -- cutting --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove the records from `offset` on, durably, and with them the batch that holds it.

        The new end offset, which is smaller if `offset` was inside a batch or a gap. Epochs that
        begin there are gone even if they had no record.
        """
        self._refuse_if_closed()
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset >= self.end_offset:
            with self._alone("truncate"):
                self.epochs.cut_end(offset)
            return self.end_offset
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        found = segment.find(offset)
        position = found[0] if found else segment.size
        end_offset = segment.end_offset_before(position)
        with self._alone("truncate"):
            if self._mark.offset > end_offset:
                # First: a crash on the way must not look like synced records that went missing.
                self._set_mark(end_offset, position, sync=True)
            self._remove_segments_after(segment)
            segment.cut(position, end_offset)
            self.epochs.cut_end(end_offset)
            self._end = _End(end_offset, segment, position)
        if end_offset < self.start_offset:
            # The start was inside the removed batch: no record is left, and none has its offset.
            self.truncate_fully_and_start_at(self.start_offset)
        return self.end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, durably, and go on at `offset`, as after loading a snapshot."""
        self._refuse_if_closed()
        with self._alone("truncate"):
            # Emptied at its old place first: a crash on the way leaves an empty log, never a
            # mixture of the old records and the new start.
            first = self._segments[0]
            self._set_mark(min(self._mark.offset, first.base_offset), 0, sync=True)
            self._remove_segments_after(first)
            first.cut(0, first.base_offset)
            self.epochs.clear()
            self.epochs.write()
            self.start_offset = offset
            self._set_mark(0, 0, sync=True)
            first.remove()
            segment = Segment(self._files, self.directory, offset, self.config.segment)
            self._segments, self._bases = [segment], [offset]
            self._files.sync_directory(self.directory)
            self._end = _End(offset, segment, 0)

    def _remove_segments_after(self, last: Segment) -> None:
        """From the end backwards, so that a crash on the way leaves no gap."""
        if self._segments[-1] is last:
            return
        while self._segments[-1] is not last:
            self._bases.pop()
            self._segments.pop().remove()
        self._files.sync_directory(self.directory)

    # -- retention ------------------------------------------------------------------------

    def move_start_offset(self, offset: int) -> None:
        """Records before `offset` are gone from now on; `delete_old_segments` frees their bytes."""
        self._refuse_if_closed()
        if offset > self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        with self._alone("move the start of"):
            self.start_offset = offset
            self._set_mark(*self._mark, sync=True)
            self.epochs.cut_start(offset, self.end_offset)

    def delete_old_segments(self, *, upto: int | None = None) -> int:
        """Remove the oldest segments by size, age and start offset; how many there were.

        None that holds a record at or behind `upto` goes (the high watermark, or the end of the
        newest snapshot), nor does an active one with records that must stay.
        """
        self._refuse_if_closed()
        upto = self.end_offset if upto is None else min(upto, self.end_offset)
        for segment in self._segments[: self._count_deletable(upto)]:
            segment.prove_max_timestamp()  # No record goes because an index has lost its time.
        count = self._count_deletable(upto)
        if count == 0:
            return 0
        with self._alone("delete segments of"):
            if count == len(self._segments):
                self._roll(self.end_offset)
                self._end = _End(self.end_offset, self._segments[-1], 0)
            self.start_offset = max(self.start_offset, self._bases[count])
            # First: without it, missing segments would look like a loss.
            self._set_mark(*self._mark, sync=True)
            removed, self._segments = self._segments[:count], self._segments[count:]
            del self._bases[:count]
            for segment in removed:
                segment.remove()
            self._files.sync_directory(self.directory)
            self.epochs.cut_start(self.start_offset, self.end_offset)
        return count

    def _count_deletable(self, upto: int) -> int:
        now_ms, start = self._clock.now_ms(), self.start_offset
        return count_deletable(self._segments, self._ends(), self.config, now_ms, start, upto)

    def _ends(self) -> list[int]:
        return [*self._bases[1:], self.end_offset]

    # -- compaction and settings ----------------------------------------------------------

    def sealed_segments(self) -> list[SealedSegment]:
        """The segments before the active one, oldest first, for whoever reads them elsewhere."""
        return seal_all(self._segments)

    def replace_segments(self, cleaned: CleanedSegment) -> None:
        """Put a cleaned segment into its sources' place, durably; StorageError if they changed."""
        self._refuse_if_closed()
        at, after = cleaned.place_in(self._segments, synced_end=self._mark.offset)
        with self._alone("replace segments of"):
            cleaned.swap_in(self._files, self.directory)
            self._segments[at:after] = [cleaned.segment]
            del self._bases[at + 1 : after]

    def configure(self, config: LogConfig) -> None:
        """Go on with other settings."""
        self.config = config
        for segment in self._segments:
            segment.config = config.segment

    # -- the end --------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and let go of the files. A log that failed only lets go of them."""
        if self._closed is None:
            self.flush()
            with self._alone("close"):
                self._segments[-1].write_indexes(final=True)
                self._set_mark(*self._mark, sync=True)
            self._closed = "closed"
        for segment in self._segments:
            segment.close()
        self._state.close()

    def _set_mark(self, offset: int, position: int, *, sync: bool) -> None:
        self._state.write(self.start_offset, offset, position, sync=sync)
        self._mark = Mark(offset, position)

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise DiskFault(f"the log in {self.directory} is {self._closed}")

    @contextmanager
    def _alone(self, doing: str) -> Iterator[None]:
        """Not beside a flush in another thread: both write the mark."""
        with self._lock, self._fatal(doing):
            yield

    @contextmanager
    def _fatal(self, doing: str) -> Iterator[None]:
        """An error of the disk ends this log: nobody knows what of it is there."""
        try:
            yield
        except OSError as error:
            self._closed = f"failed ({error})"
            with self._lock, suppress(OSError):
                self._state.write_failed(self.start_offset, *self._mark)
            raise DiskFault(f"cannot {doing} the log in {self.directory}: {error}") from error
