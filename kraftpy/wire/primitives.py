"""What generated readers and writers call: varints, and values that are not plain numbers. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from kraftpy.errors import WireError

_NO_UUID: Final = bytes(16)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT_BYTES_MAX: Final = 5


def varint(data: Any, at: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte had more to follow, and where it ends."""
    value = first & 0x7F
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise WireError("a varint of more than five bytes")


def varint_bytes(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def to_error_code(value: int) -> ErrorCode:
    """A code that is newer than we are is an error nonetheless."""
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.unknown_server_error


def to_timedelta(value: int) -> timedelta:
    return value * _MILLISECOND


def from_timedelta(value: timedelta) -> int:
    return round(value / _MILLISECOND)


def to_datetime(value: int) -> datetime:
    return _EPOCH + value * _MILLISECOND


def from_datetime(value: datetime) -> int:
    return (value - _EPOCH) // _MILLISECOND


def to_uuid(value: bytes) -> UUID | None:
    return None if value == _NO_UUID else UUID(bytes=value)


def from_uuid(value: UUID | None) -> bytes:
    return _NO_UUID if value is None else value.bytes


def null() -> Any:
    """For a field that may not be null, and is."""
    raise WireError("null where a value is due")


def skip_tags(data: Any, at: int) -> int:
    """Step over tagged fields that nobody here knows; where they end."""
    count = data[at]
    at += 1
    if count > 0x7F:
        count, at = varint(data, at, count)
    for _ in range(count):
        _, size, at = tag_head(data, at)
        at += size
        if at > len(data):
            raise WireError("a tagged field is longer than its message")
    return at


def tag_head(data: Any, at: int) -> tuple[int, int, int]:
    """(tag, size, where its bytes begin)."""
    tag = data[at]
    at += 1
    if tag > 0x7F:
        tag, at = varint(data, at, tag)
    size = data[at]
    at += 1
    if size > 0x7F:
        size, at = varint(data, at, size)
    return tag, size, at
