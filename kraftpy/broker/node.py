"""One broker as a process runs it: directories, metadata, partitions, listener, from start to end.

Order of the start: the directories and their locks; the port, so that two brokers cannot take the
same; the active controller, which tells the cluster's id; its registration; the copy of the
metadata, until it has caught up and shows that registration; the logs, recovered where they must
be; then clients are served and the controller is asked to unfence the broker. Order of the end:
leaderships are moved away while clients are still served, then the listener, the fetchers, the
metadata, and last the logs, whose close is marked as clean only if all of them were.
"""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kraftpy.broker.apis.dispatch import Answer, BrokerFacts, Dispatch
from kraftpy.broker.audit_notes import BrokerNotes
from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.broker.directory_channel import DirectoryChannel, Key
from kraftpy.broker.fetcher import ReplicaFetchers
from kraftpy.broker.groups.apis import group_answers
from kraftpy.broker.groups.config import GroupConfig, read_lease_ms
from kraftpy.broker.groups.coordinator import GroupCoordinator
from kraftpy.broker.groups.find_coordinator import GROUP, CoordinatorFinder, group_topic
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.isr_channel import IsrChannel
from kraftpy.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from kraftpy.broker.lifecycle_states import RUNNING
from kraftpy.broker.log_dirs import LogDirs
from kraftpy.broker.log_keeper import KeeperConfig, LogKeeper
from kraftpy.broker.log_manager import LogManager, LogManagerConfig
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.copy import MetadataCopy
from kraftpy.broker.metadata.follower import MetadataFollower, Observer
from kraftpy.broker.metadata.nodes import BrokerNode, node_of
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.broker.node_config import LISTENER, BrokerConfig
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.broker.server import BrokerServer
from kraftpy.broker.static_configs import static_configs
from kraftpy.clock import Clock
from kraftpy.errors import FatalFault, KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLogConfig
from kraftpy.metadata_log.records import BROKER_RESOURCE, Endpoint
from kraftpy.metadata_log.snapshotter import SnapshotPolicy
from kraftpy.network.places import Place
from kraftpy.network.server import listening_sockets
from kraftpy.storage.audit_notes import AuditNotes
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import BrokerId, Uuid, parse_uuid, random_uuid, uuid_text

log = get_logger(__name__)

_PLAINTEXT = 0


