"""The index answers what a walk over the image would, whatever happened on the way."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.metadata_log import EMPTY, ClusterDelta
from kraftpy.metadata_log.image import Changes
from kraftpy.metadata_log.partition_merge import merge_partition
from kraftpy.metadata_log.records import RemoveTopicRecord
from kraftpy.quorum.control.elections import new_change
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.partition_state import PartitionState, illegal_transitions, state_of
from kraftpy.types import NO_LEADER, BrokerId, TopicId, Uuid
from tests.property.strategies import legal_logs
from tests.unit.control.cluster import Cluster, broker, ids, partition, topic


def answers(index: PartitionIndex) -> dict[str, Any]:
    brokers = [BrokerId(each) for each in range(-2, 12)]
    return {
        "holding": {each: index.holding(each) for each in brokers},
        "leads": {each: index.leads_any(each) for each in brokers},
        "leaderless": index.leaderless(),
        "reassigning": index.reassigning(),
        "not_preferred": index.not_preferred(),
        "preferring": {each: index.preferring(each) for each in brokers},
    }


@settings(max_examples=200, deadline=None)
@given(legal_logs(), st.integers(0, 5))
def test_an_index_that_followed_equals_one_that_was_made_anew(
    batches: list[list[Any]], built_after: int
) -> None:
    image = EMPTY
    index = PartitionIndex(image)
    for number, records in enumerate(batches):
        delta = ClusterDelta(image)
        end_offset = delta.replay_all(records, image.end_offset)
        image = delta.image(end_offset, 1)
        index.move(image, delta.changes())
        if number >= built_after:
            assert answers(index) == answers(PartitionIndex(image))


def test_an_index_that_forgets_a_change_is_seen() -> None:
    """The comparison above can fail."""
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2))
    index = PartitionIndex(cluster.image)
    before = answers(index)
    delta = ClusterDelta(cluster.image)
    delta.replay_all([RemoveTopicRecord(topic_id=TopicId(Uuid(b"T" * 16)))], 99)
    image = delta.image(100, 1)
    index.move(image, Changes())
    assert index.holding(BrokerId(1)) == before["holding"][1] != []
    assert answers(PartitionIndex(image))["holding"][1] == []


# -- the state machine ------------------------------------------------------------------------


def test_a_partition_is_in_the_state_that_its_leader_and_epoch_say() -> None:
    cluster = Cluster(broker(1), topic(), partition(0, 1))
    led = cluster.partition()
    new = partition(1, 1, leader=NO_LEADER)
    offline = partition(2, 1, leader=NO_LEADER, leader_epoch=1)
    cluster.apply([new, offline])
    assert state_of(None) is PartitionState.NON_EXISTENT
    assert state_of(led) is PartitionState.ONLINE
    assert state_of(cluster.partition(1)) is PartitionState.NEW
    assert state_of(cluster.partition(2)) is PartitionState.OFFLINE


def test_a_transition_that_the_table_forbids_is_named() -> None:
    """Offline to New: an epoch that goes back."""
    offline = partition(0, 1, leader=NO_LEADER, leader_epoch=1)
    cluster = Cluster(broker(1), topic(), offline)
    before = cluster.image
    cluster.apply([partition(0, 1, leader=NO_LEADER)])
    changes = Changes(topics={TopicId(Uuid(b"T" * 16)): frozenset({0})})
    found = list(illegal_transitions(before, cluster.image, changes))
    assert found == ["orders-0 goes from Offline to New"]
    assert list(illegal_transitions(before, before, changes)) == []


def test_random_changes_keep_to_the_table() -> None:
    rng = random.Random(5)
    cluster = Cluster(*(broker(each) for each in (1, 2, 3)), topic(), partition(0, 1, 2, 3))
    for _ in range(100):
        before = cluster.image
        change = new_change(cluster.situation(), cluster.image.topics[TopicId(Uuid(b"T" * 16))], 0)
        change.isr = ids(*rng.sample((1, 2, 3), rng.randint(1, 3)))
        dead = rng.choice((0, 1, 2, 3))
        change.may_lead = lambda replica, dead=dead: replica != dead  # type: ignore[misc]
        record = change.build()
        if record is None:
            continue
        expected = merge_partition(cluster.partition(), record)
        cluster.apply([record])
        assert cluster.partition() == expected
        changes = Changes(topics={record.topic_id: frozenset({0})})
        assert list(illegal_transitions(before, cluster.image, changes)) == []
