"""W3 "register": configs of topics as registers, read at the active controller and at brokers.

A register is used for so many operations only, then the next takes its place: the search for an
order of its operations stays small. Kafka has no compare-and-set, so there are reads and writes.
"""

import itertools
import random
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.errors import is_definite, name_of
from jepsen_like.client.kafka import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    Definite,
    Indefinite,
    KafkaClient,
)
from jepsen_like.generator import Mix
from jepsen_like.workloads.base import Ask, Process, Surroundings
from jepsen_like.workloads.topics import create_topic

_CONFIGS: Final = (
    "retention.ms",
    "segment.ms",
    "flush.ms",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
)
_MIX: Final = Mix({"write": 4.0, "read": 4.0, "stale-read": 2.0})
# Any of the configs takes these, and none of them makes a log be rolled or deleted in a run.
_FIRST_VALUE: Final = 1_000_000_000


class RegisterWorkload:
    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._topics = surroundings.number("topics", 20)
        self._at_once = surroundings.number("registers_at_once", 5)
        self._ops_per_key = surroundings.number("ops_per_key", 180)
        self.rng = surroundings.rng
        self.values = itertools.count(_FIRST_VALUE)
        keys = (
            f"{surroundings.prefix}reg-{number}/{config}"
            for number in range(self._topics)
            for config in _CONFIGS
        )
        self._waiting = iter(keys)
        self._used: dict[str, int] = {}
        self._all: list[str] = []
        self._final: set[str] = set()
        self._refill()

    def name(self, node_id: int) -> str:
        return self._surroundings.names(node_id)

    def options(self) -> dict[str, Any]:
        return {"registers_at_once": self._at_once, "ops_per_key": self._ops_per_key}

    def _refill(self) -> None:
        while len(self._used) < self._at_once and (key := next(self._waiting, None)):
            self._used[key] = 0
            self._all.append(key)

    def take(self, rng: random.Random) -> str:
        """A register that has operations left."""
        key = rng.choice(sorted(self._used))
        self._used[key] += 1
        if self._used[key] >= self._ops_per_key:
            del self._used[key]
            self._refill()
        return key

    async def set_up(self, client: KafkaClient) -> None:
        for number in range(self._topics):
            await create_topic(client, f"{self._surroundings.prefix}reg-{number}", 1, 1)

    def process(self, number: int, client: KafkaClient) -> Process:
        del number
        return _RegisterProcess(self, client, random.Random(self.rng.getrandbits(64)))

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        return [_FinalRead(self, clients[0])]

    def not_read_yet(self) -> str | None:
        return next((key for key in self._all if key not in self._final), None)

    def was_read(self, key: str) -> None:
        self._final.add(key)

    def is_finished(self) -> bool:
        return self.not_read_yet() is None

    def unread(self) -> dict[str, int]:
        return {key: 1 for key in self._all if key not in self._final}

    def has_room(self) -> bool:
        return bool(self._used)


class _RegisterProcess:
    def __init__(self, workload: RegisterWorkload, client: KafkaClient, rng: random.Random) -> None:
        self._workload = workload
        self._client = client
        self._rng = rng

    def next(self) -> Ask:
        key = self._workload.take(self._rng)
        match _MIX.choose(self._rng):
            case "write":
                return self._write(key)
            case "read" if self._client.has_controllers:
                return read(self._workload, self._client, key)
            case _:
                return self._stale_read(key)

    def _write(self, key: str) -> Ask:
        value = next(self._workload.values)
        topic, config = key.split("/")

        async def do() -> dict[str, Any]:
            body = requests.set_topic_config(topic, config, str(value))
            if self._client.has_controllers and self._rng.random() < 0.5:
                node_id, data = await self._client.ask_controller(ALTER_CONFIGS, body)
                self._client.controller_said(requests.read_alter_configs(data))
                return {"node": f"c{node_id}"}
            node_id, data = await self._client.ask_any(ALTER_CONFIGS, body)
            code = requests.read_alter_configs(data)
            if code:
                raise (Definite if is_definite(code) else Indefinite)(name_of(code))
            return {"node": self._workload.name(node_id)}

        return Ask("write", {"k": key, "v": value}, do)

    def _stale_read(self, key: str) -> Ask:
        topic, config = key.split("/")
        node_id = self._rng.choice(self._client.broker_ids or [-1])

        async def do() -> dict[str, Any]:
            body = requests.describe_topic_config(topic, config)
            data = await self._client.ask_broker(node_id, DESCRIBE_CONFIGS, body)
            code, value = requests.read_describe_configs(data)
            if code:
                raise Definite(name_of(code))
            return {"v": None if value is None else int(value)}

        return Ask("stale-read", {"k": key, "node": self._workload.name(node_id)}, do)


class _FinalRead:
    def __init__(self, workload: RegisterWorkload, client: KafkaClient) -> None:
        self._workload = workload
        self._client = client

    def next(self) -> Ask:
        key = self._workload.not_read_yet() or ""
        return read(self._workload, self._client, key, final=True)


def read(workload: RegisterWorkload, client: KafkaClient, key: str, final: bool = False) -> Ask:
    topic, config = key.split("/")

    async def do() -> dict[str, Any]:
        body = requests.describe_topic_config(topic, config)
        if client.has_controllers:
            node_id, data = await client.ask_controller(DESCRIBE_CONFIGS, body)
            name = f"c{node_id}"
        else:
            node_id, data = await client.ask_any(DESCRIBE_CONFIGS, body)
            name = workload.name(node_id)
        code, value = requests.read_describe_configs(data)
        if client.has_controllers:
            client.controller_said(code)
        elif code:
            raise Definite(name_of(code))
        if final:
            workload.was_read(key)
        return {"v": None if value is None else int(value), "node": name}

    # Only the controller's answer must be linearizable.
    return Ask("read" if client.has_controllers else "stale-read", {"k": key}, do)
