"""What changed from one image to another, in sentences: for tests, tools and people.

The order is fixed: section by section, by key. Parts that the images share are skipped by
identity, so neighbouring images of a large cluster are compared quickly. Keys and secrets of
credentials are never shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar

from immutables import Map

from kraftpy.metadata_log.image import ClusterImage, ConfigResource, QuotaKey, Topic
from kraftpy.types import TopicId, uuid_text

K = TypeVar("K")
_UUID_BYTES = 16
_RESOURCE_NAMES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}


def diff_images(old: ClusterImage, new: ClusterImage) -> tuple[str, ...]:
    """One sentence per difference; empty exactly when the images are equal."""
    return tuple(_sentences(old, new))


def _sentences(old: ClusterImage, new: ClusterImage) -> Iterator[str]:
    yield from _scalar("end offset", old.end_offset, new.end_offset)
    yield from _scalar("epoch", old.epoch, new.epoch)
    yield from _scalar("timestamp", old.timestamp_ms, new.timestamp_ms)
    yield from _transaction(old, new)
    yield from _things("feature", str, old.features, new.features)
    yield from _things("controller", str, old.controllers, new.controllers)
    yield from _things("broker", str, old.brokers, new.brokers)
    yield from _topics(old.topics, new.topics)
    yield from _nested("config of", _resource_name, old.configs, new.configs)
    yield from _nested("quota of", _quota_name, old.quotas, new.quotas)
    yield from _scalar("next producer id", old.next_producer_id, new.next_producer_id)
    yield from _things("SCRAM credential", _scram_name, old.scram, new.scram)
    tokens = old.delegation_tokens, new.delegation_tokens
    yield from _things("delegation token", str, *tokens)
    yield from _things("ACL", uuid_text, old.acls, new.acls)
    yield from _scalar("ZooKeeper migration state", old.zk_migration_state, new.zk_migration_state)


def _scalar(what: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{what}: {_shown(old)} -> {_shown(new)}"


def _transaction(old: ClusterImage, new: ClusterImage) -> Iterator[str]:
    before, after = old.transaction, new.transaction
    if before is after or before == after:
        return
    if before is not None and after is not None and before.begin_offset == after.begin_offset:
        yield from _scalar("metadata transaction name", before.name, after.name)
        for sentence in diff_images(before.pending, after.pending):
            yield f"in the open metadata transaction: {sentence}"
        return
    if before is not None:
        yield f"metadata transaction begun at {before.begin_offset} closed"
    if after is not None:
        yield f"metadata transaction {after.name or '(unnamed)'} open since {after.begin_offset}"


def _things(
    what: str, name: Callable[[K], str], old: Map[K, Any], new: Map[K, Any]
) -> Iterator[str]:
    """Added, removed and changed values; dataclasses field by field."""
    for key, before, after in _changed(name, old, new):
        label = f"{what} {name(key)}"
        if before is None:
            yield f"{label} added{_summary(after)}"
        elif after is None:
            yield f"{label} removed"
        else:
            yield f"{label}: {_changed_fields(before, after)}"


def _nested(
    what: str, name: Callable[[K], str], old: Map[K, Map[str, Any]], new: Map[K, Map[str, Any]]
) -> Iterator[str]:
    for key, before, after in _changed(name, old, new):
        label = f"{what} {name(key)}"
        for inner, was, now in _changed(str, before or Map(), after or Map()):
            yield f"{label}: {inner} {_shown(was)} -> {_shown(now)}"


def _topics(old: Map[TopicId, Topic], new: Map[TopicId, Topic]) -> Iterator[str]:
    def name(topic_id: TopicId) -> str:
        topic = new.get(topic_id) or old[topic_id]
        return f"{topic.name} ({uuid_text(topic_id)})"

    for topic_id, before, after in _changed(name, old, new):
        if before is None:
            yield f"topic {name(topic_id)} added with {len(after.partitions)} partitions"
        elif after is None:
            yield f"topic {name(topic_id)} removed"
        else:
            yield from _scalar(f"name of topic {uuid_text(topic_id)}", before.name, after.name)
            yield from _partitions(before, after)


def _partitions(before: Topic, after: Topic) -> Iterator[str]:
    def name(partition_id: int) -> str:
        return f"{after.name}-{partition_id}"

    yield from _things("partition", name, before.partitions, after.partitions)


def _changed(
    name: Callable[[K], str], old: Map[K, Any], new: Map[K, Any]
) -> Iterator[tuple[K, Any, Any]]:
    """(key, before or None, after or None) of what differs, sorted by key."""
    if old is new:
        return
    found = [(k, old.get(k), after) for k, after in new.items() if old.get(k) is not after]
    found += [(k, before, None) for k, before in old.items() if k not in new]
    found = [change for change in found if change[1] != change[2]]
    yield from sorted(found, key=lambda change: _order(change[0], name))


def _order(key: K, name: Callable[[K], str]) -> tuple[int, str, str]:
    return (key, "", "") if isinstance(key, int) else (0, name(key), repr(key))


def _changed_fields(before: Any, after: Any) -> str:
    if not hasattr(before, "__dataclass_fields__"):
        return f"{_shown(before)} -> {_shown(after)}"
    changed = []
    for f in fields(before):
        was, now = getattr(before, f.name), getattr(after, f.name)
        if was != now:
            changed.append(
                f"{f.name} {_shown(was)} -> {_shown(now)}" if f.repr else f"{f.name} changed"
            )
    return ", ".join(changed)


def _summary(value: Any) -> str:
    if isinstance(value, int):
        return f" at {value}"
    if hasattr(value, "leader"):
        return f": leader {value.leader}, isr {_shown(value.isr)}"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == _UUID_BYTES else f"{len(value)} bytes"
    if isinstance(value, tuple):
        return f"[{', '.join(_shown(element) for element in value)}]"
    if value is None:
        return "(none)"
    return str(value)


def _resource_name(resource: ConfigResource) -> str:
    kind = _RESOURCE_NAMES.get(resource[0], f"resource type {resource[0]}")
    return f"{kind} {resource[1] or '(default)'}"


def _quota_name(key: QuotaKey) -> str:
    return " ".join(
        f"{e.entity_type} {'(default)' if e.entity_name is None else e.entity_name}" for e in key
    )


def _scram_name(key: tuple[str, int]) -> str:
    return f"{key[0]}/{key[1]}"
