"""Looks at a cluster over the wire: its quorum, its metadata, how far its logs are.

A node may be paused or gone at any moment, so every question has a short deadline, and the next
node is asked when one does not answer. Nobody waits for what is known to be paused.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.cli.cluster_view import PartitionName, PartitionSight, Sight
from kraftpy.clock import Clock
from kraftpy.errors import KraftError
from kraftpy.network.client import WireClient
from kraftpy.network.places import Place
from kraftpy.network.quorum_status import Status, find_status
from kraftpy.testing import Cluster
from kraftpy.wire.apis import METADATA

_ANSWER_S: Final = 1.0
_LIST_OFFSETS: Final = 2
_METADATA_VERSION_MAX: Final = 12
_LIST_OFFSETS_VERSION_MAX: Final = 7
_LATEST: Final = -1
_CONSUMER: Final = -1
_RATED_PARTITIONS_MAX: Final = 2000  # Beyond that, looking would be a load of its own.


class ClusterWatch:
    """Keeps its connections from one look to the next."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._clients: dict[int, WireClient] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def look(self) -> Sight:
        """What can be seen now."""
        processes = {node: self._process_state(node) for node in self._cluster.nodes}
        quorum, metadata = await asyncio.gather(
            self._quorum([n for n in self._cluster.controllers if processes[n] == "running"]),
            self._metadata([n for n in self._cluster.brokers if processes[n] == "running"]),
        )
        partitions = _partitions(metadata)
        offsets = await self._end_offsets(partitions, processes)
        return Sight(
            at_ms=self._clock.monotonic_ms(),
            processes=processes,
            active_controller=quorum.leader_id if quorum else None,
            epoch=quorum.leader_epoch if quorum else None,
            voter_lags={v.replica_id: v.lag for v in quorum.voters} if quorum else {},
            brokers=tuple(sorted(b.node_id for b in metadata.brokers)) if metadata else (),
            partitions=partitions,
            end_offsets=offsets,
        )

    def _process_state(self, node: int) -> str:
        cluster = self._cluster
        if not cluster.is_running(node):
            return "stopped" if cluster.exit_code(node) == 0 else "killed"
        if cluster.is_paused(node):
            return "paused"
        return "running" if cluster.is_ready(node) else "starting"

    async def _quorum(self, controllers: Sequence[int]) -> Status | None:
        places = [_place(self._cluster.address(node)) for node in controllers]
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await find_status(places, _ANSWER_S) if places else None
        except (KraftError, TimeoutError):
            return None

    async def _metadata(self, brokers: Sequence[int]) -> Any:
        cut_off = self._cluster.cut_off  # They know the least.
        for node in sorted(brokers, key=lambda each: (each in cut_off, each)):
            answer = await self._ask(
                node,
                METADATA,
                {
                    "topics": None,
                    "allow_auto_topic_creation": False,
                    "include_cluster_authorized_operations": False,
                    "include_topic_authorized_operations": False,
                },
                version_max=_METADATA_VERSION_MAX,
            )
            if answer is not None:
                return answer
        return None

    async def _end_offsets(
        self, partitions: dict[PartitionName, PartitionSight], processes: dict[int, str]
    ) -> dict[PartitionName, int]:
        if len(partitions) > _RATED_PARTITIONS_MAX:
            return {}
        led: dict[int, dict[str, list[int]]] = {}
        for (topic, index), partition in partitions.items():
            if processes.get(partition.leader) == "running":
                led.setdefault(partition.leader, {}).setdefault(topic, []).append(index)
        answers = await asyncio.gather(
            *(
                self._ask(
                    node, _LIST_OFFSETS, _latest(topics), version_max=_LIST_OFFSETS_VERSION_MAX
                )
                for node, topics in led.items()
            )
        )
        return {
            (topic.name, partition.partition_index): partition.offset
            for answer in answers
            if answer is not None
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code is ErrorCode.none
        }

    async def _ask(self, node: int, api_key: int, values: dict[str, Any], version_max: int) -> Any:
        """The answer, or None; a connection that failed is made anew the next time."""
        client = self._clients.pop(node, None)
        try:
            if client is None or client.is_broken:
                host, port = _place(self._cluster.address(node))
                client = await WireClient.connect(host, port, timeout_s=_ANSWER_S)
            answer = await client.ask(api_key, values, version_max=version_max)
        except KraftError:
            if client is not None:
                await client.close()
            return None
        self._clients[node] = client
        return answer


def _place(address: str) -> Place:
    host, _, port = address.rpartition(":")
    return Place(host, int(port))


def _partitions(metadata: Any) -> dict[PartitionName, PartitionSight]:
    if metadata is None:
        return {}
    return {
        (topic.name, partition.partition_index): PartitionSight(
            partition.leader_id, tuple(partition.replica_nodes), tuple(partition.isr_nodes)
        )
        for topic in metadata.topics
        for partition in topic.partitions
    }


def _latest(topics: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "replica_id": _CONSUMER,
        "isolation_level": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": each, "current_leader_epoch": -1, "timestamp": _LATEST}
                    for each in indexes
                ],
            }
            for name, indexes in topics.items()
        ],
    }
