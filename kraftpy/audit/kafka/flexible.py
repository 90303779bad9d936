"""A cursor over one of Kafka's flexible messages, which survives any bytes. Pure.

Every length is held against what is left, so that four bytes cannot ask for a gigabyte. ValueError
says what is wrong; nothing else escapes.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kraftpy.types import Uuid

T = TypeVar("T")
_NUMBERS: Final = {
    name: struct.Struct(code)
    for name, code in {
        "i8": ">b",
        "i16": ">h",
        "u16": ">H",
        "i32": ">i",
        "i64": ">q",
        "f64": ">d",
    }.items()
}


class Cursor:
    """Reads forward; knows where it is."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        start = self._at
        if count > len(self._data) - start:
            raise ValueError("the bytes end before the record does")
        self._at = start + count
        return self._data[start : self._at]

    def number(self, kind: str) -> Any:
        packed = _NUMBERS[kind]
        return packed.unpack(self.take(packed.size))[0]

    def boolean(self) -> bool:
        return self.take(1) != b"\x00"

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than five bytes")

    def uuid(self) -> Uuid:
        return Uuid(self.take(16))

    def data(self) -> bytes | None:
        """Compact bytes; None is null."""
        length = self.uvarint()
        return self.take(length - 1) if length else None

    def text(self) -> str | None:
        raw = self.data()
        return None if raw is None else raw.decode()

    def array(self, element: Callable[["Cursor"], T]) -> tuple[T, ...] | None:
        count = self.uvarint() - 1
        if count < 0:
            return None
        # An element takes a byte at least: a count beyond that is not worth believing.
        if count > self.left:
            raise ValueError(f"an array of {count} elements in {self.left} bytes")
        return tuple(element(self) for _ in range(count))

    def tags(self) -> dict[int, bytes]:
        """Tagged fields by number; most are none that the reader knows, and are passed over."""
        found = {}
        for _ in range(self.uvarint()):
            number = self.uvarint()
            found[number] = self.take(self.uvarint())
        return found
