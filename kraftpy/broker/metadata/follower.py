"""Follows the metadata log: an observer of the quorum that fetches what is committed.

It has a connection of its own to the active controller and asks there again and again, each time
waiting for news. It says who it is (the broker's id, so that DescribeQuorum lists it) and what it
has: where its copy ends, and the epoch of its last record. Then one of these happens:
- batches come: they are replayed, stored and published.
- a snapshot is named instead, as the log before it is gone: it is fetched in pieces and takes the
  place of the copy.
- the controller's log does not have what the copy has. The copy holds only what was committed, so
  the quorum has lost it, or is another one: the broker stops (FatalFault) rather than forget.
- it is not the active controller, or is silent, or says something that makes no sense: the next
  one is looked for.

Nothing is published before the copy has reached what was committed when the first answer came
(KAFKA-14857): at its start a broker must not act on what it knew when it was stopped. Nor before
`may_begin` holds: a broker waits there for its own registration, because until the controller has
heard of its new life it may still be named leader, in the epoch of a life whose records it lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from kraftpy.broker.backoff import Backoff
from kraftpy.broker.controller_finder import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    ActiveController,
    ControllerFinder,
)
from kraftpy.broker.metadata.copy import MetadataCopy, Step, first_step
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.clock import Clock
from kraftpy.errors import FatalFault, Unreachable, WireError
from kraftpy.limits import METADATA_FETCH_BYTES_MAX
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.network.client import WireClient
from kraftpy.types import Rng, Uuid, to_wire_uuid
from kraftpy.wire.apis import FETCH, FETCH_SNAPSHOT

log = get_logger(__name__)

T = TypeVar("T")

_WAIT_S: Final = 0.5  # Kafka's: for how long the controller may wait for news.
_ANSWER_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.02
_PAUSE_S_MAX: Final = 1.0
_NOT_THERE: Final = -1
_FETCH_VERSION_MAX: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Who follows."""

    broker_id: int
    directory_id: Uuid
    cluster_id: str


