"""Followers: one task per leading broker fetches for all partitions that this broker follows there.

A fetch names, for each partition, where its log ends, in which epoch, and whom it takes for the
leader; answers that speak of another epoch or another end are dropped by the machine. A leader that
says where the logs part ways is believed, and the log is cut there before it is fetched on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.backoff import Backoff
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.metadata.nodes import BrokerNode
from kraftpy.broker.reads import EpochEnd, FetchPosition
from kraftpy.broker.replica_connection import ReplicaConnection
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.errors import InvalidBatch, KraftError, Unreachable
from kraftpy.logs import get_logger
from kraftpy.storage.request import read_replicated
from kraftpy.types import BrokerId, Rng, TopicId
from kraftpy.wire.apis import LIST_OFFSETS
from kraftpy.wire.primitives import to_error_code
from kraftpy.wire.replica_fetch import FetchedReplica, ReplicaFetch, WantedPartition

log = get_logger(__name__)

_CONNECT_S: Final = 2.0
_SLACK_S: Final = 5.0  # Beyond the wait that a leader was asked for.
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_EARLIEST: Final = -2
_LATEST: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's replica.fetch.*."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 1_048_576  # Per partition.
    response_bytes_max: int = 10_485_760


class ReplicaFetchers:
    """Lives in one event loop. Close it."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: FetcherSettings,
        node: Callable[[BrokerId], BrokerNode | None],
        broker_epoch: Callable[[], int],
        rng: Rng,
    ) -> None:
        """`node` tells where a broker is reached now."""
        self._manager = manager
        self._settings = settings
        self._node = node
        self._broker_epoch = broker_epoch
        self._rng = rng
        self._fetchers: dict[BrokerId, _Fetcher] = {}
        self._followed: dict[HostedPartition, BrokerId] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, partition: HostedPartition, leader: BrokerId) -> None:
        self.stop(partition)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = _Fetcher(
                self._manager,
                self._settings,
                lambda: self._node(leader),
                self._broker_epoch,
                Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, self._rng),
            )
        self._followed[partition] = leader
        fetcher.add(partition)

    def stop(self, partition: HostedPartition) -> None:
        leader = self._followed.pop(partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(partition)
        if not fetcher.has_work:
            del self._fetchers[leader]
            closing = asyncio.ensure_future(fetcher.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._followed.clear()
        await asyncio.gather(*(each.close() for each in fetchers), *self._closing)


class _Fetcher:
    """Fetches from one leading broker."""

    def __init__(
        self,
        manager: ReplicaManager,
        settings: FetcherSettings,
        node: Callable[[], BrokerNode | None],
        broker_epoch: Callable[[], int],
        backoff: Backoff,
    ) -> None:
        self._manager = manager
        self._settings = settings
        self._node = node
        self._broker_epoch = broker_epoch
        self._backoff = backoff
        self._partitions: dict[HostedPartition, None] = {}
        self._paused: set[HostedPartition] = set()
        self._work = asyncio.Event()
        self._client: ReplicaConnection | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    @property
    def has_work(self) -> bool:
        return bool(self._partitions)

    def add(self, partition: HostedPartition) -> None:
        self._partitions[partition] = None
        self._paused.discard(partition)
        self._work.set()

    def remove(self, partition: HostedPartition) -> None:
        self._partitions.pop(partition, None)
        self._paused.discard(partition)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._hang_up()

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self._fetch_once()
                self._backoff.reset()
            except KraftError as error:
                log.debug("replica_fetch_failed", why=str(error))
                self._hang_up()
                await asyncio.sleep(self._backoff.next_s())

    async def _fetch_once(self) -> None:
        asked = {
            partition: partition.replica.fetch_position()
            for partition in self._partitions
            if partition not in self._paused
        }
        if not asked:
            self._work.clear()
            return
        client = await self._connected()
        wait_s = self._settings.wait_ms_max / 1000 + _SLACK_S
        answer = await client.fetch(self._request(asked), wait_s=wait_s)
        if answer.error_code:
            name = to_error_code(answer.error_code).name
            raise Unreachable(f"{client.place} answers Fetch with {name}")
        by_key = {(each.topic_id, each.index): each for each in asked}
        lost = []
        for found in answer.partitions:
            partition = by_key.get((found.topic_id, found.partition))
            if partition is None or partition not in self._partitions:
                continue
            if self._take(partition, asked[partition], found):
                lost.append(partition)
        # Last: the next question ends the life of the records that the answer holds.
        for partition in lost:
            await self._find_range(client, partition, asked[partition])

    async def _connected(self) -> ReplicaConnection:
        if self._client is not None and not self._client.is_broken:
            return self._client
        self._hang_up()
        node = self._node()
        if node is None:
            raise Unreachable("the leader has no listener that is known")
        self._client = await ReplicaConnection.connect(node.host, node.port, timeout_s=_CONNECT_S)
        return self._client

    def _request(self, asked: dict[HostedPartition, FetchPosition]) -> ReplicaFetch:
        settings = self._settings
        topics: dict[TopicId, list[WantedPartition]] = {}
        for partition, position in asked.items():
            wanted = WantedPartition(partition.index, *position, settings.bytes_max)
            topics.setdefault(partition.topic_id, []).append(wanted)
        return ReplicaFetch(
            self._manager.broker_id,
            self._broker_epoch(),
            settings.wait_ms_max,
            settings.bytes_min,
            settings.response_bytes_max,
            topics,
        )

    # -- one partition's answer ---------------------------------------------------------------

    def _take(
        self, partition: HostedPartition, position: FetchPosition, found: FetchedReplica
    ) -> bool:
        """Whether the leader must be asked which offsets it has."""
        if not partition.replica.accepts(position):
            return False
        if found.error_code == ErrorCode.offset_out_of_range.value:
            return True
        if found.error_code:
            self._pause(partition)
        elif found.diverging is not None and found.diverging[0] >= 0:
            end = EpochEnd(*found.diverging)
            self._manager.carry_out(partition, partition.replica.diverged(position, end))
        else:
            self._append(partition, position, found)
        return False

    def _append(
        self, partition: HostedPartition, position: FetchPosition, found: FetchedReplica
    ) -> None:
        if found.records:
            try:
                placed = read_replicated(found.records)
                partition.log.append_placed(placed)
            except InvalidBatch as error:
                # It may have been cut or rolled while it was read: fetch again, a bit later.
                log.warning("replica_fetch_invalid", partition=str(partition), why=str(error))
                self._pause(partition)
                return
            except KraftError as error:
                self._manager.take_offline(partition, error)
                return
            for batch in placed:
                partition.producers.append(batch.header)
        effects = partition.replica.replicated(
            position.leader_epoch, found.high_watermark, found.log_start_offset
        )
        self._manager.carry_out(partition, effects)

    async def _find_range(
        self, client: ReplicaConnection, partition: HostedPartition, position: FetchPosition
    ) -> None:
        offsets = []
        for timestamp in (_EARLIEST, _LATEST):
            answer = await client.ask(
                LIST_OFFSETS, _list_offsets(self._manager.broker_id, partition, position, timestamp)
            )
            found = answer.topics[0].partitions[0]
            if found.error_code is not ErrorCode.none:
                self._pause(partition)
                return
            offsets.append(found.offset)
        self._manager.carry_out(partition, partition.replica.out_of_range(position, *offsets))

    def _pause(self, partition: HostedPartition) -> None:
        """Leave it out for a while: its metadata, or the leader's, is about to change."""
        self._paused.add(partition)
        self._loop.call_later(_PAUSE_S_MAX / 4, self._resume, partition)

    def _resume(self, partition: HostedPartition) -> None:
        if partition in self._paused:
            self._paused.discard(partition)
            self._work.set()


def _list_offsets(
    broker_id: BrokerId, partition: HostedPartition, position: FetchPosition, timestamp: int
) -> dict[str, Any]:
    asked = {
        "partition_index": partition.index,
        "current_leader_epoch": position.leader_epoch,
        "timestamp": timestamp,
    }
    return {
        "replica_id": broker_id,
        "isolation_level": 0,
        "topics": [{"name": partition.topic, "partitions": [asked]}],
        "timeout": timedelta(0),
    }
