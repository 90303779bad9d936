"""The image that clients are answered from, and what is often looked up in it.

The image is an immutable value; a publication replaces it. What is derived from it is made when it
is first asked for and dropped when a publication changes what it was made of. So a publication
costs what it changed and never a walk over all partitions.
"""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from kraftpy.broker.metadata.nodes import ListenerNodes, listener_nodes
from kraftpy.metadata_log.image import EMPTY, Changes, ClusterImage


class MetadataCache:
    """Lives in one event loop; only the publisher changes it."""

    def __init__(self) -> None:
        self._image = EMPTY
        self._reached = 0
        self._current_ms: int | None = None
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

    def is_current(self, now_ms: int, within_ms: int) -> bool:
        """Whether all that was committed until so long ago, at least, has been published here."""
        return self._current_ms is not None and now_ms - self._current_ms < within_ms

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

    async def somebody_serves(self, listener: str, timeout_s: float) -> bool:
        """Wait until a broker that is not fenced has the listener; False if that takes too long."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not self.listener(listener).alive:
            left_s = deadline_s - loop.time()
            if left_s <= 0 or not await self.reached(self.end_offset + 1, left_s):
                return False
        return True

    # -- for the publisher --------------------------------------------------------------------

    def replace(self, image: ClusterImage, changes: Changes) -> None:
        """Show another image."""
        before, self._image = self._image, image
        if changes.brokers:
            self._listeners.clear()
        if self._names is not None:
            self._follow_names(self._names, before, changes)

    def was_current(self, at_ms: int) -> None:
        """All that was committed at that moment, of the monotonic clock, has been published."""
        self._current_ms = at_ms

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
