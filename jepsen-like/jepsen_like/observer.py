"""An onlooker: asks controllers and brokers now and then who leads, past the proxy.

What it sees goes into the history for the lanes of a report, and tells a nemesis whom to hit. It is
never an argument of a verdict.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from jepsen_like.client.codec import BadAnswer
from jepsen_like.client.kafka import Definite, Indefinite, KafkaClient
from jepsen_like.nemesis.base import Seen

_INTERVAL_S = 0.5
_PARTITIONS_MAX = 128
_OFFSETS = "__consumer_offsets"
Write = Callable[[str, dict[str, Any]], None]


class Observer:
    """Runs until it is cancelled."""

    def __init__(
        self, client: KafkaClient, controllers: list[int], prefix: str, seen: Seen, write: Write
    ) -> None:
        self._client = client
        self._prefixes = (prefix, _OFFSETS)
        self._controllers = controllers
        self._seen = seen
        self._write = write
        self._last: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        self._rng = random.Random(0)

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL_S)

    async def look(self) -> None:
        """Once around."""
        for part in (self._quorum, self._partitions):
            try:
                await part()
            except (Definite, Indefinite, BadAnswer):
                continue

    async def _quorum(self) -> None:
        best: tuple[int, int, int] | None = None
        asked = [self._client.quorum(node_id) for node_id in self._controllers]
        for info in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(info, BaseException) or info.leader_id < 0:
                continue
            found = (info.leader_epoch, info.high_watermark, info.leader_id)
            best = found if best is None else max(best, found)
        if best is None:
            self._seen.active_controller = None
            return
        epoch, high_watermark, leader_id = best
        leader = f"c{leader_id}"
        self._seen.active_controller = leader
        if self._last.get("quorum") != (leader, epoch):
            self._last["quorum"] = (leader, epoch)
            self._write("quorum", {"v": {"leader": leader, "epoch": epoch, "hw": high_watermark}})

    async def _partitions(self) -> None:
        info = await self._client.refresh(None)
        self._seen.unfenced = {f"b{node_id}" for node_id in info.nodes}
        for topic, partitions in sorted(info.topics.items()):
            if not topic.startswith(self._prefixes):
                continue
            for index, each in sorted(partitions.items()):
                self._one(f"{topic}-{index}", each)
        for key in [
            key for key in self._seen.partitions if key.rpartition("-")[0] not in info.topics
        ]:
            del self._seen.partitions[key]  # Its topic is gone.
            self._seen.replicas.pop(key, None)

    def _one(self, key: str, each: Any) -> None:
        if key not in self._epochs and len(self._epochs) >= _PARTITIONS_MAX:
            return
        if each.leader_epoch < self._epochs.get(key, -1):
            return  # From a broker that is behind.
        self._epochs[key] = each.leader_epoch
        leader = f"b{each.leader}" if each.leader >= 0 else None
        isr = [f"b{node_id}" for node_id in each.isr]
        self._seen.partitions[key] = (leader, len(isr), len(each.replicas))
        self._seen.replicas[key] = tuple(f"b{node_id}" for node_id in each.replicas)
        if self._last.get(key) != (leader, tuple(isr), each.leader_epoch):
            self._last[key] = (leader, tuple(isr), each.leader_epoch)
            value = {"leader": leader, "isr": isr}
            self._write("partition", {"k": key, "lepoch": each.leader_epoch, "v": value})
