"""What members ask of a classic group: join, sync, heartbeat, leave, commit. No IO.

Each function decides one request against the group as it is, changes the group and leaves its
effects there. A request that must wait is answered by an effect with its token; the others return
their answer. Who is refused changes nothing.

Static members (KIP-345) are known by an instance id that they keep over restarts: whoever joins
under it takes the place of who had it before, and that one is fenced from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.classic_group import SESSION, ClassicGroup
from kraftpy.broker.groups.classic_members import Member, Protocols, Token
from kraftpy.broker.groups.classic_states import State
from kraftpy.broker.groups.effects import Answer, JoinAnswer, StartTimer, StopTimer, SyncAnswer
from kraftpy.types import Rng

_CLIENT_ID_CHARACTERS_MAX: Final = 255  # Of those that become part of a member id.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool  # Version 4 on: a new member comes twice, so that none is lost.
    can_skip_assignment: bool  # Version 9 on.


class SyncRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None


# -- JoinGroup ----------------------------------------------------------------------------------


def join(group: ClassicGroup, asked: JoinRequest, token: Token, rng: Rng, now_ms: int) -> None:
    """Answered by an effect, now or at the end of the rebalance."""
    error = _join_error(group, asked)
    if error is not None:
        group.effects.append(Answer(token, JoinAnswer(error, asked.member_id)))
    elif not asked.member_id:
        _join_new(group, asked, token, rng, now_ms)
    elif asked.member_id in group.pending:
        group.add(_member(asked, asked.member_id), token)
        _begin(group, asked)
        group.rebalance(now_ms)
    else:
        _join_again(group, group.members[asked.member_id], asked, token, now_ms)


def _join_error(group: ClassicGroup, asked: JoinRequest) -> ErrorCode | None:
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if not _has_room(group, asked.member_id):
        return ErrorCode.group_max_size_reached
    if not _can_speak(group, asked):
        return ErrorCode.inconsistent_group_protocol
    if asked.member_id and asked.member_id not in group.pending:
        return check_member(group, asked.member_id, asked.instance_id)
    return None


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    size_max, member = group.config.size_max, group.members.get(member_id)
    match group.state:
        case State.PREPARING_REBALANCE:
            is_counted = member is not None and member.is_joining
            return is_counted or group.members.joining < size_max
        case State.COMPLETING_REBALANCE | State.STABLE:
            return member is not None or len(group.members) < size_max
        case _:
            return True


def _can_speak(group: ClassicGroup, asked: JoinRequest) -> bool:
    if not asked.protocol_type or not asked.protocols:
        return False
    if group.state is State.EMPTY:
        return True
    is_same = group.protocol_type == asked.protocol_type
    return is_same and group.members.any_is_common(asked.protocols)


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Why it is not a member, if it is not; a static one that was replaced is fenced."""
    if instance_id is not None:
        known = group.members.static_member_id(instance_id)
        if known is None:
            return ErrorCode.unknown_member_id
        if known != member_id:
            return ErrorCode.fenced_instance_id
    return None if member_id in group.members else ErrorCode.unknown_member_id


def _join_new(group: ClassicGroup, asked: JoinRequest, token: Token, rng: Rng, now_ms: int) -> None:
    prefix = asked.client_id if asked.instance_id is None else asked.instance_id
    unique = UUID(bytes=rng.randbytes(16), version=4)
    member_id = f"{prefix[:_CLIENT_ID_CHARACTERS_MAX]}-{unique}"
    if asked.instance_id is not None:
        known = group.members.static_member_id(asked.instance_id)
        if known is not None:
            _join_as_before(group, asked, token, known, member_id, now_ms)
            return
    elif asked.needs_member_id:
        group.pending.add(member_id)
        group.effects.append(StartTimer((SESSION, member_id), asked.session_timeout_ms))
        group.effects.append(Answer(token, JoinAnswer(ErrorCode.member_id_required, member_id)))
        return
    group.add(_member(asked, member_id), token)
    _begin(group, asked)
    group.rebalance(now_ms)


def _begin(group: ClassicGroup, asked: JoinRequest) -> None:
    """The first member says what kind of group it is."""
    if group.state is State.EMPTY:
        group.protocol_type = asked.protocol_type


def _member(asked: JoinRequest, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        session_timeout_ms=asked.session_timeout_ms,
        protocols=asked.protocols,
    )


def _update(group: ClassicGroup, member: Member, asked: JoinRequest, token: Token) -> None:
    group.members.set_protocols(member, asked.protocols)
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.session_timeout_ms = asked.session_timeout_ms
    group.wait_for_join(member, token)


