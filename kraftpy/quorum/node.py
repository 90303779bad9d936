"""One controller as a process runs it: its directory, its engine, its listener, from start to end.

Order of the start: the directory's lock, its identity, its log (which may refuse), then the port,
and only then Raft: a node that cannot serve does not vote. Order of the end: leadership is handed
over while the listener still answers, then the port, the thread, the log, the lock.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.metadata_log.snapshotter import Snapshotter
from kraftpy.network.server import listening_sockets
from kraftpy.quorum.apis.context import Api, Controllers
from kraftpy.quorum.apis.control import handlers
from kraftpy.quorum.audit_notes import ControllerNotes
from kraftpy.quorum.consensus import CommittedBatch, Consensus, Listener
from kraftpy.quorum.control.api_table import CONTROL_APIS
from kraftpy.quorum.controller_loop import ControllerLoop
from kraftpy.quorum.identity import KnownVoters
from kraftpy.quorum.image_keeper import ImageKeeper, Replayed
from kraftpy.quorum.log_view import LogView
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.quorum.raft.driver import RaftDriver
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.peers import TcpWorld, is_peer
from kraftpy.quorum.raft.quorum_state import FILE_NAME as QUORUM_STATE_FILE
from kraftpy.quorum.registration import Registrar, registration_message, registration_values
from kraftpy.quorum.server import ControllerServer
from kraftpy.storage.audit_notes import AuditNotes
from kraftpy.storage.directory import DataDirectory
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.identity import Identity, check_identity, format_directory, load_identity
from kraftpy.types import random_uuid, uuid_text
from kraftpy.wire.apis import ELECT_LEADERS

log = get_logger(__name__)


class Listeners:
    """Several listeners as one, in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        for each in self._listeners:
            each.leadership_changed(leader_id, epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        for each in self._listeners:
            each.committed(batches)

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        for each in self._listeners:
            each.snapshot_installed(snapshot_id)

    def failed(self, fault: FatalFault) -> None:
        for each in self._listeners:
            each.failed(fault)


class NodeEvents:
    """Writes leadership to the log of events, and ends the node when the engine has failed."""

    def __init__(self, node_id: int, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self._loop = loop
        self.fault: asyncio.Future[FatalFault] = loop.create_future()

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        log.info("leader_changed", node=self._node_id, leader=leader_id, epoch=epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        """Nothing to say."""

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """Said by whoever installed it."""

    def failed(self, fault: FatalFault) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, fault)

    def _end(self, fault: FatalFault) -> None:
        if not self.fault.done():
            self.fault.set_result(fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumNode:
    """A controller that is running."""

    config: NodeConfig
    identity: Identity
    consensus: Consensus
    server: ControllerServer
    keeper: ImageKeeper
    events: NodeEvents
    controller: ControllerLoop | None

    @property
    def image(self) -> ClusterImage:
        """The cluster as far as this node has replayed what is committed."""
        return self.keeper.image

    async def failed(self) -> FatalFault:
        """Wait until the node cannot go on."""
        return await asyncio.shield(self.events.fault)


@contextmanager
def open_directory(files: FileLayer, config: NodeConfig, rng: random.Random) -> Iterator[Identity]:
    """The node's directory, locked, and formatted if it is new."""
    directory = DataDirectory(files, config.data_dir)
    clean = False
    try:
        identity = load_identity(files, config.data_dir)
        if identity is None:
            identity = format_directory(
                files, config.data_dir, config.new_cluster_id, config.node_id, rng
            )
            cluster_id = uuid_text(identity.cluster_id)
            log.info("directory_formatted", dir=config.data_dir, cluster_id=cluster_id)
        check_identity(identity, config.data_dir, config.cluster_id, config.node_id)
        yield identity
        clean = True
    finally:
        directory.close(clean=clean)


def make_driver(
    config: NodeConfig, identity: Identity, files: FileLayer, clock: Clock, rng: random.Random
) -> tuple[RaftDriver, TcpWorld]:
    """The engine of a node, not started yet."""
    log_config = replace(config.log, flush_every_append=False)
    metadata_log = MetadataLog(files, config.metadata_dir, log_config, clock)
    known = KnownVoters(files, config.data_dir)
    world = TcpWorld(
        identity=identity,
        secret=config.secret,
        voters=config.dialed_voters or config.voters,
        accepts=known.accepts,
        clock=clock,
        rng=rng,
        tls=config.tls,
    )
    engine = RaftEngine(
        node_id=config.node_id,
        voters=[voter.node_id for voter in config.voters],
        files=files,
        metadata_log=metadata_log,
        state_path=os.path.join(config.metadata_dir, QUORUM_STATE_FILE),
        world=world,
        clock=clock,
        rng=rng,
        timing=config.timing,
        snapshotter=Snapshotter(metadata_log, config.snapshots, clock),
    )
    return RaftDriver(engine, world), world


def make_controller(
    config: NodeConfig,
    identity: Identity,
    driver: RaftDriver,
    keeper: ImageKeeper,
    view: LogView,
    events: NodeEvents,
    clock: Clock,
    rng: random.Random,
) -> ControllerLoop:
    """The controller of a node, which registers itself under a new incarnation."""
    values = registration_values(config.own_voter, random_uuid(rng))
    return ControllerLoop(
        node_id=config.node_id,
        consensus=driver,
        keeper=keeper,
        settings=replace(config.control, cluster_id=identity.cluster_id),
        clock=clock,
        rng=random.Random(rng.getrandbits(64)),  # Of its own: another thread draws from `rng`.
        on_fault=events.failed,
        registration=registration_message(values),
        registrar=Registrar(view, config.voters, values, lambda: keeper.image),
    )


def make_server(
    config: NodeConfig,
    identity: Identity,
    view: LogView,
    world: TcpWorld,
    clock: Clock,
    apis: Mapping[int, Api],
) -> ControllerServer:
    """The listener of a node, for voters and Kafka clients, not started yet."""
    return ControllerServer(
        view,
        Controllers(cluster_id=uuid_text(identity.cluster_id), voters=config.voters),
        clock=clock,
        is_peer=is_peer,
        adopt_peer=world.adopt,
        more_apis=apis,
    )


async def _close(
    driver: RaftDriver,
    server: ControllerServer,
    controller: ControllerLoop | None,
    keeper: ImageKeeper,
) -> None:
    loop = asyncio.get_running_loop()
    if controller is not None:
        controller.stop()
    # Leadership goes first, while clients can still be told where it went.
    await loop.run_in_executor(None, driver.close)
    await server.close()
    if controller is not None:
        await controller.close()
    await loop.run_in_executor(None, keeper.close)


def take_notes(
    config: NodeConfig, files: FileLayer, clock: Clock, driver: RaftDriver
) -> ControllerNotes:
    """For audits: what is told to listeners, and what only the journal knows."""
    notes = ControllerNotes(AuditNotes(files, config.data_dir, clock), config.node_id, clock)
    driver.engine.journal.take_notes(notes.stored, notes.truncated)
    return notes


class Watch(Listener, Protocol):
    """Who also wants every image, in the thread that made it."""

    def replayed(self, image: ClusterImage) -> None: ...


def _told_to(notes: Replayed, watch: Watch | None) -> Replayed:
    if watch is None:
        return notes

    def both(before: ClusterImage, after: ClusterImage, changes: Changes | None) -> None:
        notes(before, after, changes)
        watch.replayed(after)

    return both


@asynccontextmanager
async def running(
    config: NodeConfig,
    files: FileLayer,
    clock: Clock,
    rng: random.Random,
    more_apis: Callable[[Consensus], Mapping[int, Api]] | None = None,
    watch: Watch | None = None,
) -> AsyncIterator[QuorumNode]:
    """A controller, from the lock on its directory to the end of its last thread.

    With `more_apis` it decides nothing by itself: they write to the log in the controller's place.
    """
    loop = asyncio.get_running_loop()
    with open_directory(files, config, rng) as identity:
        sockets = listening_sockets(config.host, config.port)
        driver, world = make_driver(config, identity, files, clock, rng)
        events = NodeEvents(config.node_id, loop)
        notes = take_notes(config, files, clock, driver)
        replayed = _told_to(notes.replayed, watch)
        keeper = ImageKeeper(files, config.metadata_dir, driver, clock, events.failed, replayed)
        view = LogView(driver.engine, files)
        listeners: list[Listener] = [view, keeper, events, notes, *([watch] if watch else [])]
        controller: ControllerLoop | None = None
        if more_apis is None:
            controller = make_controller(config, identity, driver, keeper, view, events, clock, rng)
            listeners.append(controller)
            apis = handlers(controller, CONTROL_APIS, {ELECT_LEADERS: notes.asked})
        else:
            apis = more_apis(driver)
        server = make_server(config, identity, view, world, clock, apis)
        server.start(sockets)
        driver.start(Listeners(*listeners))
        try:
            yield QuorumNode(
                config=config,
                identity=identity,
                consensus=driver,
                server=server,
                keeper=keeper,
                events=events,
                controller=controller,
            )
        finally:
            await _close(driver, server, controller, keeper)
            notes.close()
        if events.fault.done():
            raise events.fault.result()
