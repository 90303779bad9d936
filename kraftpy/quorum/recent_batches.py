"""The end of the committed log, in memory: what those who follow closely ask for, again and again.

The engine's thread adds what was committed, the event loop reads. So a follower that is caught up
costs neither a disk, nor the journal's lock, nor a thread; one that is behind reads the log.
"""

import threading
from bisect import bisect_left, bisect_right

from kraftpy.limits import RECENT_BATCH_BYTES_MAX
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.types import NO_EPOCH


class RecentBatches:
    """Committed batches without a gap, up to the high watermark; the oldest go first."""

    def __init__(self, bytes_max: int = RECENT_BATCH_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._bases: list[int] = []
        self._epochs: list[int] = []
        self._data: list[bytes] = []
        self._end_offset = -1
        self._lock = threading.Lock()

    def add(self, batches: list[CommittedBatch]) -> None:
        with self._lock:
            if self._end_offset != batches[0].header.base_offset:
                self._clear()
            for header, data in batches:
                self._bases.append(header.base_offset)
                self._epochs.append(header.leader_epoch)
                self._data.append(data)
                self._bytes += len(data)
            self._end_offset = batches[-1].header.end_offset
            self._forget_oldest()

    def clear(self) -> None:
        """The log goes on elsewhere: after a snapshot was loaded."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        for column in (self._bases, self._epochs, self._data):
            column.clear()
        self._bytes = 0
        self._end_offset = -1

    def _forget_oldest(self) -> None:
        if self._bytes <= self._bytes_max:
            return
        count = 0
        # Half of it at once, since cutting the front of a list costs as much as what stays.
        while count < len(self._data) - 1 and self._bytes > self._bytes_max // 2:
            self._bytes -= len(self._data[count])
            count += 1
        for column in (self._bases, self._epochs, self._data):
            del column[:count]

    def read(self, offset: int, upto: int, last_epoch: int, bytes_max: int) -> bytes | None:
        """Whole batches from the one that holds `offset` on, at least one, before `upto`.

        None if memory cannot tell: the offset is older, or beyond the end, or a replica whose last
        record is of `last_epoch` may have another log than this.
        """
        with self._lock:
            if not self._bases or not self._bases[0] <= offset <= min(upto, self._end_offset):
                return None
            at = bisect_right(self._bases, offset) - 1
            if offset == self._end_offset:
                at = len(self._bases)
            last = bisect_left(self._bases, upto)
            if last_epoch != NO_EPOCH and not self._continues(at, offset, last_epoch):
                return None
            end, size = at, 0
            while end < last and (end == at or size + len(self._data[end]) <= bytes_max):
                size += len(self._data[end])
                end += 1
            found = self._data[at:end]
        return b"".join(found)

    def _continues(self, at: int, offset: int, last_epoch: int) -> bool:
        """Whether the batch at this place follows a record of that epoch."""
        begins = at == len(self._bases) or self._bases[at] == offset
        return begins and at > 0 and self._epochs[at - 1] == last_epoch
