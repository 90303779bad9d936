"""A partition's life as a state machine: NonExistent, New, Online, Offline. Pure.

Kafka's old controller kept these states beside the metadata; here they follow from it. New is a
partition that never had a leader. Decisions create partitions with one, so New is passed through
within a batch; a log written by others may show it.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from kraftpy.metadata_log.image import Changes, ClusterImage, Partition
from kraftpy.types import NO_LEADER


class PartitionState(Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


_NON_EXISTENT, _NEW = PartitionState.NON_EXISTENT, PartitionState.NEW
_ONLINE, _OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE

# From each state, where it may go; to itself too, as a change may leave the state as it is.
LEGAL: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _NON_EXISTENT: frozenset({_NON_EXISTENT, _NEW, _ONLINE}),  # Created.
    _NEW: frozenset({_NEW, _ONLINE, _NON_EXISTENT}),  # First leader; or deleted before.
    _ONLINE: frozenset({_ONLINE, _OFFLINE, _NON_EXISTENT}),  # Nobody can lead; or deleted.
    _OFFLINE: frozenset({_OFFLINE, _ONLINE, _NON_EXISTENT}),  # Someone can again; or deleted.
}


def state_of(partition: Partition | None) -> PartitionState:
    if partition is None:
        return _NON_EXISTENT
    if partition.leader != NO_LEADER:
        return _ONLINE
    return _OFFLINE if partition.leader_epoch > 0 else _NEW


def illegal_transitions(
    before: ClusterImage, after: ClusterImage, changes: Changes
) -> Iterator[str]:
    """What a step does that the table forbids, in words."""
    for topic_id, partition_ids in changes.topics.items():
        was_deleted = topic_id in changes.deleted_topics
        for partition_id in sorted(partition_ids):
            old = None if was_deleted else before.partition(topic_id, partition_id)
            source = state_of(old)
            target = state_of(after.partition(topic_id, partition_id))
            if target not in LEGAL[source]:
                name = after.topics[topic_id].name if topic_id in after.topics else "?"
                yield f"{name}-{partition_id} goes from {source.value} to {target.value}"
