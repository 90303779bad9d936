"""Replicas move: start, replace, cancel, complete, and what is under way."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import RECOVERING, UNASSIGNED_DIRECTORY
from kraftpy.quorum.control.elections import new_change
from kraftpy.quorum.control.reassignment import APIS
from kraftpy.types import NO_LEADER, BrokerId
from kraftpy.wire.apis import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from tests.unit.control.cluster import (
    ELR,
    TOPIC_ID,
    Cluster,
    broker,
    config,
    directory,
    ids,
    partition,
    topic,
)

NO_TIME = timedelta(0)
UNCLEAN_ALLOWED = config("unclean.leader.election.enable", "true")


def cluster_of(*records: Any, fenced: tuple[int, ...] = ()) -> Cluster:
    brokers = [broker(each, fenced=each in fenced) for each in range(1, 7)]
    return Cluster(*brokers, topic(), *(records or [partition(0, 1, 2, 3)]))


def reassign(
    cluster: Cluster, target: tuple[int, ...] | None, partition_id: int = 0, **changed: Any
) -> ErrorCode:
    values = {"allow_replication_factor_change": True, **changed}
    moved = [{"partition_index": partition_id, "replicas": target}]
    topics = [{"name": values.pop("name", "orders"), "partitions": moved}]
    version = values.pop("version", 1)
    answer = cluster.ask(
        APIS, ALTER_PARTITION_REASSIGNMENTS, version, timeout=NO_TIME, topics=topics, **values
    )
    code: ErrorCode = answer.responses[0].partitions[0].error_code
    return code


def state(cluster: Cluster) -> tuple[Any, ...]:
    now = cluster.partition()
    return now.replicas, now.isr, now.adding_replicas, now.removing_replicas, now.leader


def in_sync(cluster: Cluster, *isr: int) -> None:
    """The leader reports an ISR."""
    old = cluster.partition()
    change = new_change(cluster.situation(), cluster.image.topics[TOPIC_ID], 0)
    change.isr = ids(*isr)
    record = change.build()
    assert record is not None
    assert old.leader != NO_LEADER
    cluster.apply([record])


@pytest.mark.parametrize("version", [0, 1])
def test_a_reassignment_adds_first_and_removes_when_all_are_in_sync(version: int) -> None:
    cluster = cluster_of()
    assert reassign(cluster, (4, 5, 1), version=version) is ErrorCode.none
    assert state(cluster) == ((4, 5, 1, 2, 3), (1, 2, 3), (4, 5), (2, 3), 1)
    assert cluster.partition().leader_epoch == 0
    in_sync(cluster, 1, 2, 3, 4)
    assert cluster.partition().adding_replicas == (4, 5)  # 5 is still missing (KAFKA-15665).
    in_sync(cluster, 1, 2, 3, 4, 5)
    assert state(cluster) == ((4, 5, 1), (1, 4, 5), (), (), 1)
    assert cluster.partition().leader_epoch == 1  # Replicas left.


def test_every_replica_has_a_directory_and_those_that_stay_keep_theirs() -> None:
    """KAFKA-16583."""
    cluster = cluster_of()
    reassign(cluster, (4, 1))
    stay = [directory(each) for each in (1, 2, 3)]
    assert cluster.partition().directories == (UNASSIGNED_DIRECTORY, *stay)


def test_a_target_that_is_in_sync_is_reached_at_once() -> None:
    cluster = cluster_of()
    assert reassign(cluster, (2, 1)) is ErrorCode.none
    assert state(cluster) == ((2, 1), (1, 2), (), (), 1)


def test_an_order_is_a_target_too() -> None:
    cluster = cluster_of()
    assert reassign(cluster, (3, 2, 1)) is ErrorCode.none
    assert state(cluster) == ((3, 2, 1), (1, 2, 3), (), (), 1)


def test_what_is_so_already_writes_nothing() -> None:
    cluster = cluster_of()
    end_offset = cluster.image.end_offset
    assert reassign(cluster, (1, 2, 3)) is ErrorCode.none
    assert cluster.image.end_offset == end_offset


def test_a_new_target_replaces_the_old_one() -> None:
    cluster = cluster_of()
    reassign(cluster, (4, 5, 1))
    assert reassign(cluster, (4, 6, 1)) is ErrorCode.none
    # 4 is still being added, 5 is on its way out again.
    assert state(cluster)[2:4] == ((4, 6), (2, 3, 5))
    assert set(state(cluster)[0]) == {1, 2, 3, 4, 5, 6}


def test_to_cancel_drops_what_was_being_added() -> None:
    cluster = cluster_of()
    reassign(cluster, (4, 5, 1))
    in_sync(cluster, 1, 2, 3, 4)
    assert reassign(cluster, None) is ErrorCode.none
    replicas, isr, adding, removing, leader = state(cluster)
    assert (set(replicas), isr, adding, removing, leader) == ({1, 2, 3}, (1, 2, 3), (), (), 1)
    assert cluster.partition().leader_epoch == 1
    assert reassign(cluster, None) is ErrorCode.no_reassignment_in_progress


def test_to_cancel_where_only_new_replicas_are_in_sync_needs_permission() -> None:
    """It would lose acknowledged records."""
    stuck = [partition(0, 4, 5, 1, isr=ids(4), leader=BrokerId(4), adding_replicas=ids(4, 5),
                       removing_replicas=ids(1))]  # fmt: skip
    assert reassign(cluster_of(*stuck), None) is ErrorCode.invalid_replica_assignment
    dead = cluster_of(UNCLEAN_ALLOWED, *stuck, fenced=(1,))
    assert reassign(dead, None) is ErrorCode.invalid_replica_assignment
    cluster = cluster_of(UNCLEAN_ALLOWED, *stuck)
    assert reassign(cluster, None) is ErrorCode.none
    assert state(cluster) == ((1,), (1,), (), (), 1)
    assert cluster.partition().leader_recovery_state == RECOVERING


def test_to_cancel_to_a_replica_that_is_eligible_is_clean() -> None:
    old = partition(
        0, 4, 5, 1, isr=ids(4), leader=BrokerId(4), adding_replicas=ids(4, 5),
        removing_replicas=ids(1), eligible_leader_replicas=ids(1),
    )  # fmt: skip
    cluster = cluster_of(ELR, config("min.insync.replicas", "2"), old)
    assert reassign(cluster, None) is ErrorCode.none
    assert state(cluster) == ((1,), (1,), (), (), 1)
    assert cluster.partition().leader_recovery_state != RECOVERING


REFUSED: list[tuple[tuple[int, ...] | None, dict[str, Any], ErrorCode]] = [
    ((), {}, ErrorCode.invalid_replica_assignment),
    ((1, 1), {}, ErrorCode.invalid_replica_assignment),
    ((1, 9), {}, ErrorCode.invalid_replica_assignment),
    ((1, -1), {}, ErrorCode.invalid_replica_assignment),
    ((1, 2), {"allow_replication_factor_change": False}, ErrorCode.invalid_replication_factor),
    (None, {}, ErrorCode.no_reassignment_in_progress),
    ((1, 2), {"name": "nothing"}, ErrorCode.unknown_topic_or_partition),
    ((1, 2), {"partition_id": 3}, ErrorCode.unknown_topic_or_partition),
]


@pytest.mark.parametrize(("target", "changed", "code"), REFUSED)
def test_what_cannot_be_is_refused_and_writes_nothing(
    target: tuple[int, ...] | None, changed: dict[str, Any], code: ErrorCode
) -> None:
    cluster = cluster_of()
    end_offset = cluster.image.end_offset
    assert reassign(cluster, target, **changed) is code
    assert cluster.image.end_offset == end_offset


def test_a_partition_that_is_named_twice_moves_once() -> None:
    cluster = cluster_of()
    both = [{"partition_index": 0, "replicas": target} for target in ((4, 1), (5, 1))]
    topics = [{"name": "orders", "partitions": both}]
    answer = cluster.ask(APIS, ALTER_PARTITION_REASSIGNMENTS, 0, timeout=NO_TIME, topics=topics)
    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [ErrorCode.none, ErrorCode.invalid_request]
    assert cluster.partition().adding_replicas == (4,)


def under_way(cluster: Cluster, topics: Any) -> dict[int, Any]:
    answer = cluster.ask(APIS, LIST_PARTITION_REASSIGNMENTS, 0, timeout=NO_TIME, topics=topics)
    assert answer.error_code is ErrorCode.none
    return {
        each.partition_index: (each.replicas, each.adding_replicas, each.removing_replicas)
        for found in answer.topics
        for each in found.partitions
    }


def test_what_is_under_way_is_listed() -> None:
    cluster = cluster_of(partition(0, 1, 2), partition(1, 1, 2))
    assert under_way(cluster, None) == {}
    reassign(cluster, (3, 1))
    expected = {0: ((3, 1, 2), (3,), (2,))}
    assert under_way(cluster, None) == expected
    asked = [{"name": "orders", "partition_indexes": (0, 0, 1, 7)}]
    assert under_way(cluster, asked) == expected
    assert under_way(cluster, [{"name": "nothing", "partition_indexes": (0,)}]) == {}
