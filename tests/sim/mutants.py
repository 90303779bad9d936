"""Planted bugs: each takes one protection away, and the simulation must notice.

A mutant is a name, what is missing, and patches that take it away. `find` runs seeds until a rule
breaks. What random search cannot find has a directed test, named here.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from kraftpy.errors import NotController
from kraftpy.quorum.raft import engine as engine_module
from kraftpy.quorum.raft import guard
from kraftpy.quorum.raft.core import RaftCore, core_settings
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.guard import GuardTransport
from kraftpy.quorum.raft.journal import RaftJournal
from kraftpy.quorum.raft.quorum_state import QuorumStateFile
from kraftpy.quorum.raft.snapshot_transfer import SnapshotTransfer
from tests.sim.plan import Plan, draw_plan
from tests.sim.runner import Result, run_plan

Patch = tuple[Any, str, Any]
_HERE = "tests/unit/quorum/test_protections.py::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One protection less."""

    missing: str
    patches: Callable[[], list[Patch]]
    directed: str = ""  # A test that fails without the protection.
    draw: Callable[[int, int | None], Plan] = draw_plan  # The plans in which to look for it.


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        for target, attribute, replacement in mutant.patches():
            stack.enter_context(mock.patch.object(target, attribute, replacement))
        yield


def find(mutant: Mutant, seeds: range, seconds: int | None = None) -> Result | None:
    """The first seed that shows the bug."""
    with planted(mutant):
        for seed in seeds:
            result = run_plan(mutant.draw(seed, seconds))
            if result.violation is not None:
                return result
    return None


# -- what goes out -----------------------------------------------------------------------------


def _ack_before_fsync() -> list[Patch]:
    def flush(self: Any) -> None:
        out, self._out = self._out, []
        self.round += 1
        for node_id, message in out:
            self._wire.put(node_id, message)
        self._wire.push()
        self._journal.sync()

    return [(GuardTransport, "flush", flush)]


def _epoch_shown_before_stored() -> list[Patch]:
    stored = property(lambda _journal: True)
    return [(RaftJournal, "vote_is_stored", stored)]


def _vote_not_persisted() -> list[Patch]:
    return [(QuorumStateFile, "store", lambda _self, _vote: None)]


def _vote_not_stored_again() -> list[Patch]:
    original = RaftJournal.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._vote_is_stored = True

    return [(RaftJournal, "__init__", init)]


def _epoch_of_the_log_not_stored() -> list[Patch]:
    return [(RaftJournal, "_catch_up_epoch", lambda _self: None)]


def _over_and_sent() -> list[Patch]:
    return [(GuardTransport, "_is_over", lambda _self, _message: False)]


def _leader_counts_itself_before_fsync() -> list[Patch]:
    def move(self: Any, index: int) -> None:
        self.commit_index = max(self.commit_index, index)

    return [(RaftJournal, "setRaftCommitIndex", move)]


# -- what comes in -----------------------------------------------------------------------------


def _truncation_without_conflict() -> list[Patch]:
    def trim(_self: Any, message: dict[str, Any]) -> None:
        if message["prevLogIdx"] is None:
            message["entries"] = []

    return [(GuardTransport, "_trim", trim)]


def _tail_is_shown() -> list[Patch]:
    return [(RaftJournal, "limit_view", lambda _self, _index: None)]


def _stale_ack_counted() -> list[Patch]:
    original = GuardTransport._on_ack

    def on_ack(self: Any, peer: Any, message: dict[str, Any]) -> bool:
        message["term"] = self.core.raftCurrentTerm
        return original(self, peer, message)

    return [_handler("next_node_idx", on_ack)]


def _repeated_vote_counted() -> list[Patch]:
    def on_vote(_self: Any, _peer: Any, _message: Any) -> bool:
        return True

    return [_handler("response_vote", on_vote)]


def _handler(kind: str, handler: Any) -> Patch:
    return guard, "_HANDLERS", {**guard._HANDLERS, kind: handler}


def _step_back_is_forgotten() -> list[Patch]:
    return [(GuardTransport, "_place_to_try", lambda _self, _term, index: index)]


def _stale_leader_is_not_told() -> list[Patch]:
    return [(GuardTransport, "_adopt_epoch", lambda _self, _peer, _epoch: None)]


# -- commits -----------------------------------------------------------------------------------


def _commit_index_restored() -> list[Patch]:
    return [(RaftJournal, "_known_committed", lambda self: self.last()[0])]


