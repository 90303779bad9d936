"""What differs between two images that no replay connects: before and after a snapshot. Pure.

Replay tells its changes by itself. A snapshot only says what is true now, so everything is compared
with what was true before; parts that the two images share are passed over.
"""

from dataclasses import fields
from typing import Any, Final

from kraftpy.metadata_log.image import NO_CHANGES, Changes, ClusterImage, Topic
from kraftpy.types import TopicId

# Fields with a place of their own in Changes, and those that are no contents.
_NOT_OTHERS: Final = {
    *("brokers", "topics", "topic_ids", "configs"),
    *("transaction", "end_offset", "epoch", "timestamp_ms"),
}
_OTHERS: Final = tuple(f.name for f in fields(ClusterImage) if f.name not in _NOT_OTHERS)


def changes_between(before: ClusterImage, after: ClusterImage) -> Changes:
    """By key, as replay would have told it."""
    if before is after:
        return NO_CHANGES
    deleted = frozenset(each for each in before.topics if each not in after.topics)
    return Changes(
        topics=_topics(before, after),
        deleted_topics=deleted,
        brokers=_keys(before.brokers, after.brokers),
        configs=_keys(before.configs, after.configs),
        others=frozenset(n for n in _OTHERS if getattr(before, n) != getattr(after, n)),
    )


def _topics(before: ClusterImage, after: ClusterImage) -> dict[TopicId, frozenset[int]]:
    found: dict[TopicId, frozenset[int]] = {}
    for topic_id, topic in after.topics.items():
        old = before.topics.get(topic_id)
        if old is topic:
            continue
        partitions = _partitions(old, topic)
        if old is None or partitions:
            found[topic_id] = partitions
    return found


def _partitions(before: Topic | None, after: Topic) -> frozenset[int]:
    if before is None:
        return frozenset(after.partitions)
    old = before.partitions
    return frozenset(index for index, each in after.partitions.items() if old.get(index) != each)


def _keys(before: Any, after: Any) -> frozenset[Any]:
    """Of two maps, the keys whose values differ."""
    if before is after:
        return frozenset()
    changed = [key for key, value in after.items() if before.get(key) != value]
    return frozenset((*changed, *(key for key in before if key not in after)))
