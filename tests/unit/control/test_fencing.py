"""Fencing, unfencing and expired sessions: what they mean for leaders and ISRs, in which order."""

import random
from collections.abc import Iterator

import pytest

from kraftpy.errors import ReplayError
from kraftpy.metadata_log import ClusterImage, replay_all
from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.fencing import (
    begin_controlled_shutdown,
    fence_broker,
    fence_expired,
    unfence_broker,
)
from kraftpy.quorum.control.partition_index import all_partitions
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.control.cluster import (
    ELR,
    SESSION_MS,
    Cluster,
    broker,
    config,
    directory,
    ids,
    partition,
    topic,
)


def of(cluster: Cluster, broker_id: int) -> r.RegisterBrokerRecord:
    return cluster.broker(broker_id)


def fence(cluster: Cluster, broker_id: int) -> None:
    cluster.apply(fence_broker(cluster.situation(), of(cluster, broker_id)))


def unfence(cluster: Cluster, broker_id: int) -> None:
    cluster.apply(unfence_broker(cluster.situation(), of(cluster, broker_id)))


def three(*partitions: r.PartitionRecord, extra: tuple[r.MetadataRecord, ...] = ()) -> Cluster:
    return Cluster(broker(1), broker(2), broker(3), *extra, topic(), *partitions)


# -- fence ------------------------------------------------------------------------------------


def test_a_fenced_broker_leaves_isrs_and_leads_nothing() -> None:
    cluster = three(partition(0, 1, 2, 3), partition(1, 2, 3, 1), partition(2, 2, 3))
    fence(cluster, 1)
    assert of(cluster, 1).fenced
    assert cluster.partition(0).leader == BrokerId(2)
    assert cluster.partition(0).isr == ids(2, 3)
    assert cluster.partition(0).leader_epoch == 1
    assert cluster.partition(1).leader == BrokerId(2)
    assert cluster.partition(1).isr == ids(2, 3)
    assert cluster.partition(1).leader_epoch == 0
    assert cluster.partition(2).partition_epoch == 0


def test_partition_changes_precede_the_fence() -> None:
    cluster = three(partition(0, 1, 2), partition(1, 2, 1))
    *changes, last = fence_broker(cluster.situation(), of(cluster, 1))
    assert [type(each) for each in changes] == [r.PartitionChangeRecord] * 2
    assert last == r.BrokerRegistrationChangeRecord(
        broker_id=BrokerId(1), broker_epoch=100, fenced=r.FENCE
    )


def test_no_prefix_of_the_batch_shows_a_leader_that_is_fenced() -> None:
    cluster = three(partition(0, 1, 2), partition(1, 1, 3))
    records = fence_broker(cluster.situation(), of(cluster, 1))
    for end in range(len(records) + 1):
        assert not list(fenced_leaders(replay_all(cluster.image, records[:end])))
    wrong = (records[-1], *records[:-1])  # The planted bug: the fence comes first.
    assert list(fenced_leaders(replay_all(cluster.image, wrong[:1])))


def fenced_leaders(image: ClusterImage) -> Iterator[BrokerId]:
    for _, each in all_partitions(image):
        if each.leader != NO_LEADER and image.brokers[each.leader].fenced:
            yield each.leader


def test_fencing_twice_changes_nothing_more() -> None:
    cluster = three(partition(0, 1, 2))
    fence(cluster, 1)
    assert fence_broker(cluster.situation(), of(cluster, 1)) == ()


def test_the_last_member_of_an_isr_stays_without_elr() -> None:
    cluster = three(partition(0, 1, 2, isr=ids(1)))
    fence(cluster, 1)
    assert cluster.partition().isr == ids(1)
    assert cluster.partition().leader == NO_LEADER


def test_with_elr_the_members_that_leave_stay_eligible() -> None:
    cluster = three(partition(0, 1, 2), extra=(ELR,))
    cluster.apply([config("min.insync.replicas", "2")])
    fence(cluster, 1)
    fence(cluster, 2)
    found = cluster.partition()
    assert found.isr == ()
    assert found.leader == NO_LEADER
    assert found.elr == ids(1, 2)


