"""Three controllers and three brokers as processes under a writer: kill, stop, and lose nothing.

Leaders, followers and controllers are killed with -9 and stopped with SIGSTOP, in turn. Every
record has a number; the writer is librdkafka, idempotent, with acks=all and min.insync.replicas=2.
At the end each number that was acknowledged is in the topic exactly once, in the order of its
partition, and the replicas' files are byte-identical. The longest time without an acknowledgement
is reported. `make cluster-storm` runs it for minutes.
"""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaException

from kraftpy.errors import KraftError
from kraftpy.network.client import WireClient
from kraftpy.wire.apis import DESCRIBE_QUORUM
from tests.e2e.cluster_processes import ClusterProcesses
from tests.e2e.storm_writer import QUIET, Outcomes, Writer, check, read_all

MINUTES = float(os.environ.get("CLUSTER_STORM_MINUTES", "0"))
TURNS = 4  # Without minutes: a few, so that `make test` stays short.
TOPIC = "storm"
PARTITIONS = 3
STOPPED_S = 3  # Longer than a session: who is stopped is fenced meanwhile.
WAIT_S = 120
SETTINGS = (
    *("--set", "broker.session.timeout.ms=2000", "--set", "broker.heartbeat.interval.ms=300"),
    *("--set", "replica.lag.time.max.ms=2000"),
)
api: Any = confluent_kafka.admin  # Its types are not complete.


def wait_for(what: str, reached: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := reached():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {WAIT_S} s")


class Storm:
    """The cluster, who is who in it, and what is done to them in turn."""

    def __init__(self, cluster: ClusterProcesses, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.admin: Any = api.AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        self.done: list[str] = []

    def create_topic(self) -> None:
        topic = api.NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})

        def created() -> bool:
            with suppress(KafkaException):
                self.admin.create_topics([topic])[TOPIC].result(WAIT_S)
            with suppress(KafkaException):
                return len(self.partitions()) == PARTITIONS
            return False

        wait_for("the topic", created)

    def partitions(self) -> list[Any]:
        # All topics: asking for one by name would have it created, as clients do.
        topics = self.admin.list_topics(timeout=5).topics
        return list(topics[TOPIC].partitions.values()) if TOPIC in topics else []

    def leader(self) -> int:
        """Of some partition that has one."""

        def found() -> list[int]:
            with suppress(KafkaException):
                return [each.leader for each in self.partitions() if each.leader >= 0]
            return []

        return int(self.rng.choice(wait_for("a leader", found)))

    def follower(self) -> int:
        """One that does not lead the partition that the leader was chosen for, if there is one."""
        leader = self.leader()
        return self.rng.choice([each for each in self.cluster.brokers if each != leader])

    def active_controller(self) -> int:
        return int(wait_for("an active controller", lambda: asyncio.run(self._active())))

    def standby(self) -> int:
        active = self.active_controller()
        return self.rng.choice([each for each in self.cluster.controllers if each != active])

    async def _active(self) -> int | None:
        for node_id in self.cluster.controllers:
            with suppress(KraftError, OSError, TimeoutError):
                client = await WireClient.connect(
                    "127.0.0.1", self.cluster.ports[node_id], timeout_s=2
                )
                try:
                    asked = {"topic_name": "__cluster_metadata"}
                    topics = [{**asked, "partitions": [{"partition_index": 0}]}]
                    answer = await client.ask(DESCRIBE_QUORUM, {"topics": topics})
                    state = answer.topics[0].partitions[0]
                finally:
                    await client.close()
                if state.leader_id == node_id:
                    return node_id
        return None

    def kill(self, victim: int) -> None:
        self.cluster.kill(victim)
        time.sleep(self.rng.uniform(0, STOPPED_S))  # What happens meanwhile is part of the test.
        self.cluster.start(victim)

    def pause(self, victim: int) -> None:
        self.cluster.signal(victim, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        self.cluster.signal(victim, signal.SIGCONT)

    def turn(self, number: int) -> None:
        who = (self.leader, self.follower, self.active_controller, self.standby)[number // 2 % 4]
        how = (self.kill, self.pause)[number % 2]
        victim = who()
        self.done.append(f"{how.__name__} {who.__name__} {victim}")
        how(victim)


def log_bytes(cluster: ClusterProcesses, broker_id: int, partition: int) -> bytes:
    directory = Path(cluster.data_dir(broker_id)) / f"{TOPIC}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def same_logs(cluster: ClusterProcesses) -> bool:
    """Nobody writes any more: all replicas catch up to the same bytes."""
    return all(
        len({log_bytes(cluster, each, partition) for each in cluster.brokers}) == 1
        for partition in range(PARTITIONS)
    )


def test_what_was_acknowledged_survives_kills_and_pauses_of_anyone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ClusterProcesses(str(tmp_path), 3, 3, *SETTINGS)
    seed = int(os.environ.get("CLUSTER_STORM_SEED", "1"))
    storm = Storm(cluster, random.Random(seed))
    writer = Writer(cluster.bootstrap, TOPIC, PARTITIONS)
    try:
        cluster.start()
        storm.create_topic()
        writer.start()
        try:
            weather(storm, writer, seed)
        finally:
            writer.stop()
        check(writer.outcomes, read_all(cluster.bootstrap, TOPIC, PARTITIONS))
        wait_for("equal replicas", lambda: same_logs(cluster))
        wait_for("all nodes up", lambda: all(map(cluster.is_listening, cluster.node_ids)))
        assert set(cluster.stop_in_order().values()) == {0}, cluster.output()
    except BaseException:
        with capsys.disabled():
            print("\n".join(("", *storm.done)))  # noqa: T201
        raise
    finally:
        cluster.stop()
    with capsys.disabled():
        print(f"\n{report(storm, writer)}")  # noqa: T201


def weather(storm: Storm, writer: Writer, seed: int) -> None:
    """One thing after another, each once there were writes after the one before."""
    wait_for("first writes", lambda: writer.outcomes.count >= 20)
    deadline = time.monotonic() + MINUTES * 60
    for number in itertools.count():
        if number >= TURNS and time.monotonic() > deadline:
            break
        enough = writer.outcomes.count + 20
        storm.turn(number if MINUTES else number * 3 + seed)  # A few turns still vary.
        wait_for("more writes", partial(has_written, writer, enough))


def has_written(writer: Writer, count: int) -> bool:
    return writer.outcomes.count >= count


def report(storm: Storm, writer: Writer) -> str:
    outcomes = writer.outcomes
    return (
        f"{len(storm.done)} kills and pauses: {outcomes.count} records acknowledged, "
        f"{len(outcomes.unknown)} unknown, {writer.producers} producers, "
        f"longest time without an acknowledgement {writer.longest_gap_s:.1f} s"
    )


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([1, 2, 3, 4], "nobody wrote this"),
        ([1, 3], "lost"),
        ([1, 2, 2, 3], "twice"),
        ([2, 1, 3], "order"),
    ],
)
def test_the_judge_sees_what_is_lost_doubled_or_moved(found: list[int], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check(Outcomes({0: [1, 2, 3]}, {9}), {0: found})


def test_the_judge_lets_what_is_not_known_be_there_or_not() -> None:
    check(Outcomes({0: [1, 3]}, {2, 4}), {0: [1, 2, 3]})
