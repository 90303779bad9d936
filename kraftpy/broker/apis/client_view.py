"""The cluster as a client of one listener sees it. Pure.

A client can use a broker that is registered, not fenced and has the client's listener; a replica is
online if, besides, its directory is. What Kafka's clients are told follows from these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kraftpy.broker.metadata.nodes import BrokerNode, ListenerNodes
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
    listener: ListenerNodes
    topic_names: Callable[[], Sequence[str]]  # All of them, sorted.

    @property
    def nodes(self) -> Mapping[BrokerId, BrokerNode]:
        """Brokers with the listener, fenced ones too, by id."""
        return self.listener.nodes

    def alive(self) -> list[BrokerNode]:
        return [node for node in self.nodes.values() if not node.fenced]

    def controller_id(self) -> BrokerId:
        """Any broker passes admin requests on; this one if it is alive, as the client is here."""
        if self.broker_id in self.listener.alive:
            return self.broker_id
        return next((node.broker_id for node in self.alive()), NO_BROKER)

    def offline_replicas(self, partition: Partition) -> Sequence[BrokerId]:
        _, alive, directories = self.listener
        # Mostly all are online. A directory is one broker's only, so the two sets tell.
        if alive.issuperset(partition.replicas) and directories.issuperset(partition.directories):
            return ()
        brokers = self.image.brokers
        return [
            broker_id
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if broker_id not in alive or not is_online(directory, brokers[broker_id])
        ]


def is_online(directory_id: Uuid, broker: Broker) -> bool:
    """Whether a replica's directory is usable, as far as the broker has told."""
    if directory_id in broker.log_dirs or directory_id in (
        UNASSIGNED_DIRECTORY,
        MIGRATING_DIRECTORY,
    ):
        return True
    return not broker.log_dirs and directory_id != LOST_DIRECTORY
