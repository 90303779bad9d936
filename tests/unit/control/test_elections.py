"""Who leads, by which strategy, and what is marked when acknowledged records may be gone."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import RECOVERED, RECOVERING
from kraftpy.quorum.control.elections import (
    APIS,
    changes_for_brokers,
    decide_balance,
    decide_unclean,
)
from kraftpy.types import NO_LEADER, BrokerId
from kraftpy.wire.apis import ELECT_LEADERS
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

UNCLEAN_ALLOWED = config("unclean.leader.election.enable", "true")
MIN_TWO = config("min.insync.replicas", "2")
KEY = (TOPIC_ID, 0)
_PREFERRED, _UNCLEAN = 0, 1


def removed(cluster: Cluster, broker_id: int) -> None:
    """Apply what the partitions become when a broker goes."""
    cluster.apply(
        list(changes_for_brokers(cluster.situation(), [KEY], removed=BrokerId(broker_id)))
    )


def state(cluster: Cluster) -> tuple[Any, ...]:
    now = cluster.partition()
    return now.leader, now.isr, now.elr, now.last_known_elr


def brokers(*fenced: int, count: int = 3) -> list[Any]:
    return [broker(each, fenced=each in fenced) for each in range(1, count + 1)]


def test_a_leader_that_goes_is_followed_by_the_first_in_sync() -> None:
    cluster = Cluster(*brokers(), topic(), partition(0, 1, 2, 3))
    removed(cluster, 1)
    assert state(cluster) == (2, (2, 3), (), ())
    assert cluster.partition().leader_epoch == 1


def test_a_follower_that_goes_leaves_the_leader_and_its_epoch() -> None:
    cluster = Cluster(*brokers(), topic(), partition(0, 1, 2, 3))
    removed(cluster, 3)
    assert state(cluster) == (1, (1, 2), (), ())
    assert cluster.partition().leader_epoch == 0


def test_the_last_in_sync_replica_stays_where_nothing_else_remembers_it() -> None:
    cluster = Cluster(*brokers(3), topic(), partition(0, 1, 2, 3, isr=ids(1)))
    removed(cluster, 1)
    assert state(cluster) == (NO_LEADER, (1,), (), ())
    assert cluster.partition().leader_recovery_state == RECOVERED


def test_with_elr_the_isr_may_become_empty_and_the_last_members_are_eligible() -> None:
    cluster = Cluster(ELR, *brokers(), topic(), MIN_TWO, partition(0, 1, 2, 3, isr=ids(1, 2)))
    removed(cluster, 2)
    assert state(cluster) == (1, (1,), (2,), ())
    removed(cluster, 1)
    assert state(cluster) == (2, (2,), (1,), ())  # From the ELR: it holds all that was committed.
    assert cluster.partition().leader_recovery_state == RECOVERED


def test_the_last_leader_is_remembered_when_everybody_is_gone() -> None:
    cluster = Cluster(ELR, *brokers(2, 3), topic(), MIN_TWO, partition(0, 1, 2, 3, isr=ids(1)))
    removed(cluster, 1)
    assert state(cluster) == (NO_LEADER, (), (1,), (1,))


@pytest.mark.parametrize("fenced", [True, False])
def test_the_last_known_leader_is_elected_only_if_it_is_unfenced(fenced: bool) -> None:
    """KAFKA-19522."""
    cluster = Cluster(
        ELR,
        broker(1, fenced=fenced),
        *brokers(2, 3)[1:],
        topic(),
        MIN_TWO,
        partition(0, 1, 2, 3, isr=(), leader=NO_LEADER, leader_epoch=4, last_known_elr=ids(1)),
    )
    cluster.apply(decide_unclean(cluster.situation()).records)
    if fenced:
        assert state(cluster) == (NO_LEADER, (), (), (1,))
    else:
        assert state(cluster) == (1, (1,), (), ())
        assert cluster.partition().leader_recovery_state == RECOVERING


@pytest.mark.parametrize("allowed", [True, False])
def test_an_unclean_election_happens_only_where_the_topic_allows_it(allowed: bool) -> None:
    settings = [UNCLEAN_ALLOWED] if allowed else []
    cluster = Cluster(*brokers(), topic(), *settings, partition(0, 1, 2, 3, isr=ids(1)))
    removed(cluster, 1)
    after = cluster.partition()
    if allowed:
        assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)
    else:
        assert (after.leader, after.isr, after.leader_recovery_state) == (-1, (1,), RECOVERED)


def test_a_setting_that_changes_later_elects_what_has_no_leader() -> None:
    old = partition(0, 1, 2, 3, isr=ids(1), leader=NO_LEADER, leader_epoch=1)
    cluster = Cluster(*brokers(1), topic(), old)
    assert not decide_unclean(cluster.situation()).records
    cluster.apply([UNCLEAN_ALLOWED])
    cluster.apply(decide_unclean(cluster.situation()).records)
    assert state(cluster) == (2, (2,), (), ())


def test_a_replica_on_a_failed_disk_does_not_lead() -> None:
    lost = partition(0, 1, 2, 3, directories=(directory(1), directory(2, 9), directory(3)))
    cluster = Cluster(*brokers(), topic(), lost)
    removed(cluster, 1)
    assert cluster.partition().leader == 3


def test_whoever_came_back_without_its_records_is_not_eligible() -> None:
    offline = partition(
        0, 1, 2, 3, isr=(), leader=NO_LEADER, leader_epoch=3, eligible_leader_replicas=ids(1, 2)
    )
    cluster = Cluster(ELR, *brokers(1, 2), topic(), MIN_TWO, offline)
    situation = cluster.situation()
    cluster.apply(list(changes_for_brokers(situation, [KEY], unclean=BrokerId(1))))
    assert cluster.partition().elr == ids(2)


# -- ElectLeaders -----------------------------------------------------------------------------


def elect(cluster: Cluster, kind: int, *partitions: int, version: int = 2) -> dict[int, ErrorCode]:
    asked = [{"topic": "orders", "partitions": partitions}] if partitions else None
    answer = cluster.ask(APIS, ELECT_LEADERS, version, election_type=kind, topic_partitions=asked)
    return {
        each.partition_id: each.error_code
        for found in answer.replica_election_results
        for each in found.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_preferred_replica_gets_its_partition_back(version: int) -> None:
    cluster = Cluster(*brokers(), topic(), partition(0, 1, 2, 3, leader=BrokerId(2)))
    assert elect(cluster, _PREFERRED, 0, version=version) == {0: ErrorCode.none}
    assert cluster.partition().leader == 1
    assert elect(cluster, _PREFERRED, 0, version=version) == {0: ErrorCode.election_not_needed}


def test_what_cannot_be_elected_says_why() -> None:
    cluster = Cluster(
        *brokers(1),
        topic(),
        partition(0, 1, 2, 3, leader=BrokerId(2), isr=ids(2, 3)),
        partition(1, 1, isr=ids(1), leader=NO_LEADER, leader_epoch=1),
    )
    assert elect(cluster, _PREFERRED, 0, 9) == {
        0: ErrorCode.preferred_leader_not_available,
        9: ErrorCode.unknown_topic_or_partition,
    }
    assert elect(cluster, _UNCLEAN, 0, 1) == {
        0: ErrorCode.election_not_needed,
        1: ErrorCode.eligible_leaders_not_available,
    }


def test_the_operator_may_ask_for_an_unclean_election_whatever_the_topic_says() -> None:
    old = partition(0, 1, 2, 3, isr=ids(1), leader=NO_LEADER, leader_epoch=1)
    cluster = Cluster(*brokers(1), topic(), old)
    assert elect(cluster, _UNCLEAN) == {0: ErrorCode.none}
    assert state(cluster) == (2, (2,), (), ())
    assert cluster.partition().leader_recovery_state == RECOVERING


def test_asked_for_all_only_what_needs_it_is_named() -> None:
    cluster = Cluster(
        *brokers(), topic(), partition(0, 1, 2, 3), partition(1, 1, 2, leader=BrokerId(2))
    )
    assert elect(cluster, _PREFERRED) == {1: ErrorCode.none}


def test_an_unknown_kind_of_election_is_refused() -> None:
    cluster = Cluster(*brokers(), topic(), partition(0, 1, 2))
    assert elect(cluster, 7, 0) == {0: ErrorCode.invalid_request}


# -- the balance ------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "moved"), [(1, 0), (2, 2)])
def test_leadership_goes_back_when_a_broker_lost_more_than_its_share(lost: int, moved: int) -> None:
    """10 partitions prefer broker 1: one lost is 10 percent, which is allowed."""
    partitions = [
        partition(each, 1, 2, leader=BrokerId(2 if each < lost else 1)) for each in range(10)
    ]
    cluster = Cluster(*brokers(), topic(), *partitions)
    assert len(decide_balance(cluster.situation()).records) == moved


def test_the_balance_does_not_elect_who_cannot_lead() -> None:
    led_by_two = [partition(each, 1, 2, isr=ids(2), leader=BrokerId(2)) for each in range(3)]
    cluster = Cluster(*brokers(), topic(), *led_by_two)
    assert not decide_balance(cluster.situation()).records