def _old_epoch_committed_by_counting() -> list[Patch]:
    original = RaftCore._onTick

    def on_tick(self: Any, wait_s: float = 0.0) -> None:
        if self._isLeader():
            last = self._guard._journal.last()[0]
            matches = sorted([last, *self._SyncObj__raftMatchIndex.values()], reverse=True)
            reached = matches[len(matches) // 2]
            if reached > self._SyncObj__raftCommitIndex:
                self._SyncObj__raftCommitIndex = reached
                self._guard._journal.setRaftCommitIndex(reached)
        original(self, wait_s)

    return [(RaftCore, "_onTick", on_tick)]


def _snapshot_chunk_moves_commit() -> list[Patch]:
    original = GuardTransport.hear_snapshot

    def hear(self: Any, node_id: int, term: int) -> bool:
        heard = original(self, node_id, term)
        if heard:
            last = self._journal.last()[0]
            peer = self.peers[node_id].node
            message = {"type": "append_entries", "term": term, "commit_index": last}
            self._onMessageReceived(peer, message)
        return heard

    return [(GuardTransport, "hear_snapshot", hear)]


# -- the engine --------------------------------------------------------------------------------


def _older_epoch_accepted() -> list[Patch]:
    original = RaftEngine._append

    def append(self: Any, proposal: Any) -> None:
        if self._leads(self.epoch):
            proposal.epoch = self.epoch
        original(self, proposal)

    return [(RaftEngine, "_append", append)]


def _other_offset_accepted() -> list[Patch]:
    original = RaftEngine._append

    def append(self: Any, proposal: Any) -> None:
        proposal.base_offset = self._metadata_log.log.end_offset
        original(self, proposal)

    return [(RaftEngine, "_append", append)]


def _leader_never_steps_down() -> list[Patch]:
    def settings(**times: int) -> Any:
        return core_settings(**{**times, "check_quorum_ms": 10**9})

    return [(engine_module, "core_settings", settings)]


def _barrier_without_a_round() -> list[Patch]:
    def settle(self: Any) -> None:
        for barrier in self._barriers:
            engine_module._settle(barrier.future, barrier.high_watermark)
        self._barriers = []

    return [(RaftEngine, "_settle_barriers", settle)]


def _leads_before_its_epoch_commits() -> list[Patch]:
    original = RaftEngine._tell_leadership

    def tell(self: Any) -> None:
        epoch = self.core.raftCurrentTerm
        with mock.patch.object(self.journal, "term_at", return_value=epoch):
            original(self)

    return [(RaftEngine, "_tell_leadership", tell)]


def _lost_leadership_is_definite() -> list[Patch]:
    original = RaftEngine._give_up

    def give_up(self: Any, reason: Any) -> None:
        original(self, NotController(str(reason)))  # type: ignore[arg-type]

    return [(RaftEngine, "_give_up", give_up)]


# -- snapshots ---------------------------------------------------------------------------------


def _snapshot_over_newer_state() -> list[Patch]:
    original = SnapshotTransfer._take

    def take(self: Any, node_id: int, message: dict[str, Any]) -> int:
        journal = self._journal
        with (
            mock.patch.object(journal, "end_offset_of", return_value=-1),
            mock.patch.object(journal, "agrees_with", return_value=False),
        ):
            return original(self, node_id, message)

    return [(SnapshotTransfer, "_take", take)]


def _snapshot_drops_log_that_agrees() -> list[Patch]:
    original = SnapshotTransfer._take

    def take(self: Any, node_id: int, message: dict[str, Any]) -> int:
        with mock.patch.object(self._journal, "agrees_with", return_value=False):
            return original(self, node_id, message)

    return [(SnapshotTransfer, "_take", take)]


class _Unsynced:
    """A file that only says that it was synced."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """It was not."""


def _snapshot_not_synced() -> list[Patch]:
    original = SnapshotTransfer._finish

    def finish(self: Any, node_id: int, receiving: Any) -> int:
        receiving.file = _Unsynced(receiving.file)
        return original(self, node_id, receiving)

    return [(SnapshotTransfer, "_finish", finish)]


def _interrupted_is_left() -> list[Patch]:
    return [(RaftJournal, "_finish_interrupted", lambda _self: None)]


MUTANTS: dict[str, Mutant] = {
    "ack_before_fsync": Mutant(
        missing="acks and votes wait for the sync", patches=_ack_before_fsync
    ),
    "vote_not_persisted": Mutant(missing="epoch and vote are stored", patches=_vote_not_persisted),
    "epoch_shown_before_stored": Mutant(
        missing="append_entries waits for the epoch to be stored",
        patches=_epoch_shown_before_stored,
        directed=_HERE + "test_an_epoch_is_stored_before_an_append_entries_shows_it",
    ),
    "vote_not_stored_again": Mutant(
        missing="an epoch read at start is stored again",
        patches=_vote_not_stored_again,
        directed=_HERE + "test_an_epoch_read_at_the_start_is_stored_again",
    ),
    "epoch_of_the_log_not_stored": Mutant(
        missing="an epoch that only the log knows is stored",
        patches=_epoch_of_the_log_not_stored,
        directed=_HERE + "test_an_epoch_that_only_the_log_knows_is_stored_before_others_see_it",
    ),
    "over_and_sent": Mutant(
        missing="nothing of an epoch that is over leaves",
        patches=_over_and_sent,
        directed=_HERE + "test_nothing_of_an_epoch_that_is_over_leaves",
    ),
    "truncation_without_conflict": Mutant(
        missing="(c) entries that are here already are taken out",
        patches=_truncation_without_conflict,
    ),
    "tail_is_shown": Mutant(
        missing="(c) the core does not see what it must not cut", patches=_tail_is_shown
    ),
    "commit_index_restored": Mutant(
        missing="(j) only Raft knows what is committed", patches=_commit_index_restored
    ),
    "snapshot_over_newer_state": Mutant(
        missing="(m) committed state is not replaced", patches=_snapshot_over_newer_state
    ),
    "snapshot_drops_log_that_agrees": Mutant(
        missing="what follows a snapshot in the log stays",
        patches=_snapshot_drops_log_that_agrees,
        directed=_HERE + "test_a_snapshot_leaves_what_follows_it_in_a_log_that_agrees",
    ),
    "snapshot_not_synced": Mutant(
        missing="a received snapshot is durable before the log goes",
        patches=_snapshot_not_synced,
    ),
    "snapshot_chunk_moves_commit": Mutant(
        missing="(i) a chunk does not move the commit index",
        patches=_snapshot_chunk_moves_commit,
    ),
    "interrupted_is_left": Mutant(
        missing="a start finishes what a crash stopped", patches=_interrupted_is_left
    ),
    "old_epoch_committed_by_counting": Mutant(
        missing="only entries of its own epoch are counted (Raft, figure 8)",
        patches=_old_epoch_committed_by_counting,
    ),
    "leader_counts_itself_before_fsync": Mutant(
        missing="a leader's own copy is durable before it counts",
        patches=_leader_counts_itself_before_fsync,
        directed=_HERE + "test_a_leader_syncs_its_own_copy_before_it_counts_it",
    ),
    "stale_ack_counted": Mutant(
        missing="(f) an ack counts in its epoch only",
        patches=_stale_ack_counted,
        directed=_HERE + "test_an_ack_of_another_epoch_is_not_counted",
    ),
    "repeated_vote_counted": Mutant(
        missing="(p) a voter counts once",
        patches=_repeated_vote_counted,
        directed=_HERE + "test_a_voter_that_answers_twice_has_one_vote",
    ),
    "leader_never_steps_down": Mutant(
        missing="(e) a leader alone steps down", patches=_leader_never_steps_down
    ),
    "stale_leader_is_not_told": Mutant(
        missing="(e) a later epoch is adopted from any answer",
        patches=_stale_leader_is_not_told,
        directed=_HERE + "test_a_leader_that_hears_of_a_later_epoch_steps_down",
    ),
    "step_back_is_forgotten": Mutant(
        missing="(r) a step back is repeated until it worked",
        patches=_step_back_is_forgotten,
        directed=_HERE + "test_a_step_back_is_repeated_until_it_worked",
    ),
    "older_epoch_accepted": Mutant(
        missing="a batch enters in the epoch it was decided in", patches=_older_epoch_accepted
    ),
    "other_offset_accepted": Mutant(
        missing="a batch enters at the offset it was decided for",
        patches=_other_offset_accepted,
    ),
    "barrier_without_a_round": Mutant(
        missing="a read barrier asks a majority",
        patches=_barrier_without_a_round,
        directed=_HERE + "test_a_read_barrier_needs_an_answer_of_a_majority",
    ),
    "leads_before_its_epoch_commits": Mutant(
        missing="nobody leads before a batch of its epoch is committed",
        patches=_leads_before_its_epoch_commits,
    ),
    "lost_leadership_is_definite": Mutant(
        missing="with leadership the outcome is lost too", patches=_lost_leadership_is_definite
    ),
}
