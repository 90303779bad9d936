"""What is counted of a cluster, and which rows a page is sent."""

from kraftpy.admin.cluster_view import TopicRows, all_topics, broker_rows, health, min_isr
from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.admin.node import large_topic, small_cluster
from tests.unit.metadata_log.makers import TOPIC_ID, brokers, change, config


def image_of(*more: MetadataRecord) -> ClusterImage:
    return replay_batch(EMPTY, (*small_cluster(), *more), 0, epoch=1)


def test_a_healthy_cluster_has_nothing_to_count() -> None:
    found = health(image_of())
    assert (found.topics, found.partitions, found.not_preferred) == (1, 2, 1)
    assert found.offline == found.under_replicated == found.under_min_isr == 0
    assert found.reassigning == found.recovering == 0


def test_each_trouble_is_counted_where_it_is() -> None:
    found = health(
        image_of(
            config("min.insync.replicas", "2"),
            change(0, isr=brokers(2), leader=NO_LEADER, leader_epoch=5),
            change(1, adding_replicas=brokers(4), replicas=brokers(1, 2, 3, 4)),
        )
    )
    assert (found.offline, found.under_min_isr, found.reassigning) == (1, 1, 1)
    assert found.under_replicated == 2  # Who is being added is not in sync yet.


def test_min_isr_is_the_topics_or_the_clusters_or_one() -> None:
    image = image_of()
    assert min_isr(image, image.topics[TOPIC_ID]) == 1
    of_all = r.ConfigRecord(
        resource_type=r.BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value="3"
    )
    image = image_of(of_all)
    assert min_isr(image, image.topics[TOPIC_ID]) == 3
    image = image_of(of_all, config("min.insync.replicas", "2"))
    assert min_isr(image, image.topics[TOPIC_ID]) == 2


def test_brokers_are_told_with_their_load_also_when_they_are_gone() -> None:
    gone = r.UnregisterBrokerRecord(broker_id=BrokerId(3), broker_epoch=13)
    fenced = r.FenceBrokerRecord(id=BrokerId(2), epoch=12)
    rows = broker_rows(image_of(change(0, isr=brokers(1, 2)), fenced, gone))
    assert [(row["id"], row["state"], row["leads"], row["lagging"]) for row in rows] == [
        (1, "active", 1, 0),
        (2, "fenced", 1, 0),
        (3, "gone", 0, 1),
    ]


def test_only_what_changed_is_sent_again() -> None:
    rows = TopicRows()
    image = image_of(*large_topic(7, 2))
    first = rows.changes(image)
    assert first is not None
    assert [row["name"] for row in first["changed"]] == ["orders", "topic-0007"]
    assert rows.changes(image) is None
    image = replay_batch(image, [change(0, isr=brokers(1, 2))], image.end_offset, epoch=1)
    second = rows.changes(image)
    assert second is not None
    assert [row["name"] for row in second["changed"]] == ["orders"]
    assert second["changed"][0]["partitions"][0][3] == (1, 2)
    image = replay_batch(image, [r.RemoveTopicRecord(topic_id=TOPIC_ID)], 99, epoch=1)
    third = rows.changes(image)
    assert third is not None
    assert (third["changed"], len(third["removed"])) == ([], 1)


def test_an_empty_cluster_has_no_rows() -> None:
    assert all_topics(EMPTY) == {"end_offset": 0, "changed": [], "removed": []}
