"""What a batch changed, in the words of the log of events. Pure; the controller writes them.

Brokers, controllers and features are few and each change of one is news. Topics may be thousands:
a batch of them is one line.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kraftpy.metadata_log.image import Broker, Changes, ClusterImage


class Event(NamedTuple):
    """An INFO line: its fixed name and its fields."""

    name: str
    fields: dict[str, Any]


def events_of(before: ClusterImage, after: ClusterImage, changes: Changes) -> list[Event]:
    """What an operator wants to know of the step from one image to the next."""
    return [
        *_broker_events(before, after, changes),
        *_topic_events(before, after, changes),
        *_controller_events(before, after, changes),
        *_feature_events(before, after, changes),
    ]


def _broker_events(before: ClusterImage, after: ClusterImage, changes: Changes) -> Iterator[Event]:
    for broker_id in sorted(changes.brokers):
        old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
        if new is not None:
            fields = {"broker": broker_id, "broker_epoch": new.broker_epoch}
            for name in _steps(old, new):
                yield Event(name, fields)
        elif old is not None:
            yield Event("broker_unregistered", {"broker": broker_id})


def _steps(old: Broker | None, new: Broker) -> Iterator[str]:
    same_life = old is not None and old.broker_epoch == new.broker_epoch
    if not same_life:
        yield "broker_registered"
    was_fenced = old is None or old.fenced
    if was_fenced and not new.fenced:
        yield "broker_unfenced"
    if not was_fenced and new.fenced:
        yield "broker_fenced"
    was_shutting_down = same_life and old is not None and old.in_controlled_shutdown
    if new.in_controlled_shutdown and not was_shutting_down:
        yield "broker_shutting_down"


def _topic_events(before: ClusterImage, after: ClusterImage, changes: Changes) -> Iterator[Event]:
    created = [t for t in changes.topics if t not in before.topics and t in after.topics]
    if created:
        partitions = sum(len(after.topics[topic_id].partitions) for topic_id in created)
        yield Event("topics_created", {"topics": len(created), "partitions": partitions})
    deleted = [t for t in changes.deleted_topics if t not in after.topics]
    if deleted:
        yield Event("topics_deleted", {"topics": len(deleted)})


def _controller_events(
    before: ClusterImage, after: ClusterImage, changes: Changes
) -> Iterator[Event]:
    if "controllers" in changes.others:
        for controller_id, controller in sorted(after.controllers.items()):
            if before.controllers.get(controller_id) != controller:
                yield Event("controller_registered", {"controller": controller_id})


def _feature_events(before: ClusterImage, after: ClusterImage, changes: Changes) -> Iterator[Event]:
    if "features" in changes.others:
        for name in sorted({*before.features, *after.features}):
            level = after.features.get(name, 0)
            if before.features.get(name, 0) != level:
                yield Event("feature_changed", {"feature": name, "feature_level": level})
