"""The records of __consumer_offsets, in Kafka's own format. Pure.

A key begins with its type, which says what the rest of it is and what the value is about:
  0, 1  an offset that a group committed: group, topic, partition
  2     a classic group: its generation, its members, what each was assigned
  3...  groups of the new protocol (KIP-848), whose values are read by who knows them
A value begins with its version. Null is a tombstone: what the key named is gone. Versions are read
as far back as Kafka reads them; written are those that every Kafka since 2.3 can read.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from kraftpy.errors import InvalidBatch

OLD_OFFSET_KEY: Final = 0
OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2

_OFFSET_VERSION: Final = 3
_OFFSET_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VERSION: Final = 3
_FIRST_FLEXIBLE: Final = 4  # Of both values.
_VERSION_MAX: Final = 4
_NEVER: Final = -1
_NAMES_KEPT: Final = 256

_BYTE: Final = struct.Struct(">b")
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
# Version 3: version, offset, leader epoch, size of the metadata.
_OFFSET_START: Final = struct.Struct(">hqih")


class OffsetRecord(NamedTuple):
    """What is kept of a committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = _NEVER  # As old clients asked for it; -1: by offsets.retention.minutes.


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """One member of a classic group, as it was when its generation became stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A classic group at the end of a rebalance."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberRecord, ...] = ()


class LogRecord(NamedTuple):
    """What is appended: `value` is None for a tombstone."""

    key: bytes
    value: bytes | None


# -- writing ------------------------------------------------------------------------------------


def offset_key(group: str, topic: str, partition: int) -> bytes:
    name, topic_name = group.encode(), topic.encode()
    return b"".join(
        (
            _SHORT.pack(OFFSET_KEY),
            _SHORT.pack(len(name)),
            name,
            _SHORT.pack(len(topic_name)),
            topic_name,
            _INT.pack(partition),
        )
    )


def offset_value(record: OffsetRecord) -> bytes:
    text = record.metadata.encode()
    if record.expire_ms != _NEVER:
        head = _SHORT.pack(_OFFSET_VERSION_WITH_EXPIRY) + _LONG.pack(record.offset)
        times = _LONG.pack(record.commit_ms) + _LONG.pack(record.expire_ms)
        return b"".join((head, _SHORT.pack(len(text)), text, times))
    start = _OFFSET_START.pack(_OFFSET_VERSION, record.offset, record.leader_epoch, len(text))
    return b"".join((start, text, _LONG.pack(record.commit_ms)))


def group_key(group: str) -> bytes:
    return _SHORT.pack(GROUP_KEY) + _string(group)


def group_value(record: GroupRecord) -> bytes:
    parts = [
        _SHORT.pack(_GROUP_VERSION),
        _string(record.protocol_type),
        _INT.pack(record.generation),
        _string(record.protocol),
        _string(record.leader),
        _LONG.pack(record.state_ms),
        _INT.pack(len(record.members)),
    ]
    for member in record.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


# -- reading ------------------------------------------------------------------------------------


def key_type(key: bytes) -> int:
    if len(key) < _SHORT.size:
        raise InvalidBatch("a record of a group without the type of its key")
    found: int = _SHORT.unpack_from(key)[0]
    return found


def read_offset_key(key: bytes) -> OffsetKey:
    try:
        group, topic, end = _read_names(key[: -_INT.size])
        return OffsetKey(group, topic, _INT.unpack_from(key, end)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidBatch(f"the key of an offset: {error}") from error


@lru_cache(maxsize=_NAMES_KEPT)
def _read_names(key: bytes) -> tuple[str, str, int]:
    """The group and the topic of an offset's key, and where its partition is.

    Most keys differ from one that was read before in the partition alone.
    """
    at = 4 + _SHORT.unpack_from(key, 2)[0]
    start = at + _SHORT.size
    end = start + _SHORT.unpack_from(key, at)[0]
    return key[4:at].decode(), key[start:end].decode(), end


def read_offset(value: bytes) -> OffsetRecord:
    try:
        if value[1] == _OFFSET_VERSION and not value[0]:  # What we write ourselves: nearly all.
            _, offset, leader_epoch, size = _OFFSET_START.unpack_from(value)
            end = _OFFSET_START.size + size
            metadata = value[_OFFSET_START.size : end].decode() if size else ""
            return OffsetRecord(offset, leader_epoch, metadata, _LONG.unpack_from(value, end)[0])
        return _read_other_offset(Reader(value))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"a committed offset: {error}") from error


def _read_other_offset(reader: "Reader") -> OffsetRecord:
    version = reader.version(_VERSION_MAX, _FIRST_FLEXIBLE)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string() or ""
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == _OFFSET_VERSION_WITH_EXPIRY else _NEVER
    return OffsetRecord(offset, leader_epoch, metadata, commit_ms, expire_ms)


def read_group_key(key: bytes) -> str:
    try:
        reader = Reader(key)
        reader.int16()
        return reader.string() or ""
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"the key of a group: {error}") from error


def read_group(value: bytes) -> GroupRecord:
    try:
        reader = Reader(value)
        version = reader.version(_VERSION_MAX, _FIRST_FLEXIBLE)
        return GroupRecord(
            protocol_type=reader.string() or "",
            generation=reader.int32(),
            protocol=reader.string(),
            leader=reader.string(),
            state_ms=reader.int64() if version >= 2 else _NEVER,
            members=tuple(_read_member(reader, version) for _ in range(reader.count())),
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"a group: {error}") from error


def _read_member(reader: "Reader", version: int) -> MemberRecord:
    member_id = reader.string() or ""
    instance_id = reader.string() if version >= 3 else None
    client_id = reader.string() or ""
    client_host = reader.string() or ""
    rebalance_timeout_ms = reader.int32() if version >= 1 else _NEVER
    session_timeout_ms = reader.int32()
    member = MemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )
    reader.tags()
    return member


class Reader:
    """Reads the fields of a value one after the other, in either encoding.

    struct.error, IndexError or UnicodeDecodeError if they are not there.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._flexible = False

    def version(self, version_max: int, first_flexible: int) -> int:
        """The first field of every value: how the others are written."""
        version = self.int16()
        if not 0 <= version <= version_max:
            raise InvalidBatch(f"version {version} of a record, of which {version_max} is known")
        self._flexible = version >= first_flexible
        return version

    def int8(self) -> int:
        return self._number(_BYTE)

    def int16(self) -> int:
        return self._number(_SHORT)

    def int32(self) -> int:
        return self._number(_INT)

    def int64(self) -> int:
        return self._number(_LONG)

    def string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.int16()
        return None if size < 0 else self._take(size).decode()

    def data(self) -> bytes:
        size = self._varint() - 1 if self._flexible else self.int32()
        return self._take(max(size, 0))

    def uuid(self) -> bytes:
        return self._take(16)

    def count(self) -> int:
        """Of an array."""
        return max(self._varint() - 1 if self._flexible else self.int32(), 0)

    def tags(self) -> None:
        """Step over tagged fields, which nobody here knows."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _number(self, layout: struct.Struct) -> int:
        found: int = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return found

    def _take(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise IndexError("a field is longer than its record")
        return self._data[at : self._at]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError("a varint of more than five bytes")
