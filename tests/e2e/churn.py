"""Much of everything, from a seed: topics come, change, move and go while nodes are killed.

For any cluster of processes that speaks Kafka's protocol, ours or Apache's. One node is down or
stopped at a time, so that the cluster never has to wait for more than one. Refusals and lost
answers are part of it: nothing here is checked, that is what the audit of the logs is for.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException, Producer

from bench.quorum_processes import ServerProcesses
from kraftpy.errors import KraftError
from kraftpy.network.client import WireClient
from kraftpy.wire import apis

TIMEOUT_S = 15.0
TOPICS_MAX = 12
_SET, _DELETE = 0, 1
_TOPIC = 2
_PREFERRED = 0


class Churn:
    """One run. `kinds` counts what was done.

    `careful`: replicas are moved only while all are in sync and nothing else is moving, to as many
    brokers as before, and nobody is broken meanwhile. Apache Kafka 4.3 loses count otherwise, which
    is what an audit should say of it, but not of a healthy cluster. `rest_s`: the longest rest
    between two requests of the admin; long runs rest longer.
    """

    def __init__(
        self,
        cluster: Any,
        seed: int,
        *,
        faults: bool = True,
        careful: bool = False,
        pauses_s: Sequence[float] = (1.0, 4.0, 8.0),
        rest_s: float = 0.3,
    ) -> None:
        self._cluster: Any = cluster
        self._rng = random.Random(seed)
        self._faults = faults
        self._careful = careful
        self._pauses_s = pauses_s
        self._rest_s = rest_s
        self._quiet = asyncio.Lock()
        self._topics: dict[str, int] = {}
        self._made = 0
        self._client: WireClient | None = None
        self.kinds: dict[str, int] = {}

    async def run(self, duration_s: float) -> None:
        """Until the time is over; then everybody is up again."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + duration_s
        faults = loop.create_task(self._break(ends)) if self._faults else None
        try:
            while loop.time() < ends:
                await self._act()
                await asyncio.sleep(self._rng.random() * self._rest_s)
        finally:
            if faults is not None:
                await faults
            await self._close()

    # -- admin ----------------------------------------------------------------------------------

    async def _act(self) -> None:
        actions: list[Callable[[], Awaitable[None]]] = [self._create]
        if self._topics:
            actions += [self._configure, self._add, self._move, self._move, self._elect]
            actions += [self._produce, self._produce]
        if len(self._topics) >= TOPICS_MAX // 2:
            actions.append(self._delete)
        if len(self._topics) >= TOPICS_MAX:
            actions = [self._delete]
        act = self._rng.choice(actions)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await act()
        except (KraftError, OSError, TimeoutError):
            await self._close()  # Perhaps that broker is the victim: ask another.
            return
        name = act.__name__.strip("_")
        self.kinds[name] = self.kinds.get(name, 0) + 1

    async def _ask(self, api_key: int, values: dict[str, Any]) -> Any:
        if self._client is None:
            broker = self._rng.choice(list(self._cluster.brokers))
            port = self._cluster.ports[broker]
            self._client = await WireClient.connect("127.0.0.1", port, timeout_s=TIMEOUT_S)
        return await self._client.ask(api_key, values)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _create(self) -> None:
        self._made += 1
        name, partitions = f"churn-{self._made}", self._rng.randint(1, 6)
        copies = self._rng.randint(1, len(self._cluster.brokers))
        configs = [
            {"name": "min.insync.replicas", "value": str(min(copies, self._rng.randint(1, 2)))}
        ]
        if self._rng.random() < 0.3:
            configs.append({"name": "unclean.leader.election.enable", "value": "true"})
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": copies,
            "assignments": [],
            "configs": configs,
        }
        values = {"topics": [topic], "timeout": timedelta(seconds=10), "validate_only": False}
        await self._ask(apis.CREATE_TOPICS, values)
        self._topics[name] = partitions

    async def _delete(self) -> None:
        name = self._any()
        self._topics.pop(name)
        values = {
            "topics": [{"name": name, "topic_id": None}],
            "topic_names": [name],
            "timeout": timedelta(seconds=10),
        }
        await self._ask(apis.DELETE_TOPICS, values)

    async def _configure(self) -> None:
        name, value = self._rng.choice(
            [
                ("min.insync.replicas", "1"),
                ("retention.ms", "600000"),
                ("unclean.leader.election.enable", "false"),
            ]
        )
        if self._careful and name.startswith("min."):
            # Kafka 4.3 clears the ELR then, forgets to do so in an index, and when the topic is
            # deleted later, no broker can register any more.
            name, value = "retention.ms", "500000"
        operation = self._rng.choice([_SET, _SET, _DELETE])
        config = {"name": name, "config_operation": operation, "value": value}
        if operation == _DELETE:
            config["value"] = None
        resource = {"resource_type": _TOPIC, "resource_name": self._any(), "configs": [config]}
        values = {"resources": [resource], "validate_only": False}
        await self._ask(apis.INCREMENTAL_ALTER_CONFIGS, values)

    async def _add(self) -> None:
        name = self._any()
        topic = {"name": name, "count": self._topics[name] + 1, "assignments": None}
        values = {"topics": [topic], "timeout": timedelta(seconds=10), "validate_only": False}
        await self._ask(apis.CREATE_PARTITIONS, values)
        self._topics[name] += 1

    async def _move(self) -> None:
        if not self._careful:
            await self._reassign(self._any(), count=None)
            return
        async with self._quiet:
            copies = await self._in_sync()
            if not copies:
                return
            name = self._rng.choice(sorted(copies))
            await self._reassign(name, count=copies[name])
            while await self._is_moving():
                await asyncio.sleep(0.2)

    async def _in_sync(self) -> dict[str, int]:
        """Topics and their replication factors, if every replica of all is in sync."""
        values = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self._ask(apis.METADATA, values)
        copies = {}
        for topic in answer.topics:
            for each in topic.partitions:
                if set(each.isr_nodes) != set(each.replica_nodes):
                    return {}
            if topic.name in self._topics and topic.partitions:
                copies[topic.name] = len(topic.partitions[0].replica_nodes)
        return {} if await self._is_moving() else copies

    async def _is_moving(self) -> bool:
        values = {"timeout": timedelta(seconds=10), "topics": None}
        answer = await self._ask(apis.LIST_PARTITION_REASSIGNMENTS, values)
        return bool(answer.topics)

    async def _reassign(self, name: str, count: int | None) -> None:
        brokers = list(self._cluster.brokers)
        partitions = []
        for index in range(self._topics[name]):
            size = count or self._rng.randint(1, len(brokers))
            target: list[int] | None = self._rng.sample(brokers, size)
            if count is None and self._rng.random() < 0.2:
                target = None  # Cancel what is under way.
            partitions.append({"partition_index": index, "replicas": target})
        values = {
            "timeout": timedelta(seconds=10),
            "allow_replication_factor_change": True,
            "topics": [{"name": name, "partitions": partitions}],
        }
        await self._ask(apis.ALTER_PARTITION_REASSIGNMENTS, values)

    async def _elect(self) -> None:
        values = {
            "election_type": _PREFERRED,
            "topic_partitions": None,
            "timeout": timedelta(seconds=10),
        }
        await self._ask(apis.ELECT_LEADERS, values)

    async def _produce(self) -> None:
        name = self._any()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._send, name, self._rng.randint(1, 50))

    def _send(self, topic: str, count: int) -> None:
        settings = {
            "bootstrap.servers": self._cluster.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 3000,
            "log_level": 0,
        }
        producer = Producer(settings, logger=None)
        with suppress(KafkaException, BufferError):
            for number in range(count):
                producer.produce(topic, b"%d" % number)
            producer.flush(4)

    def _any(self) -> str:
        return self._rng.choice(sorted(self._topics))

    # -- faults ---------------------------------------------------------------------------------

    async def _break(self, ends: float) -> None:
        """One victim after the other; each is back before the next."""
        loop = asyncio.get_running_loop()
        rng = random.Random(self._rng.random())
        while loop.time() < ends:
            async with self._quiet:
                await self._break_one(rng)
            await asyncio.sleep(rng.choice(self._pauses_s))

    async def _break_one(self, rng: random.Random) -> None:
        loop = asyncio.get_running_loop()
        cluster: ServerProcesses = self._cluster
        victim = rng.choice([*self._cluster.brokers, *self._cluster.controllers])
        how = rng.choice(["kill", "kill", "stop", "pause"])
        down_s = rng.choice([0.1, 1.0, 3.0, 6.0])
        if how == "pause":
            cluster.signal(victim, signal.SIGSTOP)
            await asyncio.sleep(down_s)
            cluster.signal(victim, signal.SIGCONT)
        else:
            end = cluster.kill if how == "kill" else cluster.stop
            await loop.run_in_executor(None, end, victim)
            await asyncio.sleep(down_s)
            cluster.start(victim)
        self.kinds[f"{how}s"] = self.kinds.get(f"{how}s", 0) + 1
