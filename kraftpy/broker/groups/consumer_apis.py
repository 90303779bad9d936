"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: from the wire to the group and back."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.admin_apis import GROUP_OPERATIONS, NOT_ASKED
from kraftpy.broker.groups.consumer_decisions import assignor_of
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.consumer_records import Partitions, by_topic
from kraftpy.broker.groups.consumer_requests import (
    JOIN,
    HeartbeatAnswer,
    HeartbeatRequest,
    check_request,
)
from kraftpy.broker.groups.coordinator import GroupCoordinator
from kraftpy.broker.groups.member_apis import group_error
from kraftpy.metadata_log.features import GROUP_VERSION
from kraftpy.types import TopicId, from_wire_uuid, random_uuid, to_wire_uuid, uuid_text
from kraftpy.wire.apis import NO_THROTTLE, Request

_FIRST_WITH_OWN_MEMBER_IDS: Final = 1
_CONSUMER_MEMBER: Final = 1


def _is_enabled(coordinator: GroupCoordinator) -> bool:
    """Only a cluster in which every node knows the protocol says so."""
    return coordinator.image.features.get(GROUP_VERSION, 0) >= 1


# -- ConsumerGroupHeartbeat ---------------------------------------------------------------------


async def consumer_group_heartbeat(
    coordinator: GroupCoordinator, request: Request, address: str
) -> bytearray:
    answer = await _heartbeat(coordinator, request, address)
    interval_ms = coordinator.config.consumer_heartbeat_interval_ms
    is_told = answer.error is ErrorCode.none
    assignment = None
    if answer.assigned is not None:
        assignment = {"topic_partitions": _by_id(answer.assigned)}
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": answer.error,
            "error_message": answer.why,
            "member_id": answer.member_id,
            "member_epoch": answer.epoch,
            "heartbeat_interval": timedelta(milliseconds=interval_ms if is_told else 0),
            "assignment": assignment,
        }
    )


async def _heartbeat(
    coordinator: GroupCoordinator, request: Request, address: str
) -> HeartbeatAnswer:
    if not _is_enabled(coordinator):
        return HeartbeatAnswer(ErrorCode.unsupported_version)
    group_id = request.message.group_id
    asked = _read(coordinator, request, address)
    if not group_id.strip():
        return HeartbeatAnswer(ErrorCode.invalid_request, "GroupId can't be empty.")
    refused = check_request(asked, coordinator.config.consumer_assignors)
    if refused is not None:
        return refused
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return HeartbeatAnswer(led)
    group = led.shard.consumers.find(group_id)
    if asked.epoch == JOIN:
        group = coordinator.make_consumers(led, group_id)
    if group is None:
        is_classic = led.shard.find(group_id) is not None
        why = f"Group {group_id} {'is not a consumer group' if is_classic else 'not found'}."
        return HeartbeatAnswer(ErrorCode.group_id_not_found, why)
    answered: asyncio.Future[HeartbeatAnswer] = asyncio.get_running_loop().create_future()
    group.heartbeat(asked, answered)
    coordinator.carry_out(led, group)
    led.shard.forget_consumers_if_unused(group, coordinator.clock.now_ms())
    return await answered


def _read(coordinator: GroupCoordinator, request: Request, address: str) -> HeartbeatRequest:
    message, version = request.message, request.header.api_version
    member_id = message.member_id
    if not member_id and message.member_epoch == JOIN and version < _FIRST_WITH_OWN_MEMBER_IDS:
        member_id = uuid_text(random_uuid(coordinator.rng))
    owned = None
    if message.topic_partitions is not None:
        owned = frozenset(
            (TopicId(from_wire_uuid(topic.topic_id)), index)
            for topic in message.topic_partitions
            for index in topic.partitions
        )
    return HeartbeatRequest(
        member_id=member_id,
        epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id or None,
        rebalance_timeout_ms=int(message.rebalance_timeout / timedelta(milliseconds=1)),
        topics=message.subscribed_topic_names,
        regex=getattr(message, "subscribed_topic_regex", None),
        assignor=message.server_assignor,
        owned=owned,
        client_id=request.header.client_id or "",
        client_host=f"/{address}",
    )


def _by_id(partitions: Partitions) -> list[dict[str, Any]]:
    return [
        {"topic_id": to_wire_uuid(topic_id), "partitions": indexes}
        for topic_id, indexes in by_topic(partitions).items()
    ]


# -- ConsumerGroupDescribe ----------------------------------------------------------------------


async def consumer_group_describe(
    coordinator: GroupCoordinator, request: Request, _address: str
) -> bytearray:
    message = request.message
    operations = GROUP_OPERATIONS if message.include_authorized_operations else NOT_ASKED
    groups = [
        {**_described(coordinator, each), "authorized_operations": operations}
        for each in message.group_ids
    ]
    return request.response({"throttle_time": NO_THROTTLE, "groups": groups})


def _described(coordinator: GroupCoordinator, group_id: str) -> Mapping[str, Any]:
    if not _is_enabled(coordinator):
        return _not_described(group_id, ErrorCode.unsupported_version, None)
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return _not_described(group_id, led, None)
    group = led.shard.consumers.find(group_id)
    if group is None:
        is_classic = led.shard.find(group_id) is not None
        why = f"Group {group_id} {'is not a consumer group' if is_classic else 'not found'}."
        return _not_described(group_id, ErrorCode.group_id_not_found, why)
    state = group.state
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": state.state_name(),
        "group_epoch": state.epoch,
        "assignment_epoch": state.target_epoch,
        "assignor_name": assignor_of(state, coordinator.config),
        "members": [_described_member(coordinator, group, each) for each in state.profiles],
    }


def _described_member(
    coordinator: GroupCoordinator, group: ConsumerGroup, member_id: str
) -> Mapping[str, Any]:
    profile, current = group.state.profiles[member_id], group.state.current(member_id)
    return {
        "member_id": member_id,
        "instance_id": profile.instance_id,
        "rack_id": profile.rack_id,
        "member_epoch": current.epoch,
        "client_id": profile.client_id,
        "client_host": profile.client_host,
        "subscribed_topic_names": profile.topics,
        "subscribed_topic_regex": profile.regex,
        "assignment": _named(coordinator, current.assigned),
        "target_assignment": _named(coordinator, group.state.target(member_id)),
        "member_type": _CONSUMER_MEMBER,
    }


def _named(coordinator: GroupCoordinator, partitions: Iterable[Any]) -> Mapping[str, Any]:
    """Topics that are gone have no name, and are left out."""
    topics = coordinator.image.topics
    return {
        "topic_partitions": [
            {
                "topic_id": to_wire_uuid(topic_id),
                "topic_name": topics[topic_id].name,
                "partitions": indexes,
            }
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in topics
        ]
    }


def _not_described(group_id: str, error: ErrorCode, why: str | None) -> Mapping[str, Any]:
    return {
        "error_code": error,
        "error_message": why,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
