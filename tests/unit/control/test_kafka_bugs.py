"""Bugs that Kafka's controller has had and that no other file here has by name."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import RECOVERED, PartitionChangeRecord
from kraftpy.quorum.control.isr import APIS
from kraftpy.types import BrokerId
from kraftpy.wire.apis import ALTER_PARTITION
from tests.unit.control.cluster import (
    ELR,
    TOPIC_ID,
    Cluster,
    config,
    ids,
    partition,
    topic,
    wire,
)
from tests.unit.control.test_elections import MIN_TWO, brokers, removed
from tests.unit.control.test_isr import alter, three
from tests.unit.control.test_reassignment import cluster_of, in_sync, reassign, state


def test_kafka_19212_a_leader_from_the_elr_is_a_clean_one() -> None:
    """It holds all that was committed: nothing needs recovery, and nothing may call it unclean."""
    cluster = Cluster(
        ELR, *brokers(), topic(), MIN_TWO, partition(0, 1, 2, 3, isr=ids(1, 2)),
        config("unclean.leader.election.enable", "true"),
    )  # fmt: skip
    removed(cluster, 2)
    removed(cluster, 1)
    after = cluster.partition()
    assert (after.leader, after.isr) == (2, ids(2))
    assert after.leader_recovery_state == RECOVERED


def test_kafka_19212_the_leader_that_ends_a_reassignment_is_a_clean_one() -> None:
    cluster = cluster_of(partition(0, 1, 2, 3))
    reassign(cluster, (4, 5, 6))
    in_sync(cluster, 1, 2, 3, 4, 5, 6)
    after = cluster.partition()
    assert (after.leader, after.isr, after.leader_recovery_state) == (4, ids(4, 5, 6), RECOVERED)


@pytest.mark.parametrize("with_elr", [True, False])
def test_kafka_18634_eligible_leaders_are_written_only_where_the_feature_is_on(
    with_elr: bool,
) -> None:
    cluster = Cluster(
        *([ELR] if with_elr else []), *brokers(), topic(), MIN_TWO, partition(0, 1, 2, 3)
    )
    values = {
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "leader_recovery_state": RECOVERED,
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": 100}],
    }
    topics: list[dict[str, Any]] = [{"topic_id": wire(TOPIC_ID), "partitions": [values]}]
    (change,) = cluster.decide(
        APIS, ALTER_PARTITION, 3, broker_id=1, broker_epoch=100, topics=topics
    ).records
    assert isinstance(change, PartitionChangeRecord)
    assert change.eligible_leader_replicas == (ids(2, 3) if with_elr else None)


@pytest.mark.parametrize("ahead", [{"leader_epoch": 1}, {"partition_epoch": 1}])
def test_kafka_14154_a_leader_that_knows_more_than_the_controller_is_sent_to_another(
    ahead: dict[str, int],
) -> None:
    """The controller is a zombie: it must not call the leader fenced, which would then give up."""
    cluster = three()
    assert alter(cluster, 1, 2, **ahead).error_code is ErrorCode.not_controller
    assert cluster.partition().isr == ids(1, 2, 3)


@pytest.mark.parametrize("left", [1, 2])
def test_kafka_15109_only_a_new_leader_raises_the_leader_epoch_when_a_broker_is_gone(
    left: int,
) -> None:
    cluster = Cluster(*brokers(left), topic(), partition(0, 1, 2, 3))
    removed(cluster, left)
    assert cluster.partition().leader_epoch == (1 if left == 1 else 0)
    assert cluster.partition().partition_epoch == 1


def test_kafka_19975_a_reassignment_waits_for_a_replica_that_stays_and_then_ends() -> None:
    """3 stays but lags: to end without it would leave fewer in sync than before."""
    cluster = cluster_of(partition(0, 1, 2, 3, isr=ids(1, 2)))
    assert reassign(cluster, (1, 3, 4)) is ErrorCode.none
    in_sync(cluster, 1, 2, 4)
    assert cluster.partition().adding_replicas == ids(4)
    in_sync(cluster, 1, 2, 3, 4)
    assert state(cluster) == (ids(1, 3, 4), ids(1, 3, 4), (), (), BrokerId(1))
