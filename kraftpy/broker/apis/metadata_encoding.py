"""Topics of a Metadata response as bytes, written by hand. Pure.

A client may ask for all topics of a cluster with a million partitions. Built from values, each of
them would cost some twenty microseconds; here it is one `struct` call. What is written is what
kraftpy.broker.apis.metadata says: the tests hold each to the other, byte for byte.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from kraftpy.broker.apis.client_view import NO_BROKER, ClientView
from kraftpy.broker.apis.metadata import NOT_ASKED, TOPIC_OPERATIONS, old_partition
from kraftpy.metadata_log.image import Partition, Topic
from kraftpy.metadata_log.topic_names import is_internal
from kraftpy.types import BrokerId

_Writer: TypeAlias = Callable[[ClientView, int, int, Partition], bytes]

_NONE: Final = ErrorCode.none.value
_NO_LEADER: Final = ErrorCode.leader_not_available.value
_NO_LISTENER: Final = ErrorCode.listener_not_found.value
_LENGTH: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_FIRST_FLEXIBLE: Final = 9
_LISTS_MAX: Final = 4096  # Of different lengths, so of layouts that are kept.
_ONE_BYTE_MAX: Final = 126  # Longer lists have a length of two bytes.


def topic_bytes(view: ClientView, version: int, topic: Topic, *, with_operations: bool) -> bytes:
    """One topic that exists."""
    name = topic.name.encode()
    partitions = topic.partitions
    if version >= _FIRST_FLEXIBLE:
        head = _SHORT.pack(_NONE) + uvarint(len(name) + 1) + name
        count = uvarint(len(partitions) + 1)
    else:
        head = _SHORT.pack(_NONE) + _SHORT.pack(len(name)) + name
        count = _LENGTH.pack(len(partitions))
    parts = [head]
    if version >= 10:
        parts.append(topic.topic_id)
    if version >= 1:
        parts.append(b"\1" if is_internal(topic.name) else b"\0")
    parts.append(count)
    encode = _writer(version)
    parts += [encode(view, version, index, partitions[index]) for index in sorted(partitions)]
    if version >= 8:
        parts.append(_LENGTH.pack(TOPIC_OPERATIONS if with_operations else NOT_ASKED))
    if version >= _FIRST_FLEXIBLE:
        parts.append(b"\0")
    return b"".join(parts)


def uvarint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def join_topics(empty: bytearray, version: int, topics: list[bytes]) -> bytearray:
    """An encoded response without topics, and the topics: the whole response."""
    flexible = version >= _FIRST_FLEXIBLE
    behind = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}.get(version, 0)
    count_bytes = 1 if flexible else _LENGTH.size
    at = len(empty) - behind - count_bytes
    assert not any(empty[at + (1 if flexible else 0) : at + count_bytes]), "it has no topics"
    count = uvarint(len(topics) + 1) if flexible else _LENGTH.pack(len(topics))
    tail = empty[at + count_bytes :]
    del empty[at:]
    empty += count
    empty += b"".join(topics)
    empty += tail
    return empty


# -- partitions -------------------------------------------------------------------------------


def _writer(version: int) -> _Writer:
    if version == 0:
        return _oldest
    return _flexible if version >= _FIRST_FLEXIBLE else _plain


def _leader(view: ClientView, version: int, partition: Partition) -> tuple[int, BrokerId]:
    """(error code, leader) as a client may use it."""
    leader = partition.leader
    if leader in view.listener.nodes:
        return _NONE, leader
    registered = leader in view.image.brokers
    return (_NO_LISTENER if registered and version >= 6 else _NO_LEADER), NO_BROKER


def _flexible(view: ClientView, version: int, index: int, partition: Partition) -> bytes:
    error_code, leader = _leader(view, version, partition)
    replicas, isr = partition.replicas, partition.isr
    offline = view.offline_replicas(partition)
    n, m, k = len(replicas), len(isr), len(offline)
    if n > _ONE_BYTE_MAX:
        return _long(error_code, index, leader, partition, offline)
    return _flexible_layout(n, m, k).pack(
        *(error_code, index, leader, partition.leader_epoch),
        *(n + 1, *replicas, m + 1, *isr, k + 1, *offline, 0),
    )


@lru_cache(_LISTS_MAX)
def _flexible_layout(n: int, m: int, k: int) -> struct.Struct:
    return struct.Struct(f">hiiiB{n}iB{m}iB{k}iB")


def _long(
    error_code: int, index: int, leader: int, partition: Partition, offline: Sequence[BrokerId]
) -> bytes:
    """More replicas than anybody has."""
    parts = [struct.pack(">hiii", error_code, index, leader, partition.leader_epoch)]
    for each in (partition.replicas, partition.isr, offline):
        parts += [uvarint(len(each) + 1), struct.pack(f">{len(each)}i", *each)]
    return b"".join((*parts, b"\0"))


def _plain(view: ClientView, version: int, index: int, partition: Partition) -> bytes:
    error_code, leader = _leader(view, version, partition)
    replicas, isr = partition.replicas, partition.isr
    values = [error_code, index, leader]
    if version >= 7:
        values.append(partition.leader_epoch)
    values += [len(replicas), *replicas, len(isr), *isr]
    if version >= 5:
        offline = view.offline_replicas(partition)
        values += [len(offline), *offline]
    return _plain_layout(len(values) - 1).pack(*values)


@lru_cache(_LISTS_MAX)
def _plain_layout(count: int) -> struct.Struct:
    return struct.Struct(f">h{count}i")


def _oldest(view: ClientView, _version: int, index: int, partition: Partition) -> bytes:
    """Version 0, which nobody is in a hurry with: from the values."""
    found = old_partition(view, index, partition)
    replicas, isr = found["replica_nodes"], found["isr_nodes"]
    numbers = [index, found["leader_id"], len(replicas), *replicas, len(isr), *isr]
    return _plain_layout(len(numbers)).pack(found["error_code"].value, *numbers)
