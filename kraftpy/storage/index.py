"""The sparse indexes beside a segment, in Kafka's format.

`.index`: (offset - base i32, position i32): the batch at `position` ends with that offset.
`.timeindex`: (timestamp i64, offset - base i32): no record up to that offset is younger.
Both grow strictly. They are a help, never the truth: entries are kept in memory, written without
fsync when the log is flushed or rolled, and rebuilt from the segment when they do not fit it.
A lookup that lands too early costs time only; the caller checks that it never lands too late.
"""

import sys
from array import array
from bisect import bisect_right
from typing import Final

from kraftpy.storage.file_layer import FileLayer

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12


class OffsetIndex:
    """Offset to position, for one segment."""

    __slots__ = ("_base_offset", "_files", "_offsets", "_path", "_positions", "_stale", "_written")

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        self._files = files
        self._path = path
        self._base_offset = base_offset
        self._offsets = array("I")
        self._positions = array("I")
        self._written = 0  # Entries that the file already holds.
        self._stale = True  # Whether the file may hold others behind them.

    def load(self, segment_bytes: int) -> bool:
        """Read the file; False if it is missing or cannot belong to such a segment."""
        if not self._files.exists(self._path):
            return False
        raw = self._files.read_whole(self._path)
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

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def unwritten(self) -> int:
        """Entries that only memory holds."""
        return len(self._offsets) - self._written

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
        if keep < self._written:
            self._written = keep
            self._stale = True

    def clear(self) -> None:
        self.cut(0)

    def write(self) -> None:
        """Hand the new entries to the file. Not synced: a crash costs a rebuild, no more."""
        if self._written == len(self._offsets) and not self._stale:
            return
        flat = array("I")
        for offset, position in zip(
            self._offsets[self._written :], self._positions[self._written :], strict=True
        ):
            flat.append(offset)
            flat.append(position)
        if sys.byteorder == "little":
            flat.byteswap()
        file = self._files.open(self._path)
        if self._stale:
            file.truncate(self._written * OFFSET_ENTRY_BYTES)
        file.write(self._written * OFFSET_ENTRY_BYTES, [flat.tobytes()])
        file.close()
        self._written = len(self._offsets)
        self._stale = False


class TimeIndex:
    """Timestamp to offset, for one segment."""

    __slots__ = ("_base_offset", "_files", "_offsets", "_path", "_stale", "_timestamps", "_written")

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        self._files = files
        self._path = path
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("I")
        self._written = 0
        self._stale = True

    def load(self) -> bool:
        """Read the file; False if it is missing or its entries do not grow."""
        if not self._files.exists(self._path):
            return False
        raw = self._files.read_whole(self._path)
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

    def __len__(self) -> int:
        return len(self._timestamps)

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
        if keep < self._written:
            self._written = keep
            self._stale = True

    def clear(self) -> None:
        self.cut(self._base_offset)

    def write(self) -> None:
        """Hand the new entries to the file, unsynced."""
        if self._written == len(self._offsets) and not self._stale:
            return
        raw = b"".join(
            timestamp.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big")
            for timestamp, offset in zip(
                self._timestamps[self._written :], self._offsets[self._written :], strict=True
            )
        )
        file = self._files.open(self._path)
        if self._stale:
            file.truncate(self._written * TIME_ENTRY_BYTES)
        file.write(self._written * TIME_ENTRY_BYTES, [raw])
        file.close()
        self._written = len(self._offsets)
        self._stale = False


def _grows(values: "array[int]") -> bool:
    return all(map(int.__lt__, values, values[1:]))
