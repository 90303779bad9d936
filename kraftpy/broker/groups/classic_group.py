"""One classic group: its members, its generations, and the way from one to the next. No IO.

Requests (classic_requests.py), timers and the outcome of stores come in; effects come out, to be
carried out in order. A generation begins when all members have joined, or those that have not are
taken for gone; it is stable when the leader's assignment is committed to the group's log, and not
before: a coordinator that takes over must find what members were told.

What always holds:
- A generation is given out once. Who speaks of another one is refused.
- A generation has one assignment: a leader that repeats its SyncGroup waits for the first one.
- Who waits for an answer gets one: at the end of the rebalance, or an error when it is removed,
  replaced or overtaken by its own repeated request.
- The last GroupRecord that was stored is the group as it stands whenever it is Stable or Empty and
  nothing is being stored.
"""

from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.classic_members import Member, Members, Token
from kraftpy.broker.groups.classic_states import TRANSITIONS, State
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.effects import (
    Answer,
    Effect,
    JoinAnswer,
    JoinedMember,
    StartTimer,
    StopTimer,
    Store,
    SyncAnswer,
    TimerKey,
)
from kraftpy.broker.groups.records import GroupRecord, LogRecord, group_key, group_value

SESSION: Final = "session"  # Of a member, or of one that was told its id and has not come back.
_JOIN: Final[TimerKey] = ("join", "")  # Members are to join until then.
_SYNC: Final[TimerKey] = ("sync", "")  # Members are to ask for their assignment until then.
_NEW_MEMBER_MS: Final = 5 * 60_000  # Such a one cannot send heartbeats yet.


class Assigned(NamedTuple):
    """A store: the leader has said who gets what."""

    generation: int
    assignments: dict[str, bytes]


class Replaced(NamedTuple):
    """A store: a static member came back under another id, and nothing else changed."""

    new_id: str
    answer: JoinAnswer


class Emptied(NamedTuple):
    """A store: nobody is left."""

    generation: int


Reason = Assigned | Replaced | Emptied


