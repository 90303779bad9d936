"""ListGroups, DescribeGroups and DeleteGroups: what admins ask the coordinators."""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.classic_group import ClassicGroup
from kraftpy.broker.groups.classic_states import State
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.coordinator import GroupCoordinator, store_error
from kraftpy.broker.groups.member_apis import group_error
from kraftpy.wire.apis import NO_THROTTLE, Request

NOT_ASKED: Final = -(2**31)
# Bits of Kafka's AclOperation that a group knows: READ 3, DELETE 6, DESCRIBE 8, and, since Kafka
# 4, DESCRIBE_CONFIGS 10 and ALTER_CONFIGS 11.
GROUP_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8, 10, 11))
_FIRST_WITH_NOT_FOUND: Final = 6
_DEAD: Final = State.DEAD.value


async def list_groups(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    """Of this broker only: clients ask all of them."""
    message = request.message
    states = {each.lower() for each in getattr(message, "states_filter", ())}
    kinds = {each.lower() for each in getattr(message, "types_filter", ())}
    error, groups = ErrorCode.none, []
    for led in coordinator.led():
        if not led.is_loaded:
            error = ErrorCode.coordinator_load_in_progress
            continue
        groups += [
            _listed(group)
            for _, group in sorted(led.shard.groups.items())
            if (not states or group.state.value.lower() in states)
            and (not kinds or group.kind in kinds)
        ]
        groups += [
            _listed_consumers(group)
            for group in led.shard.consumers
            if (not states or group.state.state_name().lower() in states)
            and (not kinds or group.kind in kinds)
        ]
    return request.response({"throttle_time": NO_THROTTLE, "error_code": error, "groups": groups})


def _listed(group: ClassicGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state.value,
        "group_type": group.kind,
    }


def _listed_consumers(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state.state_name(),
        "group_type": group.kind,
    }


async def describe_groups(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    message, version = request.message, request.header.api_version
    wants_operations = getattr(message, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if wants_operations else NOT_ASKED
    groups = [
        {**_described(coordinator, each, version), "authorized_operations": operations}
        for each in message.groups
    ]
    return request.response({"throttle_time": NO_THROTTLE, "groups": groups})


def _described(coordinator: GroupCoordinator, group_id: str, version: int) -> dict[str, Any]:
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return _without_members(group_id, led, "")
    group = led.shard.find(group_id)
    if group is None:
        if version < _FIRST_WITH_NOT_FOUND:
            return _without_members(group_id, ErrorCode.none, _DEAD)
        is_other = led.shard.consumers.find(group_id) is not None
        why = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
        return _without_members(group_id, ErrorCode.group_id_not_found, _DEAD, why)
    is_stable = group.state is State.STABLE
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata(group.protocol) if is_stable else b"",
                "member_assignment": each.assignment if is_stable else b"",
            }
            for each in group.members.values()
        ],
    }


def _without_members(
    group_id: str, error: ErrorCode, state: str, why: str | None = None
) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": why,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


async def delete_groups(coordinator: GroupCoordinator, request: Request, _: str) -> bytearray:
    names = list(dict.fromkeys(request.message.groups_names))
    errors = await asyncio.gather(*(_delete(coordinator, each) for each in names))
    results = [
        {"group_id": name, "error_code": error} for name, error in zip(names, errors, strict=True)
    ]
    return request.response({"throttle_time": NO_THROTTLE, "results": results})


async def _delete(coordinator: GroupCoordinator, group_id: str) -> ErrorCode:
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return led
    group = led.shard.find(group_id)
    records = led.shard.delete_group(group_id, coordinator.clock.now_ms())
    if isinstance(records, ErrorCode):
        return records
    if group is not None:
        coordinator.carry_out(led, group)
    error = store_error(await coordinator.append(led, records))
    if error is not ErrorCode.none:
        led.shard.revive(group_id, coordinator.clock.now_ms())
    return error
