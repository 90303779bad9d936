"""DescribeTopicPartitions (KIP-966): topics with their eligible leaders, page by page. Pure.

Topics come in the order of their names. An answer holds a bounded number of partitions; where it
ends before the last one, its cursor says where the next request begins.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.apis.client_view import NO_BROKER, ClientView
from kraftpy.broker.apis.metadata import NOT_ASKED, Missing, missing_values, named
from kraftpy.metadata_log.image import Partition, Topic
from kraftpy.metadata_log.topic_names import is_internal
from kraftpy.types import to_wire_uuid
from kraftpy.wire.apis import NO_THROTTLE


class _Cursor(NamedTuple):
    topic_name: str
    partition_index: int


def describe_topic_partitions(view: ClientView, asked: Any, partitions_max: int) -> dict[str, Any]:
    """`partitions_max` is max.request.partition.size.limit; the client may ask for less."""
    room = max(1, min(partitions_max, asked.response_partition_limit))
    start = _Cursor("", 0) if asked.cursor is None else _Cursor(*_parts(asked.cursor))
    names = _names(view, asked, start)
    problem = _problem(asked, names, start)
    if problem is not None:
        refused = [missing_values(Missing(problem, each.name)) for each in asked.topics]
        return _answer(refused, None)
    found: list[dict[str, Any]] = []
    for name in names:
        topic = named(view, name)
        if isinstance(topic, Missing):
            found.append(missing_values(topic))
            continue
        if room == 0:
            return _answer(found, _Cursor(name, 0))
        first = start.partition_index if name == start.topic_name else 0
        described, following = _partitions(view, topic, first, room)
        found.append(_topic(topic, described))
        if following is not None:
            return _answer(found, _Cursor(name, following))
        room -= len(described)
    return _answer(found, None)


def _parts(cursor: Any) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _names(view: ClientView, asked: Any, start: _Cursor) -> Sequence[str]:
    if not asked.topics:
        return [name for name in view.topic_names() if name >= start.topic_name]
    return sorted({each.name for each in asked.topics if each.name >= start.topic_name})


def _problem(asked: Any, names: Sequence[str], start: _Cursor) -> ErrorCode | None:
    if start.partition_index < 0:
        return ErrorCode.invalid_request
    if asked.cursor is not None and asked.topics and start.topic_name not in names:
        return ErrorCode.invalid_request  # The cursor is not from an answer to this request.
    return None


def _partitions(
    view: ClientView, topic: Topic, first: int, room: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Some partitions, and the index of the one that follows them."""
    indexes = iter([index for index in sorted(topic.partitions) if index >= first])
    described = [
        _partition(view, index, topic.partitions[index]) for index in islice(indexes, room)
    ]
    return described, next(indexes, None)


def _partition(view: ClientView, index: int, partition: Partition) -> dict[str, Any]:
    reachable = partition.leader in view.nodes
    return {
        "error_code": ErrorCode.none if reachable else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": partition.leader if reachable else NO_BROKER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "offline_replicas": view.offline_replicas(partition),
    }


def _topic(topic: Topic, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": to_wire_uuid(topic.topic_id),
        "is_internal": is_internal(topic.name),
        "partitions": partitions,
        "topic_authorized_operations": NOT_ASKED,
    }


def _answer(topics: list[dict[str, Any]], cursor: _Cursor | None) -> dict[str, Any]:
    return {
        "throttle_time": NO_THROTTLE,
        "topics": topics,
        "next_cursor": None if cursor is None else cursor._asdict(),
    }
