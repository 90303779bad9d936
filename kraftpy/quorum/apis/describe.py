"""ApiVersions, DescribeQuorum, DescribeCluster, Metadata, ListOffsets: what there is, and where."""

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.describe.api_versions import api_versions as api_versions
from kraftpy.quorum.apis.context import (
    METADATA_PARTITION_INDEX,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NOBODY,
    Context,
    by_partition,
)
from kraftpy.quorum.consensus import QuorumState
from kraftpy.quorum.log_view import Progress
from kraftpy.types import NO_EPOCH
from kraftpy.wire.apis import NO_THROTTLE, Request

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NOT_ASKED: Final = -(2**31)  # Of authorized operations.
_LATEST: Final = -1
_EARLIEST: Final = -2
_EARLIEST_LOCAL: Final = -4
_LISTENER_NAME: Final = "CONTROLLER"


# -- DescribeQuorum ---------------------------------------------------------------------------


async def describe_quorum(context: Context, request: Request) -> bytearray:
    """Who leads, and how far everybody is. Only the leader knows that; others say who leads."""

    async def answer(_partition: Any, is_log: bool) -> dict[str, Any]:
        return _quorum(context) if is_log else _no_quorum(ErrorCode.unknown_topic_or_partition)

    topics = await by_partition(request.message.topics, "topic_name", "partition_index", answer)
    nodes = [
        {
            "node_id": voter.node_id,
            "listeners": [{"name": _LISTENER_NAME, "host": voter.host, "port": voter.port}],
        }
        for voter in context.controllers.voters
    ]
    return request.response(
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "topics": topics,
            "nodes": nodes,
        }
    )


def _no_quorum(error_code: ErrorCode, **values: Any) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "error_message": None,
        "leader_id": NOBODY,
        "leader_epoch": NO_EPOCH,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
        **values,
    }


def _quorum(context: Context) -> dict[str, Any]:
    state = context.view.state()
    progress = Progress(state.leader_id, state.epoch, state.high_watermark)
    leader = context.current_leader(progress)
    if state.leader_id != context.view.node_id:
        return _no_quorum(ErrorCode.not_leader_or_follower, **leader)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        **leader,
        "high_watermark": state.high_watermark,
        "current_voters": list(_voters(state)),
        "observers": list(_observers(context, state.epoch)),
    }


def _voters(state: QuorumState) -> Iterable[dict[str, Any]]:
    for voter in state.voters:
        yield {
            "replica_id": voter.replica_id,
            "replica_directory_id": None,
            "log_end_offset": voter.log_end_offset,
            "last_fetch_timestamp": voter.last_fetch_ms,
            "last_caught_up_timestamp": voter.last_caught_up_ms,
        }


def _observers(context: Context, epoch: int) -> Iterable[dict[str, Any]]:
    for observer in context.observers.current(epoch=epoch, now_ms=context.clock.now_ms()):
        yield {
            "replica_id": observer.observer_id,
            "replica_directory_id": observer.directory_id,
            "log_end_offset": observer.log_end_offset,
            "last_fetch_timestamp": observer.last_fetch_ms,
            "last_caught_up_timestamp": observer.last_caught_up_ms,
        }


# -- DescribeCluster and Metadata -------------------------------------------------------------


async def describe_cluster(context: Context, request: Request) -> bytearray:
    """The controllers, as KIP-919 has it. A version that cannot ask for them gets them too."""
    endpoint_type = getattr(request.message, "endpoint_type", _CONTROLLERS)
    error_code, why = ErrorCode.none, None
    if endpoint_type != _CONTROLLERS:
        error_code, why = (
            (ErrorCode.mismatched_endpoint_type, "this is a controller, not a broker")
            if endpoint_type == _BROKERS
            else (ErrorCode.unsupported_endpoint_type, f"unknown endpoint type {endpoint_type}")
        )
    nodes = [{**node, "broker_id": node["node_id"], "is_fenced": False} for node in _nodes(context)]
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": error_code,
            "error_message": why,
            "endpoint_type": _CONTROLLERS,
            "cluster_id": context.controllers.cluster_id,
            "controller_id": context.current_leader(context.view.progress)["leader_id"],
            "brokers": nodes if error_code is ErrorCode.none else [],
            "cluster_authorized_operations": _NOT_ASKED,
        }
    )


