"""Brokers as the clients of one listener reach them. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from kraftpy.metadata_log.image import Broker, ClusterImage
from kraftpy.metadata_log.records import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftpy.types import BrokerId, Uuid


class BrokerNode(NamedTuple):
    """A broker as a client reaches it through one listener."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    fenced: bool


class ListenerNodes(NamedTuple):
    """The brokers that have one listener, and what of them a client can use."""

    nodes: Mapping[BrokerId, BrokerNode]  # Fenced ones too, in the order of ids.
    alive: frozenset[BrokerId]
    directories: frozenset[Uuid]  # Those in which a replica of an alive broker is online.


def listener_nodes(image: ClusterImage, name: str) -> ListenerNodes:
    found = (node_of(image.brokers[broker_id], name) for broker_id in sorted(image.brokers))
    nodes = {node.broker_id: node for node in found if node is not None}
    alive = frozenset(node.broker_id for node in nodes.values() if not node.fenced)
    directories = (each for broker_id in alive for each in image.brokers[broker_id].log_dirs)
    return ListenerNodes(
        nodes=nodes,
        alive=alive,
        directories=frozenset((*directories, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)),
    )


def node_of(broker: Broker | None, listener: str) -> BrokerNode | None:
    """Where a broker is reached, if it is registered and has the listener."""
    if broker is None:
        return None
    for point in broker.end_points:
        if point.name == listener:
            return BrokerNode(broker.broker_id, point.host, point.port, broker.rack, broker.fenced)
    return None
