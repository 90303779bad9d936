"""A small quorum in one thread: simulated disks, one clock, messages in order, no faults but asked.

For directed tests, where the test is the schedule. The simulation proper is in tests/sim.
"""

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from kraftpy.clock import ManualClock
from kraftpy.errors import FatalFault
from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.loading import load_newest_snapshot, replay_batches
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.records import NoOpRecord
from kraftpy.metadata_log.snapshot_file import SnapshotId, read_snapshot
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.engine import RaftEngine, RaftTiming
from kraftpy.quorum.raft.guard import Message
from kraftpy.testing.simulated_files import SimulatedFiles

TICK_MS = 5


class World:
    """One node's end of the network."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def attach(self, engine: RaftEngine) -> None:
        """The cluster knows its engines itself."""

    def wake(self) -> None:
        """Every engine is ticked anyway."""

    def poll(self, timeout_s: float) -> None:
        """Messages come between ticks."""

    def put(self, node_id: int, message: Message) -> None:
        self._cluster.sent.append((self._node_id, node_id, messages.encode(message)))

    def push(self) -> None:
        """They are on their way already."""

    def close(self) -> None:
        """Nothing to close."""


class Follower:
    """A listener that keeps the image of what was committed, and all that it was told."""

    def __init__(self, files: SimulatedFiles, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.image: ClusterImage = EMPTY
        self.leaderships: list[tuple[int | None, int]] = []
        self.batches: list[CommittedBatch] = []
        self.snapshots: list[SnapshotId] = []
        self.faults: list[FatalFault] = []

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self.leaderships.append((leader_id, epoch))

    def committed(self, batches: list[CommittedBatch]) -> None:
        self.batches += batches
        found = ((batch.header, memoryview(batch.data)) for batch in batches)
        self.image = replay_batches(self.image, found, 1 << 62)

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self.snapshots.append(snapshot_id)
        self.image = read_snapshot(self._files, self._directory, snapshot_id)

    def failed(self, fault: FatalFault) -> None:
        self.faults.append(fault)


class _Written:
    """A snapshot that was written at once."""

    def __init__(self, write: Callable[[], None]) -> None:
        write()

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        """It is done."""


class Cluster:
    """Voters 1 to n."""

    def __init__(
        self, size: int = 3, *, retention_bytes: int | None = None, snapshot_bytes: int = 1 << 40
    ) -> None:
        self.clock = ManualClock()
        self.voters = list(range(1, size + 1))
        self.sent: deque[tuple[int, int, bytes]] = deque()
        self.down: set[int] = set()
        self.cut: set[tuple[int, int]] = set()  # Directed links that lose everything.
        self.lost: list[tuple[int, int, Message]] = []
        self.files = {node_id: SimulatedFiles() for node_id in self.voters}
        self.engines: dict[int, RaftEngine] = {}
        self.followers: dict[int, Follower] = {}
        self._config = MetadataLogConfig(
            segment_bytes=4096,
            retention_bytes=retention_bytes,
            retention_ms=None,
            flush_every_append=False,
        )
        self._policy = SnapshotPolicy(bytes_between=snapshot_bytes, interval_ms=None)
        self._starts = 0
        for node_id in self.voters:
            self.start(node_id)

    def directory(self, node_id: int) -> str:
        return f"/node-{node_id}/__cluster_metadata-0"

    def start(self, node_id: int) -> RaftEngine:
        """Start a node on whatever its disk holds."""
        self._starts += 1
        files, directory = self.files[node_id], self.directory(node_id)
        log = MetadataLog(files, directory, self._config, self.clock)
        engine = RaftEngine(
            node_id=node_id,
            voters=self.voters,
            files=files,
            metadata_log=log,
            state_path=f"/node-{node_id}/quorum-state",
            world=World(self, node_id),
            clock=self.clock,
            rng=random.Random(100 * node_id + self._starts),
            timing=RaftTiming(),
            snapshotter=Snapshotter(log, self._policy, self.clock, _Written),
        )
        self.engines[node_id] = engine
        self.followers[node_id] = Follower(files, directory)
        engine.start(self.followers[node_id])
        self.down.discard(node_id)
        for other in self.voters:
            if other != node_id and other in self.engines and other not in self.down:
                engine.connected(other)
                self.engines[other].connected(node_id)
        return engine

    def kill(self, node_id: int) -> None:
        """As kill -9: the disk keeps what was written."""
        self.down.add(node_id)
        self.files[node_id] = self.files[node_id].process_crash()
        self.sent = deque(each for each in self.sent if node_id not in each[:2])
        for other in self.voters:
            if other != node_id and other not in self.down:
                self.engines[other].disconnected(node_id)

    def isolate(self, node_id: int) -> None:
        for other in self.voters:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    # -- time -----------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.clock.advance(TICK_MS)
            for node_id in self.voters:
                if node_id not in self.down:
                    self.engines[node_id].tick(0)
            self.carry()

    def carry(self) -> None:
        """Deliver all that is on its way."""
        while self.sent:
            sender, receiver, data = self.sent.popleft()
            message = messages.decode(data)
            if (sender, receiver) in self.cut or receiver in self.down or sender in self.down:
                self.lost.append((sender, receiver, message))
            else:
                self.engines[receiver].receive(sender, message)

    def run_until(self, reached: Callable[[], bool], ms: int = 10_000) -> None:
        for _ in range(ms // TICK_MS):
            if reached():
                return
            self.run(TICK_MS)
        raise AssertionError(f"not reached in {ms} ms of the cluster's time")

    # -- work -----------------------------------------------------------------------------

    @property
    def leader(self) -> RaftEngine | None:
        """The leader of the latest epoch that knows itself to be it."""
        leaders = [
            engine
            for node_id, engine in self.engines.items()
            if node_id not in self.down and engine.leader_id == node_id
        ]
        return max(leaders, key=lambda engine: engine.epoch, default=None)

    def elect(self) -> RaftEngine:
        """Run until there is a leader that all running nodes follow."""

        def agreed() -> bool:
            running = [e for n, e in self.engines.items() if n not in self.down]
            leader = self.leader
            return leader is not None and all(
                (e.leader_id, e.epoch) == (leader.node_id, leader.epoch) for e in running
            )

        self.run_until(agreed)
        assert self.leader is not None
        return self.leader

    def propose(
        self, engine: RaftEngine, records: list[MetadataRecord] | None = None
    ) -> Future[int]:
        batch = record_batch(
            records or [NoOpRecord()], base_offset=0, epoch=-1, timestamp_ms=self.clock.now_ms()
        )
        base_offset = engine.journal.metadata_log.log.end_offset
        future = engine.propose(batch, epoch=engine.epoch, base_offset=base_offset)
        engine.tick(0)
        return future

    def commit(self, count: int = 1, records: list[MetadataRecord] | None = None) -> list[int]:
        """Write batches one after the other; the end offsets at which they were committed."""
        ends = []
        for _ in range(count):
            leader = self.leader or self.elect()
            future = self.propose(leader, records)
            self.run_until(future.done)
            ends.append(future.result(0))
        return ends

    def log_bytes(self, node_id: int, start: int | None = None, end: int = 1 << 62) -> bytes:
        log = self.engines[node_id].journal.metadata_log.log
        start = log.start_offset if start is None else start
        return b"".join(
            bytes(data) for header, data in log.batches(start) if header.end_offset <= end
        )

    def image_of(self, node_id: int) -> ClusterImage:
        """What the node's directory gives, up to its high watermark."""
        engine = self.engines[node_id]
        log = engine.journal.metadata_log
        end = engine.high_watermark
        image = load_newest_snapshot(
            self.files[node_id], self.directory(node_id), end, log.log.start_offset
        )
        return log.replay(image, end)
