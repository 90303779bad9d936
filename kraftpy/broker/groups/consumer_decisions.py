"""What a group of the new protocol makes of heartbeats: the records, and the answers. Pure.

Several are decided at once, those that came while the records before them were on their way: all
that members say of themselves first, then one epoch and one target assignment for all of it, then
one step of each member towards its target.

What always holds:
- The group's epoch grows when a member comes or goes, or subscriptions or topics change.
- A member with another epoch than its own is refused, but for one that repeats itself because it
  did not get the answer with its new epoch, and has nothing that it was not given.
- A partition has a new owner only after the old one said that it gave it up, or was taken out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_assignors import ASSIGNORS, Reader
from kraftpy.broker.groups.consumer_records import (
    Current,
    MemberState,
    Profile,
    TopicSize,
)
from kraftpy.broker.groups.consumer_requests import (
    JOIN,
    LEAVE,
    LEAVE_FOR_NOW,
    UNCHANGED,
    Asked,
    HeartbeatAnswer,
    HeartbeatRequest,
    Leaving,
    Operation,
    Refused,
)
from kraftpy.broker.groups.consumer_state import ConsumerState, Draft, reconciled
from kraftpy.broker.groups.records import LogRecord


class Topics(Protocol):
    """The cluster's topics, as far as groups look at them."""

    def size(self, name: str) -> TopicSize | None: ...

    def matching(self, regex: str) -> frozenset[str]: ...


class Decision(NamedTuple):
    records: Sequence[LogRecord]
    answers: Sequence[tuple[Any, HeartbeatAnswer]]
    alive: Sequence[str]  # Members that were heard.
    gone: Sequence[str]


def decide(
    state: ConsumerState,
    operations: Sequence[Operation],
    topics: Topics,
    config: GroupConfig,
    *,
    refresh: bool,
) -> Decision:
    """`refresh`: topics may have changed. No member is in `operations` twice."""
    return _Round(state, topics, config, changed=refresh).run(operations)


def check_epoch(current: Current, asked: HeartbeatRequest) -> None:
    if asked.epoch == current.epoch:
        return
    repeats = asked.epoch == current.previous_epoch and asked.epoch < current.epoch
    if repeats and asked.owned is not None and asked.owned <= current.assigned:
        return
    how = "greater" if asked.epoch > current.epoch else "smaller"
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {how} member epoch ({asked.epoch}) than the one known by "
        f"the group coordinator ({current.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def assignor_of(state: ConsumerState, config: GroupConfig) -> str:
    """What most members want, or the first one that is configured."""
    votes = Counter(each.assignor for each in state.profiles.values() if each.assignor is not None)
    known = config.consumer_assignors
    return max(known, key=lambda name: (votes[name], -known.index(name)))