class MetadataFollower:
    """One task runs it. The copy belongs to it, and is closed with it."""

    def __init__(
        self,
        observer: Observer,
        copy: MetadataCopy,
        finder: ControllerFinder,
        publisher: MetadataPublisher,
        rng: Rng,
        before_first: Callable[[ClusterImage], Awaitable[None]] | None = None,
        before_each: Callable[[ClusterImage, Changes], Awaitable[None]] | None = None,
        may_begin: Callable[[ClusterImage], bool] = lambda _image: True,
        clock: Clock | None = None,
    ) -> None:
        """`before_first` is awaited with the first image before anyone else sees it.

        `before_each` is awaited with what will be published next, the first image included. With
        a clock the cache is told how current it is.
        """
        self._may_begin = may_begin
        self._clock = clock
        self._before_first = before_first
        self._before_each = before_each
        self._observer = observer
        self._copy = copy
        self._finder = finder
        self._publisher = publisher
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        self._backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, rng)
        self._failed: ActiveController | None = None
        self._publish_from: int | None = None  # The first high watermark that it was told.
        self._has_published = False
        self._complaint = ""

    async def run(self) -> None:
        """Follow until cancelled; FatalFault if the broker cannot go on."""
        while True:
            controller = await self._finder.find(self._failed)
            try:
                await self._follow(controller)
            except Unreachable as error:
                log.debug("metadata_fetch_failed", reason=str(error))
            except WireError as error:
                self._complain(str(error))
            self._failed = controller
            await asyncio.sleep(self._backoff.next_s())

    async def close(self) -> None:
        """After `run` was cancelled."""
        await self._in_thread(self._copy.close)
        self._thread.shutdown(wait=True)

    def _complain(self, what: str) -> None:
        """Once per reason: the next answer may be the same again."""
        if what != self._complaint:
            self._complaint = what
            log.warning("metadata_fetch_refused", reason=what)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    # -- fetching -----------------------------------------------------------------------------

    async def _follow(self, controller: ActiveController) -> None:
        client = await WireClient.connect(*controller.place, timeout_s=_ANSWER_S)
        try:
            while True:
                asked_ms = self._clock.monotonic_ms() if self._clock is not None else 0
                answer = await client.ask(
                    FETCH, self._fetch(controller), version_max=_FETCH_VERSION_MAX, wait_s=_WAIT_S
                )
                partition = self._partition(answer)
                await self._take(client, controller, partition)
                if self._clock and self._publisher.cache.end_offset >= partition.high_watermark:
                    self._publisher.cache.was_current(asked_ms)
                self._backoff.reset()
        finally:
            await client.close()

    def _fetch(self, controller: ActiveController) -> dict[str, Any]:
        copy = self._copy
        partition = {
            "partition": 0,
            "current_leader_epoch": controller.epoch,
            "fetch_offset": copy.end_offset,
            "last_fetched_epoch": copy.image.epoch,
            "log_start_offset": copy.start_offset,
            "partition_max_bytes": METADATA_FETCH_BYTES_MAX,
            "replica_directory_id": to_wire_uuid(self._observer.directory_id),
        }
        return {
            "cluster_id": self._observer.cluster_id,
            "replica_id": self._observer.broker_id,
            "replica_state": {"replica_id": self._observer.broker_id, "replica_epoch": -1},
            "max_wait": timedelta(seconds=_WAIT_S),
            "min_bytes": 1,
            "max_bytes": METADATA_FETCH_BYTES_MAX,
            "topics": [
                {
                    "topic": METADATA_TOPIC,
                    "topic_id": METADATA_TOPIC_ID,
                    "partitions": [partition],
                }
            ],
            "forgotten_topics_data": [],
        }

    def _partition(self, answer: Any) -> Any:
        self._check_cluster(answer.error_code)
        if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
            raise WireError("an answer to a Fetch that is not for the metadata log")
        partition = answer.responses[0].partitions[0]
        if partition.error_code is not ErrorCode.none:
            raise Unreachable(f"the controller answers {partition.error_code.name}")
        return partition

    def _check_cluster(self, error_code: ErrorCode) -> None:
        if error_code is ErrorCode.inconsistent_cluster_id:
            raise FatalFault(
                f"the controllers are not of cluster {self._observer.cluster_id}, to which this "
                "broker's directories belong"
            )
        if error_code is not ErrorCode.none:
            raise Unreachable(f"the controller answers {error_code.name}")

    async def _take(self, client: WireClient, controller: ActiveController, found: Any) -> None:
        """What an answer means for the copy."""
        snapshot = found.snapshot_id
        if found.diverging_epoch.end_offset != _NOT_THERE:
            raise self._diverged(found.diverging_epoch)
        if snapshot.end_offset != _NOT_THERE:
            snapshot_id = SnapshotId(snapshot.end_offset, snapshot.epoch)
            step: Step | None = await self._load(client, controller, snapshot_id)
        elif found.records:
            data = bytes(found.records)
            step = await self._in_thread(self._copy.take, data, found.high_watermark)
        else:
            await self._in_thread(self._copy.flush_if_due)
            step = None
        if self._publish_from is None and snapshot.end_offset == _NOT_THERE:
            self._publish_from = found.high_watermark
        await self._publish(step)

    def _diverged(self, diverging: Any) -> FatalFault:
        return FatalFault(
            f"the quorum's log ends epoch {diverging.epoch} at offset {diverging.end_offset}, and "
            f"this broker has it up to {self._copy.end_offset} in epoch {self._copy.image.epoch}, "
            f"all of it committed: the quorum has lost records, or {self._copy.directory} is of "
            "another cluster"
        )

    async def _publish(self, step: Step | None) -> None:
        if self._has_published:
            if step is not None:
                await self._publish_step(step)
            return
        image = self._copy.image
        if self._publish_from is None or image.end_offset < self._publish_from:
            return
        if self._may_begin(image):
            first = await self._in_thread(first_step, image)
            if self._before_first is not None:
                await self._before_first(image)
            self._has_published = True
            log.info("metadata_caught_up", end_offset=image.end_offset, epoch=image.epoch)
            await self._publish_step(first)

    async def _publish_step(self, step: Step) -> None:
        if self._before_each is not None:
            await self._before_each(*step)
        self._publisher.publish(*step)

    # -- snapshots ----------------------------------------------------------------------------

    async def _load(
        self, client: WireClient, controller: ActiveController, snapshot_id: SnapshotId
    ) -> Step:
        """Fetch a snapshot, piece by piece. Another controller's may differ: it begins anew."""
        log.info("snapshot_fetch_began", snapshot=snapshot_id.file_name, leader=controller.node_id)
        await self._in_thread(self._copy.begin_snapshot, snapshot_id)
        position, size = 0, 1
        while position < size:
            values = self._fetch_snapshot(controller, snapshot_id, position)
            answer = await client.ask(FETCH_SNAPSHOT, values)
            piece = self._piece(answer)
            size, data = piece.size, bytes(piece.unaligned_records)
            if not data or piece.position != position or position + len(data) > size:
                raise WireError(f"a piece of {len(data)} bytes at {position} of {size}")
            position = await self._in_thread(self._copy.add_piece, data)
        return await self._in_thread(self._copy.finish_snapshot)

    def _fetch_snapshot(
        self, controller: ActiveController, snapshot_id: SnapshotId, position: int
    ) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "current_leader_epoch": controller.epoch,
            "snapshot_id": snapshot_id._asdict(),
            "position": position,
            "replica_directory_id": to_wire_uuid(self._observer.directory_id),
        }
        return {
            "cluster_id": self._observer.cluster_id,
            "replica_id": self._observer.broker_id,
            "max_bytes": METADATA_FETCH_BYTES_MAX,
            "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
        }

    def _piece(self, answer: Any) -> Any:
        self._check_cluster(answer.error_code)
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise WireError("an answer to a FetchSnapshot that is not for the metadata log")
        piece = answer.topics[0].partitions[0]
        if piece.error_code is not ErrorCode.none:
            raise Unreachable(f"the controller answers {piece.error_code.name}")
        return piece
