"""Clients with group.protocol=consumer (KIP-848): librdkafka in groups of one to eight, and Java's.

Each record is processed, in every story; with no failure, none of them twice. `GROUP_PROOF=1` tells
every story of both; `make group-proof` does.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from tests.interop.clusters import (
    Served,
    dev_cluster,
    three_brokers,
    wait_for,
)
from tests.interop.conftest import all_served
from tests.interop.group_processes import (
    Group,
    create_topic,
    group,
    grow_topic,
    produce,
    through_every_size,
)
from tests.interop.programs import run
from tests.interop.recorder import Recorder
from tests.interop.test_client_java import program

KIND = "confluent_consumer"
FULL = bool(os.environ.get("GROUP_PROOF"))
KINDS = [KIND, "java_consumer"] if FULL else [KIND]
PARTITIONS = 6
QUICK = (
    *("--set", "group.consumer.heartbeat.interval.ms=300"),
    *("--set", "group.consumer.session.timeout.ms=6000"),
)


@pytest.fixture(scope="module")
def _quick(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Iterator[Served]:
    with dev_cluster(tmp_path_factory.mktemp("consumers"), recorder, *QUICK) as served:
        yield served


@pytest.fixture
def quick(_quick: Served) -> Iterator[Served]:
    yield from all_served(_quick)


QUICK_TO_FAIL = (
    *QUICK,
    *("--set", "broker.session.timeout.ms=2000"),
    *("--set", "broker.heartbeat.interval.ms=300"),
    *("--set", "replica.lag.time.max.ms=2000"),
    *("--set", "offsets.topic.num.partitions=3"),
)


def without_repetition(members: Group) -> None:
    """A commit may meet a new epoch of which its member has not been told yet, as with Kafka.

    It is sent again then, before anything else is done with the partitions.
    """
    refused = {each["refused"] for member in members.members for each in member.said("refused")}
    assert refused <= {"STALE_MEMBER_EPOCH"}
    assert set(members.processed.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_leave_and_nothing_is_processed_twice(
    quick: Served, assignor: str, kind: str
) -> None:
    topic = create_topic(quick, PARTITIONS)
    with group(quick, topic, assignor, kind) as members:
        expected = produce(quick, topic, range(PARTITIONS), 20)
        members.start()
        members.wait_until_shared(1)
        members.start(2)
        members.wait_until_shared(3)
        expected |= produce(quick, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        members.members[0].leave()
        members.wait_until_shared(2)
        grow_topic(quick, topic, PARTITIONS + 2)
        expected |= produce(quick, topic, range(PARTITIONS + 2), 20)
        members.wait_for_all(expected)
        without_repetition(members)
        found = members.admin.describe_consumer_groups([members.name])[members.name].result()
        assert (found.type, found.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
        assert found.partition_assignor == assignor


@pytest.mark.skipif(not FULL, reason="takes minutes: make group-proof")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_group_of_every_size_up_to_eight(quick: Served, assignor: str, kind: str) -> None:
    topic = create_topic(quick, 8)
    with group(quick, topic, assignor, kind) as members:
        through_every_size(members, 8)
        without_repetition(members)


@pytest.mark.parametrize("kind", KINDS)
def test_eight_members_and_one_is_killed(quick: Served, kind: str) -> None:
    topic = create_topic(quick, 8)
    with group(quick, topic, "uniform", kind) as members:
        expected = produce(quick, topic, range(8), 10)
        members.start(8)
        members.wait_until_shared(8)
        members.wait_for_all(expected)
        without_repetition(members)
        members.members[3].signal(signal.SIGKILL)
        members.wait_until_shared(7)
        expected |= produce(quick, topic, range(8), 10)
        members.wait_for_all(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_sleeps_beyond_its_session_comes_back(quick: Served, kind: str) -> None:
    topic = create_topic(quick, PARTITIONS)
    with group(quick, topic, "uniform", kind) as members:
        members.start(2)
        members.wait_until_shared(2)
        expected = produce(quick, topic, range(PARTITIONS), 20)
        sleeper = members.members[0]
        members.wait("its first records", lambda: sleeper.places)
        sleeper.signal(signal.SIGSTOP)
        members.wait_until_shared(1)
        expected |= produce(quick, topic, range(PARTITIONS), 20)
        sleeper.signal(signal.SIGCONT)
        members.wait_until_shared(2)
        expected |= produce(quick, topic, range(PARTITIONS), 20)
        members.wait_for_all(expected)
        members.wait("all commits", lambda: set(members.committed().values()) == {60})


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_member_comes_back_and_a_pattern_finds_new_topics(
    quick: Served, kind: str
) -> None:
    first = create_topic(quick, 2, f"patterned-{kind}")
    with group(quick, f"^patterned-{kind}.*", "uniform", kind) as members:
        members.start(instance="one")
        members.start(instance="two")
        expected = produce(quick, first, range(2), 10)
        members.wait_until_shared(2)
        members.wait_for_all(expected)
        members.members[0].leave()
        members.start(instance="one")
        second = create_topic(quick, 2, f"patterned-{kind}")
        expected |= produce(quick, first, range(2), 10) | produce(quick, second, range(2), 10)
        members.wait_for_all(expected)
        members.wait_until_shared(2)
        without_repetition(members)


def test_a_group_passes_from_one_protocol_to_the_other(quick: Served) -> None:
    topic = create_topic(quick, 2)
    with group(quick, topic, "range", "confluent") as members:
        expected = produce(quick, topic, range(2), 10)
        for kind in ("confluent", KIND, "confluent"):
            members.kind = kind
            members.start()
            expected |= produce(quick, topic, range(2), 10)
            members.wait_for_all(expected)
            members.members[-1].leave()
        without_repetition(members)


def test_the_java_client(quick: Served) -> None:
    run([*program("Groups"), "consumer", quick.bootstrap, quick.topic("java")])


@pytest.mark.parametrize("kind", KINDS)
def test_the_coordinator_is_killed(
    tmp_path_factory: pytest.TempPathFactory, recorder: Recorder, kind: str
) -> None:
    directory = tmp_path_factory.mktemp("killed")
    with three_brokers(directory, recorder, *QUICK_TO_FAIL) as served:
        processes = served.processes
        assert processes is not None
        topic = create_topic(served, PARTITIONS, replicas=3)
        with group(served, topic, "uniform", kind) as members:
            expected = produce(served, topic, range(PARTITIONS), 20)
            members.start(3)
            members.wait_until_shared(3)
            members.wait_for_all(expected)
            before = members.committed()
            found = members.admin.describe_consumer_groups([members.name])[members.name].result()
            processes.kill(found.coordinator.id)
            expected |= produce(served, topic, range(PARTITIONS), 20)
            members.wait_for_all(expected)
            wait_for("all commits", lambda: sum(members.committed().values()) == len(expected))
            after = members.committed()
            assert all(after[place] >= offset for place, offset in before.items())
            processes.start(found.coordinator.id)
            members.wait_until_shared(3)
