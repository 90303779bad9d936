"""Who decides: the controllers, and the consensus that makes their decisions last."""

from kraftpy.quorum.consensus import CommittedBatch, Consensus, Listener, QuorumState, ReplicaState
from kraftpy.quorum.embedded import EmbeddedQuorum, embedded_quorum
from kraftpy.quorum.raft.driver import RaftDriver
from kraftpy.quorum.raft.engine import RaftEngine, RaftTiming
from kraftpy.quorum.raft.peer_tls import PeerTls
from kraftpy.quorum.raft.peers import PEER_MAGIC, PeerTiming, TcpWorld, is_peer

__all__ = [
    "CommittedBatch",
    "Consensus",
    "EmbeddedQuorum",
    "Listener",
    "PEER_MAGIC",
    "PeerTiming",
    "PeerTls",
    "QuorumState",
    "RaftDriver",
    "RaftEngine",
    "RaftTiming",
    "ReplicaState",
    "TcpWorld",
    "embedded_quorum",
    "is_peer",
]
