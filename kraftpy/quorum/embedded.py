"""A voter of a metadata quorum inside of a program: propose records, watch the image.

It is the node that `kraftpy quorum` runs, without the controller: the program decides what is
written. Every voter replays what is committed; the one that leads may propose. Records are checked
against the image before they are written, so nobody ever meets one that cannot be replayed.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kraftpy.clock import Clock, SystemClock
from kraftpy.config import Given, resolve
from kraftpy.errors import FatalFault, NotController
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.image import EMPTY, ClusterImage
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch, Consensus
from kraftpy.quorum.node import QuorumNode, running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles


class _Watch:
    """What the node's threads tell, brought into the event loop."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY
        self.leader_id: int | None = None
        self.epoch = 0
        self._loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] = self._loop.create_future()

    async def changed(self) -> None:
        """Wait until anything is different."""
        await asyncio.shield(self._changed)

    def _tell(self, **news: Any) -> None:
        def tell() -> None:
            for name, value in news.items():
                setattr(self, name, value)
            told, self._changed = self._changed, self._loop.create_future()
            told.set_result(None)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)

    def replayed(self, image: ClusterImage) -> None:
        self._tell(image=image)

    # -- Listener -----------------------------------------------------------------------------

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self._tell(leader_id=leader_id, epoch=epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        """The image tells of it."""

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """The image tells of it."""

    def failed(self, fault: FatalFault) -> None:
        """Whoever runs the node hears of it."""


class EmbeddedQuorum:
    """One voter. Lives in one event loop."""

    def __init__(self, node: QuorumNode, watch: _Watch, clock: Clock) -> None:
        self._node = node
        self._watch = watch
        self._clock = clock
        self._proposing = asyncio.Lock()

    @property
    def node_id(self) -> int:
        return self._node.config.node_id

    @property
    def consensus(self) -> Consensus:
        """For those who want to propose batches of their own, and many at once."""
        return self._node.consensus

    @property
    def image(self) -> ClusterImage:
        """What the committed records make, as far as this voter has replayed them."""
        return self._watch.image

    @property
    def leader_id(self) -> int | None:
        return self._watch.leader_id

    @property
    def epoch(self) -> int:
        return self._watch.epoch

    async def leader(self) -> int:
        """Wait until there is a leader, and say who."""
        while self._watch.leader_id is None:
            await self._watch.changed()
        return self._watch.leader_id

    async def images(self) -> AsyncIterator[ClusterImage]:
        """Every image from now on; several commits may come as one."""
        seen: ClusterImage | None = None
        while True:
            if self.image is not seen:
                seen = self.image
                yield seen
            else:
                await self._watch.changed()

    async def reached(self, end_offset: int) -> ClusterImage:
        """The first image that has all records before the offset."""
        while self.image.end_offset < end_offset:
            await self._watch.changed()
        return self.image

    async def propose(self, *records: MetadataRecord) -> int:
        """Write records as one batch; the end offset, once they are committed and replayed here.

        NotController: this voter does not lead, and nothing was written. ReplayError: they may not
        follow what is there, and nothing was written. OutcomeUnknown: they may yet be committed.
        """
        async with self._proposing:
            state = self.consensus.state()
            if state.leader_id != self.node_id:
                raise NotController(f"node {self.node_id} does not lead; {state.leader_id} does")
            image = await self.reached(state.log_end_offset)
            replay_all(image, records)
            batch = record_batch(
                list(records),
                base_offset=image.end_offset,
                epoch=state.epoch,
                timestamp_ms=self._clock.now_ms(),
            )
            done = self.consensus.propose(batch, epoch=state.epoch, base_offset=image.end_offset)
            end_offset = await asyncio.wrap_future(done)
            await self.reached(end_offset)
            return end_offset


@asynccontextmanager
async def embedded_quorum(
    node_id: int, voters: str, data_dir: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[EmbeddedQuorum]:
    """A voter, for as long as the block lasts: `voters` are all of them, 1@HOST:PORT,2@HOST:PORT.

    ConfigError says which setting is wrong. When the voter cannot go on, the block's end raises.
    """
    own = {"node.id": str(node_id), "controller.quorum.voters": voters, "data.dir": data_dir}
    given = {**(settings or {}), **own}
    config = NodeConfig.of(
        resolve([Given(key, text, "embedded_quorum") for key, text in given.items()], [], [])
    )
    clock, watch = SystemClock(), _Watch()
    async with running(
        config, OsFiles(), clock, random.Random(), more_apis=lambda _: {}, watch=watch
    ) as node:
        yield EmbeddedQuorum(node, watch, clock)
