"""The transport that pysyncobj's core talks through, and what makes its Raft safe.

The core's algorithm is right where it matters (votes, commit by counting its own epoch) and wrong
in known places; raft.md calls them (a) to (v). Each protection here names the fault it prevents.
Messages are rewritten, held back or dropped on their way in and out; the core itself is stock.

Order on the way out, once per tick: term and vote to disk; append_entries to the wire, so that
followers sync while we do; our own sync; then everything that promises something (acks, votes,
vote requests). Nothing leaves before what it speaks of is on disk.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from kraftpy.errors import FatalFault, WireError
from kraftpy.quorum.raft.entries import Command
from kraftpy.quorum.raft.journal import Entry, RaftJournal

Message = dict[str, Any]


class VoterNode(Node):  # type: ignore[misc]
    """A voter as the core knows it. Its id is a number, so sets of them have one order."""

    def __str__(self) -> str:
        return str(self.id)


class Wire(Protocol):
    """What carries messages between voters, in order per pair, or loses them."""

    def put(self, node_id: int, message: Message) -> None:
        """Take a message; it is encoded before this returns."""
        ...

    def push(self) -> None:
        """Let go what was put."""
        ...

    def close(self) -> None: ...


class CoreView(Protocol):
    """What the guard needs to know of the core."""

    @property
    def raftCurrentTerm(self) -> int: ...  # noqa: N802

    @property
    def raftCommitIndex(self) -> int: ...  # noqa: N802

    def _isLeader(self) -> bool: ...  # noqa: N802


@dataclass(slots=True)
class Peer:
    """What a leader knows of a follower, and anyone of a voter that asks for votes."""

    node: VoterNode
    end_offset: int = -1
    acked_round: int = 0
    last_response_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(slots=True)
class PreVote:
    """A candidate's question whether an election could succeed, before it disturbs anyone."""

    epoch: int = -1
    granted: set[int] = field(default_factory=set)
    until_ms: int = 0


