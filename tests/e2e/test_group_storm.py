"""Coordinators killed and paused amid rebalances and commits: nothing that was committed is lost.

Three groups count upwards in the offset that they commit, and others read it meanwhile: what is
read is never less than what was acknowledged before, nor more than was ever sent. A fourth group
consumes a topic, in either protocol, with a member that joins or leaves in each round, so that a
rebalance is on its way when its coordinator goes. Its offsets are watched, too: they never go back,
nor are they less than what a member was told that it committed. In the end it has processed every
record. `GROUP_STORM_ROUNDS` makes it longer; `make group-storm` does.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.cluster_processes import ClusterProcesses
from tests.e2e.group_storm import QUIET, Committer, Ledger, Offsets, Watcher, coordinator_of
from tests.interop.group_processes import Member

ROUNDS = int(os.environ.get("GROUP_STORM_ROUNDS", "2"))
SEED = int(os.environ.get("GROUP_STORM_SEED", "1"))
TOPIC = "stormy"
PARTITIONS = 4
RECORDS = 10
CONSUMING = "consuming"
PAUSE_S = 3.0
WAIT_S = 120.0
SETTINGS = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 2000,
    "offsets.topic.num.partitions": 5,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.session.timeout.ms": 6000,
}
# Protocol: what members are, and how partitions are shared among them.
PROTOCOLS = {"classic": ("confluent", "range"), "consumer": ("confluent_consumer", "uniform")}


def wait_for(what: str, reached: object) -> None:
    assert callable(reached)
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.1)


class Storm:
    def __init__(self, cluster: ClusterProcesses, rng: random.Random, protocol: str) -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.rng = rng
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        self.committers = [
            Committer(cluster.bootstrap, TOPIC, Ledger(f"counting-{each}")) for each in range(3)
        ]
        self.watcher = Watcher(cluster.bootstrap, CONSUMING, self.acked, self.ends)
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.expected: set[tuple[str, int, int]] = set()
        self.sent: dict[tuple[str, int], int] = dict.fromkeys(
            ((TOPIC, partition) for partition in range(PARTITIONS)), 0
        )

    def create_topic(self) -> None:
        def is_created() -> bool:
            topic = NewTopic(TOPIC, PARTITIONS, 3)
            try:
                self.admin.create_topics([topic])[TOPIC].result(10)
            except Exception as error:
                return "TOPIC_ALREADY_EXISTS" in str(error)
            return True

        wait_for("the topic", is_created)

    def produce(self) -> None:
        config = {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, **QUIET}
        producer = Producer(config)

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.expected.add((message.topic(), message.partition(), message.offset()))

        for partition in range(PARTITIONS):
            self.sent[TOPIC, partition] += RECORDS
            for number in range(RECORDS):
                producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0

    def start_member(self) -> None:
        kind, strategy = PROTOCOLS[self.protocol]
        arguments = [self.cluster.bootstrap, CONSUMING, TOPIC, strategy]
        self.members.append(Member(kind, arguments))

    def stop_member(self) -> None:
        member = self.members.pop(0)
        member.signal(signal.SIGTERM)
        self.gone.append(member)

    def processed(self) -> set[tuple[str, int, int]]:
        return {place for member in (*self.members, *self.gone) for place in member.places}

    def acked(self) -> list[tuple[str, int, int]]:
        """All that members were told was committed; safe to call from another thread."""
        members = (*tuple(self.members), *tuple(self.gone))
        said = (line["committed"] for member in members for line in member.said("committed"))
        return [(topic, partition, end) for ends in said for topic, partition, end in ends]

    def ends(self) -> dict[tuple[str, int], int]:
        """No offset can be beyond that. An attempt that is repeated is written once."""
        return dict(self.sent)

    def one_round(self) -> None:
        before = [each.ledger.acked for each in self.committers]
        groups = [CONSUMING, *(each.ledger.group for each in self.committers)]
        victim = coordinator_of(self.admin, self.rng.choice(groups))
        if victim is None:
            victim = self.rng.choice(list(self.cluster.brokers))
        if len(self.members) > 2 or (len(self.members) > 1 and self.rng.random() < 0.5):
            self.stop_member()
        else:
            self.start_member()
        time.sleep(self.rng.random() / 2)  # The rebalance is somewhere by then.
        if self.rng.random() < 0.5:
            self.cluster.kill(victim)
            time.sleep(self.rng.random())
            self.cluster.start(victim)
        else:
            self.cluster.signal(victim, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            self.cluster.signal(victim, signal.SIGCONT)
        wait_for(
            "more commits of every group",
            lambda: all(
                each.ledger.acked >= acked + 5
                for each, acked in zip(self.committers, before, strict=True)
            ),
        )
        self.check()

    def check(self) -> None:
        problems = [each for one in self.committers for each in one.ledger.problems]
        problems += self.watcher.offsets.problems
        assert not problems, problems[:5]


@contextmanager
def storm(directory: Path, protocol: str) -> Iterator[Storm]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    cluster = ClusterProcesses(str(directory), 1, 3, *settings)
    cluster.start()
    made = Storm(cluster, random.Random(SEED), protocol)
    try:
        yield made
    except BaseException:
        sys.stderr.write(cluster.output())
        raise
    finally:
        for member in (*made.members, *made.gone):
            if member.process.poll() is None:
                member.process.kill()
            member.end()
        cluster.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_committed_offset_is_lost_or_goes_back(tmp_path: Path, protocol: str) -> None:
    with storm(tmp_path, protocol) as made:
        made.create_topic()
        made.produce()
        made.start_member()
        clients: list[Committer | Watcher] = [*made.committers, made.watcher]
        for client in clients:
            client.start()
        try:
            wait_for("first commits", lambda: all(c.ledger.acked > 5 for c in made.committers))
            for _ in range(ROUNDS):
                made.produce()
                made.one_round()
            wait_for("all records", lambda: made.expected <= made.processed())
            wait_for("all commits", lambda: made.watcher.offsets.read == made.sent)
        finally:
            for client in clients:
                client.stop()
        made.check()
        assert all(committer.ledger.reads for committer in made.committers)
        assert made.processed() == made.expected


PLACE = ("t", 0)


@pytest.mark.parametrize(
    ("acked", "found", "is_wrong"),
    [
        ([], {PLACE: 5}, False),
        ([], {PLACE: 4}, True),  # It went back.
        ([], {}, True),  # It is lost.
        ([("t", 0, 6)], {PLACE: 6}, False),
        ([("t", 0, 7), ("t", 0, 6)], {PLACE: 6}, True),  # A member was told of more.
        ([("t", 0, 6)], {PLACE: 9}, False),
        ([], {PLACE: 11}, True),  # There are not so many records.
        ([("t", 1, 1)], {PLACE: 5}, True),
    ],
)
def test_offsets_that_are_wrong_are_noticed(
    acked: list[tuple[str, int, int]], found: dict[tuple[str, int], int], is_wrong: bool
) -> None:
    offsets = Offsets()
    ends = {PLACE: 10, ("t", 1): 10}
    offsets.judge([], {PLACE: 5}, ends)
    offsets.judge(acked, found, ends)
    assert bool(offsets.problems) == is_wrong
