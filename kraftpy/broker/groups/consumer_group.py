"""One group of the new protocol (KIP-848): its heartbeats in order, and its timers. No IO.

Heartbeats, timers and the outcome of stores come in; effects come out, to be carried out in order.
What follows from a heartbeat is decided on the group as it is in the log. So one store at a time is
on its way; what comes meanwhile waits, and is decided together when it is known what became of it.
A heartbeat that changes nothing does not wait. Members are told of nothing that is not committed.

A member's partition is free only when a heartbeat, that came after the member was told to give it
up, does not name it. One that came before says little: the member may have been given the partition
by the answer before, and begin to read it while the heartbeat waits here. A member that joins has
none, so nothing is asked of it: it is in the target's epoch at once, with what others have not.

What always holds: who waits for an answer gets one; a member that is not heard for its session, or
that does not give up partitions for its rebalance timeout, is taken out.
"""

from collections import deque
from collections.abc import Collection
from typing import Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_decisions import Decision, Topics, decide
from kraftpy.broker.groups.consumer_records import NOTHING, MemberState, Partitions
from kraftpy.broker.groups.consumer_requests import (
    Asked,
    HeartbeatAnswer,
    HeartbeatRequest,
    Leaving,
    Operation,
)
from kraftpy.broker.groups.consumer_state import ConsumerState
from kraftpy.broker.groups.effects import Answer, Effect, StartTimer, StopTimer, Store, TimerKey
from kraftpy.broker.groups.subscriptions import CONSUMER

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
_FIRST_COMMIT_WITH_EPOCH: Final = 9


