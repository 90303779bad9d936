"""The records of groups of the new protocol (KIP-848), in Kafka's own format. Pure.

A group is many records, one for each thing that changes by itself:
  3  the group's epoch                    6  the epoch of the target assignment
  4  the topics that it reads             7  a member's share of the target
  5  what a member asked for              8  what a member has, and must give up
All values have version 0, with compact fields; tagged fields that others wrote are stepped over.
Since Kafka 4.1 type 4 is a hash in type 3; both are read there, and 4 says what has changed.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kraftpy.broker.groups.records import LogRecord, Reader
from kraftpy.errors import InvalidBatch
from kraftpy.types import TopicId, Uuid

GROUP: Final = 3
TOPICS: Final = 4
PROFILE: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
GROUP_TYPES: Final = frozenset({GROUP, TOPICS, TARGET_EPOCH})
MEMBER_TYPES: Final = frozenset({PROFILE, TARGET, CURRENT})

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_STATE: Final = struct.Struct(">b")
_VERSION: Final = _SHORT.pack(0)
_NO_TAGS: Final = b"\0"

Partition = tuple[TopicId, int]
Partitions = frozenset[Partition]
NOTHING: Final[Partitions] = frozenset()


class MemberState(IntEnum):
    """By Kafka's numbers."""

    STABLE = 1  # It has all that it is to have in its epoch.
    UNREVOKED = 2  # It is to give up partitions, and has not said that it did.
    UNRELEASED = 3  # It waits for partitions that another member has not given up.


class TopicSize(NamedTuple):
    topic_id: TopicId
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a member has said about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # In order, each once.
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What a member has. Nobody else gets `assigned` or `revoking` before it lets go of them."""

    epoch: int = 0
    previous_epoch: int = 0  # Of a member that did not get the answer with its epoch.
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING


class ConsumerKey(NamedTuple):
    kind: int
    group: str
    member: str = ""


Value = int | Mapping[str, TopicSize] | Profile | Partitions | Current


# -- writing ------------------------------------------------------------------------------------


def consumer_record(key: ConsumerKey, value: Value | None) -> LogRecord:
    parts = [_SHORT.pack(key.kind), _key_string(key.group)]
    if key.kind in MEMBER_TYPES:
        parts.append(_key_string(key.member))
    return LogRecord(b"".join(parts), None if value is None else _VERSION + _value(value))


def _key_string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case int():
            return _INT.pack(value) + _NO_TAGS
        case Profile():
            return _profile(value)
        case Current():
            numbers = _INT.pack(value.epoch) + _INT.pack(value.previous_epoch)
            state = _STATE.pack(value.state)
            shares = _partitions(value.assigned) + _partitions(value.revoking)
            return numbers + state + shares + _NO_TAGS
        case frozenset():
            return _partitions(value) + _NO_TAGS
        case _:
            return _topics(value) + _NO_TAGS


def _profile(profile: Profile) -> bytes:
    return b"".join(
        (
            _string(profile.instance_id),
            _string(profile.rack_id),
            _string(profile.client_id),
            _string(profile.client_host),
            _array(map(_string, profile.topics)),
            _string(profile.regex),
            _INT.pack(profile.rebalance_timeout_ms),
            _string(profile.assignor),
            _NO_TAGS,
        )
    )


def _topics(topics: Mapping[str, TopicSize]) -> bytes:
    no_racks = _array(())
    return _array(
        topic_id + _string(name) + _INT.pack(count) + no_racks + _NO_TAGS
        for name, (topic_id, count) in sorted(topics.items())
    )


def by_topic(partitions: Iterable[Partition]) -> dict[TopicId, list[int]]:
    """In order."""
    found: dict[TopicId, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


def _partitions(partitions: Partitions) -> bytes:
    return _array(
        topic_id + _array(map(_INT.pack, indexes)) + _NO_TAGS
        for topic_id, indexes in by_topic(partitions).items()
    )


def _array(items: Iterable[bytes]) -> bytes:
    data = list(items)
    return _varint(len(data) + 1) + b"".join(data)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return _varint(len(data) + 1) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


# -- reading ------------------------------------------------------------------------------------


def read_consumer_key(key: bytes) -> ConsumerKey:
    try:
        reader = Reader(key)
        kind = reader.int16()
        group = reader.string() or ""
        return ConsumerKey(kind, group, (reader.string() or "") if kind in MEMBER_TYPES else "")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"the key of a consumer group: {error}") from error


def read_consumer_value(kind: int, value: bytes) -> Value:
    try:
        reader = Reader(value)
        reader.version(0, 0)
        return _READERS[kind](reader)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise InvalidBatch(f"a consumer group, type {kind}: {error}") from error


def _read_profile(reader: Reader) -> Profile:
    return Profile(
        instance_id=reader.string(),
        rack_id=reader.string(),
        client_id=reader.string() or "",
        client_host=reader.string() or "",
        topics=tuple(reader.string() or "" for _ in range(reader.count())),
        regex=reader.string(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.string(),
    )


def _read_current(reader: Reader) -> Current:
    return Current(
        epoch=reader.int32(),
        previous_epoch=reader.int32(),
        state=MemberState(reader.int8()),
        assigned=_read_partitions(reader),
        revoking=_read_partitions(reader),
    )


def _read_partitions(reader: Reader) -> Partitions:
    found: set[Partition] = set()
    for _ in range(reader.count()):
        topic_id = TopicId(Uuid(reader.uuid()))
        found.update((topic_id, reader.int32()) for _ in range(reader.count()))
        reader.tags()
    return frozenset(found)


def _read_topics(reader: Reader) -> Mapping[str, TopicSize]:
    found = {}
    for _ in range(reader.count()):
        topic_id = TopicId(Uuid(reader.uuid()))
        name = reader.string() or ""
        found[name] = TopicSize(topic_id, reader.int32())
        for _ in range(reader.count()):  # The racks of each partition, which older Kafkas wrote.
            reader.int32()
            for _ in range(reader.count()):
                reader.string()
            reader.tags()
        reader.tags()
    return found


_READERS: Final[Mapping[int, Callable[[Reader], Value]]] = {
    GROUP: Reader.int32,
    TOPICS: _read_topics,
    PROFILE: _read_profile,
    TARGET_EPOCH: Reader.int32,
    TARGET: _read_partitions,
    CURRENT: _read_current,
}
