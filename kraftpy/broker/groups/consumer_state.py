"""A group of the new protocol as its records say it is, and the draft of a change to it. Pure.

`replay` is the only way a state changes, on the coordinator that decided a record as on one that
loads it later. A draft is a copy, in which each record that is decided shows at once, so that the
next decision sees it; it is thrown away when its records are committed, or will not be.

What always holds:
- `owners` says who has a partition, or has still to give it up; nobody gets it meanwhile.
- A large draft is more than one batch of the log, and a coordinator that dies leaves a beginning of
  it. So any beginning is a sound state: a new epoch comes first, and makes whoever loads it decide
  the rest again.
"""

from dataclasses import dataclass, field

from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.consumer_records import (
    NOTHING,
    ConsumerKey,
    Current,
    MemberState,
    Partition,
    Partitions,
    Profile,
    TopicSize,
    Value,
    consumer_record,
)
from kraftpy.broker.groups.records import LogRecord

NEW: Current = Current()


@dataclass(slots=True)
class ConsumerState:
    """Members are known by their profile; the rest may be missing, in a log that was cut off."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics: dict[str, TopicSize] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    owners: dict[Partition, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # Instance id to member id.

    def replay(self, key: ConsumerKey, value: Value | None) -> None:
        match key.kind, value:
            case kinds.GROUP, int():
                self.epoch = value
            case kinds.TARGET_EPOCH, _:
                self.target_epoch = value if isinstance(value, int) else 0
            case kinds.TOPICS, _:
                self.topics = dict(value) if isinstance(value, dict) else {}
            case kinds.PROFILE, _:
                self._replay_profile(key.member, value if isinstance(value, Profile) else None)
            case kinds.TARGET, frozenset():
                self.targets[key.member] = value
            case kinds.TARGET, None:
                self.targets.pop(key.member, None)
            case kinds.CURRENT, _:
                self._replay_current(key.member, value if isinstance(value, Current) else None)

    def _replay_profile(self, member_id: str, profile: Profile | None) -> None:
        before = self.profiles.pop(member_id, None)
        if before is not None and self.instances.get(before.instance_id or "") == member_id:
            del self.instances[before.instance_id or ""]
        if profile is not None:
            self.profiles[member_id] = profile
            if profile.instance_id is not None:
                self.instances[profile.instance_id] = member_id

    def _replay_current(self, member_id: str, current: Current | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            for each in before.assigned | before.revoking:
                if self.owners.get(each) == member_id:
                    del self.owners[each]
        if current is not None:
            self.currents[member_id] = current
            for each in current.assigned | current.revoking:
                self.owners[each] = member_id

    # -- looking ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.profiles

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, NEW)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def is_reconciled(self, member_id: str) -> bool:
        current = self.current(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def state_name(self) -> str:
        """By Kafka's names, which clients see."""
        if self.is_empty:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_reconciled, self.profiles)) else "Reconciling"

    def tombstones(self) -> list[LogRecord]:
        """The records that remove it: members first, the group last."""
        members = sorted({*self.profiles, *self.targets, *self.currents})
        keys = [
            ConsumerKey(kind, self.group_id, member_id)
            for member_id in members
            for kind in (kinds.CURRENT, kinds.TARGET, kinds.PROFILE)
        ]
        keys += (
            ConsumerKey(kind, self.group_id)
            for kind in (kinds.TOPICS, kinds.TARGET_EPOCH, kinds.GROUP)
        )
        return [consumer_record(key, None) for key in keys]

    def copy(self) -> "ConsumerState":
        return ConsumerState(
            self.group_id,
            self.epoch,
            self.target_epoch,
            self.topics,
            dict(self.profiles),
            dict(self.targets),
            dict(self.currents),
            dict(self.owners),
            dict(self.instances),
        )


class Draft:
    """A state that is being changed, and the records that will do it."""

    def __init__(self, state: ConsumerState) -> None:
        self.state = state.copy()
        self.records: list[LogRecord] = []

    def put(self, kind: int, value: Value | None, member_id: str = "") -> None:
        key = ConsumerKey(kind, self.state.group_id, member_id)
        self.state.replay(key, value)
        self.records.append(consumer_record(key, value))

    def bump(self) -> None:
        """Before all else that it is the reason for."""
        key = ConsumerKey(kinds.GROUP, self.state.group_id)
        epoch = self.state.epoch + 1
        self.state.replay(key, epoch)
        self.records.insert(0, consumer_record(key, epoch))

    def remove(self, member_id: str) -> None:
        for kind in (kinds.CURRENT, kinds.TARGET, kinds.PROFILE):
            self.put(kind, None, member_id)


def reconciled(
    current: Current,
    target: Partitions,
    target_epoch: int,
    released: Partitions,
    taken: Partitions,
) -> Current:
    """One step of a member towards its target.

    STABLE      to UNREVOKED, if it has partitions that the target gives to others;
                else to the target's epoch, with what nobody else has: STABLE or UNRELEASED
    UNREVOKED   stays until the member says that it gave them up; then as STABLE
    UNRELEASED  takes what has been released since; then as STABLE
    `released` are those that it has not: it gave them up after it was told to, or it has just
    joined. `taken` are those of the target that others still have.
    """
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED and not current.revoking <= released:
        return current
    kept = current.assigned & target
    revoking = current.assigned - target - released
    if revoking:
        return Current(
            epoch=current.epoch,
            previous_epoch=current.previous_epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoking,
        )
    waits = bool(taken - kept)
    return Current(
        epoch=target_epoch,
        previous_epoch=(current.epoch if current.epoch != target_epoch else current.previous_epoch),
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        assigned=kept | (target - taken),
    )
