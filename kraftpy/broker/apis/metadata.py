"""Metadata and DescribeCluster: brokers, topics and leaders, as clients of any age ask. Pure.

What old versions mean: version 0 takes an empty list for all topics, later ones take null; version
0 cannot tell that a replica is offline, so it gets REPLICA_NOT_AVAILABLE and only those that are
there; before version 6 a leader without the client's listener is LEADER_NOT_AVAILABLE.

A topic that is not there and may be created is part of the outcome: the caller has it created, and
the client, which was told UNKNOWN_TOPIC_OR_PARTITION, asks again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.apis.client_view import NO_BROKER, ClientView
from kraftpy.metadata_log.image import Partition, Topic
from kraftpy.metadata_log.topic_names import is_internal, name_problem
from kraftpy.types import BrokerId, TopicId, from_wire_uuid, to_wire_uuid
from kraftpy.wire.apis import NO_THROTTLE

_FIRST_WITH_LISTENER_ERRORS: Final = 6
_FIRST_WITH_TOPIC_IDS: Final = 12
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
NOT_ASKED: Final = -(2**31)  # Of authorized operations.
# Bits of Kafka's AclOperation: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
# CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12. Without an
# authorizer everybody may do all that the resource knows.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOutcome:
    """The values of the answer, and topics that should be created."""

    values: dict[str, Any]
    topics_to_create: tuple[str, ...] = ()


# -- Metadata ---------------------------------------------------------------------------------


def metadata(
    view: ClientView, version: int, asked: Any, *, auto_create: bool = False
) -> MetadataOutcome:
    """Answer a Metadata request; `auto_create` is the broker's own auto.create.topics.enable."""
    problem = _problem(version, asked)
    to_create: list[str] = []
    topics: list[dict[str, Any]] = []
    if problem is None:
        may_create = auto_create and getattr(asked, "allow_auto_topic_creation", True)
        topics = list(_topics(view, version, asked, to_create if may_create else None))
    wants_topic_operations = getattr(asked, "include_topic_authorized_operations", False)
    for topic in topics:
        known = wants_topic_operations and topic["error_code"] is ErrorCode.none
        topic["topic_authorized_operations"] = TOPIC_OPERATIONS if known else NOT_ASKED
    wants_operations = getattr(asked, "include_cluster_authorized_operations", False)
    values = {
        "throttle_time": NO_THROTTLE,
        "brokers": [
            {"node_id": n.broker_id, "host": n.host, "port": n.port, "rack": n.rack}
            for n in view.alive()
        ],
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id(),
        "topics": topics if problem is None else _refused(version, asked, problem),
        "cluster_authorized_operations": CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        "error_code": problem or ErrorCode.none,
    }
    return MetadataOutcome(values=values, topics_to_create=tuple(to_create))


def _problem(version: int, asked: Any) -> ErrorCode | None:
    """Versions 10 and 11 have a field for topic ids, and may not use it yet."""
    if version >= _FIRST_WITH_TOPIC_IDS or asked.topics is None:
        return None
    for topic in asked.topics:
        if topic.name is None or getattr(topic, "topic_id", None) is not None:
            return ErrorCode.invalid_request
    return None


def _refused(version: int, asked: Any, problem: ErrorCode) -> list[dict[str, Any]]:
    unknown = None if version >= _FIRST_WITH_TOPIC_IDS else ""
    return [
        _no_topic(problem, unknown if each.name is None else each.name) for each in asked.topics
    ]


def _topics(
    view: ClientView, version: int, asked: Any, to_create: list[str] | None
) -> Iterator[dict[str, Any]]:
    wanted = asked.topics
    if wanted is None or (not wanted and version == 0):
        yield from (_named(view, version, name) for name in view.topic_names())
        return
    ids = [each.topic_id for each in wanted if getattr(each, "topic_id", None) is not None]
    if ids:  # Whoever asks by id asks for nothing by name, as in Kafka.
        yield from (_by_id(view, version, TopicId(from_wire_uuid(each))) for each in unique(ids))
        return
    for name in unique(each.name for each in wanted if each.name is not None):
        found = _named(view, version, name)
        if to_create is not None and found["error_code"] is ErrorCode.unknown_topic_or_partition:
            to_create.append(name)
        yield found


