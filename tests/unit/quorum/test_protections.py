"""Protections that random schedules seldom or never need, each with the schedule that needs it.

Every test here fails when its protection is taken out; tests/sim/mutants.py does that, and names
the test. What the simulation finds by itself has no test here.
"""

from dataclasses import replace
from typing import Any
from unittest import mock

from kraftpy.metadata_log.image import EMPTY
from kraftpy.metadata_log.loading import replay_batches
from kraftpy.metadata_log.snapshot_file import SnapshotId, write_snapshot
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.quorum_state import QuorumStateFile
from kraftpy.testing.simulated_files import SimulatedFiles
from tests.unit.quorum.cluster import Cluster


def follower_of(cluster: Cluster, leader: RaftEngine) -> RaftEngine:
    return next(each for each in cluster.engines.values() if each is not leader)


def answers(cluster: Cluster, sender: RaftEngine) -> list[dict[str, Any]]:
    """What a node has just sent, none of it delivered."""
    sender.tick(0)
    cluster.cut |= {(sender.node_id, other) for other in cluster.voters}
    before = len(cluster.lost)
    cluster.carry()
    found = [message for who, _, message in cluster.lost[before:] if who == sender.node_id]
    cluster.heal()
    return found


def test_an_ack_of_another_epoch_is_not_counted() -> None:
    """(f): a leader that was elected again must not count what its entries of an earlier epoch
    earned, since others may have replaced them in between."""
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(2)
    cluster.isolate(leader.node_id)
    future = cluster.propose(leader)
    end_offset = leader.journal.metadata_log.log.end_offset
    ack = {"type": "next_node_idx", "reset": False, "success": True, "round": 0}
    place = {"next_node_idx": leader.journal.last()[0] + 1, "end_offset": end_offset}
    for node_id in leader.guard.peers:
        leader.receive(node_id, {**ack, **place, "term": leader.epoch - 1})
    leader.tick(0)
    assert not future.done()
    assert leader.guard.counts["stale_ack"] == 2
    leader.receive(follower_of(cluster, leader).node_id, {**ack, **place, "term": leader.epoch})
    leader.tick(0)
    assert future.result(0) == end_offset  # The same ack, of this epoch, does count.


def test_a_snapshot_leaves_what_follows_it_in_a_log_that_agrees() -> None:
    """1. A follower acknowledges entries up to 6 and restarts: it knows nothing is committed.
    2. The leader, told to step far back, sends a snapshot that ends at 3.
    3. If the follower began anew at 3, the leader's death would leave 3 to 6 on no majority.
    """
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(5)
    cluster.run(200)
    late = follower_of(cluster, leader).node_id
    cluster.kill(late)
    cluster.isolate(late)
    follower = cluster.start(late)
    log = follower.journal.metadata_log.log
    end_offset = log.end_offset
    told = cluster.followers[leader.node_id].batches
    batches = [(batch.header, memoryview(batch.data)) for batch in told]
    image = replay_batches(EMPTY, batches, 3)
    files = SimulatedFiles()
    files.make_directory("/scratch")
    snapshot_id = write_snapshot(files, "/scratch", image, batch_count=3)
    data = files.read_whole(f"/scratch/{snapshot_id.file_name}")
    chunk = {"type": "snapshot_chunk", "term": leader.epoch, "size": len(data), "position": 0}
    follower.receive(leader.node_id, {**chunk, "data": data, **snapshot_id._asdict()})
    follower.tick(0)
    assert snapshot_id == SnapshotId(3, leader.epoch)
    assert log.end_offset == end_offset
    assert log.start_offset == 0
    assert follower.high_watermark == 3


def test_a_step_back_is_repeated_until_it_worked() -> None:
    """(r): a leader pipelines. The refusal of the first message sends it back; the refusals of
    those behind it, "my end + 1", must not send it forward again."""
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(6)
    late = follower_of(cluster, leader).node_id
    cluster.kill(late)
    cluster.isolate(late)
    follower = cluster.start(late)
    message = {"type": "append_entries", "term": leader.epoch + 1, "commit_index": 1, "round": 1}
    last = follower.journal.last()[0]
    for previous in (last, last + 3):
        wrong = {"entries": [], "prevLogIdx": previous, "prevLogTerm": leader.epoch + 1}
        follower.receive(leader.node_id, {**message, **wrong})
    refusals = [each for each in answers(cluster, follower) if each["type"] == "next_node_idx"]
    assert [each["success"] for each in refusals] == [False, False]
    assert refusals[0]["next_node_idx"] < last
    assert refusals[1]["next_node_idx"] == refusals[0]["next_node_idx"]


def test_a_leader_that_hears_of_a_later_epoch_steps_down() -> None:
    """(e): whoever refuses an old leader tells it the epoch, so it need not wait for a timeout."""
    cluster = Cluster(3)
    leader = cluster.elect()
    epoch, other = leader.epoch, follower_of(cluster, leader).node_id
    cluster.isolate(leader.node_id)
    leader.receive(other, {"type": "stale_term", "term": epoch + 1})
    leader.tick(0)
    assert leader.leader_id is None
    assert leader.epoch == epoch + 1
    follower = follower_of(cluster, leader)
    old = {"type": "append_entries", "term": epoch - 1, "commit_index": 1, "round": 1}
    nothing = {"entries": [], "prevLogIdx": 1, "prevLogTerm": 0}
    follower.receive(leader.node_id, {**old, **nothing})
    assert {"type": "stale_term", "term": epoch} in answers(cluster, follower)