class GuardTransport(Transport):  # type: ignore[misc]
    """Between the core and the wire. One per node; used by the thread that ticks the core."""

    def __init__(
        self,
        journal: RaftJournal,
        wire: Wire,
        nodes: list[VoterNode],
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        election_timeout_ms: int,
    ) -> None:
        super().__init__(None, None, None)
        self.peers = {node.id: Peer(node) for node in nodes}
        self.counts = dict.fromkeys(_COUNTED, 0)
        self.round = 0  # Grows with every flush; what an ack carries back dates it.
        self.on_snapshot_message: Callable[[int, Message], None] = lambda _id, _message: None
        self.wants_snapshot: Callable[[int], None] = lambda _id: None
        self.is_sent_snapshot: Callable[[int], bool] = lambda _id: False
        self._journal = journal
        self._wire = wire
        self._now_ms = now_ms
        self._rng = rng
        self._election_timeout_ms = election_timeout_ms
        self._out: list[tuple[int, Message]] = []
        self._votes: set[tuple[int, int]] = set()
        self._leader_id: int | None = None
        self._leader_seen_ms = -(10**9)
        self._leader_round = 0
        self._step_back: tuple[int, int] | None = None
        self._pre_vote = PreVote()
        self._transfer = False
        self.core: CoreView

    # -- pysyncobj's Transport ----------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return True

    def tryGetReady(self) -> None:  # noqa: N802
        """Always ready: connections come and go by themselves."""

    def waitReady(self) -> None:  # noqa: N802
        """As above."""

    def addNode(self, _node: Node) -> None:  # noqa: N802
        raise self._journal.fail(FatalFault("the set of voters is fixed"))

    def dropNode(self, _node: Node) -> None:  # noqa: N802
        raise self._journal.fail(FatalFault("the set of voters is fixed"))

    def destroy(self) -> None:
        self._wire.close()

    def connected(self, node_id: int) -> None:
        """A voter can be reached."""
        self._onNodeConnected(self.peers[node_id].node)

    def disconnected(self, node_id: int) -> None:
        self._onNodeDisconnected(self.peers[node_id].node)

    # -- from the core to the wire ------------------------------------------------------------

    def send(self, node: Node, message: Message) -> bool:
        """Take a message of the core's; it leaves with the next flush."""
        kind = message["type"]
        if self._journal.fault is not None or kind.startswith("apply_command"):
            # (s): a command is never forwarded. Only the leader takes it, in the epoch it was
            # decided in.
            return False
        if kind == "append_entries":
            if "serialized" in message:
                # (d, i, l, m, q): snapshots have a protocol of their own, with answers.
                self.wants_snapshot(node.id)
                return True
            if self.is_sent_snapshot(node.id):
                return True  # It could not use them yet, and hears of us by the snapshot.
            message = {**message, "entries": list(message["entries"]), "round": self.round + 1}
        elif kind == "next_node_idx":
            message = self._ack(message)
        self._out.append((node.id, message))
        return True

    def send_own(self, node_id: int, message: Message) -> None:
        """Take a message that the core does not know."""
        self._out.append((node_id, message))

    def _ack(self, message: Message) -> Message:
        term = self.core.raftCurrentTerm
        # (f): an ack says in which epoch it was given, so that no later leader counts it.
        message = {
            **message,
            "term": term,
            "round": self._leader_round,
            "end_offset": self._journal.end_offset_of(message["next_node_idx"] - 1)
            if message["success"]
            else -1,
        }
        if message["success"]:
            self._step_back = None
        elif message["reset"]:
            message["next_node_idx"] = self._place_to_try(term, message["next_node_idx"])
        return message

    def _place_to_try(self, term: int, index: int) -> int:
        """Where a leader whose entries do not fit should try next: before a whole epoch at once.

        (r): follow-ups that were on their way already are refused too, with "my end + 1" as
        their answer, and would undo the step back. So a step back is repeated until it worked.
        """
        journal = self._journal
        floor = journal.commit_index + 1
        wrong = journal.term_at(index)
        while wrong is not None and index > floor and journal.term_at(index - 1) == wrong:
            index -= 1
        if self._step_back is not None and self._step_back[0] == term:
            index = min(index, self._step_back[1])
        index = max(index, floor)  # Last: a snapshot may have moved it past the step back.
        self._step_back = term, index
        return index

    def flush(self) -> None:
        """Let out what the core has sent in this tick, in an order that keeps every promise."""
        if self._journal.fault is not None:
            self._out.clear()
            return
        out = [each for each in self._out if not self._is_over(each[1])]
        self._out = []
        self.round += 1
        if not self._journal.vote_is_stored:
            # (a): an append_entries already shows the epoch.
            self._journal.sync()
        for node_id, message in out:
            if message["type"] in _LEAVE_BEFORE_SYNC:
                self._wire.put(node_id, message)
        self._wire.push()
        self._journal.sync()
        for node_id, message in out:
            if message["type"] not in _LEAVE_BEFORE_SYNC:
                self._wire.put(node_id, message)
        self._wire.push()

    def _is_over(self, message: Message) -> bool:
        """Whether a message of replication belongs to an epoch that ended before it could leave:
        the entries that it names or acknowledges may be cut already."""
        return message["type"] in _OF_AN_EPOCH and message["term"] != self.core.raftCurrentTerm

    # -- from the wire to the core ------------------------------------------------------------

    def deliver(self, node_id: int, message: Message) -> None:
        """Take a decoded message of an authenticated voter. WireError if it makes no sense."""
        if self._journal.fault is not None:
            return
        handler = _HANDLERS.get(message["type"])
        if handler is None:
            raise WireError(f"unexpected {message['type']}")
        peer = self.peers[node_id]
        try:
            if handler(self, peer, message):
                self._onMessageReceived(peer.node, message)
                self._journal.write()
        finally:
            self._journal.limit_view(None)

    def _on_request_vote(self, _peer: Peer, _message: Message) -> bool:
        return True

    def _on_response_vote(self, peer: Peer, message: Message) -> bool:
        vote = message["term"], peer.node.id
        if vote in self._votes:
            # (p): the core counts votes, not voters.
            self.counts["repeated_vote"] += 1
            return False
        self._votes = {each for each in self._votes if each[0] >= self.core.raftCurrentTerm}
        self._votes.add(vote)
        return True

    def _on_timeout_now(self, _peer: Peer, message: Message) -> bool:
        if message["term"] != self.core.raftCurrentTerm:
            return False
        self._transfer = True  # The leader itself asks for it: no pre-vote is needed.
        return True

    def _on_ack(self, peer: Peer, message: Message) -> bool:
        if message["term"] != self.core.raftCurrentTerm or not self.core._isLeader():
            self.counts["stale_ack"] += 1
            return False
        last_index = self._journal.last()[0]
        if message["next_node_idx"] > last_index + 1:
            if message["success"]:
                raise WireError(
                    f"an ack of entry {message['next_node_idx'] - 1}, which is not there"
                )
            message["next_node_idx"] = last_index + 1
        self._note_response(peer, message["round"])
        if message["success"]:
            peer.end_offset = max(peer.end_offset, message["end_offset"])
            if message["next_node_idx"] == last_index + 1:
                peer.last_caught_up_ms = peer.last_response_ms
        return True

    def _note_response(self, peer: Peer, answered_round: int) -> None:
        peer.acked_round = max(peer.acked_round, answered_round)
        peer.last_response_ms = self._now_ms()

    def hears_leader(self) -> bool:
        """Whether this node leads, or has heard of who does within a few election timeouts."""
        silent_ms = self._now_ms() - self._leader_seen_ms
        return self.core._isLeader() or silent_ms < _LONG_SILENCE * self._election_timeout_ms

    def note_alive(self, node_id: int, answered_round: int) -> None:
        """A follower that is loading a snapshot answers too: it counts as reached."""
        peer = self.peers[node_id]
        self._note_response(peer, answered_round)
        alive = {"type": "next_node_idx", "reset": False, "success": False, "next_node_idx": 0}
        self._onMessageReceived(peer.node, {**alive, "term": self.core.raftCurrentTerm})

    def _on_append_entries(self, peer: Peer, message: Message) -> bool:
        if not self._hear_leader(peer, message["term"]):
            return False
        self._leader_round = message["round"]
        self._trim(message)
        return True

    def _hear_leader(self, peer: Peer, term: int) -> bool:
        """Whether a message comes from the leader of this epoch or a later one."""
        epoch = self.core.raftCurrentTerm
        if term < epoch:
            # (e): a leader that was away learns that its time is over.
            self.send_own(peer.node.id, {"type": "stale_term", "term": epoch})
            return False
        if term == epoch and self.core._isLeader():
            raise self._journal.fail(FatalFault(f"two leaders in epoch {term}"))
        if term > epoch:
            self._step_back = None
        self._leader_id = peer.node.id
        self._leader_seen_ms = self._now_ms()
        self._pre_vote.epoch = -1
        return True

    def hear_snapshot(self, node_id: int, term: int) -> bool:
        """A piece of a snapshot is a sign of life of the leader, to us and to the core."""
        peer = self.peers[node_id]
        if not self._hear_leader(peer, term):
            return False
        # (i): the core moves its commit index after any append_entries; this one moves nothing.
        nothing = {
            "type": "append_entries",
            "term": term,
            "commit_index": self.core.raftCommitIndex,
        }
        self._onMessageReceived(peer.node, nothing)
        return True

    def hand_over_snapshot(self, node_id: int) -> None:
        """Let the core take up a snapshot that the journal has installed; it acks it."""
        term = self.core.raftCurrentTerm
        message = {"type": "append_entries", "term": term, "serialized": True}
        self._onMessageReceived(
            self.peers[node_id].node, {**message, "commit_index": self._journal.commit_index}
        )

    def _trim(self, message: Message) -> None:
        """Raft's rule for entries that are here already, which the core does not keep.

        (c): the core cuts its log behind prevLogIdx at every append_entries, also at a late or
        repeated one: acknowledged entries go, and with the leader's death they are lost. Here,
        entries that are present are taken out of the message. If the rest conflicts, the core
        is right to cut; if not, it is shown a log that ends where the message begins.
        """
        journal = self._journal
        previous, entries = message["prevLogIdx"], message["entries"]
        if previous is None:
            message["entries"] = []  # The leader has lost our place itself; the core says where.
            return
        _check_contiguous(previous, entries)
        if previous < journal.first_index:
            # What is before our first entry is committed, hence equal.
            entries = [entry for entry in entries if entry[1] > journal.first_index]
            previous = journal.first_index
            message["prevLogTerm"] = journal.term_at(previous)
            if entries and entries[0][1] != previous + 1:
                entries = []
        elif journal.term_at(previous) != message["prevLogTerm"]:
            return  # The core answers that it does not fit.
        present = 0
        for entry in entries:
            if journal.term_at(entry[1]) != entry[2]:
                break
            present += 1
        if present:
            previous = entries[present - 1][1]
            message["prevLogTerm"] = entries[present - 1][2]
            self.counts["known_entry"] += present
        message["prevLogIdx"] = previous
        message["entries"] = entries[present:]
        if present < len(entries) and journal.term_at(entries[present][1]) is not None:
            self.counts["conflict"] += 1
        else:
            journal.limit_view(previous)

    # -- pre-vote -----------------------------------------------------------------------------

    def may_stand(self) -> bool:
        """Whether the core may begin an election now; if not, the others are asked first.

        (g): a voter that was cut off would come back with a higher epoch and depose a leader
        that everyone else is content with.
        """
        if not self.peers:
            return True
        if self._transfer:
            self._transfer = False
            return True
        epoch, now_ms = self.core.raftCurrentTerm, self._now_ms()
        asked = self._pre_vote
        if now_ms < asked.until_ms:
            if asked.epoch == epoch and len(asked.granted) + 1 > (len(self.peers) + 1) / 2:
                asked.epoch = -1
                return True
            return False
        patience = self._election_timeout_ms * (0.3 + 0.7 * self._rng.random())
        self._pre_vote = PreVote(epoch=epoch, until_ms=now_ms + int(patience))
        index, term = self._journal.last()
        question = {"type": "pre_vote", "term": epoch + 1}
        for node_id in self.peers:
            place = {"last_log_index": index, "last_log_term": term}
            self.send_own(node_id, {**question, **place})
        return False

    def _on_pre_vote(self, peer: Peer, message: Message) -> bool:
        index, term = self._journal.last()
        epoch = self.core.raftCurrentTerm
        leader_lives = (
            self._now_ms() - self._leader_seen_ms < self._election_timeout_ms
            and self._leader_id != peer.node.id
        )
        granted = (
            message["term"] > epoch
            and (message["last_log_term"], message["last_log_index"]) >= (term, index)
            and not leader_lives
            and not self.core._isLeader()
        )
        if not granted:
            self.counts["pre_vote_refused"] += 1
        answer = {"type": "pre_vote_response", "term": message["term"], "granted": granted}
        self.send_own(peer.node.id, {**answer, "epoch": epoch})
        return False

    def _on_pre_vote_response(self, peer: Peer, message: Message) -> bool:
        epoch = self.core.raftCurrentTerm
        if message["granted"] and message["term"] - 1 == epoch == self._pre_vote.epoch:
            self._pre_vote.granted.add(peer.node.id)
        elif message["epoch"] > epoch:
            self._adopt_epoch(peer, message["epoch"])
        return False

    def _on_stale_term(self, peer: Peer, message: Message) -> bool:
        if message["term"] > self.core.raftCurrentTerm:
            self._adopt_epoch(peer, message["term"])
        return False

    def _adopt_epoch(self, peer: Peer, epoch: int) -> None:
        """Take up a later epoch and step down, in the core's way: a request that gets no vote."""
        self.counts["stepped_down"] += 1
        hopeless = {"last_log_term": -1, "last_log_index": 0}
        self._onMessageReceived(peer.node, {"type": "request_vote", "term": epoch, **hopeless})

    def _on_snapshot_message(self, peer: Peer, message: Message) -> bool:
        self.on_snapshot_message(peer.node.id, message)
        return False


