"""Controllers and brokers as processes under a client that writes: kill, stop, and lose nothing.

Every record has a number. The writer is idempotent and asks for acks=all; at the end each number
that was acknowledged is in the topic exactly once, in the order of its partition, and the replicas'
files are byte-identical up to the high watermark. `CLUSTER_STORM_ROUNDS` makes it longer; `make
cluster-storm` does.
"""

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.e2e.cluster_processes import ClusterProcesses

ROUNDS = int(os.environ.get("CLUSTER_STORM_ROUNDS", "3"))
TOPIC = "storm"
PARTITIONS = 2
REPLICAS = 3
STOPPED_S = 3
WAIT_S = 120


class Writer:
    """Sends numbers to every partition in turn, one at a time, and notes those acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.acked: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        self.unknown: set[int] = set()
        self.stopping = False

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                enable_idempotence=True,
                request_timeout_ms=10_000,
                retry_backoff_ms=50,
            )
            try:
                await producer.start()
                while not self.stopping:
                    number += 1
                    await self._send(producer, number)
            except KafkaError:
                await asyncio.sleep(0.1)  # With a new producer: this one does not know where it is.
            finally:
                await producer.stop()

    async def _send(self, producer: Any, number: int) -> None:
        partition = number % PARTITIONS
        self.unknown.add(number)
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=partition)
        self.unknown.discard(number)
        self.acked[partition].append(number)


async def wait_for(what: str, reached: Any) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not reached():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_S} s") from None


async def create_topic(cluster: ClusterProcesses) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, topic_configs={"min.insync.replicas": "2"})
    async with asyncio.timeout(WAIT_S):
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
            try:
                await admin.start()
                answer = await admin.create_topics([topic])
                if answer.topic_errors[0][1] in (0, 36):  # Created, or there already.
                    return
            except (KafkaError, AttributeError):
                pass  # The second is aiokafka's own while no broker is alive yet.
            finally:
                await admin.close()
            await asyncio.sleep(0.3)


async def read_all(cluster: ClusterProcesses) -> dict[int, list[int]]:
    """Everything that is in the topic, by partition, in its order."""
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        async with asyncio.timeout(WAIT_S):
            while sum(map(len, found.values())) < sum(ends.values()):
                record = await consumer.getone()
                found[record.partition].append(int(record.value))
        return found
    finally:
        await consumer.stop()


def check(writer: Writer, found: dict[int, list[int]]) -> None:
    for partition, numbers in found.items():
        acked = writer.acked[partition]
        assert len(set(numbers)) == len(numbers), "a record is there twice"
        assert set(acked) <= set(numbers), f"lost: {sorted(set(acked) - set(numbers))[:10]}"
        assert set(numbers) <= set(acked) | writer.unknown, "nobody wrote this"
        at = {number: place for place, number in enumerate(numbers)}
        places = [at[number] for number in acked]
        assert places == sorted(places), "the order of a partition is not that of its acks"


def log_bytes(cluster: ClusterProcesses, broker_id: int, partition: int) -> bytes:
    directory = Path(cluster.data_dir(broker_id)) / f"{TOPIC}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


async def one_round(cluster: ClusterProcesses, writer: Writer, rng: random.Random) -> None:
    victim = rng.choice([*cluster.brokers, *cluster.controllers])
    before = writer.count
    if rng.random() < 0.6:
        cluster.kill(victim)
        await asyncio.sleep(rng.random())  # Whatever happens meanwhile is part of the test.
        cluster.start(victim)
    else:
        cluster.signal(victim, signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        cluster.signal(victim, signal.SIGCONT)
    await wait_for("more writes", lambda: writer.count >= before + 20)


def test_what_was_acknowledged_survives_kills_and_pauses_of_anyone(tmp_path: Path) -> None:
    cluster = ClusterProcesses(
        str(tmp_path), 3, 3, "--set", "broker.session.timeout.ms=2000",
        "--set", "broker.heartbeat.interval.ms=300", "--set", "replica.lag.time.max.ms=2000",
    )  # fmt: skip
    rng = random.Random(int(os.environ.get("CLUSTER_STORM_SEED", "1")))

    async def story() -> None:
        cluster.start()
        await create_topic(cluster)
        writer = Writer(cluster.bootstrap)
        writing = asyncio.create_task(writer.run())
        try:
            await wait_for("first writes", lambda: writer.count >= 20)
            for _ in range(ROUNDS):
                await one_round(cluster, writer, rng)
        finally:
            writer.stopping = True
            await writing
        found = await read_all(cluster)
        check(writer, found)
        await same_logs(cluster)
        await wait_for("all nodes up", lambda: all(map(cluster.is_listening, cluster.node_ids)))
        assert set(cluster.stop_in_order().values()) == {0}, cluster.output()

    try:
        asyncio.run(story())
    finally:
        cluster.stop()


async def same_logs(cluster: ClusterProcesses) -> None:
    """Nobody writes any more: all replicas catch up to the same bytes."""

    def are_same() -> bool:
        return all(
            len({log_bytes(cluster, each, partition) for each in cluster.brokers}) == 1
            for partition in range(PARTITIONS)
        )

    await wait_for("equal replicas", are_same)
