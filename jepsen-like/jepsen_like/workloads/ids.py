"""W5 "ids": producer ids, each of which must be given once."""

import random
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.errors import name_of
from jepsen_like.client.kafka import INIT_PRODUCER_ID, Definite, KafkaClient
from jepsen_like.workloads.base import Ask, Process, Unread
from jepsen_like.workloads.topics import create_topic

_PARTITIONS: Final = 3


class IdsWorkload(Unread):
    """Nothing but questions; and a topic, so that there is something for faults to move."""

    def options(self) -> dict[str, Any]:
        return {}

    async def set_up(self, client: KafkaClient) -> None:
        name = f"{self._surroundings.prefix}ids"
        await create_topic(client, name, _PARTITIONS, self._surroundings.replicas)

    def process(self, number: int, client: KafkaClient) -> Process:
        del number
        return _IdsProcess(self, client, self.own_rng())


class _IdsProcess:
    def __init__(self, workload: IdsWorkload, client: KafkaClient, rng: random.Random) -> None:
        self._workload = workload
        self._client = client
        self._rng = rng

    def next(self) -> Ask:
        node_id = self._rng.choice(self._client.broker_ids or [-1])

        async def do() -> dict[str, Any]:
            body = requests.init_producer_id()
            data = await self._client.ask_broker(node_id, INIT_PRODUCER_ID, body)
            code, producer_id, epoch = requests.read_init_producer_id(data)
            if code:
                raise Definite(name_of(code))  # No id was given, so none can be given twice.
            return {"v": [producer_id, epoch]}

        return Ask("init", {"node": self._workload.name(node_id)}, do)
