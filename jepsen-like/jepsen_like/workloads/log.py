"""W1 "log" and W8 "linger": unique values appended to partitions with acks=all, and polled.

Every process sends, polls what it is assigned, and asks for ends. A consumer begins a little before
what is known to be acknowledged, or anywhere, and is replaced now and then; the whole of each
partition is read at the end.
"""

import itertools
import random
from typing import Any, Final

from jepsen_like.client.kafka import KafkaClient
from jepsen_like.generator import Mix
from jepsen_like.workloads.base import Ask, Process, Surroundings
from jepsen_like.workloads.topics import create_topic

_MIX: Final = Mix({"send": 7.0, "poll": 2.5, "end": 0.5})
_BEFORE: Final = 20
_FROM_ANYWHERE: Final = 0.3  # The share of consumers that begin somewhere in the log.
_NEW_CONSUMER: Final = 0.03  # Of polls.
_POLL: Final = (20, 16_384)  # How long and for how many bytes to wait.
_FINAL_POLL: Final = (200, 1_000_000)


class LogWorkload:
    """Numbers, given out once."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.partitions = surroundings.number("partitions", 6)
        self.replicas = surroundings.number("replicas", surroundings.replicas)
        self.idempotent = bool(surroundings.options.get("idempotent", True))
        self.retry_s = float(surroundings.options.get("retry_s", 3.0))
        self.topic = f"{surroundings.prefix}log"
        self.values = itertools.count()
        self.rng = surroundings.rng
        # Partition to the highest offset that was acknowledged, and how far the last look is.
        self.acked: dict[int, int] = {}
        self.final: dict[int, int] = {}
        self.final_ends: dict[int, int] = {}

    def name(self, node_id: int) -> str:
        return self._surroundings.names(node_id)

    def options(self) -> dict[str, Any]:
        return {
            "idempotent": self.idempotent,
            "partitions": self.partitions,
            "replicas": self.replicas,
            "retry_s": self.retry_s,
        }

    async def set_up(self, client: KafkaClient) -> None:
        insync = {"min.insync.replicas": str(min(2, self.replicas))}
        await create_topic(client, self.topic, self.partitions, self.replicas, insync)

    def process(self, number: int, client: KafkaClient) -> Process:
        del number
        return _LogProcess(self, client, random.Random(self.rng.getrandbits(64)))

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        groups: list[list[int]] = [[] for _ in clients]
        for partition in range(self.partitions):
            groups[partition % len(clients)].append(partition)
        pairs = zip(clients, groups, strict=True)
        return [_FinalPoll(self, client, group) for client, group in pairs if group]

    def is_finished(self) -> bool:
        return not self.unread()

    def unread(self) -> dict[str, int]:
        missing = {}
        for partition in range(self.partitions):
            end = max(self.acked.get(partition, -1) + 1, self.final_ends.get(partition, 1))
            at = self.final.get(partition, 0)
            if self.final_ends.get(partition) is None or at < end:
                missing[f"{self.topic}-{partition}"] = end - at
        return missing

    def has_room(self) -> bool:
        return True


class _LogProcess:
    def __init__(self, workload: LogWorkload, client: KafkaClient, rng: random.Random) -> None:
        self._workload = workload
        self._client = client
        self._rng = rng
        self._positions: dict[int, int] = {}

    def next(self) -> Ask:
        partition = self._rng.randrange(self._workload.partitions)
        match _MIX.choose(self._rng):
            case "send":
                return self._send(partition)
            case "end":
                return _end(self._workload, self._client, partition)
            case _:
                return self._poll(partition)

    def _send(self, partition: int) -> Ask:
        workload = self._workload
        value = next(workload.values)

        async def do() -> dict[str, Any]:
            sent = await self._client.send(
                workload.topic,
                partition,
                b"%d" % value,
                idempotent=workload.idempotent,
                retry_s=workload.retry_s,
            )
            workload.acked[partition] = max(workload.acked.get(partition, -1), sent.offset)
            return {
                "off": sent.offset,
                "lepoch": sent.leader_epoch,
                "node": workload.name(sent.node_id),
            }

        return Ask("send", {"k": f"{workload.topic}-{partition}", "v": value}, do)

    def _first_offset(self, partition: int) -> int:
        acked = self._workload.acked.get(partition, 0)
        if self._rng.random() < _FROM_ANYWHERE:
            return self._rng.randrange(acked + 1)
        return max(0, acked - self._rng.randrange(_BEFORE))

    def _poll(self, partition: int) -> Ask:
        workload = self._workload
        key = f"{workload.topic}-{partition}"
        if self._rng.random() < _NEW_CONSUMER:
            self._positions.pop(partition, None)
        if partition not in self._positions:
            offset = self._first_offset(partition)

            async def assign() -> dict[str, Any]:
                self._positions[partition] = offset
                return {"off": offset}

            return Ask("assign", {"k": key, "off": offset}, assign)

        async def do() -> dict[str, Any]:
            position = self._positions[partition]
            found = await poll(workload, self._client, partition, position, _POLL)
            self._positions[partition] = found["off"]
            return found

        return Ask("poll", {"k": key, "off": self._positions[partition]}, do)


class _FinalPoll:
    """Reads whole partitions, one after the other, from offset 0 to where they end."""

    def __init__(self, workload: LogWorkload, client: KafkaClient, partitions: list[int]) -> None:
        self._workload = workload
        self._client = client
        self._partitions = partitions
        self._assigned: set[int] = set()

    def next(self) -> Ask:
        workload = self._workload
        unread = workload.unread()
        wanted = [p for p in self._partitions if f"{workload.topic}-{p}" in unread]
        partition = wanted[0] if wanted else self._partitions[0]
        key = f"{workload.topic}-{partition}"
        if partition not in workload.final_ends:
            return _end(workload, self._client, partition, keep=True)
        if partition not in self._assigned:
            # Also after an answer was lost: this process is then another one, and starts anew.
            self._assigned.add(partition)
            workload.final[partition] = 0

            async def assign() -> dict[str, Any]:
                return {"off": 0}

            return Ask("assign", {"k": key, "off": 0}, assign)
        offset = workload.final[partition]

        async def do() -> dict[str, Any]:
            found = await poll(workload, self._client, partition, offset, _FINAL_POLL)
            workload.final[partition] = found["off"]
            return found

        return Ask("poll", {"k": key, "off": offset}, do)


def _end(workload: LogWorkload, client: KafkaClient, partition: int, keep: bool = False) -> Ask:
    async def do() -> dict[str, Any]:
        offset, node_id = await client.end_offset(workload.topic, partition)
        if keep:
            workload.final_ends[partition] = offset
        return {"off": offset, "node": workload.name(node_id)}

    return Ask("end", {"k": f"{workload.topic}-{partition}"}, do)


async def poll(
    workload: LogWorkload,
    client: KafkaClient,
    partition: int,
    offset: int,
    wait: tuple[int, int],
) -> dict[str, Any]:
    polled = await client.poll(workload.topic, partition, offset, *wait)
    records = [
        [at, _value(value)]
        for batch in polled.batches
        for at, value in batch.records
        if at >= offset
    ]
    return {"v": records, "off": polled.next_offset, "node": workload.name(polled.node_id)}


def _value(data: bytes) -> int | str:
    return int(data) if data.isdigit() else data.decode("utf-8", "replace")
