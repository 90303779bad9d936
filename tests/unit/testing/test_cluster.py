"""Clusters for tests: they serve clients, suffer what they are told to, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from kraftpy.errors import ConfigError
from kraftpy.testing import Cluster, ClusterFailed, Space, kraftpy_cluster

TIMEOUT_S = 60
QUIET: dict[str, Any] = {"log_level": 0}  # librdkafka tells stderr of every lost connection.


def produce(servers: str, topic: str, *values: str, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": acks, **QUIET})
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, partition=0, callback=lambda e, _: errors.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(values)


def consume(servers: str, topic: str, count: int) -> list[str]:
    config = {"bootstrap.servers": servers, "group.id": "-", "enable.auto.commit": False}
    consumer = Consumer({**config, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, TIMEOUT_S)
        return [(message.value() or b"").decode() for message in found]
    finally:
        consumer.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def create(cluster: Cluster, topic: str) -> None:
    asked = NewTopic(topic, num_partitions=1, replication_factor=len(cluster.brokers))
    cluster.admin.create_topics([asked])[topic].result(TIMEOUT_S)


def partition_of(cluster: Cluster, topic: str) -> Any:
    topics = cluster.admin.list_topics(topic, timeout=TIMEOUT_S).topics
    return topics[topic].partitions[0]


def test_one_broker_keeps_its_data_over_kill_and_pause() -> None:
    with kraftpy_cluster() as cluster:
        produce(cluster.bootstrap_servers, "t", "one")
        before = cluster.pid(101)
        cluster.kill(101)
        assert not cluster.is_running(101)
        assert not cluster.is_running(1), "they share a process"
        cluster.restart(101)
        assert cluster.pid(101) != before
        cluster.pause(101)
        assert cluster.is_paused(101)
        cluster.resume(101)
        assert not cluster.is_paused(101)
        produce(cluster.bootstrap_servers, "t", "two")
        assert consume(cluster.bootstrap_servers, "t", 2) == ["one", "two"]
        with pytest.raises(ValueError, match="share a process"):
            cluster.partition(1, 101)
        with pytest.raises(ValueError, match="no node 7"):
            cluster.kill(7)


def test_leaders_and_in_sync_replicas_follow_the_faults() -> None:
    settings = {"replica.lag.time.max.ms": 1000, "broker.session.timeout.ms": 6000}
    with kraftpy_cluster(brokers=3, controllers=3, settings=settings) as cluster:
        create(cluster, "t")
        servers = cluster.bootstrap_servers
        produce(servers, "t", "one")
        leader = partition_of(cluster, "t").leader
        follower = next(each for each in cluster.brokers if each != leader)

        cluster.partition(leader, follower)
        produce(servers, "t", "two", acks="1")  # A follower that has everything is in sync.
        until(lambda: follower not in partition_of(cluster, "t").isrs)
        assert partition_of(cluster, "t").leader == leader, "its way to the controllers is open"
        cluster.heal()
        until(lambda: follower in partition_of(cluster, "t").isrs)

        cluster.kill(leader)
        cluster.pause(1)  # A majority of controllers is left, whoever led.
        until(lambda: partition_of(cluster, "t").leader not in (leader, -1))
        produce(servers, "t", "three")
        cluster.restore()
        until(lambda: len(partition_of(cluster, "t").isrs) == 3)
        assert consume(servers, "t", 3) == ["one", "two", "three"]


def test_a_node_that_is_cut_off_from_all_others_loses_its_place() -> None:
    settings = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}
    with kraftpy_cluster(brokers=2, controllers=1, settings=settings) as cluster:
        create(cluster, "t")
        leader = partition_of(cluster, "t").leader
        other = next(each for each in cluster.brokers if each != leader)
        cluster.isolate(leader)

        def led_by() -> int:  # As the other one sees it: a new client has nobody else to ask.
            seen = Producer({"bootstrap.servers": cluster.address(other), **QUIET})
            return int(seen.list_topics("t", TIMEOUT_S).topics["t"].partitions[0].leader)

        until(lambda: led_by() == other)
        cluster.heal()


def test_a_named_directory_stays_and_is_closed_in_order(tmp_path: Path) -> None:
    place = str(tmp_path / "kept")
    with kraftpy_cluster(directory=place) as cluster:
        produce(cluster.bootstrap_servers, "t", "one")
    with kraftpy_cluster(directory=place) as cluster:
        assert consume(cluster.bootstrap_servers, "t", 1) == ["one"]
        assert "broker_unfenced" in cluster.output(101)


def test_what_cannot_be_is_refused_before_anything_starts() -> None:
    for settings, complaint in (
        ({"log.segment.bites": 1}, "log.segment.bites"),
        ({"node.id": 3}, "differs from node to node"),
    ):
        with pytest.raises(ConfigError, match=complaint), kraftpy_cluster(settings=settings):
            raise AssertionError("it started")
    with pytest.raises(ConfigError, match="at least one"), kraftpy_cluster(brokers=0):
        raise AssertionError("it started")


def test_a_node_that_does_not_start_is_told_with_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "node-101").mkdir()
    (tmp_path / "node-101" / "meta.properties").write_bytes(b"\xff not an identity")
    complaint = r"(?s)node 1 has ended.*meta\.properties"
    with (
        pytest.raises(ClusterFailed, match=complaint),
        kraftpy_cluster(directory=str(tmp_path)),
    ):
        raise AssertionError("it started")


def test_spaces_do_not_see_each_other() -> None:
    with kraftpy_cluster() as cluster:
        with Space(cluster) as one, Space(cluster) as two:
            topics = one.topic("orders", partitions=2), two.topic("orders")
            assert len(set(topics)) == 2
            assert one.group() != two.group()
            produce(one.bootstrap_servers, topics[0], "of one")
            produce(two.bootstrap_servers, topics[1], "of two")
            assert consume(two.bootstrap_servers, topics[1], 1) == ["of two"]
        until(lambda: not set(topics) & set(cluster.admin.list_topics(timeout=TIMEOUT_S).topics))


# -- nothing is left behind -----------------------------------------------------------------------

PROGRAM = """
import sys, time
from kraftpy.testing import kraftpy_cluster
from kraftpy.testing.nursery import shared_nursery
with kraftpy_cluster(brokers=2) as cluster:
    pids = [cluster.pid(node) for node in cluster.nodes]
    print(cluster.directory, shared_nursery()._process.pid, *pids, flush=True)
    sys.stdin.read()
"""


@contextmanager
def program() -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    """A program with a cluster; its directory; the nursery's process and the nodes'."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            directory, *pids = process.stdout.readline().split()
            yield process, Path(directory), [int(pid) for pid in pids]
        finally:
            process.kill()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") if os.path.exists(f"/proc/{pid}") else open(os.devnull) as file:
        return ") Z " not in file.read()  # One that has ended may wait for its parent.


def test_a_killed_test_leaves_neither_processes_nor_files() -> None:
    with program() as (process, directory, pids):
        assert directory.is_dir()
        assert all(map(is_there, pids))
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)
        until(lambda: not any(map(is_there, pids)))
        until(lambda: not directory.exists())


def test_an_interrupted_test_leaves_neither_processes_nor_files() -> None:
    with program() as (process, directory, pids):
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
        until(lambda: not any(map(is_there, pids)))
        assert not directory.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_nodes_die_with_the_nursery() -> None:
    with program() as (_, _, (nursery, *nodes)):
        os.kill(nursery, signal.SIGKILL)
        until(lambda: not any(map(is_there, nodes)))
