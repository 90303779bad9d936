"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where records of a partition begin and end."""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.reads import Refused
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.errors import KraftError
from kraftpy.types import NO_EPOCH
from kraftpy.wire.apis import NO_THROTTLE, Request

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
_UNKNOWN: Final = -1
_READ_COMMITTED: Final = 1
_FIRST_WITH_NOT_AVAILABLE: Final = 5
_NO_LOW_WATERMARK: Final = -1


# -- ListOffsets ------------------------------------------------------------------------------


def list_offsets(manager: ReplicaManager, request: Request) -> bytearray:
    """For consumers, up to what they may see; for followers, up to the end of the log."""
    asked = request.message
    topics = [
        {
            "name": topic.name,
            "partitions": [
                _list_offset(manager, request, topic.name, each) for each in topic.partitions
            ],
        }
        for topic in asked.topics
    ]
    return request.response({"throttle_time": NO_THROTTLE, "topics": topics})


def _list_offset(
    manager: ReplicaManager, request: Request, topic: str, asked: Any
) -> dict[str, Any]:
    found = _find_offset(manager, request, topic, asked)
    values = {"timestamp": _UNKNOWN, "offset": _UNKNOWN, "leader_epoch": NO_EPOCH}
    code = ErrorCode.none
    if isinstance(found, ErrorCode):
        code = found
        if code is ErrorCode.offset_not_available:
            is_old = request.header.api_version < _FIRST_WITH_NOT_AVAILABLE
            code = ErrorCode.leader_not_available if is_old else code
    else:
        values |= found
    return {"partition_index": asked.partition_index, "error_code": code, **values}


def _find_offset(
    manager: ReplicaManager, request: Request, topic: str, asked: Any
) -> dict[str, int] | ErrorCode:
    hosted = manager.find(topic, None, asked.partition_index)
    if isinstance(hosted, ErrorCode):
        return hosted
    replica, log = hosted.replica, hosted.log
    leader_epoch = getattr(asked, "current_leader_epoch", NO_EPOCH)
    plan = replica.consumer_fetch(log.start_offset, leader_epoch=leader_epoch)
    if isinstance(plan, Refused):
        return plan.error
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _at(hosted, log.start_offset)
    is_follower = request.message.replica_id >= 0
    if is_follower and asked.timestamp == LATEST:
        return _at(hosted, log.end_offset)
    isolation = getattr(request.message, "isolation_level", 0)
    end = replica.latest_offset(
        leader_epoch=leader_epoch, read_committed=isolation == _READ_COMMITTED
    )
    if isinstance(end, ErrorCode) or asked.timestamp == LATEST:
        return end if isinstance(end, ErrorCode) else _at(hosted, end)
    return _by_timestamp(manager, hosted, asked.timestamp, end)


def _by_timestamp(
    manager: ReplicaManager, hosted: HostedPartition, timestamp: int, end_offset: int
) -> dict[str, int] | ErrorCode:
    if timestamp == MAX_TIMESTAMP:
        timestamp = hosted.log.max_timestamp
    if timestamp < 0:
        return {}  # Tiers, which there are none of; or no record has a timestamp.
    try:
        found = hosted.log.offset_for_timestamp(timestamp)
    except KraftError as error:
        manager.take_offline(hosted, error)
        return ErrorCode.kafka_storage_error
    if found is None or found[0] >= end_offset:
        return {}
    return {**_at(hosted, found[0]), "timestamp": found[1]}


def _at(hosted: HostedPartition, offset: int) -> dict[str, int]:
    return {"offset": offset, "leader_epoch": hosted.log.epochs.epoch_at(offset)}


# -- OffsetForLeaderEpoch ---------------------------------------------------------------------


def offset_for_leader_epoch(manager: ReplicaManager, request: Request) -> bytearray:
    """Where an epoch ends: how consumers and followers find that they have seen other records."""
    topics = [
        {
            "topic": topic.topic,
            "partitions": [_epoch_end(manager, topic.topic, each) for each in topic.partitions],
        }
        for topic in request.message.topics
    ]
    return request.response({"throttle_time": NO_THROTTLE, "topics": topics})


def _epoch_end(manager: ReplicaManager, topic: str, asked: Any) -> dict[str, Any]:
    hosted = manager.find(topic, None, asked.partition)
    found = (
        hosted
        if isinstance(hosted, ErrorCode)
        else hosted.replica.offset_for_leader_epoch(asked.current_leader_epoch, asked.leader_epoch)
    )
    values: dict[str, Any] = {"leader_epoch": NO_EPOCH, "end_offset": _UNKNOWN}
    if isinstance(found, ErrorCode):
        return {"partition": asked.partition, "error_code": found, **values}
    return {
        "partition": asked.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": found.epoch,
        "end_offset": found.end_offset,
    }


# -- DeleteRecords ----------------------------------------------------------------------------


async def delete_records(manager: ReplicaManager, request: Request) -> bytearray:
    """Move the start of logs; answered when all live replicas have followed, or in time."""
    asked = request.message
    work = [
        (topic.name, each, _delete(manager, topic.name, each))
        for topic in asked.topics
        for each in topic.partitions
    ]
    waiting = [done for _, _, done in work if isinstance(done, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting, timeout=asked.timeout.total_seconds())
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, each, done in work:
        topics.setdefault(name, []).append(
            {"partition_index": each.partition_index, **_deleted(done)}
        )
    answer = [{"name": name, "partitions": topics[name]} for name in topics]
    return request.response({"throttle_time": NO_THROTTLE, "topics": answer})


def _delete(manager: ReplicaManager, topic: str, asked: Any) -> ErrorCode | asyncio.Future[int]:
    hosted = manager.find(topic, None, asked.partition_index)
    if isinstance(hosted, ErrorCode):
        return hosted
    if not hosted.replica.is_leader:
        return ErrorCode.not_leader_or_follower
    if not manager.allows_deletion(hosted):
        return ErrorCode.policy_violation
    high_watermark = hosted.replica.high_watermark
    offset = high_watermark if asked.offset == LATEST else asked.offset
    if not 0 <= offset <= high_watermark:
        return ErrorCode.offset_out_of_range
    return manager.delete_records_before(hosted, offset)


def _deleted(done: ErrorCode | asyncio.Future[int]) -> dict[str, Any]:
    if isinstance(done, ErrorCode):
        return {"low_watermark": _NO_LOW_WATERMARK, "error_code": done}
    if not done.done():
        done.cancel()
        return {"low_watermark": _NO_LOW_WATERMARK, "error_code": ErrorCode.request_timed_out}
    return {"low_watermark": done.result(), "error_code": ErrorCode.none}