class Faults:
    """What ends the broker; and directories that fail, which do not."""

    def __init__(self) -> None:
        self.fault: asyncio.Future[FatalFault] = asyncio.get_running_loop().create_future()
        self.lifecycle: BrokerLifecycle | None = None
        self.manager: ReplicaManager | None = None
        self.directories: DirectoryChannel | None = None

    def failed(self, fault: FatalFault) -> None:
        if not self.fault.done():
            self.fault.set_result(fault)

    def directory_failed(
        self, directory_id: Uuid, partitions: Sequence[HostedPartition], error: KraftError
    ) -> None:
        """Its partitions are offline, and the controller moves their leaderships."""
        if self.lifecycle is not None:
            self.lifecycle.directory_failed(directory_id)
        for partition in partitions:
            if self.manager is not None:
                self.manager.carry_out(partition, partition.replica.log_failed())
        log.warning("directory_offline", directory=uuid_text(directory_id), why=str(error))

    def log_lost(self, key: Key) -> None:
        """The controller moves its leadership."""
        if self.directories is not None:
            self.directories.log_lost(key)

    def no_directory_left(self, error: KraftError) -> None:
        self.failed(FatalFault(f"no data directory is left: {error}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNodeRunning:
    """A broker that is running."""

    config: BrokerConfig
    cluster_id: str
    cache: MetadataCache
    manager: ReplicaManager
    lifecycle: BrokerLifecycle
    server: BrokerServer
    faults: Faults

    @property
    def port(self) -> int:
        return self.server.port

    async def failed(self) -> FatalFault:
        """Wait until the broker cannot go on."""
        return await asyncio.shield(self.faults.fault)

    async def unfenced(self) -> None:
        """Wait until the controller lets the broker lead."""
        await self.lifecycle.reached(lambda state: state is RUNNING)


@asynccontextmanager
async def running(
    config: BrokerConfig, files: FileLayer, clock: Clock, rng: random.Random
) -> AsyncIterator[BrokerNodeRunning]:
    """A broker, from the locks on its directories to their release."""
    async with AsyncExitStack() as stack:
        faults = Faults()
        assembly = _Assembly(config, files, clock, rng, faults, stack)
        node = await assembly.start()
        stack.push_async_callback(assembly.stop_serving)
        yield node
    if faults.fault.done():
        raise faults.fault.result()


class _Assembly:
    """The parts of a broker, put together in order; the stack takes them apart again."""

    def __init__(
        self,
        config: BrokerConfig,
        files: FileLayer,
        clock: Clock,
        rng: random.Random,
        faults: Faults,
        stack: AsyncExitStack,
    ) -> None:
        self._config = config
        self._files = files
        self._clock = clock
        self._rng = rng
        self._faults = faults
        self._stack = stack
        self._loop = asyncio.get_running_loop()
        self._is_clean = False
        self._lifecycle: BrokerLifecycle
        self._notes: BrokerNotes

    async def start(self) -> BrokerNodeRunning:
        config, rng = self._config, self._rng
        broker_id = BrokerId(config.broker_id)
        for path in config.log_dirs:
            self._files.make_directory(path)
        dirs = LogDirs.open(self._files, config.log_dirs, config.broker_id)
        self._stack.callback(self._close_dirs, dirs)
        sockets = listening_sockets(config.listen.host, config.listen.port)
        self._stack.callback(_close_sockets, sockets)
        finder = ControllerFinder(config.controllers, rng)
        controller = await finder.find()
        dirs.format_new(parse_uuid(controller.cluster_id), rng)
        channel = ControllerChannel(finder, rng)
        self._stack.push_async_callback(channel.close)
        cache = MetadataCache()
        publisher = MetadataPublisher(cache)
        logs = self._logs(broker_id, dirs)
        identity = self._identity(dirs, controller.cluster_id, sockets[0].getsockname()[1])
        lifecycle = BrokerLifecycle(
            identity, channel, publisher, config.lifecycle, self._clock, rng
        )
        self._lifecycle = self._faults.lifecycle = lifecycle
        manager = self._manager(broker_id, logs, cache, channel, publisher)
        keeper = _keeper(logs, cache, publisher)
        coordinated = self._groups(manager, cache, channel, publisher)
        dispatch = self._dispatch(
            controller.cluster_id, cache, manager, channel, keeper, coordinated
        )
        server = self._server(dispatch, manager)
        self._notes = self._take_notes(broker_id)
        self._run(lifecycle.run())
        await self._follow(dirs, identity, finder, publisher, logs)
        self._run(keeper.run())
        self._run(self._tick(manager))
        self._run(self._notes.run(manager.partitions))
        server.start(sockets)
        lifecycle.ready()
        return BrokerNodeRunning(
            config=config,
            cluster_id=controller.cluster_id,
            cache=cache,
            manager=manager,
            lifecycle=lifecycle,
            server=server,
            faults=self._faults,
        )

    # -- parts --------------------------------------------------------------------------------

    def _logs(self, broker_id: BrokerId, dirs: LogDirs) -> LogManager:
        settings = self._config.settings
        logs = LogManager(
            self._files,
            dirs,
            broker_id=broker_id,
            static=static_configs(settings),
            config=LogManagerConfig.of(settings),
            clock=self._clock,
            rng=self._rng,
            failures=self._faults,
        )
        self._stack.push_async_callback(self._close_logs, logs)
        return logs

    def _identity(self, dirs: LogDirs, cluster_id: str, port: int) -> BrokerIdentity:
        config = self._config
        seen = config.advertised or Place(config.listen.host, port)
        end_point = Endpoint(
            name=LISTENER, host=seen.host, port=seen.port or port, security_protocol=_PLAINTEXT
        )
        return BrokerIdentity(
            broker_id=config.broker_id,
            cluster_id=cluster_id,
            incarnation_id=random_uuid(self._rng),
            end_points=(end_point,),
            rack=config.rack,
            log_dirs=dirs.directory_ids,
            previous_broker_epoch=dirs.previous_broker_epoch,
        )

    def _server(self, dispatch: Dispatch, manager: ReplicaManager) -> BrokerServer:
        server = BrokerServer(
            dispatch.table,
            manager,
            dispatch.answer,
            clock=self._clock,
            on_fault=self._faults.failed,
            limits=self._config.limits,
        )
        self._stack.push_async_callback(server.close)
        return server

    async def _copy(self) -> MetadataCopy:
        """Of the metadata log; opening it replays it."""
        settings = self._config.settings
        copy = await self._loop.run_in_executor(
            None,
            MetadataCopy,
            self._files,
            self._config.metadata_dir,
            MetadataLogConfig.of(settings),
            SnapshotPolicy.of(settings),
            self._clock,
        )
        copy.notes = self._notes.image_notes
        return copy

    def _take_notes(self, broker_id: BrokerId) -> BrokerNotes:
        """For audits, beside the copy of the metadata."""
        directory = os.path.dirname(self._config.metadata_dir)
        notes = AuditNotes(self._files, directory, self._clock)
        self._stack.callback(notes.close)
        return BrokerNotes(notes, broker_id, self._clock)

    def _broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    def _manager(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        cache: MetadataCache,
        channel: ControllerChannel,
        publisher: MetadataPublisher,
    ) -> ReplicaManager:
        manager = ReplicaManager(
            broker_id=broker_id,
            logs=logs,
            clock=self._clock,
            broker_epoch=self._broker_epoch,
            listener=LISTENER,
            reads_from_followers=self._config.reads_from_followers,
        )

        def node(leader: BrokerId) -> BrokerNode | None:
            return node_of(cache.image.brokers.get(leader), LISTENER)

        fetchers = ReplicaFetchers(
            manager, self._config.fetchers, node, self._broker_epoch, self._rng
        )
        self._stack.push_async_callback(fetchers.close)
        isr_channel = IsrChannel(manager, channel, self._broker_epoch)
        self._stack.push_async_callback(isr_channel.close)
        manager.followers, manager.isr_channel = fetchers, isr_channel
        self._faults.manager = manager

        def configs(_before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
            if changes.configs:
                logs.configs_changed(after, changes.configs)

        directories = DirectoryChannel(
            broker_id, logs.directory_of, channel, self._broker_epoch, self._rng
        )
        self._stack.push_async_callback(directories.close)
        self._faults.directories = directories
        publisher.subscribe(configs)
        publisher.subscribe(manager.apply)
        publisher.subscribe(directories.apply)
        return manager

    def _groups(
        self,
        manager: ReplicaManager,
        cache: MetadataCache,
        channel: ControllerChannel,
        publisher: MetadataPublisher,
    ) -> Mapping[int, Answer]:
        config = GroupConfig.of(self._config.settings)
        within_ms = read_lease_ms(self._config.settings)

        def is_current() -> bool:
            return cache.is_current(self._clock.monotonic_ms(), within_ms)

        coordinator = GroupCoordinator(manager, config, self._clock, self._rng, is_current)
        self._stack.push_async_callback(coordinator.close)
        publisher.subscribe(coordinator.apply)  # After the manager, whose partitions it looks at.
        finder = CoordinatorFinder(cache, channel, LISTENER, {GROUP: group_topic(config)})
        self._stack.push_async_callback(finder.close)
        return group_answers(coordinator, finder)

    def _dispatch(
        self,
        cluster_id: str,
        cache: MetadataCache,
        manager: ReplicaManager,
        channel: ControllerChannel,
        keeper: LogKeeper,
        coordinated: Mapping[int, Answer],
    ) -> Dispatch:
        broker_id = manager.broker_id
        producer_ids = ProducerIds(channel, broker_id, self._broker_epoch)
        self._stack.push_async_callback(producer_ids.close)
        facts = BrokerFacts(
            broker_id=broker_id,
            cluster_id=cluster_id,
            listener=LISTENER,
            static_configs=static_configs(self._config.settings),
            auto_create_topics=self._config.settings.auto_create_topics_enable,
        )
        dispatch = Dispatch(
            facts, cache, manager, channel, producer_ids, keeper.describe, coordinated
        )
        self._stack.push_async_callback(dispatch.close)
        return dispatch

    async def _follow(
        self,
        dirs: LogDirs,
        identity: BrokerIdentity,
        finder: ControllerFinder,
        publisher: MetadataPublisher,
        logs: LogManager,
    ) -> None:
        """Start to follow the metadata, and wait until it has been published once."""
        copy = await self._copy()
        observer = Observer(
            broker_id=self._config.broker_id,
            directory_id=dirs.directory_ids[0],
            cluster_id=identity.cluster_id,
        )

        def knows_this_life(image: ClusterImage) -> bool:
            own = image.brokers.get(BrokerId(identity.broker_id))
            return own is not None and own.incarnation_id == identity.incarnation_id

        async def open_logs(image: ClusterImage) -> None:
            await self._loop.run_in_executor(None, logs.open_all, image)
            logs.opened()

        follower = MetadataFollower(
            observer,
            copy,
            finder,
            publisher,
            self._rng,
            before_first=open_logs,
            before_each=logs.prepare,
            may_begin=knows_this_life,
            clock=self._clock,
        )
        self._stack.push_async_callback(follower.close)
        caught_up: asyncio.Future[None] = self._loop.create_future()

        def published(_before: ClusterImage, _after: ClusterImage, _changes: Changes) -> None:
            if not caught_up.done():
                caught_up.set_result(None)

        publisher.subscribe(published)
        self._run(follower.run())
        awaited: list[asyncio.Future[Any]] = [caught_up, self._faults.fault]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not caught_up.done():
            raise self._faults.fault.result()

    async def _tick(self, manager: ReplicaManager) -> None:
        """Look for followers that fell behind, often enough to see each within half its time."""
        interval_s = self._config.settings.replica_lag_time_max_ms / 2000
        while True:
            await asyncio.sleep(interval_s)
            manager.tick()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """In a task until the end; what it raises ends the broker."""
        task = self._loop.create_task(work)

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        def ended(task: "asyncio.Task[None]") -> None:
            if task.cancelled() or task.exception() is None:
                return
            error = task.exception()
            fault = error if isinstance(error, FatalFault) else FatalFault(f"unexpected: {error!r}")
            log.critical("broker_failed", node=self._config.broker_id, why=str(fault))
            self._faults.failed(fault)

        task.add_done_callback(ended)
        self._stack.push_async_callback(stop)

    # -- the end ------------------------------------------------------------------------------

    async def stop_serving(self) -> None:
        """Have leaderships moved away, unless the broker is failing anyway."""
        if not self._faults.fault.done():
            timeout_s = self._config.settings.controlled_shutdown_timeout_ms / 1000
            await self._lifecycle.controlled_shutdown(timeout_s)

    async def _close_logs(self, logs: LogManager) -> None:
        closed = await self._loop.run_in_executor(None, logs.close)
        self._is_clean = closed and not self._faults.fault.done()

    def _close_dirs(self, dirs: LogDirs) -> None:
        epoch = self._broker_epoch() if self._is_clean else -1
        dirs.close(clean=self._is_clean, broker_epoch=epoch)


def _keeper(logs: LogManager, cache: MetadataCache, publisher: MetadataPublisher) -> LogKeeper:
    keeper = LogKeeper(logs, KeeperConfig.of(logs.broker_values(cache.image)))

    def configs(_before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
        if any(kind == BROKER_RESOURCE for kind, _ in changes.configs):
            keeper.config = KeeperConfig.of(logs.broker_values(after))

    publisher.subscribe(configs)
    return keeper


def _close_sockets(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()