def test_a_leader_syncs_its_own_copy_before_it_counts_it() -> None:
    """The flush of a tick syncs too, and nothing is told before it; this holds without that."""
    cluster = Cluster(3)
    leader = cluster.elect()
    log = leader.journal.metadata_log.log
    log.config = replace(log.config, flush_interval_messages=None)
    cluster.isolate(leader.node_id)
    index = leader.journal.last()[0] + 1
    leader.journal.add(leader.journal._leader_change(leader.epoch), index, leader.epoch)
    assert log.flushed_end_offset < leader.journal.end_offset
    leader.journal.setRaftCommitIndex(index)
    assert log.flushed_end_offset == leader.journal.end_offset


def test_an_epoch_is_stored_before_an_append_entries_shows_it() -> None:
    """(a): append_entries leave before the sync of the log, but not before that of the epoch."""
    cluster = Cluster(3)
    leader = cluster.elect()
    node = leader.node_id
    state_file = QuorumStateFile(cluster.files[node], f"/node-{node}/quorum-state")
    epoch = leader.epoch + 7
    leader.core._SyncObj__setCurrentTerm(epoch, None)
    seen = []
    message = {"type": "append_entries", "term": epoch, "commit_index": 1, "entries": []}
    peer = next(iter(leader.guard.peers.values())).node
    leader.guard.send(peer, {**message, "prevLogIdx": 1, "prevLogTerm": 0})

    def put(_node_id: int, _message: dict[str, Any]) -> None:
        seen.append(state_file.load().epoch)

    with mock.patch.object(leader._world, "put", put):
        leader.guard.flush()
    assert seen == [epoch]


def test_nothing_of_an_epoch_that_is_over_leaves() -> None:
    """1. A follower acknowledges entries; the ack waits for the sync at the tick's end.
    2. Before that it hears of a later epoch, whose leader may make it cut those entries.
    3. The ack must not leave any more: the old leader would count what is not there."""
    cluster = Cluster(3)
    leader = cluster.elect()
    follower = follower_of(cluster, leader)
    ack = {"type": "next_node_idx", "term": follower.epoch, "success": True, "reset": False}
    peer = follower.guard.peers[leader.node_id].node
    place = {"next_node_idx": follower.journal.last()[0] + 1, "end_offset": 0, "round": 1}
    sent: list[dict[str, Any]] = []
    with mock.patch.object(follower._world, "put", lambda _node_id, message: sent.append(message)):
        follower.guard.send(peer, {**ack, **place})
        follower.guard.flush()
        assert [each["type"] for each in sent] == ["next_node_idx"]  # In its epoch it does leave.
        follower.guard.send(peer, {**ack, **place})
        follower.core._SyncObj__setCurrentTerm(follower.epoch + 1, None)
        follower.guard.flush()
    assert len(sent) == 1


def stored_epoch(cluster: Cluster, node_id: int) -> int:
    """What a power loss at this moment leaves of the epoch."""
    left = cluster.files[node_id].power_loss()
    return QuorumStateFile(left, f"/node-{node_id}/quorum-state").load().epoch


def test_an_epoch_that_only_the_log_knows_is_stored_before_others_see_it() -> None:
    """A power loss may keep a batch of an epoch and lose the quorum-state that names it. The core
    goes on in that epoch; were it not stored, a second power loss would let the node vote in it
    again."""
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(200)
    node_id = follower_of(cluster, leader).node_id
    epoch = leader.epoch
    cluster.kill(node_id)
    cluster.files[node_id].remove(f"/node-{node_id}/quorum-state")
    cluster.files[node_id].sync_directory(f"/node-{node_id}")
    cluster.isolate(node_id)
    follower = cluster.start(node_id)
    follower.tick(0)
    assert follower.core.raftCurrentTerm == epoch
    assert stored_epoch(cluster, node_id) == epoch


def test_an_epoch_read_at_the_start_is_stored_again() -> None:
    """A killed process may leave a quorum-state that is in the page cache only: the next one reads
    it and acts on it, so it must not go with the power."""
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(200)
    node_id = follower_of(cluster, leader).node_id
    path = f"/node-{node_id}/quorum-state"
    cluster.kill(node_id)
    cluster.isolate(node_id)
    files = cluster.files[node_id]
    content = files.read_whole(path)
    files.remove(path)
    files.sync_directory(f"/node-{node_id}")
    files.open(path).write(0, [content])
    follower = cluster.start(node_id)
    follower.tick(0)
    assert follower.core.raftCurrentTerm == leader.epoch
    assert stored_epoch(cluster, node_id) == leader.epoch


def test_a_read_barrier_needs_an_answer_of_a_majority() -> None:
    """A leader that was cut off may long have a successor: what it knows is no answer."""
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(2)
    cluster.isolate(leader.node_id)
    barrier = leader.read_barrier(epoch=leader.epoch)
    cluster.run(100)
    assert not barrier.done()
    cluster.heal()
    cluster.run_until(barrier.done)
    assert barrier.result(0) == leader.high_watermark


def test_a_voter_that_answers_twice_has_one_vote() -> None:
    """(p): in a quorum of five, a candidate needs two votes besides its own."""
    cluster = Cluster(5)
    for node_id in cluster.voters:
        cluster.isolate(node_id)
    candidate = cluster.engines[1]
    with mock.patch.object(candidate.guard, "may_stand", return_value=True):
        for _ in range(400):
            if candidate.core.raftCurrentTerm:
                break
            cluster.run(5)
    vote = {"type": "response_vote", "term": candidate.core.raftCurrentTerm}
    for _ in range(3):
        candidate.receive(2, dict(vote))
    candidate.tick(0)
    assert not candidate.core._isLeader()
    candidate.receive(3, dict(vote))
    candidate.tick(0)
    assert candidate.core._isLeader()
