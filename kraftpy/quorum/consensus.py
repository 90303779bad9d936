"""What a controller asks of consensus, in offsets and epochs. Pure.

One entry is one record batch. An engine keeps the log, replicates it and says what is committed;
it knows nothing of what the records mean. The rules that every engine keeps:
- a proposal names the epoch it was decided in and the offset it must get. It is refused, with
  nothing written, unless this node leads in exactly that epoch and its log ends at that offset.
- what was committed once is committed for ever, and every node is told the same batches in the
  same order, each once, without a gap. A snapshot may stand for a beginning of them.
- `leadership_changed` names an epoch at most once per leader, and epochs never go back. This node
  is told that it leads only after a batch of its own epoch has been committed.
- a Future is always settled: a result, NotController (definite), OutcomeUnknown, or a FatalFault.

A Listener is called by the engine's own thread. It must be quick and must not raise.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kraftpy.errors import FatalFault
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.storage.file_layer import Buffer
from kraftpy.storage.record_batch import BatchHeader


class CommittedBatch(NamedTuple):
    """A batch that will never change; offsets and epoch are in its header."""

    header: BatchHeader
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """How far one replica is, as its leader sees it. Times are the leader's wall clock."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """What one node knows of the quorum. `voters` is complete on the leader only."""

    node_id: int
    leader_id: int | None
    epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    voters: tuple[ReplicaState, ...]
    # A follower goes on naming a leader that it has not heard of for a long time.
    hears_leader: bool = True


class Listener(Protocol):
    """Who follows the log."""

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None: ...

    def committed(self, batches: list[CommittedBatch]) -> None: ...

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """What is before the snapshot's end was not told and is not in the log: load it."""
        ...

    def failed(self, fault: FatalFault) -> None:
        """The engine has stopped; the node must too."""
        ...


class Consensus(Protocol):
    """One node's end of the quorum."""

    def start(self, listener: Listener) -> None:
        """Begin. The listener first hears of what is committed from its log's start on."""
        ...

    def propose(self, batch: Buffer, *, epoch: int, base_offset: int) -> Future[int]:
        """Write one batch; the result is its end offset, once it is committed."""
        ...

    def read_barrier(self, *, epoch: int) -> Future[int]:
        """A high watermark that covers all that was acknowledged to anyone before the call."""
        ...

    def resign(self) -> Future[None]:
        """Hand leadership to the follower that is furthest; done when this node leads no more."""
        ...

    def offer_snapshot(self, image: ClusterImage) -> None:
        """Let the log be shortened: a committed image to be stored if a snapshot is due."""
        ...

    def state(self) -> QuorumState: ...

    def close(self) -> None:
        """Stop, with everything that was acknowledged on disk."""
        ...
