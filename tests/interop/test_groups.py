"""Groups of real clients: they come, leave, crash, sleep and come back; topics grow under them.

Each record of the topic is processed, in every story; with no failure, none of them twice. What is
committed in the end is all of it. `GROUP_PROOF=1` tells every story of every client, which takes
long; `make group-proof` does.
"""

import os
import signal

import pytest

from tests.interop.clusters import Served
from tests.interop.group_processes import (
    Group,
    create_topic,
    group,
    grow_topic,
    produce,
    through_every_size,
)
from tests.interop.programs import run
from tests.interop.test_client_java import program

FULL = bool(os.environ.get("GROUP_PROOF"))
ALL = [
    ("confluent", "range"),
    ("confluent", "roundrobin"),
    ("confluent", "cooperative-sticky"),
    ("kafka_python", "range"),
    ("kafka_python", "roundrobin"),
    ("kafka_python", "sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
]
ONE_OF_EACH = [
    ("confluent", "cooperative-sticky"),
    ("kafka_python", "range"),
    ("aiokafka", "range"),
]
EIGHT = [("confluent", "range")]
KILLED = [*ONE_OF_EACH, ("java", "cooperative-sticky")]
SLEEPING = ONE_OF_EACH[:2]
if FULL:
    ALL += [("kafka_python", "cooperative-sticky"), ("java", "range"), ("java", "roundrobin")]
    ALL += [("java", "sticky"), ("java", "cooperative-sticky")]
    ONE_OF_EACH = EIGHT = KILLED = SLEEPING = ALL
PARTITIONS = 6
# They keep what they have while others join, and commit again when they have: a commit that is on
# its way when the generation changes is refused, and nothing is processed twice.
HARMLESS = {
    ("java", "cooperative-sticky"): {"RebalanceInProgressException"},
    ("confluent", "cooperative-sticky"): {"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"},
}
SHORT_SESSION_MS = 2500  # Where a member is to be missed.


def all_committed(members: Group, count: int, partitions: int = PARTITIONS) -> None:
    def is_all() -> bool:
        return members.committed() == {(members.topic, each): count for each in range(partitions)}

    members.wait("all commits", is_all)


@pytest.mark.parametrize(("kind", "strategy"), ALL)
def test_members_come_and_leave_and_nothing_is_processed_twice(
    dev: Served, kind: str, strategy: str
) -> None:
    topic = create_topic(dev, PARTITIONS)
    with group(dev, topic, strategy, kind) as members:
        expected = produce(dev, topic, range(PARTITIONS), 20)
        members.start()
        members.wait_until_shared(1)
        members.start(2)
        members.wait_until_shared(3)
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        members.members[0].leave()
        members.wait_until_shared(2)
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        all_committed(members, 60)
        refused = {each["refused"] for member in members.members for each in member.said("refused")}
        assert refused <= HARMLESS.get((kind, strategy), set())
        assert set(members.processed.values()) == {1}


@pytest.mark.parametrize(("kind", "strategy"), EIGHT)
def test_a_group_of_eight(dev: Served, kind: str, strategy: str) -> None:
    topic = create_topic(dev, 16)
    with group(dev, topic, strategy, kind) as members:
        members.start(8)
        members.wait_until_shared(8)
        expected = produce(dev, topic, range(16), 30)
        members.wait_for_all(expected)
        all_committed(members, 30, 16)
        assert set(members.processed.values()) == {1}
        for member in members.members:
            member.signal(signal.SIGTERM)
        assert {member.end() for member in members.members} == {0}


@pytest.mark.skipif(not FULL, reason="takes minutes: make group-proof")
@pytest.mark.parametrize(("kind", "strategy"), ALL)
def test_a_group_of_every_size_up_to_eight(dev: Served, kind: str, strategy: str) -> None:
    topic = create_topic(dev, 8)
    with group(dev, topic, strategy, kind) as members:
        through_every_size(members, 8)
        all_committed(members, 75, 8)
        assert set(members.processed.values()) == {1}


@pytest.mark.parametrize(("kind", "strategy"), KILLED)
def test_what_a_killed_member_had_goes_to_the_others(dev: Served, kind: str, strategy: str) -> None:
    topic = create_topic(dev, PARTITIONS)
    with group(dev, topic, strategy, kind, SHORT_SESSION_MS) as members:
        members.start(2)
        members.wait_until_shared(2)
        expected = produce(dev, topic, range(PARTITIONS), 20)
        members.wait("first records", lambda: len(members.processed) > 20)
        members.members[0].signal(signal.SIGKILL)
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        members.wait_until_shared(1)
        members.wait_for_all(expected)
        all_committed(members, 40)


@pytest.mark.parametrize(("kind", "strategy"), SLEEPING)
def test_a_member_that_sleeps_beyond_its_session_comes_back(
    dev: Served, kind: str, strategy: str
) -> None:
    topic = create_topic(dev, PARTITIONS)
    with group(dev, topic, strategy, kind, SHORT_SESSION_MS) as members:
        members.start(2)
        members.wait_until_shared(2)
        expected = produce(dev, topic, range(PARTITIONS), 20)
        sleeper = members.members[0]
        members.wait("its first records", lambda: sleeper.places)
        sleeper.signal(signal.SIGSTOP)
        members.wait_until_shared(1)
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        sleeper.signal(signal.SIGCONT)
        members.wait_until_shared(2)
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        all_committed(members, 60)


@pytest.mark.parametrize(("kind", "strategy"), ONE_OF_EACH)
def test_a_static_member_restarts_and_nobody_notices(dev: Served, kind: str, strategy: str) -> None:
    topic = create_topic(dev, PARTITIONS)
    with group(dev, topic, strategy, kind) as members:
        members.start(instance="one")
        members.start(instance="two")
        members.wait_until_shared(2)
        expected = produce(dev, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        other, before = members.members[1], len(members.members[1].said("assigned"))
        members.members[0].signal(signal.SIGKILL)  # It says nothing, so its place is kept.
        members.members[0].end()
        members.start(instance="one")
        members.wait("its assignment", lambda: members.members[2].said("assigned"))
        expected |= produce(dev, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        all_committed(members, 40)
        assert len(other.said("assigned")) == before
        assert not [each for each in other.said("revoked")[before:] if each["revoked"]]


@pytest.mark.parametrize(("kind", "strategy"), ONE_OF_EACH)
def test_partitions_and_topics_that_are_added_are_read(
    dev: Served, kind: str, strategy: str
) -> None:
    """By a pattern; and a topic that grows."""
    prefix = f"grown-{kind}-{strategy}"
    topic = create_topic(dev, 2, prefix)
    with group(dev, topic, strategy, kind) as members:
        members.start(2, topic=f"^{prefix}.*")
        members.wait_until_shared(2)
        expected = produce(dev, topic, range(2), 10)
        members.wait_for_all(expected)
        grow_topic(dev, topic, 4)
        expected |= produce(dev, topic, range(4), 10)
        members.wait_for_all(expected)
        second = create_topic(dev, 2, prefix)
        expected |= produce(dev, second, range(2), 10)
        members.wait_for_all(expected)


def test_the_java_client(dev: Served) -> None:
    """Every assignor of its own; patterns, topics that grow, static members."""
    run([*program("Groups"), "classic", dev.bootstrap, dev.topic("java")])
