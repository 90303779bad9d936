"""W7 "watch": the metadata log as controllers show it, and partitions as brokers see them.

Some processes change the metadata so that there is something to see.
"""

import itertools
import random
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.errors import is_definite, name_of
from jepsen_like.client.kafka import ALTER_CONFIGS, Definite, Indefinite, KafkaClient
from jepsen_like.generator import Mix
from jepsen_like.workloads.base import Ask, Process, Surroundings, Unread
from jepsen_like.workloads.topics import create_topic

_MIX: Final = Mix({"touch": 3.0, "follow": 4.0, "view": 3.0})
_TOPICS: Final = 3
_PARTITIONS: Final = 4
_FIRST_VALUE: Final = 1_000_000_000


class WatchWorkload(Unread):
    """Numbers, given out once."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.prefix = f"{surroundings.prefix}watch-"
        self._replicas = surroundings.replicas
        self.values = itertools.count(_FIRST_VALUE)

    def options(self) -> dict[str, Any]:
        return {"topics": _TOPICS, "partitions": _PARTITIONS}

    async def set_up(self, client: KafkaClient) -> None:
        for number in range(_TOPICS):
            await create_topic(client, f"{self.prefix}{number}", _PARTITIONS, self._replicas)

    def process(self, number: int, client: KafkaClient) -> Process:
        del number
        return _WatchProcess(self, client, self.own_rng())


class _WatchProcess:
    def __init__(self, workload: WatchWorkload, client: KafkaClient, rng: random.Random) -> None:
        self._workload = workload
        self._client = client
        self._rng = rng
        self._position = 0

    def next(self) -> Ask:
        match _MIX.choose(self._rng):
            case "touch":
                return self._touch()
            case "follow" if self._client.has_controllers:
                return self._follow()
            case _:
                return self._view()

    def _touch(self) -> Ask:
        value = next(self._workload.values)
        topic = f"{self._workload.prefix}{self._rng.randrange(_TOPICS)}"

        async def do() -> dict[str, Any]:
            body = requests.set_topic_config(topic, "retention.ms", str(value))
            node_id, data = await self._client.ask_any(ALTER_CONFIGS, body)
            code = requests.read_alter_configs(data)
            if code:
                raise (Definite if is_definite(code) else Indefinite)(name_of(code))
            return {"node": self._workload.name(node_id)}

        return Ask("touch", {"v": value}, do)

    def _follow(self) -> Ask:
        offset = self._position
        fields: dict[str, Any] = {"k": f"{requests.METADATA_TOPIC}-0", "off": offset}

        async def do() -> dict[str, Any]:
            # Any controller may be asked; those that do not lead refuse, and that is no answer.
            node_id = await self._client.active_controller()
            try:
                batches, position = await self._client.read_metadata_log(node_id, offset)
            except Definite as error:
                if "OFFSET_OUT_OF_RANGE" in str(error):
                    self._position = await self._start(node_id)
                self._client.forget_controller()
                raise
            self._position = position
            shown = [[each.base_offset, each.leader_epoch, each.crc] for each in batches]
            shown = [each for each in shown if each[0] >= offset]
            return {"v": shown, "off": position, "node": f"c{node_id}"}

        return Ask("follow", fields, do)

    async def _start(self, node_id: int) -> int:
        """Where the log begins by now: older batches are in a snapshot."""
        return await self._client.metadata_log_start(node_id)

    def _view(self) -> Ask:
        node_id = self._rng.choice(self._client.broker_ids or [-1])

        async def do() -> dict[str, Any]:
            info = await self._client.view(node_id)
            shown = {
                f"{topic}-{index}": [each.leader, each.leader_epoch, each.isr]
                for topic, partitions in sorted(info.topics.items())
                if topic.startswith(self._workload.prefix)
                for index, each in sorted(partitions.items())
            }
            return {"v": shown}

        return Ask("view", {"node": self._workload.name(node_id)}, do)
