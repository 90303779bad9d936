"""OffsetCommit, OffsetFetch and OffsetDelete: from the wire to the committed offsets and back.

Topics are stored by name. From version 10 on clients name them by id, and are answered by id.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import classic_requests
from kraftpy.broker.groups.coordinator import GroupCoordinator, LedShard, store_error
from kraftpy.broker.groups.member_apis import TEXT_BYTES_MAX, group_error
from kraftpy.broker.groups.records import (
    LogRecord,
    OffsetKey,
    OffsetRecord,
    offset_key,
    offset_value,
)
from kraftpy.types import TopicId, from_wire_uuid, to_wire_uuid
from kraftpy.wire.apis import NO_THROTTLE, Request

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_NEVER: Final = -1
_FIRST_WITH_TOP_LEVEL_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_TOPIC_IDS: Final = 10
_ALL_TOPICS: Final = None
_TOO_LARGE: Final = ErrorCode.offset_metadata_too_large


class _Topic(NamedTuple):
    """A topic of a request: what it is called here, and what it is called in the answer."""

    name: str | None
    answer: dict[str, Any]
    error: ErrorCode
    partitions: Any


def _topic(coordinator: GroupCoordinator, asked: Any, partitions: Any, *, must_be: bool) -> _Topic:
    """`must_be`: a name that no topic has is an error, too."""
    image = coordinator.image
    if hasattr(asked, "topic_id"):
        known = image.topics.get(TopicId(from_wire_uuid(asked.topic_id)))
        error = ErrorCode.unknown_topic_id if known is None else ErrorCode.none
        name = None if known is None else known.name
        return _Topic(name, {"topic_id": asked.topic_id}, error, partitions)
    is_unknown = must_be and asked.name not in image.topic_ids
    error = ErrorCode.unknown_topic_or_partition if is_unknown else ErrorCode.none
    return _Topic(asked.name, {"name": asked.name}, error, partitions)


# -- OffsetCommit -------------------------------------------------------------------------------


async def offset_commit(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    message = request.message
    topics = [_topic(coordinator, each, each.partitions, must_be=True) for each in message.topics]
    results = [_commit_results(coordinator, topic) for topic in topics]
    led = _committing(coordinator, request)
    if isinstance(led, ErrorCode):
        error = led
    else:
        kept = _accepted(coordinator, message, topics, results)
        error = await _append(coordinator, led, kept) if kept else ErrorCode.none
    answer = [
        {
            **topic.answer,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": _told(result, error)}
                for each, result in zip(topic.partitions, found, strict=True)
            ],
        }
        for topic, found in zip(topics, results, strict=True)
    ]
    return request.response({"throttle_time": NO_THROTTLE, "topics": answer})


def _commit_results(coordinator: GroupCoordinator, topic: _Topic) -> list[ErrorCode | None]:
    """Why each partition's offset is not taken, whoever commits it; None if it may be."""
    if topic.error is not ErrorCode.none or topic.name is None:
        return [topic.error] * len(topic.partitions)
    known = coordinator.image.topic(topic.name)
    partitions = () if known is None else known.partitions
    bytes_max = min(coordinator.config.metadata_bytes_max, TEXT_BYTES_MAX)
    found: list[ErrorCode | None] = []
    for each in topic.partitions:
        text = each.committed_metadata
        if each.partition_index not in partitions:
            found.append(ErrorCode.unknown_topic_or_partition)
        elif text and len(text.encode()) > bytes_max:
            found.append(_TOO_LARGE)
        else:
            found.append(None)
    return found


def _committing(coordinator: GroupCoordinator, request: Request) -> LedShard | ErrorCode:
    """The shard that takes the offsets, or why it does not."""
    message = request.message
    group_id, generation = message.group_id, message.generation_id_or_member_epoch
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return led
    consumers = led.shard.consumers.find(group_id)
    if consumers is not None:
        version = request.header.api_version
        return consumers.check_commit(message.member_id, generation, version) or led
    group = led.shard.find(group_id)
    if group is None:
        if generation >= 0:
            return ErrorCode.illegal_generation
        group = led.shard.find_or_make(group_id, coordinator.clock.now_ms())
    instance_id = getattr(message, "group_instance_id", None)
    error = classic_requests.check_commit(group, message.member_id, instance_id, generation)
    coordinator.carry_out(led, group)
    return led if error is None else error


def _told(refused: ErrorCode | None, error: ErrorCode) -> ErrorCode:
    """The group looks at what is said of an offset after it has looked at who says it."""
    if refused is None or (refused is _TOO_LARGE and error is not ErrorCode.none):
        return error
    return refused


def _accepted(
    coordinator: GroupCoordinator,
    message: Any,
    topics: Iterable[_Topic],
    results: Iterable[list[ErrorCode | None]],
) -> list[tuple[OffsetKey, OffsetRecord]]:
    now_ms = coordinator.clock.now_ms()
    expire_ms = _NEVER
    retention = getattr(message, "retention_time", None)
    if retention is not None and retention >= timedelta(0):
        expire_ms = now_ms + int(retention.total_seconds() * 1000)
    found = []
    for topic, refused in zip(topics, results, strict=True):
        for each, error in zip(topic.partitions, refused, strict=True):
            if error is not None or topic.name is None:
                continue
            record = OffsetRecord(
                each.committed_offset,
                getattr(each, "committed_leader_epoch", _NO_EPOCH),
                each.committed_metadata or "",
                now_ms,
                expire_ms,
            )
            found.append((OffsetKey(message.group_id, topic.name, each.partition_index), record))
    return found


