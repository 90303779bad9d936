"""The image that clients are answered from, and what is often looked up in it.

The image is an immutable value; a publication replaces it. What is derived from it is made when it
is first asked for and dropped when a publication changes what it was made of. So a publication
costs what it changed and never a walk over all partitions.
"""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraftpy.metadata_log.image import EMPTY, Broker, Changes, ClusterImage
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


class MetadataCache:
    """Lives in one event loop; only the publisher changes it."""

    def __init__(self) -> None:
        self._image = EMPTY
        self._reached = 0
        self._listeners: dict[str, ListenerNodes] = {}
        self._names: list[str] | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def end_offset(self) -> int:
        """All records before it have been published, to every subscriber."""
        return self._reached

    # -- what is derived ----------------------------------------------------------------------

    def listener(self, name: str) -> ListenerNodes:
        """The brokers as clients of a listener see them."""
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = listener_nodes(self._image, name)
        return found

    def topic_names(self) -> Sequence[str]:
        """The names of all topics, sorted. Not to be changed, nor kept."""
        if self._names is None:
            self._names = sorted(self._image.topic_ids)
        return self._names

    # -- waiting ------------------------------------------------------------------------------

    async def reached(self, offset: int, timeout_s: float) -> bool:
        """Wait until all records before `offset` are published; False if that takes too long."""
        if self._reached >= offset:
            return True
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, waiting))
        try:
            async with asyncio.timeout(timeout_s):
                await waiting
        except TimeoutError:
            return False
        finally:
            waiting.cancel()
        return True

    # -- for the publisher --------------------------------------------------------------------

    def replace(self, image: ClusterImage, changes: Changes) -> None:
        """Show another image."""
        before, self._image = self._image, image
        if changes.brokers:
            self._listeners.clear()
        if self._names is not None:
            self._follow_names(self._names, before, changes)

    def announce(self) -> None:
        """Every subscriber has seen the image: whoever waited for it may go on."""
        self._reached = self._image.end_offset
        for _ in range(len(self._waiting)):
            offset, waiting = self._waiting.popleft()
            if waiting.done():
                continue
            if offset <= self._reached:
                waiting.set_result(None)
            else:
                self._waiting.append((offset, waiting))

    def _follow_names(self, names: list[str], before: ClusterImage, changes: Changes) -> None:
        for topic_id in changes.deleted_topics:
            gone = before.topics.get(topic_id)
            if gone is not None and gone.name not in self._image.topic_ids:
                del names[bisect_left(names, gone.name)]
        for topic_id in changes.topics:
            topic = self._image.topics.get(topic_id)
            if topic is not None and topic.name not in before.topic_ids:
                insort(names, topic.name)


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