def test_an_unclean_election_does_not_choose_the_broker_that_is_fenced() -> None:
    cluster = three(partition(0, 1, 2, isr=ids(1)))
    cluster.apply([config("unclean.leader.election.enable", "true")])
    fence(cluster, 1)
    assert cluster.partition().leader == BrokerId(2)
    assert cluster.partition().leader_recovery_state == r.RECOVERING


@pytest.mark.parametrize("state", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_kafka_13916_neither_a_fenced_nor_a_shutting_down_broker_becomes_leader(
    state: dict[str, bool],
) -> None:
    cluster = Cluster(
        broker(1), broker(2, **state), broker(3), topic(), partition(0, 1, 2, 3), partition(1, 1, 2)
    )
    fence(cluster, 1)
    assert cluster.partition(0).leader == BrokerId(3)
    assert cluster.partition(1).leader == NO_LEADER


# -- unfence ----------------------------------------------------------------------------------


def test_the_unfence_precedes_the_elections_that_it_allows() -> None:
    alone = partition(0, 1, 2, isr=ids(1), leader=NO_LEADER)
    cluster = Cluster(broker(1, fenced=True), broker(2), topic(), alone, partition(1, 2, 1))
    first, *changes = unfence_broker(cluster.situation(), of(cluster, 1))
    assert first == r.BrokerRegistrationChangeRecord(
        broker_id=BrokerId(1), broker_epoch=100, fenced=r.UNFENCE
    )
    assert [type(each) for each in changes] == [r.PartitionChangeRecord]
    unfence(cluster, 1)
    assert cluster.partition(0).leader == BrokerId(1)
    assert cluster.partition(1).partition_epoch == 0


def test_an_unfenced_broker_does_not_join_isrs_by_itself() -> None:
    cluster = Cluster(broker(1, fenced=True), broker(2), topic(), partition(0, 2, 1, isr=ids(2)))
    unfence(cluster, 1)
    assert cluster.partition().isr == ids(2)


def test_an_unfenced_broker_is_not_elected_where_its_directory_is_gone() -> None:
    cluster = Cluster(
        broker(1, fenced=True, log_dirs=(directory(1, 1),)),
        topic(),
        partition(0, 1, leader=NO_LEADER),
    )
    unfence(cluster, 1)
    assert cluster.partition().leader == NO_LEADER


def test_an_unfenced_broker_leads_from_the_elr_alone() -> None:
    lost = partition(0, 1, 2, isr=(), leader=NO_LEADER, eligible_leader_replicas=ids(1, 2))
    cluster = Cluster(broker(1, fenced=True), broker(2, fenced=True), ELR, topic(), lost)
    cluster.apply([config("min.insync.replicas", "2")])
    unfence(cluster, 2)
    found = cluster.partition()
    assert (found.leader, found.isr, found.elr) == (BrokerId(2), ids(2), ids(1))


def test_unfencing_an_unfenced_broker_changes_nothing() -> None:
    cluster = three(partition(0, 1))
    assert unfence_broker(cluster.situation(), of(cluster, 1)) == ()


def test_a_broker_that_holds_no_replica_of_it_does_not_look_at_a_leaderless_partition() -> None:
    cluster = Cluster(
        broker(1, fenced=True), broker(2, fenced=True), topic(), partition(0, 2, leader=NO_LEADER)
    )
    assert len(unfence_broker(cluster.situation(), of(cluster, 1))) == 1


# -- controlled shutdown ----------------------------------------------------------------------


def test_the_shutdown_flag_precedes_the_leaders_that_move_away() -> None:
    cluster = three(partition(0, 1, 2), partition(1, 2, 1), partition(2, 1))
    first, *changes = begin_controlled_shutdown(cluster.situation(), of(cluster, 1))
    assert first == r.BrokerRegistrationChangeRecord(
        broker_id=BrokerId(1), broker_epoch=100, in_controlled_shutdown=r.SHUTTING_DOWN
    )
    assert [type(each) for each in changes] == [r.PartitionChangeRecord] * 3
    cluster.apply([first, *changes])
    assert not of(cluster, 1).fenced
    assert cluster.partition(0).isr == cluster.partition(1).isr == ids(2)
    assert cluster.partition(2).leader == NO_LEADER
    assert not cluster.index.leads_any(BrokerId(1))


@pytest.mark.parametrize("state", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_a_shutdown_begins_once_and_not_for_a_fenced_broker(state: dict[str, bool]) -> None:
    cluster = Cluster(broker(1, **state))
    assert begin_controlled_shutdown(cluster.situation(), of(cluster, 1)) == ()


# -- sessions ---------------------------------------------------------------------------------


def fence_all_expired(cluster: Cluster) -> list[BrokerId]:
    fenced = []
    while (decision := fence_expired(cluster.situation())) is not None:
        assert decision.own
        before = cluster.image
        cluster.apply(decision.records)
        fenced += [b for b in before.brokers if before.brokers[b] != cluster.image.brokers[b]]
    return fenced


def test_nobody_is_fenced_while_sessions_last() -> None:
    cluster = three(partition(0, 1, 2, 3))
    cluster.now_ms += SESSION_MS
    assert fence_expired(cluster.situation()) is None


def test_kafka_13173_brokers_that_expire_together_do_not_lose_each_others_changes() -> None:
    cluster = Cluster(
        *(broker(each) for each in range(1, 5)),
        topic(),
        partition(0, 1, 2, 3, 4),
        partition(1, 2, 1, 4),
        partition(2, 1, 2),
    )
    cluster.now_ms += SESSION_MS
    cluster.heartbeats.contact(BrokerId(4), 400, 5, cluster.now_ms)
    cluster.now_ms += 1
    assert fence_all_expired(cluster) == [1, 2, 3]
    assert cluster.partition(0).leader == cluster.partition(1).leader == BrokerId(4)
    assert cluster.partition(0).isr == cluster.partition(1).isr == ids(4)
    assert cluster.partition(2).leader == NO_LEADER
    assert cluster.partition(2).isr == ids(2)
    assert not list(fenced_leaders(cluster.image))


def test_two_brokers_decided_on_the_same_image_would_not_replay() -> None:
    """The bug itself, planted: the second batch was written for a partition that is no more."""
    cluster = three(partition(0, 1, 2, 3))
    situation = cluster.situation()
    first, second = (fence_broker(situation, of(cluster, each)) for each in (1, 2))
    cluster.apply(first)
    with pytest.raises(ReplayError, match="partition epoch"):
        cluster.apply(second)


def test_kafka_18138_a_broker_that_died_during_the_failover_is_fenced() -> None:
    cluster = three(partition(0, 1, 2))
    cluster.now_ms += SESSION_MS // 2
    cluster.fail_over()
    cluster.now_ms += SESSION_MS
    for each in (2, 3):
        cluster.heartbeats.contact(BrokerId(each), 100 * each, 5, cluster.now_ms)
    assert fence_all_expired(cluster) == []
    cluster.now_ms += 1
    assert fence_all_expired(cluster) == [1]
    assert cluster.partition().leader == BrokerId(2)


def test_a_broker_that_is_shutting_down_expires_too() -> None:
    cluster = Cluster(broker(1, in_controlled_shutdown=True))
    cluster.now_ms += SESSION_MS + 1
    assert fence_all_expired(cluster) == [1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("extra", [(), (ELR,)])
def test_whoever_comes_and_goes_the_leaders_are_alive_and_in_sync(
    seed: int, extra: tuple[r.MetadataRecord, ...]
) -> None:
    rng = random.Random(seed)
    everyone = range(1, 6)
    partitions = [partition(n, *rng.sample(everyone, rng.randint(1, 4))) for n in range(12)]
    cluster = Cluster(*(broker(each) for each in everyone), *extra, topic(), *partitions)
    for _ in range(40):
        each = of(cluster, rng.choice(everyone))
        step = rng.choice([fence_broker, unfence_broker, begin_controlled_shutdown])
        if step is unfence_broker and each.in_controlled_shutdown:
            continue
        cluster.apply(step(cluster.situation(), each))
        for _, found in all_partitions(cluster.image):
            away = [b for b in found.isr if not is_active(cluster, b)]
            assert found.leader == NO_LEADER or found.leader in found.isr
            assert found.leader == NO_LEADER or is_active(cluster, found.leader)
            assert not away or (not extra and len(found.isr) == 1 and found.leader == NO_LEADER)
            assert found.leader != NO_LEADER or not any(is_active(cluster, b) for b in found.isr)


def is_active(cluster: Cluster, broker_id: int) -> bool:
    each = of(cluster, broker_id)
    return not each.fenced and not each.in_controlled_shutdown
