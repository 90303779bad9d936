"""What an operator reads of a batch: each change of a broker, and one line for many topics."""

from dataclasses import replace
from typing import Any

from kraftpy.metadata_log import EMPTY, ClusterDelta, ClusterImage, MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.quorum.controller_events import Event, events_of
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.unit.control.cluster import broker, feature, partition, topic


def after(image: ClusterImage, *records: MetadataRecord) -> tuple[ClusterImage, list[Event]]:
    delta = ClusterDelta(image)
    end_offset = delta.replay_all(records, image.end_offset)
    found = delta.image(end_offset, 1)
    return found, events_of(image, found, delta.changes())


def change(**fields: Any) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id=BrokerId(1), broker_epoch=100, **fields)


def test_the_life_of_a_broker_is_told_step_by_step() -> None:
    known = {"broker": 1, "broker_epoch": 100}
    image, events = after(EMPTY, broker(1, fenced=True))
    assert events == [("broker_registered", known)]
    image, events = after(image, change(fenced=r.UNFENCE))
    assert events == [("broker_unfenced", known)]
    image, events = after(image, change(in_controlled_shutdown=r.SHUTTING_DOWN))
    assert events == [("broker_shutting_down", known)]
    image, events = after(image, change(fenced=r.FENCE))
    assert events == [("broker_fenced", known)]
    image, events = after(image, r.UnregisterBrokerRecord(broker_id=BrokerId(1), broker_epoch=100))
    assert events == [("broker_unregistered", {"broker": 1})]


def test_a_restart_without_a_farewell_is_a_fence_and_a_registration() -> None:
    image, _ = after(EMPTY, broker(1))
    _, events = after(image, broker(1, broker_epoch=200, fenced=True))
    assert [name for name, _ in events] == ["broker_registered", "broker_fenced"]


def test_many_topics_are_one_line() -> None:
    other = TopicId(Uuid(b"U" * 16))
    records: list[MetadataRecord] = [
        topic(),
        partition(0, 1),
        partition(1, 1),
        topic("other", other),
    ]
    image, events = after(EMPTY, *records)
    assert events == [("topics_created", {"topics": 2, "partitions": 2})]
    _, events = after(image, r.RemoveTopicRecord(topic_id=other))
    assert events == [("topics_deleted", {"topics": 1})]


def test_changes_of_partitions_are_no_news() -> None:
    """Of 30,000 that change their leaders, the fence of the broker tells."""
    image, _ = after(EMPTY, topic(), partition(0, 1, 2))
    moved = r.PartitionChangeRecord(
        topic_id=topic().topic_id,
        partition_id=0,
        leader=BrokerId(2),
        leader_epoch=1,
        partition_epoch=1,
    )
    _, events = after(image, moved)
    assert events == []


def test_features_and_controllers_are_named() -> None:
    controller = r.RegisterControllerRecord(
        controller_id=BrokerId(3000),
        incarnation_id=Uuid(b"I" * 16),
        zk_migration_ready=False,
        end_points=(),
        features=(),
    )
    image, events = after(EMPTY, feature("x", 2), controller)
    assert events == [
        ("controller_registered", {"controller": 3000}),
        ("feature_changed", {"feature": "x", "feature_level": 2}),
    ]
    _, events = after(image, controller, feature("x", 2))
    assert events == [], "what is the same is not told again"
    _, events = after(image, replace(controller, incarnation_id=Uuid(b"J" * 16)), feature("x", 0))
    assert [name for name, _ in events] == ["controller_registered", "feature_changed"]
