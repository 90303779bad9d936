"""What a simulated engine finds around it: a clock, a wire, a listener, a snapshot thread."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftpy.errors import FatalFault
from kraftpy.metadata_log.snapshot_file import SnapshotId, read_snapshot
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.guard import Message

if TYPE_CHECKING:
    from tests.sim.node import SimNode

_WALL_MS = 1_700_000_000_000


class SimClock:
    """A node's clock: its own rate, its own idea of the date, and what its disk has cost."""

    def __init__(self, node: "SimNode", drift_ppm: int, start_ms: int) -> None:
        self._node = node
        self._drift_ppm = drift_ppm
        self._start_ms = start_ms
        self.skew_ms = 0

    def monotonic_ms(self) -> int:
        elapsed_us = self._node.sim.now_us + self._node.cost_us
        return self._start_ms + elapsed_us * (1_000_000 + self._drift_ppm) // 1_000_000_000

    def now_ms(self) -> int:
        return _WALL_MS + self.skew_ms + self.monotonic_ms()


class SimWorld:
    """The engine's wire, for one life of a node."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._put: list[tuple[int, bytes]] = []

    def attach(self, engine: RaftEngine) -> None:
        """The node knows its engine."""

    def wake(self) -> None:
        self._node.wake()

    def poll(self, timeout_s: float) -> None:
        """Messages are taken before a tick."""

    def put(self, node_id: int, message: Message) -> None:
        self._node.exposes(node_id, message)
        self._put.append((node_id, messages.encode(message)))

    def push(self) -> None:
        put, self._put = self._put, []
        for node_id, data in put:
            self._node.send(node_id, data)

    def close(self) -> None:
        self._put.clear()


class SimListener:
    """Hears what an engine tells, for the oracles."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        node = self._node
        node.sim.oracles.heard_leadership(node.id, leader_id, epoch)
        node.sim.trace("leadership", node.id, epoch, -1 if leader_id is None else leader_id)
        if leader_id == node.id:
            node.sim.clients.believe(node.id, epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        node = self._node
        assert node.engine is not None
        core = node.engine.core
        node.sim.trace("committed", node.id, batches[-1].header.end_offset, len(batches))
        node.sim.oracles.told(node.id, batches, core.raftCurrentTerm, core._isLeader())

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        node = self._node
        image = read_snapshot(node.disk, node.directory, snapshot_id)
        node.sim.trace("snapshot", node.id, snapshot_id.end_offset, snapshot_id.epoch)
        node.sim.oracles.snapshot(node.id, snapshot_id, image)
        node.facts.high_watermark = max(node.facts.high_watermark, snapshot_id.end_offset)

    def failed(self, _fault: FatalFault) -> None:
        self._node.sim.trace("failed", self._node.id, 0, 0)


class LaterWriting:
    """A snapshot that another thread writes: alive for a while, then written at once."""

    def __init__(self, node: "SimNode", write: Callable[[], None], delay_us: int) -> None:
        self._node = node
        self._write: Callable[[], None] | None = write
        if delay_us == 0:
            self.join()
        else:
            life = node.life
            node.sim.at(node.sim.now_us + delay_us, lambda: node.aside(life, self.join))

    def is_alive(self) -> bool:
        return self._write is not None

    def join(self) -> None:
        write, self._write = self._write, None
        if write is not None:
            write()