class ConsumerGroup:
    """The machine. One task owns it, and carries out `effects` before it calls again."""

    kind: Final = "consumer"
    protocol_type: Final = CONSUMER

    def __init__(self, state: ConsumerState, config: GroupConfig, topics: Topics) -> None:
        self.state = state
        self.config = config
        self.effects: list[Effect] = []
        self._topics = topics
        self._waiting: deque[Operation] = deque()  # At most one of each connection, and timers.
        self._storing: Decision | None = None
        self._refresh = True  # Topics may have changed since the last decision.
        self._revoking: dict[str, int] = {}  # Members with a rebalance timer, and their epoch.
        self._owned: dict[str, Partitions] = {}  # What members last said that they have.

    # -- looking ------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        return self.state.group_id

    @property
    def members(self) -> Collection[str]:
        return self.state.profiles

    @property
    def is_unused(self) -> bool:
        """Nobody is in it, or about to be."""
        return self.state.is_empty and self._storing is None and not self._waiting

    def topics_in_use(self) -> frozenset[str]:
        named = (name for each in self.state.profiles.values() for name in each.topics)
        return frozenset(self.state.topics).union(named)

    def drain(self) -> list[Effect]:
        """What is to be done now."""
        effects, self.effects = self.effects, []
        return effects

    # -- heartbeats ---------------------------------------------------------------------------

    def heartbeat(self, asked: HeartbeatRequest, token: object) -> None:
        """Answered by an effect, now or when what follows from it is committed."""
        if asked.owned is not None:
            self._owned[asked.member_id] = asked.owned
        if self._changes_nothing(asked):
            current = self.state.currents[asked.member_id]
            told = current.assigned if asked.is_full else None
            answer = HeartbeatAnswer(ErrorCode.none, None, asked.member_id, current.epoch, told)
            self.effects.append(Answer(token, answer))
            self._keep_alive(asked.member_id)
            return
        self._waiting.append(Asked(asked, token, self._released(asked.member_id)))
        self._go_on()

    def _released(self, member_id: str) -> Partitions:
        """Nothing, before it has said what it has; a heartbeat without that changes nothing."""
        owned = self._owned.get(member_id)
        return NOTHING if owned is None else self.state.current(member_id).revoking - owned

    def _changes_nothing(self, asked: HeartbeatRequest) -> bool:
        """Nearly all of them, while nobody comes or goes."""
        state = self.state
        profile = state.profiles.get(asked.member_id)
        if profile is None or self._refresh or state.epoch != state.target_epoch:
            return False
        if self._is_leaving(asked.member_id):
            return False
        says_nothing_new = (
            asked.epoch > 0
            and asked.epoch == state.current(asked.member_id).epoch
            and state.is_reconciled(asked.member_id)
            and asked.instance_id in (None, profile.instance_id)
            and asked.rack_id in (None, profile.rack_id)
            and asked.rebalance_timeout_ms in (-1, profile.rebalance_timeout_ms)
            and asked.assignor in (None, profile.assignor)
        )
        return (
            says_nothing_new
            and (asked.regex is None or asked.regex == (profile.regex or ""))
            and (asked.topics is None or tuple(sorted(set(asked.topics))) == profile.topics)
        )

    def take_out(self, member_id: str) -> None:
        self._waiting.append(Leaving(member_id))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._storing is None:
            operations = self._next_operations()
            decision = decide(
                self.state, operations, self._topics, self.config, refresh=self._refresh
            )
            self._refresh = False
            if decision.records:
                self._storing = decision
                self.effects.append(Store(decision.records, decision))
            else:
                self._tell(decision)
                self._watch(decision)

    def _next_operations(self) -> list[Operation]:
        """All that wait, up to where a member, or an instance, comes for the second time."""
        found: list[Operation] = []
        seen: set[tuple[str, str]] = set()
        while self._waiting:
            names = _names(self._waiting[0])
            if seen & names:
                break
            seen |= names
            found.append(self._waiting.popleft())
        return found

    # -- stores -------------------------------------------------------------------------------

    def stored(self, decision: Decision, error: ErrorCode, _now_ms: int) -> None:
        """Its records are committed, and replayed; or they are not, or it takes too long."""
        if error is ErrorCode.none:
            self._tell(decision)
            return
        self._refresh = True
        for token, _ in decision.answers:
            self.effects.append(Answer(token, HeartbeatAnswer(error)))

    def ended(self) -> None:
        """What became of the store is known, in time or not: the state is what the log says."""
        decision, self._storing = self._storing, None
        if decision is not None:
            self._watch(decision)
        self._go_on()

    def _tell(self, decision: Decision) -> None:
        for token, answer in decision.answers:
            self.effects.append(Answer(token, answer))

    def _watch(self, decision: Decision) -> None:
        for member_id in decision.gone:
            if member_id in self.state.profiles:  # Its end was not committed.
                self._keep_alive(member_id)
                continue
            self._owned.pop(member_id, None)
            self.effects.append(StopTimer((SESSION, member_id)))
            self._stop_rebalance_timer(member_id)
        for member_id in decision.alive:
            self._keep_alive(member_id)

    # -- timers -------------------------------------------------------------------------------

    def _keep_alive(self, member_id: str) -> None:
        if member_id not in self.state.profiles:
            return
        delay_ms = self.config.consumer_session_timeout_ms
        self.effects.append(StartTimer((SESSION, member_id), delay_ms))
        current = self.state.current(member_id)
        if current.state is not MemberState.UNREVOKED:
            self._stop_rebalance_timer(member_id)
        elif self._revoking.get(member_id) != current.epoch:
            self._revoking[member_id] = current.epoch
            delay_ms = max(self.state.profiles[member_id].rebalance_timeout_ms, 0)
            self.effects.append(StartTimer((REBALANCE, member_id), delay_ms))

    def _stop_rebalance_timer(self, member_id: str) -> None:
        if self._revoking.pop(member_id, None) is not None:
            self.effects.append(StopTimer((REBALANCE, member_id)))

    def timer_fired(self, key: TimerKey, _now_ms: int) -> None:
        kind, member_id = key
        if member_id not in self.state.profiles:
            return
        if kind == REBALANCE:
            epoch = self._revoking.pop(member_id, None)
            current = self.state.current(member_id)
            if current.state is MemberState.UNREVOKED and current.epoch == epoch:
                self.take_out(member_id)
        elif self._is_waiting(member_id):
            self._keep_alive(member_id)  # It has been heard, and cannot say more before we do.
        else:
            self.take_out(member_id)

    def _is_waiting(self, member_id: str) -> bool:
        storing = self._storing
        return (storing is not None and member_id in storing.alive) or any(
            isinstance(each, Asked) and each.request.member_id == member_id
            for each in self._waiting
        )

    def _is_leaving(self, member_id: str) -> bool:
        """Its time is over; that it has come after all does not change what was decided."""
        storing = self._storing
        return (storing is not None and member_id in storing.gone) or any(
            isinstance(each, Leaving) and each.member_id == member_id for each in self._waiting
        )

    def loaded(self) -> None:
        """The whole log was read: from now on members must show themselves."""
        for member_id in self.state.profiles:
            self._keep_alive(member_id)

    def topics_changed(self) -> None:
        """Seen at the next heartbeat of whichever member."""
        self._refresh = True

    def abandon(self, error: ErrorCode) -> None:
        """This coordinator is none any more: who waits is told."""
        tokens = [each.token for each in self._waiting if isinstance(each, Asked)]
        tokens += (token for token, _ in (self._storing.answers if self._storing else ()))
        self._waiting.clear()
        for token in tokens:
            self.effects.append(Answer(token, HeartbeatAnswer(error)))

    # -- offsets ------------------------------------------------------------------------------

    def check_commit(self, member_id: str, epoch: int, version: int) -> ErrorCode | None:
        """Why offsets are not taken, if they are not. A group without members takes anybody's."""
        if epoch < 0 and self.state.is_empty:
            return None
        if member_id not in self.state.currents:  # It was never told an epoch, or not any more.
            return ErrorCode.unknown_member_id
        if version < _FIRST_COMMIT_WITH_EPOCH:
            return ErrorCode.unsupported_version
        return self._check_epoch(member_id, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode | None:
        """Who is no member may ask, too."""
        if member_id is None and epoch < 0:
            return None
        if member_id is None or member_id not in self.state.currents:
            return ErrorCode.unknown_member_id
        return self._check_epoch(member_id, epoch)

    def _check_epoch(self, member_id: str, epoch: int) -> ErrorCode | None:
        is_own = epoch == self.state.current(member_id).epoch
        return None if is_own else ErrorCode.stale_member_epoch


def _names(operation: Operation) -> set[tuple[str, str]]:
    if isinstance(operation, Leaving):
        return {("member", operation.member_id)}
    request = operation.request
    names = {("member", request.member_id)}
    if request.instance_id is not None:
        names.add(("instance", request.instance_id))
    return names
