"""One change of one partition: from what is wanted to the record that says it. Pure.

Whoever wants a change sets targets (ISR, replicas, recovery state) and how a leader may be chosen;
`build` completes a reassignment that is in sync, keeps the eligible leader replicas (KIP-966),
elects, and gives the shortest record, or none if nothing changes.

What always holds for the record:
- the leader is in the ISR, or there is none. An election from outside the ISR and the ELR is
  unclean: the ISR is then the leader alone, in state RECOVERING.
- an ISR is empty only where ELR is enabled, as then the ELR knows who holds the committed data.
  Without it, the last member stays, though fenced: to elect anyone else would lose acknowledged
  records.
- the leader is named, which raises the leader epoch, exactly if it changes or a replica is removed
  (KAFKA-15021): the leader must learn that the set it waits for has become smaller.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import (
    NO_CHANGE,
    RECOVERING,
    RECOVERY_UNCHANGED,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
)
from kraftpy.types import NO_LEADER, BrokerId, TopicId, Uuid

Replicas: TypeAlias = tuple[BrokerId, ...]

_NOBODY: Final[Replicas] = ()


class Election(Enum):
    """How far an election may go."""

    PREFERRED = "the first replica, if it is in sync"
    CLEAN = "the leader if it may stay, else anyone who holds all that was committed"
    UNCLEAN = "as clean as possible, else anyone who lives"


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """Targets begin as what the partition has. `build` may be called once."""

    topic_id: TopicId
    partition_id: int
    partition: Partition
    may_lead: Callable[[BrokerId], bool]  # Active, and so is the replica's directory.
    min_insync_replicas: int
    elr_enabled: bool
    election: Election = Election.CLEAN
    # Back from a crash that may have lost what they had acknowledged: they hold nothing for sure.
    unclean_replicas: frozenset[BrokerId] = frozenset()
    isr: Replicas = field(init=False)
    replicas: Replicas = field(init=False)
    adding_replicas: Replicas = field(init=False)
    removing_replicas: Replicas = field(init=False)
    leader_recovery_state: int = field(init=False)
    directories: dict[BrokerId, Uuid] = field(init=False)
    _leader: BrokerId = field(init=False)
    _elr: Replicas = field(init=False)
    _last_known_elr: Replicas = field(init=False)

    def __post_init__(self) -> None:
        old = self.partition
        self.isr = old.isr
        self.replicas = old.replicas
        self.adding_replicas = old.adding_replicas
        self.removing_replicas = old.removing_replicas
        self.leader_recovery_state = old.leader_recovery_state
        self.directories = {}
        self._leader = old.leader
        self._elr = old.elr
        self._last_known_elr = old.last_known_elr

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None if the partition is as it should be."""
        self._complete_reassignment()
        self._keep_eligible()
        self._elect()
        self._remember_last_leader()
        return self._record()

    # -- steps --------------------------------------------------------------------------------

    def _complete_reassignment(self) -> None:
        """When every target replica is in sync, those that were to go are gone (KAFKA-15665)."""
        if not self.adding_replicas and not self.removing_replicas:
            return
        target = _without(self.replicas, self.removing_replicas)
        if not target or not set(target) <= set(self.isr):
            return
        self.replicas = target
        self.isr = _without(self.isr, self.removing_replicas)
        self.adding_replicas = self.removing_replicas = _NOBODY

    def _keep_eligible(self) -> None:
        """Members that leave an ISR below the minimum still hold all that was committed, since
        nothing is committed without a minimum: they stay eligible until the ISR is whole."""
        if not self.elr_enabled:
            self._elr = self._last_known_elr = _NOBODY
            return
        if len(self.isr) >= min(self.min_insync_replicas, len(self.replicas)):
            self._elr = self._last_known_elr = _NOBODY
            return
        held = {*self.partition.elr, *self.partition.isr}
        held -= {*self.isr, *self.unclean_replicas}
        self._elr = tuple(replica for replica in self.replicas if replica in held)

    def _elect(self) -> None:
        leader, is_unclean = self._choose()
        self._leader = leader
        if is_unclean:
            self.isr = (leader,)
            self.leader_recovery_state = RECOVERING
            self._elr = self._last_known_elr = _NOBODY
        elif leader != NO_LEADER and leader not in self.isr:
            # Elected from the ELR: it holds all that was committed, and it is alone in doing so.
            self.isr = (leader,)
            self._elr = _without(self._elr, self.isr)
            self._keep_eligible_if_short()

    def _keep_eligible_if_short(self) -> None:
        if len(self.isr) >= min(self.min_insync_replicas, len(self.replicas)):
            self._elr = self._last_known_elr = _NOBODY

    def _choose(self) -> tuple[BrokerId, bool]:
        """(leader, whether it may lack acknowledged records)."""
        first, leader = self.replicas[0], self.partition.leader
        if self.election is Election.PREFERRED and self._is_eligible(first):
            return first, False
        if leader in self.replicas and self._is_eligible(leader):
            return leader, False
        for replica in self.replicas:
            if self._is_eligible(replica):
                return replica, False
        last = self._last_known_leader()
        if last is not None:
            return last, True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _is_eligible(self, replica: BrokerId) -> bool:
        holds_all = replica in self.isr or (not self.isr and replica in self._elr)
        return holds_all and self.may_lead(replica)

    def _last_known_leader(self) -> BrokerId | None:
        """The last leader, when nobody is known to hold all: it lost the least. KAFKA-19522: it
        must be alive, too."""
        if not self.elr_enabled or self.isr or self._elr or len(self._last_known_elr) != 1:
            return None
        last = self._last_known_elr[0]
        return last if last in self.replicas and self.may_lead(last) else None

    def _remember_last_leader(self) -> None:
        if self.elr_enabled and not self.isr and self.partition.leader != NO_LEADER:
            self._last_known_elr = (self.partition.leader,)

    # -- the record ---------------------------------------------------------------------------

    def _record(self) -> PartitionChangeRecord | None:
        old = self.partition
        if not self.isr and not self.elr_enabled:
            self.isr = old.isr
        names_leader = self._leader != old.leader or not set(old.replicas) <= set(self.replicas)
        directories = self._directories()
        record = PartitionChangeRecord(
            topic_id=self.topic_id,
            partition_id=self.partition_id,
            isr=_if_changed(self.isr, old.isr),
            leader=self._leader if names_leader else NO_CHANGE,
            replicas=_if_changed(self.replicas, old.replicas),
            removing_replicas=_if_changed(self.removing_replicas, old.removing_replicas),
            adding_replicas=_if_changed(self.adding_replicas, old.adding_replicas),
            leader_recovery_state=self._recovery_change(),
            eligible_leader_replicas=_if_changed(self._elr, old.elr),
            last_known_elr=_if_changed(self._last_known_elr, old.last_known_elr),
            directories=directories if directories != old.directories else None,
            leader_epoch=old.leader_epoch + int(names_leader),
            partition_epoch=old.partition_epoch + 1,
        )
        return record if _says_something(record) else None

    def _recovery_change(self) -> int:
        new = self.leader_recovery_state
        return RECOVERY_UNCHANGED if new == self.partition.leader_recovery_state else new

    def _directories(self) -> tuple[Uuid, ...]:
        """One per replica, always (KAFKA-16583): a new replica's is not known yet."""
        old = self.partition
        known = dict(zip(old.replicas, old.directories, strict=True)) | self.directories
        return tuple(known.get(replica, UNASSIGNED_DIRECTORY) for replica in self.replicas)


def _says_something(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != NO_CHANGE
        or record.leader_recovery_state != RECOVERY_UNCHANGED
        or any(
            value is not None
            for value in (
                record.isr,
                record.replicas,
                record.removing_replicas,
                record.adding_replicas,
                record.eligible_leader_replicas,
                record.last_known_elr,
                record.directories,
            )
        )
    )


def _if_changed(new: Replicas, old: Replicas) -> Replicas | None:
    return None if new == old else new


def _without(replicas: Replicas, gone: Iterable[BrokerId]) -> Replicas:
    return tuple(replica for replica in replicas if replica not in gone)