class _Round:
    def __init__(
        self, state: ConsumerState, topics: Topics, config: GroupConfig, *, changed: bool
    ) -> None:
        self._draft = Draft(state)
        self._state = self._draft.state
        self._topics = topics
        self._config = config
        self._changed = changed  # Subscriptions or topics, perhaps.
        self._bumps = False  # The group's epoch.
        self._answers: list[tuple[Any, HeartbeatAnswer]] = []
        self._gone: list[str] = []

    def run(self, operations: Sequence[Operation]) -> Decision:
        waiting: list[Asked] = []
        for each in operations:
            if isinstance(each, Leaving):
                self._leave(each.member_id)
            elif self._heard(each):
                waiting.append(each)
        self._settle()
        # Those that give up partitions come first: others may be waiting for these.
        state = self._state
        for each in sorted(
            waiting, key=lambda each: self._place(each.request.member_id), reverse=True
        ):
            self._answers.append((each.token, self._reconcile(each)))
        alive = [each.request.member_id for each in waiting]
        alive = [each for each in alive if each in state.profiles]
        return Decision(self._draft.records, self._answers, alive, self._gone)

    def _place(self, member_id: str) -> bool:
        return self._state.current(member_id).state is MemberState.UNREVOKED

    # -- what members say ---------------------------------------------------------------------

    def _heard(self, each: Asked) -> bool:
        """Whether its member is to be reconciled; else it has its answer."""
        asked = each.request
        try:
            match asked.epoch:
                case 0:
                    self._join(asked)
                case -1:
                    self._member(asked)
                    self._leave(asked.member_id)
                case -2:
                    self._member(asked)
                    self._leave_for_now(asked.member_id)
                case _:
                    self._member(asked)
                    check_epoch(self._state.current(asked.member_id), asked)
                    self._update(asked)
        except Refused as refused:
            self._answers.append((each.token, refused.answer))
            return False
        if asked.epoch in (LEAVE, LEAVE_FOR_NOW):
            answer = HeartbeatAnswer(ErrorCode.none, None, asked.member_id, asked.epoch)
            self._answers.append((each.token, answer))
            return False
        return True

    def _member(self, asked: HeartbeatRequest) -> None:
        """Refused unless it is one, and the one that has its instance id."""
        if asked.instance_id is not None:
            known = self._state.instances.get(asked.instance_id)
            if known is None:
                why = f"Instance id {asked.instance_id} is unknown."
                raise Refused(ErrorCode.unknown_member_id, why)
            if known != asked.member_id:
                why = (
                    f"Static member {asked.member_id} with instance id {asked.instance_id} was "
                    f"fenced by member {known}."
                )
                raise Refused(ErrorCode.fenced_instance_id, why)
        if asked.member_id not in self._state.profiles:
            why = f"Member {asked.member_id} is not a member of group {self._state.group_id}."
            raise Refused(ErrorCode.unknown_member_id, why)

    def _join(self, asked: HeartbeatRequest) -> None:
        state = self._state
        before = None
        if asked.instance_id is not None:
            before = state.instances.get(asked.instance_id)
        if before is not None and state.current(before).epoch == LEAVE_FOR_NOW:
            self._replace(before, asked.member_id)
        elif before is not None and before != asked.member_id:
            raise Refused(
                ErrorCode.unreleased_instance_id,
                f"Static member {asked.member_id} with instance id {asked.instance_id} cannot join "
                f"the group because the instance id is owned by {before} member.",
            )
        elif asked.member_id in state.profiles:
            check_epoch(state.current(asked.member_id), asked)
        elif len(state.profiles) >= self._config.consumer_size_max:
            raise Refused(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of "
                f"{self._config.consumer_size_max} members.",
            )
        self._update(asked)

    def _replace(self, old_id: str, new_id: str) -> None:
        """A static member is back, perhaps under another id: what it had is still its own.

        The new one is there before the old one goes, so that at no time nobody has it.
        """
        state, draft = self._state, self._draft
        profile, target = state.profiles[old_id], state.target(old_id)
        current = replace(state.current(old_id), epoch=JOIN, previous_epoch=JOIN)
        if old_id != new_id:
            draft.put(kinds.PROFILE, profile, new_id)
            draft.put(kinds.TARGET, target, new_id)
        draft.put(kinds.CURRENT, current, new_id)
        if old_id != new_id:
            draft.remove(old_id)
            self._gone.append(old_id)

    def _update(self, asked: HeartbeatRequest) -> None:
        before = self._state.profiles.get(asked.member_id)
        profile = _updated(before or Profile(), asked)
        if profile == before:
            return
        self._draft.put(kinds.PROFILE, profile, asked.member_id)
        if before is None or _subscription(before) != _subscription(profile):
            self._bumps = self._changed = True

    def _leave(self, member_id: str) -> None:
        if member_id in self._state.profiles:
            self._draft.remove(member_id)
            self._gone.append(member_id)
            self._bumps = self._changed = True

    def _leave_for_now(self, member_id: str) -> None:
        """It has closed what it was to give up, and its session goes on."""
        current = self._state.current(member_id)
        left = Current(epoch=LEAVE_FOR_NOW, previous_epoch=current.epoch, assigned=current.assigned)
        self._draft.put(kinds.CURRENT, left, member_id)

    # -- the group ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """A new epoch if there is reason for one, and a target assignment of that epoch."""
        state, draft = self._state, self._draft
        if not self._changed and state.epoch == state.target_epoch:
            return
        readers = {
            member_id: Reader(
                topics=self._subscribed(profile),
                had=state.target(member_id),
                instance_id=profile.instance_id,
            )
            for member_id, profile in state.profiles.items()
        }
        names: set[str] = set().union(*(each.topics for each in readers.values()))
        found = {name: size for name in names if (size := self._topics.size(name)) is not None}
        if found != state.topics:
            draft.put(kinds.TOPICS, found)
            self._bumps = True
        if readers.keys() - state.targets.keys():  # Those who were replaced when a draft was cut.
            self._bumps = True
        if self._bumps:
            draft.bump()
        if state.epoch > state.target_epoch:
            shares = ASSIGNORS[assignor_of(state, self._config)](readers, state.topics)
            for member_id, share in sorted(shares.items()):
                if state.targets.get(member_id) != share:
                    draft.put(kinds.TARGET, share, member_id)
            draft.put(kinds.TARGET_EPOCH, state.epoch)

    def _subscribed(self, profile: Profile) -> frozenset[str]:
        names = frozenset(profile.topics)
        return names | self._topics.matching(profile.regex) if profile.regex else names

    def _reconcile(self, each: Asked) -> HeartbeatAnswer:
        state, asked = self._state, each.request
        member_id = asked.member_id
        before, target = state.current(member_id), state.target(member_id)
        taken = frozenset(one for one in target if state.owners.get(one, member_id) != member_id)
        # One that joins has nothing, whatever was kept for it; so it never stays in epoch 0.
        released = before.assigned | before.revoking if asked.epoch == JOIN else each.released
        after = reconciled(before, target, state.target_epoch, released, taken)
        if after != state.currents.get(member_id):
            self._draft.put(kinds.CURRENT, after, member_id)
        is_told = asked.epoch == JOIN or asked.is_full or after.assigned != before.assigned
        return HeartbeatAnswer(
            ErrorCode.none, None, member_id, after.epoch, after.assigned if is_told else None
        )


def _subscription(profile: Profile) -> tuple[object, ...]:
    return profile.topics, profile.regex, profile.assignor


def _updated(profile: Profile, asked: HeartbeatRequest) -> Profile:
    """What is None in a request is as it was; not so when a member joins."""
    if asked.epoch == JOIN:
        profile = replace(profile, topics=(), regex=None, assignor=None)
    changes: dict[str, Any] = {"client_id": asked.client_id, "client_host": asked.client_host}
    if asked.instance_id is not None:
        changes["instance_id"] = asked.instance_id
    if asked.rack_id is not None:
        changes["rack_id"] = asked.rack_id
    if asked.rebalance_timeout_ms != UNCHANGED:
        changes["rebalance_timeout_ms"] = asked.rebalance_timeout_ms
    if asked.topics is not None:
        changes["topics"] = tuple(sorted(set(asked.topics)))
    if asked.regex is not None:
        changes["regex"] = asked.regex or None
    if asked.assignor is not None:
        changes["assignor"] = asked.assignor
    return replace(profile, **changes)