_LONG_SILENCE = 5  # Election timeouts: two would be met in any election.
_LEAVE_BEFORE_SYNC = frozenset(("append_entries", "snapshot_chunk"))
_OF_AN_EPOCH = _LEAVE_BEFORE_SYNC | {"next_node_idx", "snapshot_response"}
_COUNTED = (
    "known_entry",
    "conflict",
    "repeated_vote",
    "stale_ack",
    "pre_vote_refused",
    "stepped_down",
)
_HANDLERS: dict[str, Callable[[GuardTransport, Peer, Message], bool]] = {
    "request_vote": GuardTransport._on_request_vote,
    "response_vote": GuardTransport._on_response_vote,
    "timeout_now": GuardTransport._on_timeout_now,
    "append_entries": GuardTransport._on_append_entries,
    "next_node_idx": GuardTransport._on_ack,
    "pre_vote": GuardTransport._on_pre_vote,
    "pre_vote_response": GuardTransport._on_pre_vote_response,
    "stale_term": GuardTransport._on_stale_term,
    "snapshot_chunk": GuardTransport._on_snapshot_message,
    "snapshot_response": GuardTransport._on_snapshot_message,
}


def _check_contiguous(previous: int, entries: list[Entry]) -> None:
    """WireError unless the entries follow each other, in index, offset and epoch."""
    due: int | None = None
    epoch = -1
    for number, (command, index, term) in enumerate(entries, previous + 1):
        assert isinstance(command, Command)
        header = command.header()
        if index != number or header.leader_epoch != term or term < epoch:
            raise WireError(f"entry {index} of epoch {term} where entry {number} was due")
        if due is not None and header.base_offset != due:
            raise WireError(f"entry {index}: offset {header.base_offset} where {due} was due")
        due, epoch = header.end_offset, term
