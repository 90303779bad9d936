"""Which partitions a decision must look at, found without walking the whole image. Pure.

It is made when it is first asked for, by one walk, and then follows the images: whoever replays
records tells it what changed. So a standby that becomes active loads nothing.

What always holds: after `move` to an image, every answer is what a walk over that image would give.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kraftpy.metadata_log.image import Changes, ClusterImage, Partition
from kraftpy.quorum.control.topic_names import TopicNames
from kraftpy.types import NO_LEADER, BrokerId, TopicId

PartitionKey: TypeAlias = tuple[TopicId, int]


class PartitionIndex:
    """The partitions of one image by what decisions ask for. Results are sorted."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._is_built = False
        self._holding: dict[BrokerId, set[PartitionKey]] = {}
        self._leaderless: set[PartitionKey] = set()
        self._reassigning: set[PartitionKey] = set()
        self._not_preferred: set[PartitionKey] = set()
        self._preferring: Counter[BrokerId] = Counter()
        self._names = TopicNames()

    @property
    def image(self) -> ClusterImage:
        return self._image

    def holding(self, broker_id: BrokerId) -> list[PartitionKey]:
        """Partitions that have the broker in the ISR or among the eligible leader replicas."""
        self.build()
        return sorted(self._holding.get(broker_id, ()))

    def leads_any(self, broker_id: BrokerId) -> bool:
        self.build()
        topics = self._image.topics
        return any(
            topics[topic_id].partitions[partition_id].leader == broker_id
            for topic_id, partition_id in self._holding.get(broker_id, ())
        )

    def leaderless(self) -> list[PartitionKey]:
        self.build()
        return sorted(self._leaderless)

    def reassigning(self) -> list[PartitionKey]:
        """Partitions with replicas to add or to remove."""
        self.build()
        return sorted(self._reassigning)

    def not_preferred(self) -> list[PartitionKey]:
        """Partitions that are led, but not by their first replica."""
        self.build()
        return sorted(self._not_preferred)

    def preferring(self, broker_id: BrokerId) -> int:
        """How many partitions have the broker as their first replica."""
        self.build()
        return self._preferring[broker_id]

    def colliding(self, name: str) -> list[str]:
        """Topics whose names differ from this one in dots and underscores only."""
        self.build()
        return self._names.colliding(name)

    # -- keeping up ---------------------------------------------------------------------------

    def move(self, image: ClusterImage, changes: Changes) -> None:
        """Follow the image to its successor; `changes` is what differs (ClusterDelta.changes)."""
        before, self._image = self._image, image
        if not self._is_built:
            return
        for topic_id in changes.deleted_topics:
            topic = before.topics.get(topic_id)
            if topic is not None:
                self._names.remove(topic.name)
                for partition_id, partition in topic.partitions.items():
                    self._remove((topic_id, partition_id), partition)
        for topic_id, partition_ids in changes.topics.items():
            old = None if topic_id in changes.deleted_topics else before.topics.get(topic_id)
            new = image.topics.get(topic_id)
            if old is None and new is not None:
                self._names.add(new.name)
            for partition_id in partition_ids:
                key = (topic_id, partition_id)
                was = None if old is None else old.partitions.get(partition_id)
                if was is not None:
                    self._remove(key, was)
                now = None if new is None else new.partitions.get(partition_id)
                if now is not None:
                    self._add(key, now)

    def build(self) -> None:
        """Walk now, for those who have the time, and not when it is first asked for."""
        if self._is_built:
            return
        self._is_built = True
        for name in self._image.topic_ids:
            self._names.add(name)
        for key, partition in all_partitions(self._image):
            self._add(key, partition)

    def _add(self, key: PartitionKey, partition: Partition) -> None:
        for broker_id in _holders(partition):
            self._holding.setdefault(broker_id, set()).add(key)
        self._preferring[partition.replicas[0]] += 1
        for group in self._groups(partition):
            group.add(key)

    def _remove(self, key: PartitionKey, partition: Partition) -> None:
        for broker_id in _holders(partition):
            self._holding[broker_id].discard(key)
        self._preferring[partition.replicas[0]] -= 1
        for group in self._groups(partition):
            group.discard(key)

    def _groups(self, partition: Partition) -> Iterator[set[PartitionKey]]:
        if partition.leader == NO_LEADER:
            yield self._leaderless
        elif partition.leader != partition.replicas[0]:
            yield self._not_preferred
        if partition.adding_replicas or partition.removing_replicas:
            yield self._reassigning


def _holders(partition: Partition) -> Iterable[BrokerId]:
    return partition.isr + partition.elr if partition.elr else partition.isr


def all_partitions(image: ClusterImage) -> Iterator[tuple[PartitionKey, Partition]]:
    """Every partition, in no order that means anything."""
    for topic_id, topic in image.topics.items():
        for partition_id, partition in topic.partitions.items():
            yield (topic_id, partition_id), partition
