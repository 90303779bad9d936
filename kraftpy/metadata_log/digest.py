"""A number that says whether two images are the same, kept up at the cost of what changes. Pure.

Each entity (a broker, a partition, one config, ...) is hashed with its key to 128 bits; the digest
is the sum of all of them, modulo 2^128. So it does not depend on any order, and a change is a
subtraction and an addition. What always holds: following the changes from one image to the next
gives what a walk over the last image gives.
"""

from collections.abc import Iterator
from dataclasses import astuple, fields
from hashlib import blake2b
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from kraftpy.metadata_log.image import Changes, ClusterImage, ConfigResource, Partition, Topic
from kraftpy.types import BrokerId, TopicId

_BITS: Final = 128
_MASK: Final = (1 << _BITS) - 1
_MAPS: Final = ("controllers", "features", "acls", "scram", "quotas", "delegation_tokens")
_NUMBERS: Final = ("next_producer_id", "zk_migration_state")
_PARTITION: Final = tuple(each.name for each in fields(Partition))


class ImageDigest:
    """Follows one image after the other."""

    def __init__(self, image: ClusterImage) -> None:
        """Walks over the whole image: about 3 us for a partition."""
        self._sum = 0
        self._others = {name: _other(image, name) for name in (*_MAPS, *_NUMBERS)}
        for broker_id in image.brokers:
            self._sum += _broker(image, broker_id)
        for resource in image.configs:
            self._sum += _config(image, resource)
        for topic in image.topics.values():
            self._sum += _topic(topic)
            self._sum += sum(_partition(topic, number) for number in topic.partitions)

    def move(self, before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
        """From one image to the next."""
        total = self._sum
        for broker_id in changes.brokers:
            total += _broker(after, broker_id) - _broker(before, broker_id)
        for resource in changes.configs:
            total += _config(after, resource) - _config(before, resource)
        for topic_id in changes.deleted_topics:
            old = before.topics.get(topic_id)
            if old is not None:
                total -= _topic(old) + sum(_partition(old, number) for number in old.partitions)
        for topic_id, numbers in changes.topics.items():
            gone = topic_id in changes.deleted_topics
            total += _moved(before, after, topic_id, numbers, is_new=gone)
        self._sum = total & _MASK
        for name in changes.others:
            if name in self._others:
                self._others[name] = _other(after, name)

    @property
    def text(self) -> str:
        return f"{(self._sum + sum(self._others.values())) & _MASK:032x}"


def _moved(
    before: ClusterImage,
    after: ClusterImage,
    topic_id: TopicId,
    numbers: frozenset[int],
    *,
    is_new: bool,
) -> int:
    old = None if is_new else before.topics.get(topic_id)
    new = after.topics.get(topic_id)
    total = 0
    if old is not None:
        total -= _topic(old) + sum(_partition(old, n) for n in numbers if n in old.partitions)
    if new is not None:
        total += _topic(new) + sum(_partition(new, n) for n in numbers if n in new.partitions)
    return total


def _hash(*parts: Any) -> int:
    data = msgpack.packb(parts, default=repr)
    return int.from_bytes(blake2b(data, digest_size=_BITS // 8).digest(), "big")


def _topic(topic: Topic) -> int:
    return _hash("topic", topic.name, topic.topic_id)


def _partition(topic: Topic, number: int) -> int:
    partition = topic.partitions[number]
    values = [getattr(partition, name) for name in _PARTITION]
    return _hash("partition", topic.topic_id, number, values)


def _broker(image: ClusterImage, broker_id: BrokerId) -> int:
    broker = image.brokers.get(broker_id)
    return 0 if broker is None else _hash("broker", astuple(broker))


def _config(image: ClusterImage, resource: ConfigResource) -> int:
    values = image.configs.get(resource)
    return 0 if values is None else _hash("config", resource, sorted(values.items()))


def _other(image: ClusterImage, name: str) -> int:
    value = getattr(image, name)
    if isinstance(value, int):
        return _hash(name, value)
    return sum(_hash(name, key, each) for key, each in _plain(value))


def _plain(entries: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in entries.items():
        shown = sorted(value.items()) if hasattr(value, "items") else repr(value)
        yield repr(key), shown
