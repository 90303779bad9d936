"""AlterPartition: who may change an ISR, who may join it, and what is answered."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import RECOVERED, RECOVERING
from kraftpy.quorum.control.isr import APIS
from kraftpy.types import BrokerId
from kraftpy.wire.apis import ALTER_PARTITION
from tests.unit.control.cluster import (
    ELR,
    TOPIC_ID,
    Cluster,
    broker,
    config,
    ids,
    partition,
    topic,
    wire,
)

VERSIONS = [2, 3]


def alter(cluster: Cluster, *isr: int, version: int = 3, leader: int = 1, **changed: Any) -> Any:
    """What the leader is told when it proposes this ISR, by default in the current epochs."""
    found = cluster.image.partition(TOPIC_ID, 0)
    epochs = (found.leader_epoch, found.partition_epoch) if found else (0, 0)
    brokers = cluster.image.brokers
    members = [
        {
            "broker_id": each,
            "broker_epoch": brokers[BrokerId(each)].broker_epoch if each in brokers else 0,
        }
        for each in isr
    ]
    values: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": epochs[0],
        "partition_epoch": epochs[1],
        "new_isr": isr,
        "new_isr_with_epochs": members,
        "leader_recovery_state": RECOVERED,
        **{name: value for name, value in changed.items() if name not in ("topic_id", "epoch")},
    }
    topic_id = changed.get("topic_id", TOPIC_ID)
    answer = cluster.ask(
        APIS,
        ALTER_PARTITION,
        version,
        broker_id=leader,
        broker_epoch=changed.get("epoch", 100 * leader),
        topics=[{"topic_id": wire(topic_id), "partitions": [values]}],
    )
    return answer.topics[0].partitions[0] if answer.topics else answer


def three(**changed: Any) -> Cluster:
    return Cluster(broker(1), broker(2), broker(3), topic(), partition(0, 1, 2, 3, **changed))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_shrinks_and_expands_its_isr(version: int) -> None:
    cluster = three()
    answer = alter(cluster, 1, 3, version=version)
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (ErrorCode.none, (1, 3), 1)
    assert cluster.partition().isr == ids(1, 3)
    answer = alter(cluster, 3, 2, 1, version=version)
    assert (answer.error_code, answer.isr) == (ErrorCode.none, (1, 2, 3))
    assert cluster.partition().leader_epoch == 0  # KAFKA-15021: only a new leader raises it.


def test_a_retry_of_what_is_already_true_is_accepted() -> None:
    """KAFKA-14144: the first answer was lost, and the partition epoch has moved on with it."""
    cluster = three()
    alter(cluster, 1, 2)
    end_offset = cluster.image.end_offset
    answer = alter(cluster, 2, 1, partition_epoch=0)
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.none, 1)
    assert cluster.image.end_offset == end_offset


STALE: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"leader_epoch": 1}, ErrorCode.fenced_leader_epoch),
    ({"leader_epoch": 3}, ErrorCode.not_controller),
    ({"partition_epoch": 5}, ErrorCode.not_controller),
    ({"partition_epoch": 3}, ErrorCode.invalid_update_version),
    ({"leader": 2}, ErrorCode.invalid_request),
    ({"partition_index": 7}, ErrorCode.unknown_topic_or_partition),
    ({"topic_id": b"U" * 16}, ErrorCode.unknown_topic_id),
    ({"leader_recovery_state": RECOVERING}, ErrorCode.invalid_request),
    ({"leader_recovery_state": 5}, ErrorCode.invalid_request),
]


@pytest.mark.parametrize(("changed", "code"), STALE)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_knows_another_state_is_refused(
    changed: dict[str, Any], code: ErrorCode, version: int
) -> None:
    cluster = three(leader_epoch=2, partition_epoch=4)
    before = cluster.image
    assert alter(cluster, 1, 2, version=version, **changed).error_code is code
    assert cluster.image.end_offset == before.end_offset
    assert cluster.partition().partition_epoch == 4


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 1), (1, 4)], ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_isr_that_no_leader_proposes_is_refused(isr: tuple[int, ...], version: int) -> None:
    """KAFKA-15353: an empty one among them."""
    cluster = three()
    assert alter(cluster, *isr, version=version).error_code is ErrorCode.invalid_request
    assert cluster.partition().isr == ids(1, 2, 3)


@pytest.mark.parametrize(
    "state", [{"fenced": True}, {"in_controlled_shutdown": True}, {"log_dirs": (b"X" * 16,)}]
)
def test_nobody_joins_who_is_not_active(state: dict[str, Any]) -> None:
    """KAFKA-13916, KIP-841."""
    cluster = Cluster(
        broker(1), broker(2), broker(3, **state), topic(), partition(0, 1, 2, 3, isr=ids(1, 2))
    )
    assert alter(cluster, 1, 2, 3).error_code is ErrorCode.ineligible_replica
    assert cluster.partition().isr == ids(1, 2)


def test_nobody_joins_who_restarted_since_the_leader_saw_it() -> None:
    """KIP-903, KAFKA-14617. A leader that does not know the epoch says -1, and is believed."""
    cluster = three(isr=ids(1, 2))
    members = [{"broker_id": each, "broker_epoch": 100 * each} for each in (1, 2)]
    for epoch, code in ((299, ErrorCode.ineligible_replica), (-1, ErrorCode.none)):
        joiner = {"broker_id": 3, "broker_epoch": epoch}
        assert alter(cluster, new_isr_with_epochs=[*members, joiner]).error_code is code


def test_a_leader_of_an_old_life_is_refused_as_a_whole() -> None:
    cluster = three()
    assert alter(cluster, 1, epoch=99).error_code is ErrorCode.stale_broker_epoch
    assert alter(cluster, 1, leader=9, epoch=900).error_code is ErrorCode.stale_broker_epoch


def test_a_partition_that_is_named_twice_is_changed_once() -> None:
    cluster = three()
    data = {
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "leader_recovery_state": RECOVERED,
    }
    twice = [{**data, "new_isr": (1, 2)}, {**data, "new_isr": (1,)}]
    topics = [{"topic_id": wire(TOPIC_ID), "partitions": twice}]
    answer = cluster.ask(APIS, ALTER_PARTITION, 2, broker_id=1, broker_epoch=100, topics=topics)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.none, ErrorCode.invalid_request]
    assert cluster.partition().isr == ids(1, 2)


def test_a_leader_that_recovered_may_let_others_in() -> None:
    cluster = three(isr=ids(1), leader_recovery_state=RECOVERING)
    refused = alter(cluster, 1, 2, leader_recovery_state=RECOVERING)
    assert refused.error_code is ErrorCode.invalid_request
    answer = alter(cluster, 1, 2)
    assert (answer.error_code, answer.leader_recovery_state) == (ErrorCode.none, RECOVERED)


def test_the_isr_that_completes_a_reassignment_ends_it() -> None:
    cluster = Cluster(
        *(broker(each) for each in (1, 2, 3, 4)),
        topic(),
        partition(
            0, 1, 4, 2, 3, isr=ids(1, 2, 3), adding_replicas=ids(4), removing_replicas=ids(2, 3)
        ),
    )
    answer = alter(cluster, 1, 2, 3, 4)
    assert (answer.error_code, answer.isr, answer.leader_epoch) == (ErrorCode.none, (1, 4), 1)
    after = cluster.partition()
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == (ids(1, 4), (), ())


def test_a_leader_that_reassigns_itself_away_is_told_so() -> None:
    cluster = Cluster(
        broker(1),
        broker(2),
        topic(),
        partition(0, 2, 1, isr=ids(1), leader=BrokerId(1), adding_replicas=ids(2),
                  removing_replicas=ids(1)),
    )  # fmt: skip
    assert alter(cluster, 1, 2).error_code is ErrorCode.new_leader_elected
    after = cluster.partition()
    assert (after.leader, after.isr, after.replicas, after.leader_epoch) == (2, (2,), (2,), 1)


def test_an_isr_below_the_minimum_leaves_eligible_leaders() -> None:
    minimum = config("min.insync.replicas", "2")
    three_brokers = (broker(1), broker(2), broker(3))
    cluster = Cluster(ELR, *three_brokers, topic(), minimum, partition(0, 1, 2, 3))
    alter(cluster, 1, 2)
    assert cluster.partition().elr == ()
    alter(cluster, 1)
    assert cluster.partition().elr == ids(2)
    alter(cluster, 1, 3)
    assert cluster.partition().elr == ()
