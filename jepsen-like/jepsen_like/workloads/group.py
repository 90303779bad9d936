"""W6 "group": offsets of consumer groups, committed in growing order by their owner; fetched."""

import random
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.errors import is_definite, name_of
from jepsen_like.client.kafka import Definite, Indefinite, KafkaClient
from jepsen_like.generator import Mix
from jepsen_like.workloads.base import Ask, Process, Surroundings
from jepsen_like.workloads.topics import create_topic

_MIX: Final = Mix({"commit": 6.0, "fetch": 4.0})
_PARTITIONS: Final = 2


class GroupWorkload:
    """Lane i owns group i: its processes follow one another, so one owns it at a time."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.clients = surroundings.clients
        self.topic = f"{surroundings.prefix}group"
        self.rng = surroundings.rng
        self.next_offsets: dict[str, int] = {}
        self.read: set[str] = set()

    def name(self, node_id: int) -> str:
        return self._surroundings.names(node_id)

    def options(self) -> dict[str, Any]:
        return {"partitions": _PARTITIONS}

    async def set_up(self, client: KafkaClient) -> None:
        replicas = self._surroundings.replicas
        insync = {"min.insync.replicas": str(min(2, replicas))}
        await create_topic(client, self.topic, _PARTITIONS, replicas, insync)
        await client.coordinator(self.group(0))  # The first who asks has its topic created.

    def group(self, lane: int) -> str:
        return f"{self._surroundings.prefix}{lane}"

    def process(self, number: int, client: KafkaClient) -> Process:
        lane = number % self.clients
        return _GroupProcess(self, client, lane, random.Random(self.rng.getrandbits(64)))

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        return [_FinalFetch(self, clients[0])]

    def is_finished(self) -> bool:
        return not self.unread()

    def unread(self) -> dict[str, int]:
        return {key: 1 for key in self.next_offsets if key not in self.read}

    def has_room(self) -> bool:
        return True


class _GroupProcess:
    def __init__(
        self, workload: GroupWorkload, client: KafkaClient, lane: int, rng: random.Random
    ) -> None:
        self._workload = workload
        self._client = client
        self._group = workload.group(lane)
        self._rng = rng

    def next(self) -> Ask:
        partition = self._rng.randrange(_PARTITIONS)
        if _MIX.choose(self._rng) == "commit":
            return self._commit(partition)
        group = self._group
        if self._rng.random() < 0.3:
            group = self._workload.group(self._rng.randrange(self._workload.clients))
        return fetch(self._workload, self._client, f"{group}/{self._workload.topic}-{partition}")

    def _commit(self, partition: int) -> Ask:
        key = f"{self._group}/{self._workload.topic}-{partition}"
        offset = self._workload.next_offsets.get(key, 0) + 1
        self._workload.next_offsets[key] = offset

        async def do() -> dict[str, Any]:
            body = requests.commit_offset(self._group, self._workload.topic, partition, offset)
            node_id, data = await self._client.ask_coordinator(self._group, body, commit=True)
            code = requests.read_commit_offset(data)
            if code:
                self._client.forget_coordinator(self._group)
                raise (Definite if is_definite(code) else Indefinite)(name_of(code))
            return {"off": offset, "v": offset, "node": self._workload.name(node_id)}

        return Ask("commit", {"k": key, "off": offset, "v": offset}, do)


class _FinalFetch:
    def __init__(self, workload: GroupWorkload, client: KafkaClient) -> None:
        self._workload = workload
        self._client = client

    def next(self) -> Ask:
        key = next(iter(self._workload.unread()))
        return fetch(self._workload, self._client, key, final=True)


def fetch(workload: GroupWorkload, client: KafkaClient, key: str, final: bool = False) -> Ask:
    group, _, partition = key.partition("/")
    index = int(partition.rpartition("-")[2])

    async def do() -> dict[str, Any]:
        body = requests.fetch_offset(group, workload.topic, index)
        node_id, data = await client.ask_coordinator(group, body, commit=False)
        code, offset = requests.read_fetch_offset(data)
        if code:
            client.forget_coordinator(group)
            raise Definite(name_of(code))
        if final:
            workload.read.add(key)
        return {"v": None if offset < 0 else offset, "node": workload.name(node_id)}

    return Ask("fetch", {"k": key}, do)