async def _append(
    coordinator: GroupCoordinator, led: LedShard, kept: list[tuple[OffsetKey, OffsetRecord]]
) -> ErrorCode:
    keys = [key for key, _ in kept]
    records = [LogRecord(offset_key(*key), offset_value(record)) for key, record in kept]
    offsets = led.shard.offsets
    offsets.sent(keys)
    return store_error(await coordinator.append(led, records, partial(offsets.settled, keys)))


# -- OffsetFetch --------------------------------------------------------------------------------


async def offset_fetch(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    message, version = request.message, request.header.api_version
    if version >= _FIRST_WITH_GROUPS:
        groups = [_fetch_group(coordinator, each, version) for each in message.groups]
        return request.response({"throttle_time": NO_THROTTLE, "groups": groups})
    found = _fetch_group(coordinator, message, version)
    return request.response({"throttle_time": NO_THROTTLE, **found})


def _fetch_group(coordinator: GroupCoordinator, asked: Any, version: int) -> dict[str, Any]:
    led = group_error(coordinator, asked.group_id)
    if not isinstance(led, ErrorCode) and not coordinator.is_current():
        led = ErrorCode.coordinator_load_in_progress  # It may have been stopped: see the config.
    if not isinstance(led, ErrorCode):
        led = _fetch_error(led, asked) or led
    if isinstance(led, ErrorCode):
        topics = [] if version >= _FIRST_WITH_TOP_LEVEL_ERROR else _refused(asked.topics, led)
        return {"group_id": asked.group_id, "topics": topics, "error_code": led}
    offsets = led.shard.offsets.of(asked.group_id)
    if asked.topics is _ALL_TOPICS:
        topics = _all_topics(coordinator, offsets, version)
    else:
        found = [
            _topic(coordinator, each, each.partition_indexes, must_be=False)
            for each in asked.topics
        ]
        topics = [
            {
                **topic.answer,
                "partitions": [
                    _fetched(index, offsets.get((topic.name or "", index)), topic.error)
                    for index in topic.partitions
                ],
            }
            for topic in found
        ]
    return {"group_id": asked.group_id, "topics": topics, "error_code": ErrorCode.none}


def _fetch_error(led: LedShard, asked: Any) -> ErrorCode | None:
    """Why a member of the new protocol is refused: it must not begin where another one was."""
    consumers = led.shard.consumers.find(asked.group_id)
    if consumers is None:
        return None
    member_id = getattr(asked, "member_id", None)
    return consumers.check_fetch(member_id, getattr(asked, "member_epoch", -1))


def _refused(topics: Any, error: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [_fetched(index, None, error) for index in topic.partition_indexes],
        }
        for topic in topics
    ]


def _all_topics(
    coordinator: GroupCoordinator, offsets: Mapping[tuple[str, int], OffsetRecord], version: int
) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), record in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(_fetched(index, record, ErrorCode.none))
    if version < _FIRST_WITH_TOPIC_IDS:
        return [{"name": name, "partitions": found} for name, found in by_topic.items()]
    ids = coordinator.image.topic_ids  # A topic that is gone has none, and cannot be answered for.
    return [
        {"topic_id": to_wire_uuid(ids[name]), "partitions": found}
        for name, found in by_topic.items()
        if name in ids
    ]


def _fetched(index: int, record: OffsetRecord | None, error: ErrorCode) -> dict[str, Any]:
    is_there = record is not None and error is ErrorCode.none
    return {
        "partition_index": index,
        "committed_offset": record.offset if record and is_there else _NO_OFFSET,
        "committed_leader_epoch": record.leader_epoch if record and is_there else _NO_EPOCH,
        "metadata": record.metadata if record and is_there else "",
        "error_code": error,
    }


# -- OffsetDelete -------------------------------------------------------------------------------


async def offset_delete(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    message = request.message
    asked = [
        (topic.name, each.partition_index) for topic in message.topics for each in topic.partitions
    ]
    led = group_error(coordinator, message.group_id)
    found = led if isinstance(led, ErrorCode) else led.shard.delete_offsets(message.group_id, asked)
    if isinstance(found, ErrorCode) or isinstance(led, ErrorCode):
        values: dict[str, Any] = {"error_code": found, "throttle_time": NO_THROTTLE, "topics": []}
        return request.response(values)
    records, results = found
    if records:
        error = store_error(await coordinator.append(led, records))
        if error is not ErrorCode.none:
            results = [each if each is not ErrorCode.none else error for each in results]
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), result in zip(asked, results, strict=True):
        by_topic.setdefault(topic, []).append({"partition_index": index, "error_code": result})
    topics = [{"name": name, "partitions": parts} for name, parts in by_topic.items()]
    return request.response(
        {"error_code": ErrorCode.none, "throttle_time": NO_THROTTLE, "topics": topics}
    )
