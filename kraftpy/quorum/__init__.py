"""Who decides: the controllers, and the consensus that makes their decisions last."""

from kraftpy.quorum.consensus import CommittedBatch, Consensus, Listener, QuorumState, ReplicaState
from kraftpy.quorum.raft.engine import RaftEngine, RaftTiming

__all__ = [
    "CommittedBatch",
    "Consensus",
    "Listener",
    "QuorumState",
    "RaftEngine",
    "RaftTiming",
    "ReplicaState",
]
