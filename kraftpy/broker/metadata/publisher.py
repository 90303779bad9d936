"""Tells the rest of the broker what became true, in the order in which it did.

Every publication is (image before, image after, what changed) and goes to all subscribers, one
after the other, in the event loop, before the next one begins. The cache shows the new image first:
a subscriber that looks something up finds what it was told. Whoever waits for an offset is woken
last: when an answer leaves that says a topic was created, the topic's partitions are there.
"""

from collections.abc import Callable

from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.metadata_log.image import Changes, ClusterImage

Subscriber = Callable[[ClusterImage, ClusterImage, Changes], None]


class MetadataPublisher:
    """Subscribers are called in the order in which they subscribed."""

    def __init__(self, cache: MetadataCache) -> None:
        self.cache = cache
        self._subscribers: list[Subscriber] = []
        self._publishing = False

    def subscribe(self, subscriber: Subscriber) -> None:
        """Be told from the next publication on; one that comes late looks at the cache first."""
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage, changes: Changes) -> None:
        """What a subscriber raises goes up to whoever publishes: the broker cannot go on."""
        assert not self._publishing, "a subscriber publishes"
        before = self.cache.image
        assert image.end_offset >= before.end_offset, "what is published never goes back"
        self._publishing = True
        try:
            self.cache.replace(image, changes)
            for subscriber in self._subscribers:
                subscriber(before, image, changes)
        finally:
            self._publishing = False
        self.cache.announce()
