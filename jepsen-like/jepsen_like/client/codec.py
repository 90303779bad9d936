"""Kafka's primitive types as bytes, both ways. Its own, so that no bug is shared with a cluster.

A Reader raises BadAnswer for bytes that end too early, whatever it was asked for.
"""

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class BadAnswer(Exception):
    """An answer that is not what the protocol says."""


class Writer:
    """Collects a message; every method gives the writer back."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def raw(self, data: bytes) -> "Writer":
        self.parts.append(data)
        return self

    def pack(self, layout: str, *values: int) -> "Writer":
        self.parts.append(struct.pack(">" + layout, *values))
        return self

    def boolean(self, value: bool) -> "Writer":
        return self.pack("b", int(value))

    def string(self, text: str | None) -> "Writer":
        if text is None:
            return self.pack("h", -1)
        data = text.encode()
        return self.pack("h", len(data)).raw(data)

    def blob(self, data: bytes | None) -> "Writer":
        return self.pack("i", -1) if data is None else self.pack("i", len(data)).raw(data)

    def array(self, items: Iterable[T] | None, write: Callable[["Writer", T], object]) -> "Writer":
        if items is None:
            return self.pack("i", -1)
        all_items = list(items)
        self.pack("i", len(all_items))
        for item in all_items:
            write(self, item)
        return self

    def uvarint(self, value: int) -> "Writer":
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return self.raw(bytes(out))

    def compact(self, items: Iterable[T], write: Callable[["Writer", T], object]) -> "Writer":
        all_items = list(items)
        self.uvarint(len(all_items) + 1)
        for item in all_items:
            write(self, item)
        return self

    def compact_string(self, text: str) -> "Writer":
        data = text.encode()
        return self.uvarint(len(data) + 1).raw(data)

    def tags(self) -> "Writer":
        return self.uvarint(0)

    def done(self) -> bytes:
        return b"".join(self.parts)


class Reader:
    """Goes over a message from its start."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def raw(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if count < 0 or len(found) < count:
            raise BadAnswer(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return found

    def _int(self, layout: str, size: int) -> int:
        value: int = struct.unpack(layout, self.raw(size))[0]
        return value

    def i8(self) -> int:
        return self._int(">b", 1)

    def i16(self) -> int:
        return self._int(">h", 2)

    def i32(self) -> int:
        return self._int(">i", 4)

    def u32(self) -> int:
        return self._int(">I", 4)

    def i64(self) -> int:
        return self._int(">q", 8)

    def boolean(self) -> bool:
        return self.i8() != 0

    def string(self) -> str | None:
        length = self.i16()
        return None if length < 0 else self.raw(length).decode("utf-8", "replace")

    def text(self) -> str:
        return self.string() or ""

    def blob(self) -> bytes:
        length = self.i32()
        return b"" if length < 0 else self.raw(length)

    def array(self, read: Callable[["Reader"], T]) -> list[T]:
        count = self.i32()
        if count > len(self.data):
            raise BadAnswer(f"an array of {count} in {len(self.data)} bytes")
        return [read(self) for _ in range(count)]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise BadAnswer("a varint without an end")

    def varint(self) -> int:
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    def compact(self, read: Callable[["Reader"], T]) -> list[T]:
        count = self.uvarint() - 1
        if count > len(self.data):
            raise BadAnswer(f"an array of {count} in {len(self.data)} bytes")
        return [read(self) for _ in range(count)]

    def compact_text(self) -> str:
        length = self.uvarint() - 1
        return "" if length < 0 else self.raw(length).decode("utf-8", "replace")

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.raw(self.uvarint())
