"""The part of a broker that knows the cluster, against real controllers: no data path."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.broker.lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTiming
from kraftpy.broker.lifecycle_states import RUNNING
from kraftpy.broker.log_dirs import LogDirs
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.copy import MetadataCopy
from kraftpy.broker.metadata.follower import MetadataFollower, Observer
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.clock import SystemClock
from kraftpy.metadata_log.image import Broker, Changes, ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLogConfig
from kraftpy.metadata_log.records import Endpoint
from kraftpy.metadata_log.snapshotter import SnapshotPolicy
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import BrokerId, parse_uuid, random_uuid, uuid_text
from tests.unit.broker.live_quorum import PATIENCE_S, LiveQuorum


@dataclass(kw_only=True)
class LiveBroker:
    """What a test looks at."""

    broker_id: int
    dirs: LogDirs
    cache: MetadataCache
    publisher: MetadataPublisher
    follower: MetadataFollower
    channel: ControllerChannel
    lifecycle: BrokerLifecycle
    following: asyncio.Task[None]
    living: asyncio.Task[None] | None = None
    published: list[tuple[int, int]] = field(default_factory=list)
    clean: bool = False

    async def caught_up(self, quorum: LiveQuorum) -> None:
        """Wait until it has what the active controller has now."""
        end_offset = (await quorum.image()).end_offset
        assert await self.cache.reached(end_offset, PATIENCE_S)

    def live(self) -> None:
        """Register and send heartbeats."""
        self.living = asyncio.create_task(self.lifecycle.run())

    async def running(self) -> None:
        """Live, and be unfenced."""
        self.live()
        self.lifecycle.ready()
        async with asyncio.timeout(PATIENCE_S):
            await self.lifecycle.reached(lambda state: state is RUNNING)

    def registered(self, image: ClusterImage) -> Broker | None:
        return image.brokers.get(BrokerId(self.broker_id))


def _opened(path: Path, broker_id: int, cluster_id: str, rng: random.Random) -> LogDirs:
    dirs = LogDirs.open(OsFiles(), [str(path)], broker_id)
    dirs.format_new(parse_uuid(cluster_id), rng)
    return dirs


def _assembled(
    dirs: LogDirs, path: Path, broker_id: int, finder: ControllerFinder, timing: LifecycleTiming
) -> LiveBroker:
    rng, clock, files = random.Random(broker_id), SystemClock(), OsFiles()
    cluster_id = uuid_text(dirs.cluster_id or b"")
    publisher = MetadataPublisher(MetadataCache())
    channel = ControllerChannel(finder, rng)
    directory = str(path / "__cluster_metadata-0")
    copy = MetadataCopy(files, directory, MetadataLogConfig(), SnapshotPolicy(), clock)
    observer = Observer(
        broker_id=broker_id, directory_id=dirs.directory_ids[0], cluster_id=cluster_id
    )
    follower = MetadataFollower(observer, copy, finder, publisher, rng)
    identity = BrokerIdentity(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(random.Random()),
        end_points=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),),
        rack=None,
        log_dirs=dirs.directory_ids,
        previous_broker_epoch=dirs.previous_broker_epoch,
    )
    return LiveBroker(
        broker_id=broker_id,
        dirs=dirs,
        cache=publisher.cache,
        publisher=publisher,
        follower=follower,
        channel=channel,
        lifecycle=BrokerLifecycle(identity, channel, publisher, timing, clock, rng),
        following=asyncio.create_task(follower.run()),
    )


@asynccontextmanager
async def live_broker(
    quorum: LiveQuorum, broker_id: int = 101, *, cluster_id: str = ""
) -> AsyncIterator[LiveBroker]:
    """A broker whose metadata is followed; `living` only if the test says so."""
    path = quorum.path / f"broker-{broker_id}"
    finder = quorum.finder()
    found = await finder.find()
    dirs = _opened(path, broker_id, cluster_id or found.cluster_id, random.Random(broker_id))
    timing = LifecycleTiming(heartbeat_interval_ms=200)
    broker = _assembled(dirs, path, broker_id, finder, timing)

    def note(before: ClusterImage, after: ClusterImage, _changes: Changes) -> None:
        broker.published.append((before.end_offset, after.end_offset))

    broker.publisher.subscribe(note)
    try:
        yield broker
    finally:
        tasks = [task for task in (broker.following, broker.living) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.channel.close()
        await broker.follower.close()
        dirs.close(clean=broker.clean, broker_epoch=broker.lifecycle.broker_epoch)