def _nodes(context: Context) -> Iterable[dict[str, Any]]:
    for voter in context.controllers.voters:
        yield from context.endpoints(voter.node_id)


async def metadata(context: Context, request: Request) -> bytearray:
    """The controllers as nodes and the metadata log as the only topic, so that any client that is
    pointed at a controller can read it."""
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": ErrorCode.none,
            "brokers": list(_nodes(context)),
            "cluster_id": context.controllers.cluster_id,
            "controller_id": context.current_leader(context.view.progress)["leader_id"],
            "topics": list(_topics(context, request)),
            "cluster_authorized_operations": _NOT_ASKED,
        }
    )


def _topics(context: Context, request: Request) -> Iterable[dict[str, Any]]:
    asked = request.message.topics
    if asked is None or (not asked and request.header.api_version == 0):
        yield _metadata_topic(context)
        return
    for topic in asked:
        topic_id = getattr(topic, "topic_id", None)
        if topic.name == METADATA_TOPIC or (topic.name is None and topic_id == METADATA_TOPIC_ID):
            yield _metadata_topic(context)
            continue
        by_id = topic.name is None and topic_id is not None
        unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        name = "" if topic.name is None and request.header.api_version < 12 else topic.name
        yield {**_topic(unknown, [], topic_id), "name": name, "is_internal": False}


def _topic(error_code: ErrorCode, partitions: list[Any], topic_id: Any) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "name": METADATA_TOPIC,
        "topic_id": topic_id,
        "is_internal": True,
        "partitions": partitions,
        "topic_authorized_operations": _NOT_ASKED,
    }


def _metadata_topic(context: Context) -> dict[str, Any]:
    leader = context.current_leader(context.view.progress)
    led = leader["leader_id"] != NOBODY
    voters = [voter.node_id for voter in context.controllers.voters]
    partition = {
        "error_code": ErrorCode.none if led else ErrorCode.leader_not_available,
        "partition_index": METADATA_PARTITION_INDEX,
        **leader,
        "replica_nodes": voters,
        "isr_nodes": voters,
        "offline_replicas": [],
    }
    return _topic(ErrorCode.none, [partition], METADATA_TOPIC_ID)


# -- ListOffsets ------------------------------------------------------------------------------


async def list_offsets(context: Context, request: Request) -> bytearray:
    """Where a consumer of the metadata log may begin."""

    async def answer(partition: Any, is_log: bool) -> dict[str, Any]:
        values: dict[str, Any] = {
            "error_code": ErrorCode.unknown_topic_or_partition,
            "timestamp": -1,
            "offset": -1,
            "leader_epoch": NO_EPOCH,
        }
        if not is_log:
            return values
        progress = context.view.progress
        epoch = getattr(partition, "current_leader_epoch", NO_EPOCH)
        problem = context.leader_problem(progress, epoch)
        if problem is not None:
            return {**values, "error_code": problem}
        found = await _offset_at(context, progress, partition.timestamp)
        return {**values, "error_code": ErrorCode.none, **found}

    topics = await by_partition(request.message.topics, "name", "partition_index", answer)
    return request.response({"throttle_time": NO_THROTTLE, "topics": topics})


async def _offset_at(context: Context, progress: Progress, timestamp: int) -> dict[str, int]:
    if timestamp == _LATEST:
        return {"offset": progress.high_watermark, "leader_epoch": progress.epoch}
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return {"offset": context.view.log_start_offset}
    if timestamp < 0:
        return {}  # Tiers and largest timestamps: not of this log.
    found = await context.in_thread(context.view.offset_for_timestamp, timestamp)
    return {} if found is None else {"offset": found[0], "timestamp": found[1]}
