"""Voters with real sockets, real files and real threads, in one process, on loopback."""

import random
import socket
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from kraftpy.clock import Clock, SystemClock
from kraftpy.errors import FatalFault, NotController, OutcomeUnknown
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.records import NoOpRecord
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.raft.driver import RaftDriver
from kraftpy.quorum.raft.engine import RaftEngine, RaftTiming
from kraftpy.quorum.raft.peer_tls import PeerTls
from kraftpy.quorum.raft.peers import PeerTiming, TcpWorld
from kraftpy.quorum.voters import Voter
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.identity import Identity
from kraftpy.types import Uuid, random_uuid

CLUSTER_ID = random_uuid(random.Random(1))
SECRET = b"a secret that all voters share"
PATIENCE_S = 20.0  # Only ever waited out by a test that fails.


class Heard:
    """A listener that keeps what it was told, and lets a test wait for more."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.leaderships: list[tuple[int | None, int]] = []
        self.batches: list[CommittedBatch] = []
        self.faults: list[FatalFault] = []
        self.on_committed: Callable[[list[CommittedBatch]], None] = lambda _batches: None

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        with self.changed:
            self.leaderships.append((leader_id, epoch))
            self.changed.notify_all()

    def committed(self, batches: list[CommittedBatch]) -> None:
        self.on_committed(batches)
        with self.changed:
            self.batches += batches
            self.changed.notify_all()

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """These tests take no snapshots."""

    def failed(self, fault: FatalFault) -> None:
        with self.changed:
            self.faults.append(fault)
            self.changed.notify_all()

    def wait(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, PATIENCE_S), "not reached in time"


def wait_until(reached: Callable[[], bool]) -> None:
    """For what nobody announces: look again and again, for a bounded time."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        if reached():
            return
        pause.wait(0.005)
    raise AssertionError("not reached in time")


def directory_id(node_id: int) -> Uuid:
    return random_uuid(random.Random(node_id))


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


class Node:
    """One voter, running."""

    def __init__(self, cluster: "TcpCluster", node_id: int, listener: socket.socket) -> None:
        directory = f"{cluster.path}/node-{node_id}/__cluster_metadata-0"
        files = OsFiles()
        clock = SystemClock()
        log = MetadataLog(files, directory, MetadataLogConfig(flush_every_append=False), clock)
        self.heard = Heard()
        options = {
            "identity": Identity(
                cluster_id=CLUSTER_ID, node_id=node_id, directory_id=directory_id(node_id)
            ),
            "secret": SECRET,
            "voters": cluster.voters,
            "accepts": lambda _id, _directory: True,
            "clock": cluster.peer_clock or clock,
            "rng": random.Random(node_id),
            "tls": cluster.tls,
            "timing": cluster.peer_timing,
        }
        self.world = TcpWorld(**{**options, **cluster.options})
        self.world.listen(listener)
        self.engine = RaftEngine(
            node_id=node_id,
            voters=[voter.node_id for voter in cluster.voters],
            files=files,
            metadata_log=log,
            state_path=f"{cluster.path}/node-{node_id}/quorum-state",
            world=self.world,
            clock=clock,
            rng=random.Random(),
            timing=cluster.timing,
            snapshotter=Snapshotter(log, SnapshotPolicy(interval_ms=None), clock),
        )
        self.driver = RaftDriver(self.engine, self.world)


class TcpCluster:
    """Voters 1 to n. Close it."""

    def __init__(
        self,
        path: Path,
        size: int = 3,
        *,
        running: Collection[int] | None = None,
        tls: PeerTls | None = None,
        timing: RaftTiming | None = None,
        peer_timing: PeerTiming | None = None,
        peer_clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self.tls = tls
        self.timing = timing or RaftTiming()
        self.peer_timing = peer_timing
        self.peer_clock = peer_clock
        self.options = options
        listeners = {node_id: listening() for node_id in range(1, size + 1)}
        self.voters = [
            Voter(node_id, *listener.getsockname()) for node_id, listener in listeners.items()
        ]
        self.nodes: dict[int, Node] = {}
        for node_id, listener in listeners.items():
            if running is None or node_id in running:
                self.nodes[node_id] = node = Node(self, node_id, listener)
                node.driver.start(node.heard)
            else:
                listener.close()

    def __enter__(self) -> "TcpCluster":
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in list(self.nodes):
            self.stop(node_id)

    def stop(self, node_id: int) -> None:
        self.nodes.pop(node_id).driver.close()

    def break_connections(self, node_id: int) -> None:
        """As if the network had: both ends find their sockets dead."""
        for connection in list(self.nodes[node_id].world._live.values()):
            with suppress(OSError):  # It is gone already.
                connection.sock.shutdown(socket.SHUT_RDWR)

    def start(self, node_id: int, *, begin: bool = True) -> Node:
        """Start a node that was stopped, on its directory and address."""
        self.nodes[node_id] = node = Node(
            self, node_id, socket.create_server(self.address(node_id))
        )
        if begin:
            node.driver.start(node.heard)
        return node

    def address(self, node_id: int) -> tuple[str, int]:
        voter = self.voters[node_id - 1]
        return voter.host, voter.port

    # -- work -----------------------------------------------------------------------------

    def leader(self) -> Node:
        """The leader, once there is one that all running nodes follow."""
        found: list[Node] = []

        def agreed() -> bool:
            told = {(n.engine.leader_id, n.engine.epoch) for n in self.nodes.values()}
            leader_id = next(iter(told))[0]
            if len(told) != 1 or leader_id not in self.nodes:
                return False
            found[:] = [self.nodes[leader_id]]
            return True

        wait_until(agreed)
        return found[0]

    def propose(self, node: Node, records: list[MetadataRecord] | None = None) -> Future[int]:
        engine = node.engine
        batch = record_batch(records or [NoOpRecord()], base_offset=0, epoch=-1, timestamp_ms=1)
        end_offset = engine.journal.metadata_log.log.end_offset
        return engine.propose(batch, epoch=engine.epoch, base_offset=end_offset)

    def commit(self, count: int = 1) -> int:
        """Commit batches one after the other; where the last one ends."""
        end = -1
        for _ in range(count):
            end = self._commit_one()
        return end

    def _commit_one(self) -> int:
        for _ in range(20):
            try:
                return self.propose(self.leader()).result(PATIENCE_S)
            except (NotController, OutcomeUnknown):
                continue
        raise AssertionError("twenty leaders were lost")

    def wait_for_high_watermark(self, offset: int) -> None:
        wait_until(lambda: all(n.engine.high_watermark >= offset for n in self.nodes.values()))

    def log_bytes(self, node_id: int, end: int) -> bytes:
        log = self.nodes[node_id].engine.journal.metadata_log.log
        return b"".join(bytes(data) for header, data in log.batches(0) if header.end_offset <= end)
