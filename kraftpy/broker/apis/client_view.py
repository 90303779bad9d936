"""The cluster as a client of one listener sees it. Pure.

A client can use a broker that is registered, not fenced and has the client's listener; a replica is
online if, besides, its directory is. What Kafka's clients are told follows from these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kraftpy.broker.metadata.cache import BrokerNode
from kraftpy.metadata_log.image import Broker, ClusterImage, Partition
from kraftpy.metadata_log.records import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
)
from kraftpy.types import BrokerId, Uuid

NO_BROKER = BrokerId(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """One image through one listener."""

    image: ClusterImage
    cluster_id: str
    broker_id: BrokerId  # The one that answers.
    nodes: Mapping[BrokerId, BrokerNode]  # With the listener, fenced ones too, by id.
    topic_names: Callable[[], Sequence[str]]  # All of them, sorted.

    def alive(self) -> list[BrokerNode]:
        return [node for node in self.nodes.values() if not node.fenced]

    def controller_id(self) -> BrokerId:
        """Any broker passes admin requests on; this one if it is alive, as the client is here."""
        own = self.nodes.get(self.broker_id)
        if own is not None and not own.fenced:
            return self.broker_id
        return next((node.broker_id for node in self.alive()), NO_BROKER)

    def offline_replicas(self, partition: Partition) -> list[BrokerId]:
        nodes, brokers = self.nodes, self.image.brokers
        found = []
        for at, broker_id in enumerate(partition.replicas):
            node = nodes.get(broker_id)
            if (
                node is None
                or node.fenced
                or not is_online(partition.directories[at], brokers[broker_id])
            ):
                found.append(broker_id)
        return found


def is_online(directory_id: Uuid, broker: Broker) -> bool:
    """Whether a replica's directory is usable, as far as the broker has told."""
    if directory_id in broker.log_dirs or directory_id in (
        UNASSIGNED_DIRECTORY,
        MIGRATING_DIRECTORY,
    ):
        return True
    return not broker.log_dirs and directory_id != LOST_DIRECTORY
