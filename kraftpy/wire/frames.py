"""Frames: four bytes of length, then a message. Pure."""

import struct
from typing import Final

from kraftpy.errors import WireError

_LENGTH: Final = struct.Struct(">i")


class FrameBuffer:
    """Bytes as they arrive, and the frames that they make up.

    Memory is used for bytes that arrived, never for bytes that a length promises. A length beyond
    the limit is refused as soon as it is known.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._max = frame_bytes_max
        self._buffer = bytearray()

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None if more bytes are needed."""
        size = self._next_size()
        if size is None or len(self._buffer) < _LENGTH.size + size:
            return None
        frame = bytes(memoryview(self._buffer)[_LENGTH.size : _LENGTH.size + size])
        del self._buffer[: _LENGTH.size + size]
        return frame

    def _next_size(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer)
        if not 0 <= size <= self._max:
            raise WireError(f"a frame of {size} bytes, at most {self._max} are allowed")
        return int(size)


def finish_frame(frame: bytearray) -> bytearray:
    """Fill in the length of a frame whose first four bytes were kept free for it."""
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return frame
