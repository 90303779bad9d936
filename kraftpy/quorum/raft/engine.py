"""Consensus by pysyncobj's core: one node, driven tick by tick.

Whoever owns the engine calls `tick` again and again, from one thread; everything else may be
called from any thread and takes effect in the next tick. The engine reads no clock but the one it
was given and starts no thread but the one that writes a snapshot, so a simulation can drive it.

In a tick: proposals enter the log if this node still leads in their epoch; the core elects,
commits and sends; the guard syncs and lets messages out; then listeners hear what is new.
"""

import random
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault, InvalidBatch, KraftError, NotController, OutcomeUnknown
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.metadata_log.snapshotter import Snapshotter
from kraftpy.quorum.consensus import Listener, QuorumState, ReplicaState
from kraftpy.quorum.raft.core import Poller, RaftCore, Surroundings, core_settings, surrounded
from kraftpy.quorum.raft.entries import Command
from kraftpy.quorum.raft.guard import GuardTransport, Message, VoterNode, Wire
from kraftpy.quorum.raft.journal import RaftJournal
from kraftpy.quorum.raft.quorum_state import QuorumStateFile
from kraftpy.quorum.raft.snapshot_transfer import SnapshotTransfer
from kraftpy.storage.file_layer import Buffer, FileLayer
from kraftpy.storage.record_batch import stamp
from kraftpy.storage.request import check_request

_COMMITTED_TOLD_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTiming:
    """The three times of Raft. A follower waits one to two election timeouts."""

    election_timeout_ms: int = 300
    heartbeat_ms: int = 80
    check_quorum_ms: int = 900


class World(Poller, Wire, Protocol):
    """What connects a node with the others: it waits for messages and carries them."""

    def attach(self, engine: "RaftEngine") -> None: ...

    def wake(self) -> None:
        """End a `poll` that is waiting; from any thread."""
        ...


@dataclass(slots=True)
class _Proposal:
    batch: Buffer
    epoch: int
    base_offset: int
    future: Future[int]


@dataclass(slots=True)
class _Barrier:
    epoch: int
    future: Future[int]
    round: int = -1
    high_watermark: int = -1