def unique(keys: Iterable[Any]) -> Iterable[Any]:
    """Each once, in the order of their first time."""
    return dict.fromkeys(keys)


def _named(view: ClientView, version: int, name: str) -> dict[str, Any]:
    topic = view.image.topic(name)
    return _no_topic(missing(name), name) if topic is None else _topic(view, version, topic)


def missing(name: str) -> ErrorCode:
    """Why there is no topic of that name."""
    if name_problem(name) is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _by_id(view: ClientView, version: int, topic_id: TopicId) -> dict[str, Any]:
    topic = view.image.topics.get(topic_id)
    if topic is None:
        unknown = _no_topic(ErrorCode.unknown_topic_id, None)
        return {**unknown, "topic_id": to_wire_uuid(topic_id)}
    return _topic(view, version, topic)


def _no_topic(error_code: ErrorCode, name: str | None) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": None,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
    }


def _topic(view: ClientView, version: int, topic: Topic) -> dict[str, Any]:
    describe = _old_partition if version == 0 else _partition
    no_listener = (
        ErrorCode.listener_not_found
        if version >= _FIRST_WITH_LISTENER_ERRORS
        else ErrorCode.leader_not_available
    )
    partitions = topic.partitions
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": to_wire_uuid(topic.topic_id),
        "is_internal": is_internal(topic.name),
        "partitions": [
            describe(view, index, partitions[index], no_listener) for index in sorted(partitions)
        ],
    }


def _partition(
    view: ClientView, index: int, partition: Partition, no_listener: ErrorCode
) -> dict[str, Any]:
    leader, error_code = partition.leader, ErrorCode.none
    if leader not in view.nodes:
        registered = leader in view.image.brokers
        error_code = no_listener if registered else ErrorCode.leader_not_available
        leader = NO_BROKER
    return {
        "error_code": error_code,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": view.offline_replicas(partition),
    }


def _old_partition(
    view: ClientView, index: int, partition: Partition, no_listener: ErrorCode
) -> dict[str, Any]:
    """Version 0: replicas that cannot be reached are left out, and that is an error."""
    values = _partition(view, index, partition, no_listener)
    replicas, isr = _reachable(view, partition.replicas), _reachable(view, partition.isr)
    all_there = len(replicas) == len(partition.replicas) and len(isr) == len(partition.isr)
    if values["error_code"] is ErrorCode.none and not all_there:
        values["error_code"] = ErrorCode.replica_not_available
    return {**values, "replica_nodes": replicas, "isr_nodes": isr}


def _reachable(view: ClientView, brokers: tuple[BrokerId, ...]) -> list[BrokerId]:
    return [each for each in brokers if each in view.nodes and not view.nodes[each].fenced]


# -- DescribeCluster --------------------------------------------------------------------------


def describe_cluster(view: ClientView, asked: Any) -> dict[str, Any]:
    """Answer a DescribeCluster, which from version 1 on may ask for controllers: not here."""
    error_code, why = _endpoint_problem(getattr(asked, "endpoint_type", _BROKERS))
    with_fenced = getattr(asked, "include_fenced_brokers", False)
    nodes = list(view.nodes.values()) if with_fenced else view.alive()
    wants_operations = asked.include_cluster_authorized_operations
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "endpoint_type": _BROKERS,
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id(),
        "brokers": [
            {
                "broker_id": node.broker_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": node.fenced,
            }
            for node in (nodes if error_code is ErrorCode.none else [])
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    }


def _endpoint_problem(endpoint_type: int) -> tuple[ErrorCode, str | None]:
    if endpoint_type == _BROKERS:
        return ErrorCode.none, None
    if endpoint_type == _CONTROLLERS:
        return ErrorCode.mismatched_endpoint_type, "this is a broker, not a controller"
    return ErrorCode.unsupported_endpoint_type, f"unknown endpoint type {endpoint_type}"
