"""What people and monitors want to know of a cluster, computed from its image. Pure.

A topic is shown as rows of plain numbers, since a page may hold ten thousand partitions: leader,
replicas, in sync, eligible, leader epoch, target of a reassignment. `TopicRows` keeps the rows of
a topic for as long as the topic is the same object, so that a change costs what it changed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kraftpy.describe.configs import configs_of
from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.metadata_log.records import BROKER_RESOURCE, RECOVERING, TOPIC_RESOURCE
from kraftpy.types import NO_LEADER, BrokerId, TopicId, uuid_text

_MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Counts over all partitions."""

    topics: int
    partitions: int
    offline: int
    under_replicated: int
    under_min_isr: int
    reassigning: int
    recovering: int
    not_preferred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What one broker has to do."""

    leads: int
    hosts: int
    lagging: int  # Replicas here that are not in sync.


def min_isr(image: ClusterImage, topic: Topic) -> int:
    """The topic's own setting, else the cluster's, else Kafka's default."""
    of_topic = configs_of(image, TOPIC_RESOURCE, topic.name).get(_MIN_ISR)
    of_all = configs_of(image, BROKER_RESOURCE, "").get(_MIN_ISR)
    return int(of_topic or of_all or 1)


def health(image: ClusterImage) -> Health:
    counts: Counter[str] = Counter()
    for topic in image.topics.values():
        least = min_isr(image, topic)
        for partition in topic.partitions.values():
            counts.update(_faults(partition, least))
            counts["partitions"] += 1
    return Health(
        topics=len(image.topics),
        partitions=counts["partitions"],
        offline=counts["offline"],
        under_replicated=counts["under_replicated"],
        under_min_isr=counts["under_min_isr"],
        reassigning=counts["reassigning"],
        recovering=counts["recovering"],
        not_preferred=counts["not_preferred"],
    )


def _faults(partition: Partition, least: int) -> Iterator[str]:
    if partition.leader == NO_LEADER:
        yield "offline"
    elif partition.leader != partition.replicas[0]:
        yield "not_preferred"
    if len(partition.isr) < len(partition.replicas):
        yield "under_replicated"
    if len(partition.isr) < min(least, len(partition.replicas)):
        yield "under_min_isr"
    if partition.adding_replicas or partition.removing_replicas:
        yield "reassigning"
    if partition.leader_recovery_state == RECOVERING:
        yield "recovering"


def loads(image: ClusterImage) -> dict[int, BrokerLoad]:
    """By broker; those that are gone but still named as replicas too."""
    leads: Counter[int] = Counter()
    hosts: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            leads[partition.leader] += 1
            hosts.update(partition.replicas)
            in_sync.update(partition.isr)
    named = {*image.brokers, *hosts}
    return {
        broker_id: BrokerLoad(
            leads=leads[broker_id],
            hosts=hosts[broker_id],
            lagging=hosts[broker_id] - in_sync[broker_id],
        )
        for broker_id in sorted(named)
    }


def broker_rows(image: ClusterImage) -> list[dict[str, Any]]:
    found = loads(image)
    return [_broker_row(image, broker_id, load) for broker_id, load in found.items()]


def _broker_row(image: ClusterImage, broker_id: int, load: BrokerLoad) -> dict[str, Any]:
    broker = image.brokers.get(BrokerId(broker_id))
    state = "gone"
    if broker is not None:
        state = "fenced" if broker.fenced else "active"
        if broker.in_controlled_shutdown:
            state = "shutting down"
    places = [] if broker is None else [f"{e.host}:{e.port}" for e in broker.end_points]
    return {
        "id": broker_id,
        "state": state,
        "epoch": -1 if broker is None else broker.broker_epoch,
        "rack": None if broker is None else broker.rack,
        "addresses": places,
        "leads": load.leads,
        "hosts": load.hosts,
        "lagging": load.lagging,
    }


class TopicRows:
    """The rows of all topics, and which of them changed since somebody looked."""

    def __init__(self) -> None:
        self._topics: dict[TopicId, Topic] = {}

    def changes(self, image: ClusterImage) -> dict[str, Any] | None:
        """What differs from the image of the last call; None if nothing does."""
        changed = [
            topic_row(topic)
            for topic_id, topic in image.topics.items()
            if self._topics.get(topic_id) is not topic
        ]
        removed = [uuid_text(topic_id) for topic_id in self._topics if topic_id not in image.topics]
        self._topics = dict(image.topics)
        if not changed and not removed:
            return None
        return {
            "end_offset": image.end_offset,
            "changed": sorted(changed, key=lambda row: str(row["name"])),
            "removed": sorted(removed),
        }


def all_topics(image: ClusterImage) -> dict[str, Any]:
    """As `TopicRows.changes`, from nothing."""
    found = TopicRows().changes(image)
    return found or {"end_offset": image.end_offset, "changed": [], "removed": []}


def topic_row(topic: Topic) -> dict[str, Any]:
    return {
        "id": uuid_text(topic.topic_id),
        "name": topic.name,
        "partitions": [
            [index, *_partition_row(partition)]
            for index, partition in sorted(topic.partitions.items())
        ],
    }


def _partition_row(partition: Partition) -> list[Any]:
    moving = bool(partition.adding_replicas or partition.removing_replicas)
    return [
        partition.leader,
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.leader_epoch,
        1 if moving else 0,
        1 if partition.leader_recovery_state == RECOVERING else 0,
    ]