class RaftEngine:
    """One voter."""

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        files: FileLayer,
        metadata_log: MetadataLog,
        state_path: str,
        world: World,
        clock: Clock,
        rng: random.Random,
        timing: RaftTiming,
        snapshotter: Snapshotter,
    ) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.leader_id: int | None = None
        self._clock = clock
        self._world = world
        self._listener: Listener | None = None
        self._metadata_log = metadata_log
        self._snapshotter = snapshotter
        state_file = QuorumStateFile(files, state_path)
        self.journal = RaftJournal(metadata_log, state_file, node_id, voters, clock)
        others = [VoterNode(voter) for voter in sorted(voters) if voter != node_id]
        self.guard = GuardTransport(
            self.journal,
            world,
            others,
            now_ms=clock.monotonic_ms,
            rng=rng,
            election_timeout_ms=timing.election_timeout_ms,
        )
        self._transfer = SnapshotTransfer(files, self.journal, self.guard, clock.monotonic_ms)
        self._transfer.on_installed = self._snapshot_installed
        self._surroundings = Surroundings(journal=self.journal, poller=world, clock=clock, rng=rng)
        self.core: Any = self._make_core(others, timing)
        self._inbox: deque[_Proposal | _Barrier | Future[None]] = deque()
        self._inbox_lock = threading.Lock()
        self._closed = False
        self._pending: deque[tuple[int, int, Future[int]]] = deque()  # (index, term, future)
        self._barriers: list[_Barrier] = []
        self._resigning: list[Future[None]] = []
        self._offered_image: ClusterImage | None = None
        self._told_index = self.journal.commit_index
        self.high_watermark = self.journal.end_offset_of(self._told_index)
        world.attach(self)

    def _make_core(self, others: list[VoterNode], timing: RaftTiming) -> RaftCore:
        conf = core_settings(
            election_timeout_ms=timing.election_timeout_ms,
            heartbeat_ms=timing.heartbeat_ms,
            check_quorum_ms=timing.check_quorum_ms,
        )
        with surrounded(self._surroundings):
            core = RaftCore(VoterNode(self.node_id), others, conf, self.guard)
        self.journal.is_leader = core._isLeader
        core.addOnTickCallback(self._after_flush)
        return core

    # -- Consensus: from any thread -----------------------------------------------------------

    def start(self, listener: Listener) -> None:
        self._listener = listener
        for snapshot_id in self._metadata_log.snapshots[-1:]:
            listener.snapshot_installed(snapshot_id)

    def propose(self, batch: Buffer, *, epoch: int, base_offset: int) -> Future[int]:
        future: Future[int] = Future()
        return self._enqueue(_Proposal(batch, epoch, base_offset, future), future)

    def read_barrier(self, *, epoch: int) -> Future[int]:
        future: Future[int] = Future()
        return self._enqueue(_Barrier(epoch, future), future)

    def resign(self) -> Future[None]:
        future: Future[None] = Future()
        return self._enqueue(future, future)

    def _enqueue(self, item: Any, future: Future[Any]) -> Future[Any]:
        with self._inbox_lock:
            if not self._closed:
                self._inbox.append(item)
                self._world.wake()
                return future
        future.set_exception(self.journal.fault or NotController("this node has stopped"))
        return future

    def offer_snapshot(self, image: ClusterImage) -> None:
        with self._inbox_lock:
            self._offered_image = image

    def state(self) -> QuorumState:
        now_ms = self._clock.now_ms()
        log = self._metadata_log.log
        offset_ms = now_ms - self._clock.monotonic_ms()
        voters = [
            ReplicaState(
                replica_id=peer.node.id,
                log_end_offset=peer.end_offset,
                last_fetch_ms=_wall(peer.last_response_ms, offset_ms),
                last_caught_up_ms=_wall(peer.last_caught_up_ms, offset_ms),
            )
            for peer in self.guard.peers.values()
        ]
        own = ReplicaState(
            replica_id=self.node_id,
            log_end_offset=log.end_offset,
            last_fetch_ms=now_ms,
            last_caught_up_ms=now_ms,
        )
        return QuorumState(
            node_id=self.node_id,
            leader_id=self.leader_id,
            epoch=self.epoch,
            high_watermark=self.high_watermark,
            log_start_offset=log.start_offset,
            log_end_offset=log.end_offset,
            voters=tuple(sorted([own, *voters], key=lambda voter: voter.replica_id)),
            hears_leader=self.guard.hears_leader(),
        )

    # -- the thread that ticks ----------------------------------------------------------------

    def tick(self, wait_s: float) -> None:
        """One round of everything; waits at most so long for messages. FatalFault ends the node."""
        with surrounded(self._surroundings):
            try:
                self._take_inbox()
                self._tend_snapshots()
                self.core.doTick(wait_s)
            except KraftError as error:
                self._fail(error)
                raise
        if self.journal.fault is not None:  # The core swallows some exceptions.
            self._fail(self.journal.fault)
            raise self.journal.fault

    def receive(self, node_id: int, message: Message) -> None:
        """A message of a voter; WireError if it makes no sense. In `poll`, or before a tick."""
        with surrounded(self._surroundings):
            self.guard.deliver(node_id, message)

    def connected(self, node_id: int) -> None:
        with surrounded(self._surroundings):
            self.guard.connected(node_id)

    def disconnected(self, node_id: int) -> None:
        with surrounded(self._surroundings):
            self._transfer.forget(node_id)
            self.guard.disconnected(node_id)

    def close(self) -> None:
        """Settle what is open and let go of the log; after the last tick."""
        self._settle_all(NotController("this node is stopping"))
        self._transfer.close()
        self._snapshotter.close()
        self.guard.destroy()
        if self.journal.fault is None:
            self.journal.sync()
        self._metadata_log.close()

    def _fail(self, error: KraftError) -> None:
        fault = self.journal.fail(
            error if isinstance(error, FatalFault) else FatalFault(str(error))
        )
        self._settle_all(fault)
        listener, self._listener = self._listener, None  # It hears of it once, and then no more.
        if listener is not None:
            listener.failed(fault)

    def _settle_all(self, reason: KraftError) -> None:
        with self._inbox_lock:
            self._closed = True
            inbox, self._inbox = self._inbox, deque()
        for item in inbox:
            _settle(item if isinstance(item, Future) else item.future, error=reason)
        self._give_up(OutcomeUnknown("the node stopped before the batch committed"))
        for future in self._resigning:
            _settle(future, None)
        self._resigning.clear()

    # -- proposals ----------------------------------------------------------------------------

    def _take_inbox(self) -> None:
        with self._inbox_lock:
            inbox, self._inbox = self._inbox, deque()
        try:
            while inbox:
                self._take(inbox.popleft())
            self.journal.write()
        finally:
            if inbox:  # A fault: the rest is settled with everything else.
                with self._inbox_lock:
                    self._inbox.extendleft(reversed(inbox))

    def _take(self, item: "_Proposal | _Barrier | Future[None]") -> None:
        if isinstance(item, _Proposal):
            self._append(item)
        elif isinstance(item, _Barrier):
            self._take_barrier(item)
        else:
            self._resigning.append(item)

    def _leads(self, epoch: int) -> bool:
        """Whether this node is the active leader of exactly that epoch, and means to stay it."""
        return (
            self.leader_id == self.node_id
            and self.epoch == epoch == self.core.raftCurrentTerm
            and self.core._isLeader()
            and not self._resigning
        )

    def _append(self, proposal: _Proposal) -> None:
        """Definite: the batch is in the log of a leader of its epoch, or it will never be."""
        end_offset = self.journal.end_offset
        if not self._leads(proposal.epoch):
            reason = f"node {self.node_id} does not lead in epoch {proposal.epoch}"
            _settle(proposal.future, error=NotController(reason))
            return
        if proposal.base_offset != end_offset:
            reason = f"offset {proposal.base_offset} was decided on, {end_offset} is next"
            _settle(proposal.future, error=NotController(reason))
            return
        try:
            command = self._command(proposal)
        except InvalidBatch as error:
            _settle(proposal.future, error=error)
            return
        index = self.journal.last()[0] + 1
        # Pending first: should the disk fail now, its outcome is as unknown as that of the others.
        self._pending.append((index, proposal.epoch, proposal.future))
        self.journal.add(command, index, proposal.epoch)
        self._send_soon()

    def _command(self, proposal: _Proposal) -> Command:
        batch_bytes_max = self._metadata_log.log.config.batch_bytes_max
        request = check_request(proposal.batch, batch_bytes_max)
        if len(request.batches) != 1:
            raise InvalidBatch(f"one entry is one batch, not {len(request.batches)}")
        position, header = request.batches[0]
        header = stamp(request.data, position, header, proposal.base_offset, proposal.epoch)
        return Command(bytes(request.data), header.size, header=header)

    def _send_soon(self) -> None:
        """Let the core send append_entries in this tick and not with the next heartbeat."""
        self.core.send_append_entries_now()

    def _take_barrier(self, barrier: _Barrier) -> None:
        if not self._leads(barrier.epoch):
            reason = f"node {self.node_id} does not lead in epoch {barrier.epoch}"
            _settle(barrier.future, error=NotController(reason))
            return
        # What others were told is at or below this; who still follows us will answer this round.
        barrier.high_watermark = self.high_watermark
        barrier.round = self.guard.round + 1
        self._barriers.append(barrier)
        self._send_soon()

    # -- after each flush: what is new --------------------------------------------------------

    def _after_flush(self) -> None:
        if self.journal.fault is not None:
            return
        self._tell_committed()
        self._tell_leadership()
        self._settle_pending()
        self._settle_barriers()
        self._go_on_resigning()

    def _tell_committed(self) -> None:
        commit_index = self.journal.commit_index
        while self._told_index < commit_index:
            upto = min(commit_index, self._told_index + _COMMITTED_TOLD_AT_ONCE)
            batches = self.journal.batches(self._told_index, upto)
            self._told_index = upto
            self.high_watermark = batches[-1].header.end_offset
            if self._listener is not None:
                self._listener.committed(batches)

    def _tell_leadership(self) -> None:
        epoch = self.core.raftCurrentTerm
        leader = self.core._getLeader()
        leader_id = None if leader is None else leader.id
        if leader_id == self.node_id and (
            not self.core._isLeader() or self.journal.term_at(self.journal.commit_index) != epoch
        ):
            leader_id = None  # Not before a batch of its own epoch is committed.
        if (leader_id, epoch) == (self.leader_id, self.epoch):
            return
        if self.leader_id == self.node_id:
            self._give_up(OutcomeUnknown(f"node {self.node_id} lost epoch {self.epoch}"))
        self.leader_id, self.epoch = leader_id, epoch
        if self._listener is not None:
            self._listener.leadership_changed(leader_id, epoch)

    def _give_up(self, reason: OutcomeUnknown) -> None:
        """Leadership is lost: what is not committed may yet be, by another leader."""
        for _, _, future in self._pending:
            _settle(future, error=reason)
        self._pending.clear()
        for barrier in self._barriers:
            _settle(barrier.future, error=NotController(str(reason)))
        self._barriers.clear()

    def _settle_pending(self) -> None:
        while self._pending and self._pending[0][0] <= self.journal.commit_index:
            index, term, future = self._pending.popleft()
            if self.journal.term_at(index) == term:
                _settle(future, self.journal.end_offset_of(index))
            else:
                reason = f"entry {index} was replaced by one of another epoch"
                _settle(future, error=NotController(reason))

    def _settle_barriers(self) -> None:
        if not self._barriers:
            return
        needed = (len(self.guard.peers) + 1) // 2
        rounds = sorted((peer.acked_round for peer in self.guard.peers.values()), reverse=True)
        reached = rounds[needed - 1] if needed else self.guard.round
        waiting = [barrier for barrier in self._barriers if barrier.round > reached]
        for barrier in self._barriers:
            if barrier.round <= reached:
                _settle(barrier.future, barrier.high_watermark)
        self._barriers = waiting

    def _go_on_resigning(self) -> None:
        if not self._resigning:
            return
        if self.core._isLeader() and self.guard.peers:
            self.core.transferLeadership()  # Refused until a follower has everything.
            return
        for future in self._resigning:
            _settle(future, None)
        self._resigning.clear()

    # -- snapshots ----------------------------------------------------------------------------

    def _tend_snapshots(self) -> None:
        self._transfer.tick()
        if not self._snapshotter.is_writing:
            self.journal.shorten(self._snapshotter.finish)
        image, self._offered_image = self._offered_image, None
        if image is not None:
            self._snapshotter.offer(image, self.journal.batch_count_at(image.end_offset))

    def _snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self._told_index = self.journal.first_index
        self.high_watermark = snapshot_id.end_offset
        if self._listener is not None:
            self._listener.snapshot_installed(snapshot_id)


def _wall(monotonic_ms: int, offset_ms: int) -> int:
    return -1 if monotonic_ms < 0 else monotonic_ms + offset_ms


def _settle(future: Future[Any], result: Any = None, error: KraftError | None = None) -> None:
    """Give the outcome, unless whoever asked has gone: that must not stop anyone."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
