"""The cluster's topics as consumer groups look at them: by name, and by regular expression.

What an expression matches is kept, and only topics that come and go are looked at again: a cluster
has many topics, and groups that ask for the same expression with every decision.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kraftpy.broker.groups.consumer_records import TopicSize
from kraftpy.broker.groups.topic_patterns import TopicPattern
from kraftpy.metadata_log.image import Changes, ClusterImage

_EXPRESSIONS_KEPT: Final = 1000


class ImageTopics:
    """Of the image at the time."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._matching: dict[str, tuple[TopicPattern, frozenset[str]]] = {}

    def size(self, name: str) -> TopicSize | None:
        topic = self._image().topic(name)
        return None if topic is None else TopicSize(topic.topic_id, len(topic.partitions))

    def matching(self, regex: str) -> frozenset[str]:
        known = self._matching.get(regex)
        if known is not None:
            return known[1]
        pattern = TopicPattern(regex)
        found = frozenset(filter(pattern.matches, self._image().topic_ids))
        if len(self._matching) >= _EXPRESSIONS_KEPT:
            self._matching.clear()
        self._matching[regex] = pattern, found
        return found

    def changed(self, names: Iterable[str]) -> None:
        """These came or went; the image says which."""
        here = self._image().topic_ids
        came = {name for name in names if name in here}
        gone = set(names) - came
        for regex, (pattern, found) in self._matching.items():
            now = (found - gone).union(filter(pattern.matches, came))
            self._matching[regex] = pattern, now


def changed_names(before: ClusterImage, after: ClusterImage, changes: Changes) -> frozenset[str]:
    """Topics that came, went, or have another number of partitions."""
    found = {before.topics[each].name for each in changes.deleted_topics if each in before.topics}
    for topic_id in changes.topics:
        old, new = before.topics.get(topic_id), after.topics.get(topic_id)
        if new is not None and (old is None or len(old.partitions) != len(new.partitions)):
            found.add(new.name)
    return frozenset(found)
