"""The sparse indexes beside a segment, in Kafka's format.

`.index`: (offset - base i32, position i32): the batch at `position` ends with that offset.
`.timeindex`: (timestamp i64, offset - base i32): no record up to that offset is younger.
Both grow strictly. They are a help, never the truth: entries are kept in memory, written now and
then, synced only when the segment is full, and rebuilt from it when they do not fit.
A lookup that lands too early costs time only; the caller checks that it never lands too late.
"""

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from typing import ClassVar, Final

from kraftpy.storage.file_layer import FileLayer

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12


class _IndexFile(ABC):
    """Entries in memory, and the file that some of them are in."""

    ENTRY_BYTES: ClassVar[int]

    __slots__ = ("_base_offset", "_files", "_offsets", "_stale", "_written", "path")

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self._base_offset = base_offset
        self._offsets = array("I")
        self._written = 0  # Entries that the file already holds.
        self._stale = True  # Whether the file may hold others behind them.

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def unwritten(self) -> int:
        """Entries that only memory holds."""
        return len(self._offsets) - self._written

    @abstractmethod
    def _encode(self, first: int) -> bytes:
        """The entries from number `first` on, as the file has them."""

    def _kept(self, keep: int) -> None:
        """The subclass has dropped all but the first `keep` entries."""
        if keep < self._written:
            self._written = keep
            self._stale = True

    def write(self) -> None:
        """Hand the new entries to the file. Not synced: a crash costs a rebuild, no more."""
        if self._written == len(self._offsets) and not self._stale:
            return
        raw = self._encode(self._written)
        file = self._files.open(self.path)
        if self._stale:
            file.truncate(self._written * self.ENTRY_BYTES)
        file.write(self._written * self.ENTRY_BYTES, [raw])
        file.close()
        self._written = len(self._offsets)
        self._stale = False

    def rewrite(self) -> None:
        """Hand every entry to the file, whatever it holds."""
        self._written = 0
        self._stale = True
        self.write()

    def drop_stale(self) -> None:
        """Take entries out of the file that memory has dropped."""
        if self._stale and self._files.exists(self.path):
            file = self._files.open(self.path)
            if file.size() > self._written * self.ENTRY_BYTES:
                file.truncate(self._written * self.ENTRY_BYTES)
            file.close()
            self._stale = False

    def is_in_file(self) -> bool:
        """Whether the file holds these entries and no others."""
        if not self._files.exists(self.path):
            return False
        rest = self._encode(self._written)  # What is before it was read from the file.
        file = self._files.open_for_read(self.path)
        expected_bytes = self._written * self.ENTRY_BYTES + len(rest)
        same = file.size() == expected_bytes and rest == file.read(
            expected_bytes - len(rest), len(rest)
        )
        file.close()
        return same

    def sync(self) -> None:
        file = self._files.open(self.path)
        file.sync()
        file.close()


class OffsetIndex(_IndexFile):
    """Offset to position, for one segment."""

    ENTRY_BYTES = OFFSET_ENTRY_BYTES

    __slots__ = ("_positions",)

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._positions = array("I")

    def load(self, segment_bytes: int) -> bool:
        """Read the file; False if it is missing or cannot belong to such a segment."""
        if not self._files.exists(self.path):
            return False
        raw = self._files.read_whole(self.path)
        if len(raw) % OFFSET_ENTRY_BYTES:
            return False
        flat = array("I", raw)
        if sys.byteorder == "little":
            flat.byteswap()
        offsets, positions = flat[0::2], flat[1::2]
        if not _grows(offsets) or not _grows(positions):
            return False
        if positions and positions[-1] >= segment_bytes:
            return False
        self._offsets, self._positions = offsets, positions
        self._written = len(offsets)
        self._stale = False
        return True

    def append(self, last_offset: int, position: int) -> None:
        self._offsets.append(last_offset - self._base_offset)
        self._positions.append(position)

    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def last_offset(self) -> int:
        """The last offset of the batch at `last_position`; before the segment if there is none."""
        return (self._offsets[-1] if self._offsets else -1) + self._base_offset

    def lookup(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of an indexed batch at or before the one that holds `offset`."""
        return self._entry(bisect_right(self._offsets, offset - self._base_offset) - 1)

    def lookup_position(self, position: int) -> tuple[int, int]:
        """(last offset, position) of the last indexed batch that starts at or before `position`."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, at: int) -> tuple[int, int]:
        if at < 0:
            return self._base_offset - 1, 0
        return self._offsets[at] + self._base_offset, self._positions[at]

    def cut(self, position: int) -> None:
        """Forget the batches at or behind `position`."""
        keep = bisect_right(self._positions, position - 1) if position > 0 else 0
        del self._offsets[keep:]
        del self._positions[keep:]
        self._kept(keep)

    def clear(self) -> None:
        self.cut(0)

    def _encode(self, first: int) -> bytes:
        flat = array("I")
        for entry in zip(self._offsets[first:], self._positions[first:], strict=True):
            flat.extend(entry)
        if sys.byteorder == "little":
            flat.byteswap()
        return flat.tobytes()


class TimeIndex(_IndexFile):
    """Timestamp to offset, for one segment."""

    ENTRY_BYTES = TIME_ENTRY_BYTES

    __slots__ = ("_timestamps",)

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._timestamps = array("q")

    def load(self) -> bool:
        """Read the file; False if it is missing or its entries do not grow."""
        if not self._files.exists(self.path):
            return False
        raw = self._files.read_whole(self.path)
        if len(raw) % TIME_ENTRY_BYTES:
            return False
        timestamps, offsets = array("q"), array("I")
        for at in range(0, len(raw), TIME_ENTRY_BYTES):
            timestamps.append(int.from_bytes(raw[at : at + 8], "big", signed=True))
            offsets.append(int.from_bytes(raw[at + 8 : at + 12], "big"))
        if not _grows(timestamps):
            return False
        self._timestamps, self._offsets = timestamps, offsets
        self._written = len(timestamps)
        self._stale = False
        return True

    def append(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp so far; one that is not larger adds nothing."""
        if not self._timestamps or timestamp > self._timestamps[-1]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base_offset)

    def last(self) -> tuple[int, int] | None:
        if not self._timestamps:
            return None
        return self._timestamps[-1], self._offsets[-1] + self._base_offset

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry before `timestamp`: up to its offset, every record is older."""
        at = bisect_right(self._timestamps, timestamp - 1) - 1
        return (self._timestamps[at], self._offsets[at] + self._base_offset) if at >= 0 else None

    def cut(self, end_offset: int) -> None:
        """Forget what speaks of `end_offset` and after."""
        keep = len(self._offsets)
        while keep and self._offsets[keep - 1] + self._base_offset >= end_offset:
            keep -= 1
        del self._offsets[keep:]
        del self._timestamps[keep:]
        self._kept(keep)

    def clear(self) -> None:
        self.cut(self._base_offset)

    def _encode(self, first: int) -> bytes:
        return b"".join(
            timestamp.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big")
            for timestamp, offset in zip(
                self._timestamps[first:], self._offsets[first:], strict=True
            )
        )


def _grows(values: "array[int]") -> bool:
    return all(map(int.__lt__, values, values[1:]))
