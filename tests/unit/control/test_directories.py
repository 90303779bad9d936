"""AssignReplicasToDirs: where replicas are, and what it means if that place has failed."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.decision import Decision
from kraftpy.quorum.control.directories import APIS
from kraftpy.types import NO_LEADER, BrokerId, Uuid
from kraftpy.wire.apis import ASSIGN_REPLICAS_TO_DIRS
from tests.unit.control.cluster import (
    TOPIC_ID,
    Cluster,
    broker,
    directory,
    ids,
    partition,
    topic,
    wire,
)
from tests.unit.control.makers import answers

FIRST, SECOND, FAILED = directory(1), directory(1, 1), directory(1, 2)


def cluster_of(*partitions: r.PartitionRecord) -> Cluster:
    """Broker 1 has two directories that work."""
    return Cluster(broker(1, log_dirs=(FIRST, SECOND)), broker(2), topic(), *partitions)


def assignment(*placed: tuple[Uuid, int], topic_id: bytes = TOPIC_ID, **changed: Any) -> Any:
    directories = [
        {
            "id_": wire(directory_id),
            "topics": [
                {"topic_id": wire(topic_id), "partitions": [{"partition_index": partition_id}]}
            ],
        }
        for directory_id, partition_id in placed
    ]
    return {"broker_id": 1, "broker_epoch": 100, "directories": directories} | changed


def assign(cluster: Cluster, *placed: tuple[Uuid, int], **changed: Any) -> Any:
    return cluster.ask(APIS, ASSIGN_REPLICAS_TO_DIRS, 0, **assignment(*placed, **changed))


def decided(cluster: Cluster, *placed: tuple[Uuid, int]) -> Decision:
    return cluster.decide(APIS, ASSIGN_REPLICAS_TO_DIRS, 0, **assignment(*placed))


def errors(answer: Any) -> list[ErrorCode]:
    assert answer.error_code is ErrorCode.none
    return [
        each.error_code
        for found in answer.directories
        for named in found.topics
        for each in named.partitions
    ]


def test_a_replica_is_where_its_broker_says() -> None:
    cluster = cluster_of(partition(0, 1, 2), partition(1, 2, 1))
    answer = assign(cluster, (SECOND, 0), (SECOND, 1))
    assert errors(answer) == [ErrorCode.none] * 2
    assert cluster.partition(0).directories == (SECOND, directory(2))
    assert cluster.partition(1).directories == (directory(2), SECOND)
    for each in (0, 1):
        assert cluster.partition(each).partition_epoch == 1
        assert cluster.partition(each).leader_epoch == 0


def test_the_answer_has_the_shape_of_the_request() -> None:
    answer = assign(cluster_of(partition(0, 1, 2)), (SECOND, 0))
    (found,) = answer.directories
    assert found.id_ == wire(SECOND)
    assert found.topics[0].topic_id == wire(TOPIC_ID)
    assert found.topics[0].partitions[0].partition_index == 0


def test_an_assignment_that_is_known_writes_nothing() -> None:
    cluster = cluster_of(partition(0, 1, 2))
    assert decided(cluster, (FIRST, 0)).records == []
    assert errors(assign(cluster, (FIRST, 0))) == [ErrorCode.none]


@pytest.mark.parametrize("lost", [FAILED, r.LOST_DIRECTORY])
def test_a_replica_in_a_failed_directory_leaves_the_isr(lost: Uuid) -> None:
    cluster = cluster_of(partition(0, 1, 2), partition(1, 1))
    assert errors(assign(cluster, (lost, 0), (lost, 1))) == [ErrorCode.none] * 2
    assert cluster.partition(0).directories == (lost, directory(2))
    assert cluster.partition(0).leader == BrokerId(2)
    assert cluster.partition(0).isr == ids(2)
    assert cluster.partition(1).leader == NO_LEADER


def test_assignments_precede_the_changes_that_they_cause() -> None:
    records = decided(cluster_of(partition(0, 1, 2)), (FAILED, 0)).records
    first, second = records
    assert isinstance(first, r.PartitionChangeRecord)
    assert isinstance(second, r.PartitionChangeRecord)
    assert first.directories is not None
    assert second.isr == ids(2)


def test_a_partition_that_is_named_twice_is_where_it_was_named_last() -> None:
    cluster = cluster_of(partition(0, 1, 2))
    assert errors(assign(cluster, (FAILED, 0), (SECOND, 0))) == [ErrorCode.none] * 2
    assert cluster.partition(0).directories == (SECOND, directory(2))
    assert cluster.partition(0).leader == BrokerId(1)
    assert cluster.partition(0).partition_epoch == 1


def test_each_partition_is_refused_on_its_own() -> None:
    cluster = cluster_of(partition(0, 1, 2), partition(1, 2))
    assert errors(assign(cluster, (SECOND, 0), (SECOND, 1), (SECOND, 2))) == [
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert cluster.partition(0).directories == (SECOND, directory(2))
    assert cluster.partition(1).partition_epoch == 0


def test_an_unknown_topic_is_refused() -> None:
    answer = assign(cluster_of(partition(0, 1)), (SECOND, 0), topic_id=b"U" * 16)
    assert errors(answer) == [ErrorCode.unknown_topic_id]


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        ({"broker_epoch": 99}, ErrorCode.stale_broker_epoch),
        ({"broker_id": 7}, ErrorCode.broker_id_not_registered),
    ],
)
def test_only_the_current_incarnation_may_assign(
    changed: dict[str, int], error_code: ErrorCode
) -> None:
    cluster = cluster_of(partition(0, 1, 2))
    before = cluster.image
    answer = assign(cluster, (SECOND, 0), **changed)
    assert answer.error_code is error_code
    assert answer.directories == ()
    assert cluster.image == before


def test_every_version_can_be_refused() -> None:
    api = APIS[ASSIGN_REPLICAS_TO_DIRS]
    values = api.refuse(None, ErrorCode.not_controller, "another one leads")
    (answer,) = answers(ASSIGN_REPLICAS_TO_DIRS, api, values).values()
    assert answer.error_code is ErrorCode.not_controller
