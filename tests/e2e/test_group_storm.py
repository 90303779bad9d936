"""Coordinators killed and paused amid rebalances and commits: nothing that was committed is lost.

Three groups count upwards in the offset that they commit, and others read it meanwhile: what is
read is never less than what was acknowledged before, nor more than was ever sent. A fourth group
consumes a topic, with a member that joins or leaves in each round, so that a rebalance is on its
way when its coordinator goes: in the end it has processed every record. `GROUP_STORM_ROUNDS` makes
it longer; `make group-storm` does.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.cluster_processes import ClusterProcesses
from tests.e2e.group_storm import QUIET, Committer, Ledger, coordinator_of
from tests.interop.group_processes import Member

ROUNDS = int(os.environ.get("GROUP_STORM_ROUNDS", "3"))
SEED = int(os.environ.get("GROUP_STORM_SEED", "1"))
TOPIC = "stormy"
PARTITIONS = 4
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
}


def wait_for(what: str, reached: object) -> None:
    assert callable(reached)
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.1)


class Storm:
    def __init__(self, cluster: ClusterProcesses, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        self.committers = [
            Committer(cluster.bootstrap, TOPIC, Ledger(f"counting-{each}")) for each in range(3)
        ]
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.expected: set[tuple[str, int, int]] = set()

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
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **QUIET})

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.expected.add((message.topic(), message.partition(), message.offset()))

        for partition in range(PARTITIONS):
            for number in range(10):
                producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0

    def start_member(self) -> None:
        self.members.append(
            Member("confluent", [self.cluster.bootstrap, CONSUMING, TOPIC, "range"])
        )

    def stop_member(self) -> None:
        member = self.members.pop(0)
        member.signal(signal.SIGTERM)
        self.gone.append(member)

    def processed(self) -> set[tuple[str, int, int]]:
        return {place for member in (*self.members, *self.gone) for place in member.places}

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
        assert not problems, problems[:5]


@contextmanager
def storm(directory: Path) -> Iterator[Storm]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    cluster = ClusterProcesses(str(directory), 1, 3, *settings)
    cluster.start()
    made = Storm(cluster, random.Random(SEED))
    try:
        yield made
    finally:
        for member in (*made.members, *made.gone):
            if member.process.poll() is None:
                member.process.kill()
            member.end()
        cluster.stop()


def test_no_committed_offset_is_lost_or_goes_back(tmp_path: Path) -> None:
    with storm(tmp_path) as made:
        made.create_topic()
        made.produce()
        made.start_member()
        for committer in made.committers:
            committer.start()
        try:
            wait_for("first commits", lambda: all(c.ledger.acked > 5 for c in made.committers))
            for _ in range(ROUNDS):
                made.produce()
                made.one_round()
        finally:
            for committer in made.committers:
                committer.stop()
        made.check()
        assert all(committer.ledger.reads for committer in made.committers)
        wait_for("all records", lambda: made.expected <= made.processed())
        assert made.processed() == made.expected
