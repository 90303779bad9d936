"""The bytes of one connection as they arrive, and the requests in them, in place. Pure.

One buffer, used again and again: requests are handled where they lie, and only the beginning of one
that is not whole yet is ever moved. So a frame is valid until `make_room` or `resize` is called.
"""

import struct
from typing import Final

from kraftpy.errors import WireError

_LENGTH: Final = struct.Struct(">i")
_SMALL_FRAME: Final = 64 * 1024
_ROOM_MIN: Final = 4096


class ReceiveBuffer:
    """`start` to `end` is what has arrived and was not handled."""

    __slots__ = ("_bytes", "_end", "_max", "_start", "_view", "capacity", "wanted")

    def __init__(self, frame_bytes_max: int) -> None:
        self._max = frame_bytes_max
        self.capacity = 0
        self.wanted = _LENGTH.size  # Bytes of the first frame that is not whole, as far as known.
        self._bytes = bytearray()
        self._view = memoryview(self._bytes)
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    def next_frame(self) -> memoryview | None:
        """The next whole request without its length; None if it is not there yet."""
        start = self._start
        have = self._end - start
        if have < 4:
            self.wanted = _LENGTH.size
            return None
        (size,) = _LENGTH.unpack_from(self._bytes, start)
        if not 0 <= size <= self._max:
            raise WireError(f"a frame of {size} bytes, at most {self._max} are allowed")
        if have < size + 4:
            self.wanted = size + 4
            return None
        self._start = end = start + size + 4
        return self._view[start + 4 : end]

    def make_room(self) -> bool:
        """Move the rest to where there is space behind it; False if the buffer is too small."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            return self.wanted <= self.capacity
        if start and (start + self.wanted > self.capacity or self.capacity - end < _ROOM_MIN):
            self._view[: end - start] = self._view[start:end]
            self._start, self._end = 0, end - start
        return self.wanted <= self.capacity

    def room(self) -> memoryview:
        """Where to receive into. To the end of a large request and no further: what came behind
        it would have to be moved."""
        if self.wanted > _SMALL_FRAME and self._end > self._start:
            return self._view[self._end : self._start + self.wanted]
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    @property
    def is_full(self) -> bool:
        return self._end == self.capacity

    def resize(self, capacity: int) -> None:
        """Another buffer with the same content."""
        assert capacity >= len(self)
        fresh = bytearray(capacity)
        view = memoryview(fresh)
        view[: len(self)] = self._view[self._start : self._end]
        self._end -= self._start
        self._start = 0
        self._bytes, self._view, self.capacity = fresh, view, capacity
