"""Topics are deleted by name or id, and grow."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.topics import APIS
from kraftpy.wire.apis import CREATE_PARTITIONS, DELETE_TOPICS
from tests.unit.control.cluster import (
    TOPIC_ID,
    Cluster,
    broker,
    ids,
    partition,
    topic,
    wire,
)
from tests.unit.control.topic_requests import (
    NONE,
    TIMEOUT,
    creatable,
    create,
    delete,
    three_brokers,
)

# -- deleting -----------------------------------------------------------------------------------


def one_topic(*more: MetadataRecord) -> Cluster:
    return three_brokers(topic(), partition(0, 1, 2), partition(1, 2, 3), *more)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_by_name_in_every_version(version: int) -> None:
    cluster = one_topic()
    asked: dict[str, Any] = {
        "timeout": TIMEOUT,
        "topic_names": ["orders", "lost"],
        "topics": [{"name": "orders", "topic_id": None}, {"name": "lost", "topic_id": None}],
    }
    gone, unknown = cluster.ask(APIS, DELETE_TOPICS, version, **asked).responses
    assert (gone.name, gone.error_code) == ("orders", NONE)
    assert (unknown.name, unknown.error_code) == ("lost", ErrorCode.unknown_topic_or_partition)
    assert not cluster.image.topics
    if version >= 6:
        assert gone.topic_id == wire(TOPIC_ID)


def test_a_topic_is_deleted_by_id() -> None:
    cluster = one_topic()
    gone, unknown = delete(cluster, (None, TOPIC_ID), (None, b"?" * 16))
    assert (gone.name, gone.topic_id, gone.error_code) == ("orders", wire(TOPIC_ID), NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.unknown_topic_id)
    assert unknown.topic_id == wire(b"?" * 16)
    assert not cluster.image.topics


@pytest.mark.parametrize(
    "topics",
    [
        [("orders", TOPIC_ID)],
        [(None, None)],
        [("orders", None), ("orders", None)],
        [(None, TOPIC_ID), (None, TOPIC_ID)],
        [(None, TOPIC_ID), ("orders", None)],
    ],
)
def test_a_topic_that_is_named_twice_or_in_two_ways_stays(
    topics: list[tuple[str | None, bytes | None]],
) -> None:
    cluster = one_topic()
    results = delete(cluster, *topics)
    assert [each.error_code for each in results] == [ErrorCode.invalid_request] * len(topics)
    assert len(cluster.image.topics) == 1


def test_kafka_19383_clearing_elr_does_not_bring_a_deleted_topic_back() -> None:
    cluster = one_topic()
    asked = [{"name": "orders", "topic_id": None}]
    removal = cluster.decide(APIS, DELETE_TOPICS, 6, topics=asked, timeout=TIMEOUT).records
    cluster.apply([*removal, r.ClearElrRecord(topic_name="")])
    assert not cluster.image.topics
    assert not cluster.image.topic_ids


def test_the_configs_of_a_deleted_topic_do_not_wait_for_the_next_of_its_name() -> None:
    cluster = three_brokers()
    create(cluster, creatable("a", 1, 1, retention_ms="5"))
    delete(cluster, ("a", None))
    assert not cluster.image.configs
    create(cluster, creatable("a", 1, 1))
    assert not cluster.image.configs


# -- growing ------------------------------------------------------------------------------------


def grow(
    cluster: Cluster,
    count: int,
    assigned: list[tuple[int, ...]] | None = None,
    *,
    name: str = "orders",
    version: int = 3,
    validate_only: bool = False,
) -> Any:
    assignments = None if assigned is None else [{"broker_ids": each} for each in assigned]
    asked = {"name": name, "count": count, "assignments": assignments}
    values = {"topics": [asked], "validate_only": validate_only, "timeout": TIMEOUT}
    (result,) = cluster.ask(APIS, CREATE_PARTITIONS, version, **values).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_behind_those_there_are(version: int) -> None:
    cluster = one_topic()
    assert grow(cluster, 6, version=version).error_code == NONE
    partitions = cluster.image.topics[TOPIC_ID].partitions
    assert sorted(partitions) == list(range(6))
    assert all(len(each.replicas) == 2 for each in partitions.values())
    leaders = [partitions[each].leader for each in range(2, 6)]
    assert len(set(leaders[:3])) == 3


def test_partitions_are_assigned_by_hand() -> None:
    cluster = one_topic(broker(4, fenced=True))
    assert grow(cluster, 4, [(3, 1), (4, 3)]).error_code == NONE
    assert cluster.partition(2).replicas == (3, 1)
    assert cluster.partition(3).isr == ids(3)
    assert cluster.partition(3).leader == 3


@pytest.mark.parametrize(
    ("count", "assigned", "error_code"),
    [
        (2, None, ErrorCode.invalid_partitions),
        (1, None, ErrorCode.invalid_partitions),
        (-5, None, ErrorCode.invalid_partitions),
        (3, [], ErrorCode.invalid_replica_assignment),
        (4, [(1, 2)], ErrorCode.invalid_replica_assignment),
        (3, [(1,)], ErrorCode.invalid_replica_assignment),
        (3, [(1, 1)], ErrorCode.invalid_replica_assignment),
        (3, [(1, 9)], ErrorCode.invalid_replica_assignment),
        (BATCH_RECORDS_MAX + 3, None, ErrorCode.policy_violation),
        (2**31 - 1, None, ErrorCode.policy_violation),
    ],
)
def test_a_growth_that_is_none_or_cannot_be_is_refused(
    count: int, assigned: list[tuple[int, ...]] | None, error_code: ErrorCode
) -> None:
    cluster = one_topic()
    result = grow(cluster, count, assigned)
    assert result.error_code == error_code
    assert result.error_message
    assert len(cluster.image.topics[TOPIC_ID].partitions) == 2


def test_an_unknown_topic_and_one_that_is_named_twice_do_not_grow() -> None:
    cluster = one_topic()
    assert grow(cluster, 9, name="lost").error_code == ErrorCode.unknown_topic_or_partition
    asked = {"name": "orders", "count": 3, "assignments": None}
    values = {"topics": [asked, asked], "validate_only": False, "timeout": TIMEOUT}
    (result,) = cluster.ask(APIS, CREATE_PARTITIONS, 3, **values).results
    assert result.error_code == ErrorCode.invalid_request


def test_growth_can_be_asked_about_only() -> None:
    cluster = one_topic()
    assert grow(cluster, 3, validate_only=True).error_code == NONE
    assert len(cluster.image.topics[TOPIC_ID].partitions) == 2


def test_replicas_that_a_reassignment_removes_do_not_count() -> None:
    moving = partition(0, 3, 1, 2, removing_replicas=ids(1, 2), adding_replicas=ids(3))
    cluster = three_brokers(topic(), moving)
    assert grow(cluster, 2).error_code == NONE
    assert len(cluster.partition(1).replicas) == 1


def test_a_topic_with_gaps_does_not_grow() -> None:
    cluster = three_brokers(topic(), partition(1, 1))
    assert grow(cluster, 3).error_code == ErrorCode.unknown_server_error
