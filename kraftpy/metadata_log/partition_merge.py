"""How a partition's state follows from its records, as Kafka's PartitionRegistration does it.

The partition epoch grows by one with every change; the leader epoch grows by one exactly when the
change names a leader, be it the same one. A change carries both as a witness: where replay would
arrive elsewhere, the writer saw another state than we have, and the record is refused.
"""

from typing import Any, Final

from kraftpy.metadata_log.fastclass import draft_of
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import (
    MIGRATING_DIRECTORY,
    NO_CHANGE,
    RECOVERED,
    RECOVERING,
    RECOVERY_UNCHANGED,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
    PartitionRecord,
)
from kraftpy.types import BrokerId, Uuid

_DraftPartition: Final[Any] = draft_of(Partition)
_RECOVERY_STATES: Final = (RECOVERED, RECOVERING)
# Shared, as most partitions of a log without directories need the same few.
_MIGRATING: Final = tuple((MIGRATING_DIRECTORY,) * count for count in range(16))


class Illegal(Exception):
    """A record that the rules refuse; the message is the rule, delta.py adds where."""


def new_partition(record: PartitionRecord) -> Partition:
    """The partition that a PartitionRecord describes."""
    replicas = record.replicas
    directories = record.directories
    if not directories:
        directories = _migrating(len(replicas))
    elif len(directories) != len(replicas):
        raise Illegal(f"{len(directories)} directories for {len(replicas)} replicas")
    if record.leader_recovery_state not in _RECOVERY_STATES:
        raise Illegal(f"{record.leader_recovery_state} is not a leader recovery state")
    new = _DraftPartition()
    new.replicas = replicas
    new.isr = record.isr
    new.removing_replicas = record.removing_replicas
    new.adding_replicas = record.adding_replicas
    new.leader = record.leader
    new.leader_recovery_state = record.leader_recovery_state
    new.leader_epoch = record.leader_epoch
    new.partition_epoch = record.partition_epoch
    new.directories = directories
    new.elr = record.eligible_leader_replicas
    new.last_known_elr = record.last_known_elr
    new.__class__ = Partition
    return new  # type: ignore[no-any-return]


def merge_partition(old: Partition, record: PartitionChangeRecord) -> Partition:
    """The partition after a change record. One expression per field: this is replay's hot path."""
    leader, leader_epoch, recovery = record.leader, old.leader_epoch, record.leader_recovery_state
    if leader == NO_CHANGE:
        leader = old.leader
    else:
        leader_epoch += 1
    partition_epoch = old.partition_epoch + 1
    if partition_epoch != record.partition_epoch or leader_epoch != record.leader_epoch:
        raise Illegal(_witness_rule(record, leader_epoch, partition_epoch))
    if recovery == RECOVERY_UNCHANGED:
        recovery = old.leader_recovery_state
    elif recovery not in _RECOVERY_STATES:
        raise Illegal(f"{recovery} is not a leader recovery state")
    replicas = old.replicas
    directories = old.directories
    if record.replicas is not None or record.directories is not None:
        replicas, directories = _merge_placement(old, record)
    isr = record.isr
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
    new = _DraftPartition()
    new.replicas = replicas
    new.isr = old.isr if isr is None else isr
    new.removing_replicas = old.removing_replicas if removing is None else removing
    new.adding_replicas = old.adding_replicas if adding is None else adding
    new.leader = leader
    new.leader_recovery_state = recovery
    new.leader_epoch = leader_epoch
    new.partition_epoch = partition_epoch
    new.directories = directories
    new.elr = old.elr if elr is None else elr
    new.last_known_elr = old.last_known_elr if last_known_elr is None else last_known_elr
    new.__class__ = Partition
    return new  # type: ignore[no-any-return]


def _witness_rule(record: PartitionChangeRecord, leader_epoch: int, partition_epoch: int) -> str:
    return (
        f"replay arrives at leader epoch {leader_epoch} and partition epoch {partition_epoch}, "
        f"the record was written for {record.leader_epoch} and {record.partition_epoch}"
    )


def _merge_placement(
    old: Partition, record: PartitionChangeRecord
) -> tuple[tuple[BrokerId, ...], tuple[Uuid, ...]]:
    replicas = old.replicas if record.replicas is None else record.replicas
    if record.directories:
        if len(record.directories) != len(replicas):
            raise Illegal(f"{len(record.directories)} directories for {len(replicas)} replicas")
        return replicas, record.directories
    if replicas is old.replicas:
        return replicas, old.directories
    # A replica that stays keeps its directory, a new one has none yet.
    kept = dict(zip(old.replicas, old.directories, strict=True))
    if len(kept) != len(old.replicas):
        raise Illegal(f"replicas {list(old.replicas)} name a broker twice")
    return replicas, tuple(kept.get(broker, UNASSIGNED_DIRECTORY) for broker in replicas)


def _migrating(count: int) -> tuple[Uuid, ...]:
    return _MIGRATING[count] if count < len(_MIGRATING) else (MIGRATING_DIRECTORY,) * count