class ClassicGroup:
    """The machine. One task owns it, and carries out `effects` before it calls again."""

    kind: Final = "classic"

    def __init__(self, group_id: str, config: GroupConfig, now_ms: int) -> None:
        self.group_id = group_id
        self.config = config
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_ms = now_ms  # Since when, in wall time.
        self.generation = 0
        self.protocol_type: str | None = None  # None: offsets only, of consumers without a group.
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.pending: set[str] = set()  # Ids that were given out and have not joined yet.
        self.not_synced: set[str] = set()  # Members that have not asked for their assignment.
        self.storing: Assigned | None = None
        self.effects: list[Effect] = []
        self._grew = False  # Since the initial delay began.
        self._delay_left_ms = 0

    # -- looking ------------------------------------------------------------------------------

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.members.joining and not self.pending

    def record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """The group as it would be stored; with the assignments of the members, or with these."""
        if assignments is None:
            assignments = {each.member_id: each.assignment for each in self.members.values()}
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(
                each.record(self.protocol, assignments.get(each.member_id, b""))
                for each in self.members.values()
            ),
        )

    def drain(self) -> list[Effect]:
        """What is to be done now."""
        effects, self.effects = self.effects, []
        return effects

    def transition_to(self, state: State, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_ms = now_ms

    # -- from and to the log ------------------------------------------------------------------

    def load(self, record: GroupRecord) -> None:
        """Be what the log says: the group at the end of its last rebalance."""
        self.protocol_type = record.protocol_type or None
        self.generation = record.generation
        self.protocol = record.protocol
        self.leader = record.leader
        self.state_ms = record.state_ms
        self.members = Members()
        for member in record.members:
            self.members.add(Member.of(member, record.protocol))
        self.state = State.STABLE if record.members else State.EMPTY

    def loaded(self) -> None:
        """The whole log was read: from now on members must show themselves."""
        for member in self.members.values():
            self.keep_alive(member)

    def _store(self, reason: Reason, record: GroupRecord) -> None:
        stored = LogRecord(group_key(self.group_id), group_value(record))
        self.effects.append(Store((stored,), reason))

    def stored(
        self, reason: "Assigned | Replaced | Emptied", error: ErrorCode, now_ms: int
    ) -> None:
        """What became of a Store."""
        match reason:
            case Assigned(generation, assignments):
                self._assigned(generation, assignments, error, now_ms)
            case Replaced():
                self._replaced(reason, error, now_ms)
            case Emptied():
                pass  # It is in the log, or the next generation will be.

    def _assigned(
        self, generation: int, assignments: dict[str, bytes], error: ErrorCode, now_ms: int
    ) -> None:
        if self.state is not State.COMPLETING_REBALANCE or generation != self.generation:
            return  # The next rebalance has begun.
        self.storing = None
        if error is not ErrorCode.none:
            self.refuse_syncs(error)
            self.prepare_rebalance(now_ms)
            return
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.transition_to(State.STABLE, now_ms)
        for member in self.members.values():
            if member.sync_token is not None:
                self._answer_sync(member, self.assignment_of(member))
                self.keep_alive(member)

    def _replaced(self, replaced: Replaced, error: ErrorCode, now_ms: int) -> None:
        member = self.members.get(replaced.new_id)
        if self.state is not State.STABLE or member is None or not member.is_joining:
            return  # A rebalance has begun, at whose end it is answered.
        if error is not ErrorCode.none:
            # Nobody knows whether the log has it; the next generation will be in it, whole.
            self.prepare_rebalance(now_ms)
            return
        self.answer_join(member, replaced.answer)
        self.keep_alive(member)

    # -- answers ------------------------------------------------------------------------------

    def wait_for_join(self, member: Member, token: Token) -> None:
        before = self.members.set_joining(member, token)
        if before is not None:
            overtaken = JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id)
            self.effects.append(Answer(before, overtaken))

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        token = self.members.set_joining(member, None)
        if token is not None:
            self.effects.append(Answer(token, answer))

    def wait_for_sync(self, member: Member, token: Token) -> None:
        self._answer_sync(member, SyncAnswer(ErrorCode.rebalance_in_progress))  # Overtaken.
        member.sync_token = token

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            self.effects.append(Answer(token, answer))

    def refuse_syncs(self, error: ErrorCode) -> None:
        for member in self.members.values():
            if member.sync_token is not None:
                self._answer_sync(member, SyncAnswer(error))
                self.keep_alive(member)  # While it waited it could not show itself.

    def assignment_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol, member.assignment)

    def joined(self, member: Member) -> JoinAnswer:
        """What a member is told of the current generation; only the leader hears of the others."""
        return JoinAnswer(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            self.members_for_leader() if member.member_id == self.leader else (),
        )

    def members_for_leader(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol))
            for each in self.members.values()
        )

    # -- sessions -----------------------------------------------------------------------------

    def keep_alive(self, member: Member) -> None:
        delay_ms = _NEW_MEMBER_MS if member.is_new else member.session_timeout_ms
        self.effects.append(StartTimer((SESSION, member.member_id), delay_ms))

    def timer_fired(self, key: TimerKey, now_ms: int) -> None:
        match key:
            case ("session", member_id):
                self._session_expired(member_id, now_ms)
            case ("join", _):
                self._join_time_is_over(now_ms)
            case ("sync", _):
                self._sync_time_is_over(now_ms)

    def _session_expired(self, member_id: str, now_ms: int) -> None:
        if self.state is State.DEAD:
            return
        if member_id in self.pending:
            self.pending.discard(member_id)
            self.may_complete_join(now_ms)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        waits = member.is_joining or member.sync_token is not None
        if waits and not member.is_new:
            self.keep_alive(member)  # It cannot send heartbeats while it waits for us.
            return
        self.remove(member_id)
        self.shrunk(now_ms)

    # -- membership ---------------------------------------------------------------------------

    def add(self, member: Member, token: Token) -> None:
        if self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY:
            self._grew = True
        member.is_new = True
        self.members.add(member)
        self.wait_for_join(member, token)
        self.leader = self.leader or member.member_id
        self.pending.discard(member.member_id)
        self.keep_alive(member)

    def remove(self, member_id: str) -> None:
        """It is gone; what it waits for is answered. `shrunk` says what follows from it."""
        member = self.members[member_id]
        self.answer_join(member, JoinAnswer(ErrorCode.unknown_member_id, member_id))
        self._answer_sync(member, SyncAnswer(ErrorCode.unknown_member_id))
        self.members.remove(member_id)
        self.not_synced.discard(member_id)
        self.effects.append(StopTimer((SESSION, member_id)))
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old_id: str, new_id: str) -> Member:
        """A static member under another id; who waits as the old one is fenced."""
        member = self.members[old_id]
        fenced = ErrorCode.fenced_instance_id
        self.answer_join(member, JoinAnswer(fenced, old_id))
        self._answer_sync(member, SyncAnswer(fenced))
        self.members.remove(old_id)
        self.effects.append(StopTimer((SESSION, old_id)))
        member.member_id = new_id
        self.members.add(member)
        if old_id in self.not_synced:
            self.not_synced.discard(old_id)
            self.not_synced.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def store_replacement(self, answer: JoinAnswer) -> None:
        self._store(Replaced(answer.member_id, answer), self.record())

    def store_assignment(self, assignments: dict[str, bytes]) -> None:
        if self.storing is None:
            self.storing = Assigned(self.generation, assignments)
            self._store(self.storing, self.record(assignments))

    def shrunk(self, now_ms: int) -> None:
        """Members are gone: the others share what they had."""
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(now_ms)
        else:
            self.may_complete_join(now_ms)

    # -- the way to the next generation -------------------------------------------------------

    def rebalance(self, now_ms: int) -> None:
        """Begin one, unless it has begun: then see whether it is at its end."""
        if self.state is State.PREPARING_REBALANCE:
            self.may_complete_join(now_ms)
        else:
            self.prepare_rebalance(now_ms)

    def prepare_rebalance(self, now_ms: int) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self.storing = None
            self.refuse_syncs(ErrorCode.rebalance_in_progress)
        self.effects.append(StopTimer(_SYNC))
        self.not_synced.clear()
        is_initial = self.state is State.EMPTY
        self.transition_to(State.PREPARING_REBALANCE, now_ms)
        timeout_ms = self.members.rebalance_timeout_ms()
        if is_initial:  # More members are likely on their way: wait for them a little.
            self._grew = False
            delay_ms = self.config.initial_rebalance_delay_ms
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self.effects.append(StartTimer(_JOIN, delay_ms))
            return
        self.effects.append(StartTimer(_JOIN, timeout_ms))
        self.may_complete_join(now_ms)

    def may_complete_join(self, now_ms: int) -> None:
        is_delayed = self.previous_state is State.EMPTY
        if (
            self.state is State.PREPARING_REBALANCE
            and self.has_all_joined
            and not (is_delayed and self.members)
        ):
            self._complete_join(now_ms)

    def _join_time_is_over(self, now_ms: int) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self.previous_state is State.EMPTY and self._grew and self._delay_left_ms:
            delay_ms = min(self.config.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._grew = False
            self.effects.append(StartTimer(_JOIN, delay_ms))
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Whoever has joined by now is in the next generation."""
        late = [each for each in self.members.values() if not each.is_joining]
        for member in late:
            if member.instance_id is None:
                self.remove(member.member_id)
        if self.members and not self._elect_leader():
            # Static members only, and none of them came: they keep their places until their
            # sessions end.
            self.effects.append(StartTimer(_JOIN, self.members.rebalance_timeout_ms()))
            return
        self.effects.append(StopTimer(_JOIN))
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self.transition_to(State.EMPTY, now_ms)
            self._store(Emptied(self.generation), self.record())
            return
        self.protocol = self.members.elected_protocol()
        self.transition_to(State.COMPLETING_REBALANCE, now_ms)
        self._begin_sync()

    def _begin_sync(self) -> None:
        self.not_synced = set(self.members)
        for member in self.members.values():
            self.answer_join(member, self.joined(member))
            member.is_new = False
            self.keep_alive(member)
        self.effects.append(StartTimer(_SYNC, self.members.rebalance_timeout_ms()))

    def _elect_leader(self) -> bool:
        """Among those who joined, the current one if it is there; whether there is one."""
        if self.leader is not None and self.members[self.leader].is_joining:
            return True
        found = next((each.member_id for each in self.members.values() if each.is_joining), None)
        self.leader = found or self.leader
        return found is not None

    def synced(self, member_id: str) -> None:
        """A member has asked for its assignment."""
        self.not_synced.discard(member_id)
        if not self.not_synced:
            self.effects.append(StopTimer(_SYNC))

    def _sync_time_is_over(self, now_ms: int) -> None:
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self.not_synced:
            return
        for member_id in [each for each in self.members if each in self.not_synced]:
            self.remove(member_id)
        self.shrunk(now_ms)

    # -- the end ------------------------------------------------------------------------------

    def abandon(self, error: ErrorCode) -> None:
        """This coordinator is not the group's any more: whoever waits must look for it."""
        for member in self.members.values():
            self.answer_join(member, JoinAnswer(error, member.member_id))
            self._answer_sync(member, SyncAnswer(error))

    def die(self, now_ms: int) -> None:
        """The group is deleted; it is empty, or the next one of its name must not meet it."""
        assert not self.members
        self.effects.append(StopTimer(_JOIN))
        self.effects.extend(StopTimer((SESSION, each)) for each in sorted(self.pending))
        self.pending.clear()
        self.transition_to(State.DEAD, now_ms)
