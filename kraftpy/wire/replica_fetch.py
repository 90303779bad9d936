"""Fetch as a follower asks it and reads its answer, v15 to v17. Pure.

Followers read all that is written, so this is as hot as Produce: the request is written at once,
and the records of an answer are views of the frame that it came in. They are gone when the frame's
buffer is used again. Promises are those of kraftpy.wire.hot: bytes that are no answer raise
WireError and nothing else.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kraftpy.types import TopicId, Uuid
from kraftpy.wire import hot
from kraftpy.wire.fetch import FETCH
from kraftpy.wire.generated import MALFORMED
from kraftpy.wire.primitives import tag_head, varint

VERSION_MIN: Final = 15  # The first that names the follower's epoch.
VERSION_MAX: Final = 17

# API key, version, number, no client id, no tags; wait, least and most bytes, isolation, session.
_HEAD: Final = struct.Struct(">hhihBiiibii")
# Index, leader epoch, offset, last epoch, log start, most bytes, no tags.
_PARTITION: Final = struct.Struct(">iiqiqiB")
# Nothing forgotten, no rack; one tag: the follower, its epoch, no tags.
_TAIL: Final = struct.Struct(">BBBBBiqB")
_REPLICA_STATE_TAG: Final = 1
_REPLICA_STATE_BYTES: Final = 13

_ANSWER: Final = struct.Struct(">ihi")  # Throttle time, error, session.
_FETCHED: Final = struct.Struct(">ihqqq")  # Index, error, high watermark, stable, log start.
_ABORTED_BYTES: Final = 16
_DIVERGING: Final = struct.Struct(">iq")
_NO_TAGS: Final = b"\0"


class WantedPartition(NamedTuple):
    """Where a follower's log ends."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int


class ReplicaFetch(NamedTuple):
    """What a follower asks for, and who it is."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    topics: Mapping[TopicId, Sequence[WantedPartition]]


class FetchedReplica(NamedTuple):
    """What the leader has for one partition; `diverging` is (epoch, end offset)."""

    topic_id: TopicId
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview | None
    diverging: tuple[int, int] | None


class ReplicaAnswer(NamedTuple):
    correlation_id: int
    error_code: int
    partitions: list[FetchedReplica]


def replica_fetch(request: ReplicaFetch, version: int, correlation_id: int) -> bytes:
    """The request's frame."""
    head = _HEAD.pack(
        FETCH,
        version,
        correlation_id,
        -1,
        0,
        request.max_wait_ms,
        request.bytes_min,
        request.bytes_max,
        0,
        0,
        -1,
    )
    out = [head, hot.array_head(len(request.topics), flexible=True)]
    for topic_id, partitions in request.topics.items():
        out += (topic_id, hot.array_head(len(partitions), flexible=True))
        out += [_PARTITION.pack(*partition, 0) for partition in partitions]
        out.append(_NO_TAGS)
    tag = (1, _REPLICA_STATE_TAG, _REPLICA_STATE_BYTES)
    out.append(_TAIL.pack(1, 1, *tag, request.replica_id, request.replica_epoch, 0))
    body = b"".join(out)
    return hot.INT32.pack(len(body)) + body


def read_replica_answer(frame: memoryview) -> ReplicaAnswer:
    """The answer to such a request; WireError if it is not one."""
    try:
        return _read(frame)
    except MALFORMED as error:
        raise hot.malformed("FetchResponse", error) from None


def _read(frame: memoryview) -> ReplicaAnswer:
    (correlation_id,) = hot.INT32.unpack_from(frame)
    at = hot.FLEXIBLE.skip_tags(frame, 4)
    _, error_code, _ = _ANSWER.unpack_from(frame, at)
    budget = hot.Budget()
    count, at = budget.array(frame, at + _ANSWER.size, hot.FLEXIBLE.size)
    partitions: list[FetchedReplica] = []
    for _ in range(count):
        end = hot.end_of(frame, at, hot.UUID_BYTES)
        topic_id = TopicId(Uuid(bytes(frame[at:end])))
        wanted, at = budget.array(frame, end, hot.FLEXIBLE.size)
        for _ in range(wanted):
            partition, at = _read_partition(frame, at, topic_id, budget)
            partitions.append(partition)
        at = hot.FLEXIBLE.skip_tags(frame, at)
    hot.FLEXIBLE.skip_tags(frame, at)
    return ReplicaAnswer(correlation_id, error_code, partitions)


def _read_partition(
    frame: memoryview, at: int, topic_id: TopicId, budget: hot.Budget
) -> tuple[FetchedReplica, int]:
    index, error_code, high_watermark, _, log_start = _FETCHED.unpack_from(frame, at)
    at += _FETCHED.size
    at = _skip_aborted(frame, at, budget)
    at += 4  # The preferred read replica, which is for consumers.
    length, at = hot.FLEXIBLE.size(frame, at)
    records = None
    if length >= 0:
        end = hot.end_of(frame, at, length)
        records = frame[at:end]
        at = end
    diverging = None
    if frame[at]:
        diverging, at = _read_tags(frame, at)
    else:
        at += 1
    found = FetchedReplica(
        topic_id, index, error_code, high_watermark, log_start, records, diverging
    )
    return found, at


def _skip_aborted(frame: memoryview, at: int, budget: hot.Budget) -> int:
    if frame[at] == 0:
        return at + 1  # Null: nobody asked for it.
    count, at = budget.array(frame, at, hot.FLEXIBLE.size)
    for _ in range(count):
        at = hot.FLEXIBLE.skip_tags(frame, at + _ABORTED_BYTES)
    return at


def _read_tags(frame: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    """Where the logs part ways, if that is among the tags."""
    count = frame[at]
    at += 1
    if count > 0x7F:
        count, at = varint(frame, at, count)
    diverging: tuple[int, int] | None = None
    for _ in range(count):
        tag, size, at = tag_head(frame, at)
        end = hot.end_of(frame, at, size)
        if tag == 0:
            epoch, end_offset = _DIVERGING.unpack_from(frame[at:end])
            diverging = epoch, end_offset
        at = end
    return diverging, at
