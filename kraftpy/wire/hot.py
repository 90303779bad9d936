"""What the hand-written codecs of Produce and Fetch have in common. Pure.

These two carry the data, so they are read in place and written without objects in between; every
other message goes through kraftpy.wire.codec. A frame is a view of exactly one request without its
length: what lies behind it in the receive buffer belongs to somebody else, and since a view checks
its own bounds, no reader here can reach it. The promises are those of kraftpy.wire.generated: no
count is believed beyond the bytes that back it up, and bytes that are no request raise WireError
and nothing else.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kraftpy.errors import WireError
from kraftpy.limits import MESSAGE_ELEMENTS_MAX
from kraftpy.wire.primitives import skip_tags, varint, varint_bytes

HEAD: Final = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id.
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
RESPONSE_HEAD: Final = struct.Struct(">ii")  # Length of what follows, correlation id.
UUID_BYTES: Final = 16

_LEADER: Final = struct.Struct(">ii")
_SMALL: Final = 127  # Numbers below it are a varint of one byte, and so is the number behind it.
_ONE_BYTE: Final = [bytes([n]) for n in range(_SMALL + 1)]

# Reads a length, -1 for null; and where what it measures begins.
ReadLength = Callable[[memoryview, int], tuple[int, int]]


class NodeEndpoint(NamedTuple):
    """Where a broker can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class CurrentLeader(NamedTuple):
    """Whom a client should ask instead (KIP-951); `endpoint` spares it a Metadata request."""

    leader_id: int
    leader_epoch: int
    endpoint: NodeEndpoint | None = None


# -- reading ----------------------------------------------------------------------------------


def _plain_text(frame: memoryview, at: int) -> tuple[int, int]:
    return INT16.unpack_from(frame, at)[0], at + 2


def _plain_count(frame: memoryview, at: int) -> tuple[int, int]:
    return INT32.unpack_from(frame, at)[0], at + 4


def _flexible_length(frame: memoryview, at: int) -> tuple[int, int]:
    length = frame[at]
    at += 1
    if length > _SMALL:
        length, at = varint(frame, at, length)
    return length - 1, at


def _no_tags(_frame: memoryview, at: int) -> int:
    return at


class Reading(NamedTuple):
    """How lengths and tags look: Kafka's old way, or that of KIP-482."""

    text: ReadLength
    size: ReadLength  # Of arrays, and of bytes.
    skip_tags: Callable[[memoryview, int], int]


PLAIN: Final = Reading(_plain_text, _plain_count, _no_tags)
FLEXIBLE: Final = Reading(_flexible_length, _flexible_length, skip_tags)


class Budget:
    """The array elements that one request may still have, over all its arrays."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MESSAGE_ELEMENTS_MAX

    def array(self, frame: memoryview, at: int, count: ReadLength) -> tuple[int, int]:
        """How many elements follow, and where; every one of them takes a byte at least."""
        found, at = count(frame, at)
        self._left -= found
        if found < 0:
            raise WireError("null where a value is due")
        if found > len(frame) - at:
            raise IndexError
        if self._left < 0:
            raise WireError("it has more elements than are taken")
        return found, at


def end_of(frame: memoryview, at: int, length: int) -> int:
    """Where something of this length ends, if it does so within the frame."""
    if length < 0:
        raise WireError("null where a value is due")
    end = at + length
    if end > len(frame):
        raise IndexError
    return end


def text(frame: memoryview, at: int, length: int) -> tuple[str | None, int]:
    """A text that may be null, and where it ends."""
    if length < 0:
        return None, at
    end = end_of(frame, at, length)
    return str(frame[at:end], "utf-8"), end


def malformed(name: str, error: Exception) -> WireError:
    """What to raise for one of kraftpy.wire.generated.MALFORMED."""
    known = isinstance(error, (WireError, UnicodeDecodeError))
    return WireError(f"malformed {name}: {error if known else 'it is shorter than it says'}")


# -- writing ----------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """An unsigned varint."""
    return _ONE_BYTE[value] if value <= _SMALL else varint_bytes(value)


def array_head(count: int, *, flexible: bool) -> bytes:
    return number(count + 1) if flexible else INT32.pack(count)


def text_bytes(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    data = value.encode()
    return (number(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def tags_bytes(tags: Iterable[tuple[int, bytes]]) -> bytes:
    """Tagged fields, in the order of their tags."""
    written = [number(tag) + number(len(data)) + data for tag, data in tags]
    return number(len(written)) + b"".join(written)


def leader_bytes(leader: CurrentLeader) -> bytes:
    return _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\0"


def endpoints_tag(leaders: Iterable[CurrentLeader | None]) -> list[tuple[int, bytes]]:
    """The tagged field with the addresses of these leaders, each once; nothing if none is known."""
    found = {each.endpoint: None for each in leaders if each is not None and each.endpoint}
    if not found:
        return []
    written = b"".join(
        INT32.pack(each.node_id)
        + text_bytes(each.host, flexible=True)
        + INT32.pack(each.port)
        + text_bytes(each.rack, flexible=True)
        + b"\0"
        for each in found
    )
    return [(0, number(len(found) + 1) + written)]
