"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: from the wire to the group's machine and back."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import classic_requests
from kraftpy.broker.groups.classic_requests import JoinRequest, LeavingMember, SyncRequest
from kraftpy.broker.groups.coordinator import GroupCoordinator, LedShard
from kraftpy.broker.groups.effects import JoinAnswer, SyncAnswer
from kraftpy.wire.apis import NO_THROTTLE, Request

_FIRST_WITH_MEMBER_ID_REQUIRED: Final = 4
_FIRST_WITH_NULL_PROTOCOL: Final = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9
_FIRST_BATCHED_LEAVE: Final = 3
TEXT_BYTES_MAX: Final = 2**15 - 1  # What Kafka's records can hold.


def group_error(coordinator: GroupCoordinator, group_id: str) -> LedShard | ErrorCode:
    """The group's shard, or why there is none here."""
    if not group_id or len(group_id.encode()) > TEXT_BYTES_MAX:
        return ErrorCode.invalid_group_id
    return coordinator.find(group_id)


# -- JoinGroup ----------------------------------------------------------------------------------


async def join_group(coordinator: GroupCoordinator, request: Request, address: str) -> bytearray:
    answer = await _join(coordinator, request, address)
    version = request.header.api_version
    protocol = answer.protocol
    if protocol is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol = ""
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": answer.error,
            "generation_id": answer.generation,
            "protocol_type": answer.protocol_type,
            "protocol_name": protocol,
            "leader": answer.leader,
            "skip_assignment": answer.skip_assignment,
            "member_id": answer.member_id,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "metadata": each.metadata,
                }
                for each in answer.members
            ],
        }
    )


async def _join(coordinator: GroupCoordinator, request: Request, address: str) -> JoinAnswer:
    asked = _read_join(request, address)
    group_id = request.message.group_id
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return JoinAnswer(led, asked.member_id)
    error = _join_problem(coordinator, asked)
    if error is None and asked.member_id and led.shard.find(group_id) is None:
        error = ErrorCode.unknown_member_id
    if error is None and not coordinator.end_consumers(led, group_id):
        error = ErrorCode.inconsistent_group_protocol
    if error is not None:
        return JoinAnswer(error, asked.member_id)
    now_ms = coordinator.clock.now_ms()
    group = led.shard.find_or_make(group_id, now_ms)
    answered: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
    classic_requests.join(group, asked, answered, coordinator.rng, now_ms)
    coordinator.carry_out(led, group)
    led.shard.forget_if_unused(group)
    return await answered


def _read_join(request: Request, address: str) -> JoinRequest:
    message, version = request.message, request.header.api_version
    session_timeout_ms = _milliseconds(message.session_timeout)
    rebalance_timeout = getattr(message, "rebalance_timeout", message.session_timeout)
    return JoinRequest(
        member_id=message.member_id,
        instance_id=getattr(message, "group_instance_id", None),
        client_id=request.header.client_id or "",
        client_host=f"/{address}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=_milliseconds(rebalance_timeout),
        protocol_type=message.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in message.protocols),
        needs_member_id=version >= _FIRST_WITH_MEMBER_ID_REQUIRED,
        can_skip_assignment=version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
    )


def _join_problem(coordinator: GroupCoordinator, asked: JoinRequest) -> ErrorCode | None:
    config = coordinator.config
    if not (
        config.session_timeout_ms_min <= asked.session_timeout_ms <= config.session_timeout_ms_max
    ):
        return ErrorCode.invalid_session_timeout
    texts = (asked.instance_id or "", asked.protocol_type, *(name for name, _ in asked.protocols))
    if any(len(each.encode()) > TEXT_BYTES_MAX for each in texts):
        return ErrorCode.invalid_request
    return None


def _milliseconds(value: Any) -> int:
    return int(value.total_seconds() * 1000)


# -- SyncGroup ----------------------------------------------------------------------------------


async def sync_group(coordinator: GroupCoordinator, request: Request, _address: str) -> bytearray:
    answer = await _sync(coordinator, request.message)
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": answer.error,
            "protocol_type": answer.protocol_type,
            "protocol_name": answer.protocol,
            "assignment": answer.assignment,
        }
    )


async def _sync(coordinator: GroupCoordinator, message: Any) -> SyncAnswer:
    led = group_error(coordinator, message.group_id)
    if isinstance(led, ErrorCode):
        # What a client does not expect here it takes for fatal: it is to join again (as Kafka).
        is_loading = led is ErrorCode.coordinator_load_in_progress
        return SyncAnswer(ErrorCode.rebalance_in_progress if is_loading else led)
    group = led.shard.find(message.group_id)
    if group is None:
        return SyncAnswer(ErrorCode.unknown_member_id)
    asked = SyncRequest(
        message.member_id,
        getattr(message, "group_instance_id", None),
        message.generation_id,
        getattr(message, "protocol_type", None),
        getattr(message, "protocol_name", None),
        {each.member_id: each.assignment for each in message.assignments},
    )
    answered: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
    classic_requests.sync(group, asked, answered)
    coordinator.carry_out(led, group)
    return await answered


# -- Heartbeat and LeaveGroup -------------------------------------------------------------------


async def heartbeat(coordinator: GroupCoordinator, request: Request, _address: str) -> bytearray:
    error = _heartbeat(coordinator, request.message)
    return request.response({"throttle_time": NO_THROTTLE, "error_code": error})


def _heartbeat(coordinator: GroupCoordinator, message: Any) -> ErrorCode:
    led = group_error(coordinator, message.group_id)
    if isinstance(led, ErrorCode):
        # Its session begins anew when the group is loaded: it need not do anything (as Kafka).
        is_loading = led is ErrorCode.coordinator_load_in_progress
        return ErrorCode.none if is_loading else led
    group = led.shard.find(message.group_id)
    if group is None:
        return ErrorCode.unknown_member_id
    instance_id = getattr(message, "group_instance_id", None)
    error = classic_requests.heartbeat(group, message.member_id, instance_id, message.generation_id)
    coordinator.carry_out(led, group)
    return error


async def leave_group(coordinator: GroupCoordinator, request: Request, _address: str) -> bytearray:
    message = request.message
    if request.header.api_version < _FIRST_BATCHED_LEAVE:
        leaving = [LeavingMember(message.member_id, None)]
    else:
        leaving = [
            LeavingMember(each.member_id, each.group_instance_id) for each in message.members
        ]
    found = _leave(coordinator, message.group_id, leaving)
    if isinstance(found, ErrorCode):
        return request.response(_left(found, []))
    if request.header.api_version < _FIRST_BATCHED_LEAVE:
        return request.response(_left(found[0], []))
    members = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": error}
        for each, error in zip(leaving, found, strict=True)
    ]
    return request.response(_left(ErrorCode.none, members))


def _leave(
    coordinator: GroupCoordinator, group_id: str, leaving: list[LeavingMember]
) -> list[ErrorCode] | ErrorCode:
    led = group_error(coordinator, group_id)
    if isinstance(led, ErrorCode):
        return led
    group = led.shard.find(group_id)
    if group is None:
        return [ErrorCode.unknown_member_id] * len(leaving)
    results = classic_requests.leave(group, leaving, coordinator.clock.now_ms())
    coordinator.carry_out(led, group)
    led.shard.forget_if_unused(group)
    return results


def _left(error: ErrorCode, members: list[dict[str, Any]]) -> Mapping[str, Any]:
    return {"throttle_time": NO_THROTTLE, "error_code": error, "members": members}
