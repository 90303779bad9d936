"""Metadata and DescribeCluster: brokers, topics and leaders, as clients of any age ask. Pure.

What old versions mean: version 0 takes an empty list for all topics, later ones take null; version
0 cannot tell that a replica is offline, so it gets REPLICA_NOT_AVAILABLE and only those that are
there; before version 6 a leader without the client's listener is LEADER_NOT_AVAILABLE.

A topic that is not there and may be created is part of the outcome: the caller has it created, and
the client, which was told UNKNOWN_TOPIC_OR_PARTITION, asks again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

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


class Missing(NamedTuple):
    """A topic that was asked for and is not there."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None = None


# -- Metadata ---------------------------------------------------------------------------------


def metadata(
    view: ClientView, version: int, asked: Any, *, auto_create: bool = False
) -> MetadataOutcome:
    """Answer a Metadata request; `auto_create` is the broker's own auto.create.topics.enable.

    metadata_handler.py gives the same answer faster.
    """
    found = wanted_topics(view, version, asked)
    values = without_topics(view, version, asked)
    wants_operations = wants_topic_operations(asked)
    values["topics"] = [
        missing_values(each)
        if isinstance(each, Missing)
        else topic_values(view, version, each, with_operations=wants_operations)
        for each in found
    ]
    to_create = topics_to_create(found, asked) if auto_create else ()
    return MetadataOutcome(values=values, topics_to_create=to_create)


def wants_topic_operations(asked: Any) -> bool:
    return bool(getattr(asked, "include_topic_authorized_operations", False))


def without_topics(view: ClientView, version: int, asked: Any) -> dict[str, Any]:
    """All of the answer but its topics."""
    wants_operations = getattr(asked, "include_cluster_authorized_operations", False)
    return {
        "throttle_time": NO_THROTTLE,
        "brokers": [
            {"node_id": n.broker_id, "host": n.host, "port": n.port, "rack": n.rack}
            for n in view.alive()
        ],
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id(),
        "topics": [],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        "error_code": _problem(version, asked) or ErrorCode.none,
    }


def topics_to_create(found: Sequence[Topic | Missing], asked: Any) -> tuple[str, ...]:
    """Those that are not there, may be called so, and that the client would have created."""
    if not getattr(asked, "allow_auto_topic_creation", True):
        return ()
    unknown = ErrorCode.unknown_topic_or_partition
    missing = [each for each in found if isinstance(each, Missing)]
    return tuple(each.name for each in missing if each.name and each.error_code is unknown)


def wanted_topics(view: ClientView, version: int, asked: Any) -> list[Topic | Missing]:
    """What was asked for, each once; a name or id without a topic is there with its error."""
    wanted = asked.topics
    if wanted is None or (not wanted and version == 0):
        return [named(view, name) for name in view.topic_names()]
    problem = _problem(version, asked)
    if problem is not None:
        return [Missing(problem, each.name or "") for each in wanted]
    ids = [each.topic_id for each in wanted if getattr(each, "topic_id", None) is not None]
    if ids:  # Whoever asks by id asks for nothing by name, as in Kafka.
        return [_by_id(view, each) for each in dict.fromkeys(ids)]
    names = dict.fromkeys(each.name for each in wanted if each.name is not None)
    return [named(view, name) for name in names]


def _problem(version: int, asked: Any) -> ErrorCode | None:
    """Versions 10 and 11 have a field for topic ids, and may not use it yet."""
    if version >= _FIRST_WITH_TOPIC_IDS or asked.topics is None:
        return None
    for topic in asked.topics:
        if topic.name is None or getattr(topic, "topic_id", None) is not None:
            return ErrorCode.invalid_request
    return None


def named(view: ClientView, name: str) -> Topic | Missing:
    topic = view.image.topic(name)
    if topic is not None:
        return topic
    bad = name_problem(name) is not None
    unknown = ErrorCode.unknown_topic_or_partition
    return Missing(ErrorCode.invalid_topic_exception if bad else unknown, name)


def _by_id(view: ClientView, topic_id: UUID) -> Topic | Missing:
    topic = view.image.topics.get(TopicId(from_wire_uuid(topic_id)))
    return Missing(ErrorCode.unknown_topic_id, None, topic_id) if topic is None else topic


def missing_values(missing: Missing) -> dict[str, Any]:
    name = missing.name
    return {
        "error_code": missing.error_code,
        "name": name,
        "topic_id": missing.topic_id,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


def topic_values(
    view: ClientView, version: int, topic: Topic, *, with_operations: bool
) -> dict[str, Any]:
    no_listener = ErrorCode.leader_not_available
    if version >= _FIRST_WITH_LISTENER_ERRORS:
        no_listener = ErrorCode.listener_not_found
    partitions = topic.partitions
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": to_wire_uuid(topic.topic_id),
        "is_internal": is_internal(topic.name),
        "partitions": [
            old_partition(view, index, partitions[index])
            if version == 0
            else _partition(view, index, partitions[index], no_listener)
            for index in sorted(partitions)
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS if with_operations else NOT_ASKED,
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


def old_partition(view: ClientView, index: int, partition: Partition) -> dict[str, Any]:
    """Version 0: replicas that cannot be reached are left out, and that is an error."""
    values = _partition(view, index, partition, ErrorCode.leader_not_available)
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
