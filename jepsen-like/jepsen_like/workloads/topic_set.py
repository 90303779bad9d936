"""W4 "set": topics are created, deleted and listed; a name is used once."""

import itertools
import random
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.errors import (
    NONE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC,
    is_definite,
    name_of,
)
from jepsen_like.client.kafka import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    Definite,
    Indefinite,
    KafkaClient,
)
from jepsen_like.generator import Mix
from jepsen_like.workloads.base import Ask, Process, Surroundings

_MIX: Final = Mix({"add": 4.0, "remove": 3.4, "list": 3.0})
_TOPICS_MAX: Final = 400


class SetWorkload:
    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.prefix = f"{surroundings.prefix}set-"
        self.rng = surroundings.rng
        self.numbers = itertools.count()
        self.there: list[str] = []  # Acknowledged, and nobody has begun to remove them.
        self.listed: set[int] = set()
        self._brokers: set[int] = set()

    def name(self, node_id: int) -> str:
        return self._surroundings.names(node_id)

    def options(self) -> dict[str, Any]:
        return {"topics_max": _TOPICS_MAX}

    async def set_up(self, client: KafkaClient) -> None:
        info = await client.refresh(None)
        self._brokers.update(info.nodes)

    def process(self, number: int, client: KafkaClient) -> Process:
        del number
        return _SetProcess(self, client, random.Random(self.rng.getrandbits(64)))

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        return [_FinalList(self, clients[0])]

    def missing(self) -> list[int]:
        return sorted(self._brokers - self.listed)

    def is_finished(self) -> bool:
        return not self.missing()

    def unread(self) -> dict[str, int]:
        return {self.name(node_id): 1 for node_id in self.missing()}

    def has_room(self) -> bool:
        return True


class _SetProcess:
    def __init__(self, workload: SetWorkload, client: KafkaClient, rng: random.Random) -> None:
        self._workload = workload
        self._client = client
        self._rng = rng

    def next(self) -> Ask:
        there = self._workload.there
        kind = _MIX.choose(self._rng)
        if kind == "add" and len(there) < _TOPICS_MAX:
            return self._add(f"{self._workload.prefix}{next(self._workload.numbers)}")
        if kind != "list" and there:
            return self._remove(there.pop(self._rng.randrange(len(there))))
        node_id = self._rng.choice(self._client.broker_ids or [-1])
        return list_topics(self._workload, self._client, node_id, "list")

    def _add(self, name: str) -> Ask:
        async def do() -> dict[str, Any]:
            body = requests.create_topic(name, 1, 1, {}, 4000)
            node_id, data = await self._client.ask_any(CREATE_TOPICS, body)
            # A broker may have asked the controller twice, and the first time it was done.
            _raise_for(requests.read_create_topic(data), doubtful=TOPIC_ALREADY_EXISTS)
            self._workload.there.append(name)
            return {"node": self._workload.name(node_id)}

        return Ask("add", {"v": name}, do)

    def _remove(self, name: str) -> Ask:
        async def do() -> dict[str, Any]:
            body = requests.delete_topic(name, 4000)
            node_id, data = await self._client.ask_any(DELETE_TOPICS, body)
            _raise_for(requests.read_delete_topic(data), doubtful=UNKNOWN_TOPIC)
            return {"node": self._workload.name(node_id)}

        return Ask("remove", {"v": name}, do)


class _FinalList:
    def __init__(self, workload: SetWorkload, client: KafkaClient) -> None:
        self._workload = workload
        self._client = client

    def next(self) -> Ask:
        node_id = self._workload.missing()[0]
        return list_topics(self._workload, self._client, node_id, "final-list")


def list_topics(workload: SetWorkload, client: KafkaClient, node_id: int, f: str) -> Ask:
    async def do() -> dict[str, Any]:
        info = await client.view(node_id)
        if f == "final-list":
            workload.listed.add(node_id)
        return {"v": sorted(name for name in info.topics if name.startswith(workload.prefix))}

    return Ask(f, {"node": workload.name(node_id)}, do)


def _raise_for(code: int, doubtful: int) -> None:
    if code == NONE:
        return
    if code == doubtful or not is_definite(code):
        raise Indefinite(name_of(code))
    raise Definite(name_of(code))