def _join_as_before(
    group: ClassicGroup, asked: JoinRequest, token: Token, old_id: str, new_id: str, now_ms: int
) -> None:
    """A static member that was restarted: if all is as it was, nobody else need notice."""
    old_leader = group.leader
    member = group.replace(old_id, new_id)
    member.client_id, member.client_host = asked.client_id, asked.client_host
    _update(group, member, asked, token)
    group.keep_alive(member)
    if group.state is not State.STABLE or group.members.elected_protocol() != group.protocol:
        group.rebalance(now_ms)
        return
    answer = group.joined(member)
    if group.leader == new_id and not asked.can_skip_assignment:
        # It must not think that it leads, or it would assign anew: so it hears its old name.
        answer = answer._replace(leader=old_leader or "", members=())
    elif group.leader == new_id:
        answer = answer._replace(skip_assignment=True)
    group.store_replacement(answer)


def _join_again(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, now_ms: int
) -> None:
    is_same = member.protocols == asked.protocols
    match group.state:
        case State.COMPLETING_REBALANCE if is_same:
            # It did not get the answer; the generation is as it was told.
            group.effects.append(Answer(token, group.joined(member)))
            group.keep_alive(member)
        case State.STABLE if is_same and member.member_id != group.leader:
            group.effects.append(Answer(token, group.joined(member)))
            group.keep_alive(member)
        case _:  # The leader joins again to have partitions assigned anew.
            _update(group, member, asked, token)
            group.rebalance(now_ms)


# -- SyncGroup ----------------------------------------------------------------------------------


def sync(group: ClassicGroup, asked: SyncRequest, token: Token) -> None:
    """Answered by an effect, now or when the leader's assignment is committed."""
    error = _sync_error(group, asked)
    if error is not None:
        group.effects.append(Answer(token, SyncAnswer(error)))
        return
    member = group.members[asked.member_id]
    group.synced(member.member_id)
    if group.state is State.STABLE:
        group.effects.append(Answer(token, group.assignment_of(member)))
        group.keep_alive(member)
        return
    group.wait_for_sync(member, token)
    if member.member_id == group.leader:
        group.store_assignment(asked.assignments)


def _sync_error(group: ClassicGroup, asked: SyncRequest) -> ErrorCode | None:
    error = check_generation(group, asked.member_id, asked.instance_id, asked.generation)
    if error is not None:
        return error
    for given, known in (
        (asked.protocol_type, group.protocol_type),
        (asked.protocol, group.protocol),
    ):
        if given is not None and given != known:
            return ErrorCode.inconsistent_group_protocol
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return None


def check_generation(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Why a member of a generation is refused, if it is."""
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    error = check_member(group, member_id, instance_id)
    if error is not None:
        return error
    return None if generation == group.generation else ErrorCode.illegal_generation


# -- Heartbeat and LeaveGroup -------------------------------------------------------------------


def heartbeat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    error = check_generation(group, member_id, instance_id, generation)
    if error is not None:
        return error
    group.keep_alive(group.members[member_id])
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(group: ClassicGroup, leaving: Sequence[LeavingMember], now_ms: int) -> list[ErrorCode]:
    """Each stands or falls alone; the others rebalance once."""
    if group.state is State.DEAD:
        return [ErrorCode.coordinator_not_available] * len(leaving)
    results = [_leave(group, each) for each in leaving]
    if ErrorCode.none in results:
        group.shrunk(now_ms)
    return results


def _leave(group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id and leaving.instance_id is not None:  # By an admin, who knows no ids.
        member_id = group.members.static_member_id(leaving.instance_id) or ""
    if member_id in group.pending:
        group.pending.discard(member_id)
        group.effects.append(StopTimer((SESSION, member_id)))
        return ErrorCode.none
    error = check_member(group, member_id, leaving.instance_id)
    if error is not None:
        return error
    group.remove(member_id)
    return ErrorCode.none


# -- OffsetCommit -------------------------------------------------------------------------------


def check_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Why offsets are not taken, if they are not. A group without members takes anybody's."""
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if generation < 0 and group.state is State.EMPTY:
        return None
    if generation < 0 and not member_id and instance_id is None:
        return ErrorCode.unknown_member_id
    error = check_generation(group, member_id, instance_id, generation)
    if error is not None:
        return error
    if group.state is State.COMPLETING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    group.keep_alive(group.members[member_id])
    return None
