"""The engine without faults worth the name: it elects, commits, hands over, catches up."""

import pytest

from kraftpy.errors import InvalidBatch, NotController, OutcomeUnknown
from kraftpy.metadata_log.records import FeatureLevelRecord, NoOpRecord
from tests.unit.quorum.cluster import Cluster


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_quorum_elects_one_leader_and_commits(size: int) -> None:
    cluster = Cluster(size)
    leader = cluster.elect()
    ends = cluster.commit(5)
    cluster.run(200)
    assert ends == list(range(2, 7))  # The leader change is at offset 0.
    for node_id in cluster.voters:
        assert cluster.engines[node_id].high_watermark == 6
        assert cluster.log_bytes(node_id) == cluster.log_bytes(leader.node_id)
        assert cluster.followers[node_id].image.end_offset == 6


def test_a_leader_begins_its_epoch_with_a_leader_change() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    first = cluster.followers[leader.node_id].batches[0]
    assert first.header.is_control
    assert first.header.leader_epoch == leader.epoch


def test_nobody_leads_before_a_batch_of_its_epoch_is_committed() -> None:
    cluster = Cluster(3)
    cluster.elect()
    for node_id, follower in cluster.followers.items():
        for leader_id, epoch in follower.leaderships:
            if leader_id == node_id:
                assert any(batch.header.leader_epoch == epoch for batch in follower.batches)


def test_a_proposal_of_another_epoch_or_offset_is_refused_and_nothing_is_written() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    log = leader.journal.metadata_log.log
    before = log.end_offset
    batch = bytes(cluster.log_bytes(leader.node_id))
    wrong_epoch = leader.propose(batch, epoch=leader.epoch - 1, base_offset=before)
    wrong_offset = leader.propose(batch, epoch=leader.epoch, base_offset=before + 1)
    follower = next(e for e in cluster.engines.values() if e is not leader)
    elsewhere = follower.propose(batch, epoch=leader.epoch, base_offset=before)
    no_batch = leader.propose(b"x" * 100, epoch=leader.epoch, base_offset=before)
    two = leader.propose(batch * 2, epoch=leader.epoch, base_offset=before)
    cluster.run(100)
    for future in (wrong_epoch, wrong_offset, elsewhere):
        assert isinstance(future.exception(0), NotController)
    for future in (no_batch, two):
        assert isinstance(future.exception(0), InvalidBatch)
    assert log.end_offset == before


def test_resigning_hands_leadership_over_without_an_election_timeout() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(3)
    done = leader.resign()
    cluster.run(100)
    assert done.done()
    successor = cluster.leader
    assert successor is not None
    assert successor is not leader
    assert successor.epoch == leader.epoch
    cluster.commit(1)


def test_a_single_voter_resigns_at_once() -> None:
    cluster = Cluster(1)
    leader = cluster.elect()
    done = leader.resign()
    cluster.run(20)
    assert done.done()


def test_a_read_barrier_needs_a_majority_that_still_follows() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    ends = cluster.commit(2)
    barrier = leader.read_barrier(epoch=leader.epoch)
    cluster.run(50)
    assert barrier.result(0) == ends[-1]
    cluster.isolate(leader.node_id)
    blind = leader.read_barrier(epoch=leader.epoch)
    cluster.run(2000)
    assert isinstance(blind.exception(0), NotController)


def test_a_leader_that_is_cut_off_steps_down_and_its_proposals_are_unknown() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.isolate(leader.node_id)
    future = cluster.propose(leader)
    cluster.run(1500)
    assert leader.leader_id is None
    assert isinstance(future.exception(0), OutcomeUnknown)
    successor = cluster.leader
    assert successor is not None
    cluster.commit(2)
    cluster.heal()
    cluster.run(1000)
    assert cluster.log_bytes(leader.node_id) == cluster.log_bytes(successor.node_id)


def test_a_follower_whose_majority_is_gone_says_that_it_hears_no_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(200)
    follower = next(e for e in cluster.engines.values() if e is not leader)
    assert follower.state().hears_leader
    assert leader.state().hears_leader
    cluster.isolate(follower.node_id)
    cluster.run(5000)
    assert not follower.state().hears_leader


def test_a_voter_that_comes_back_does_not_depose_the_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    lonely = next(n for n in cluster.voters if n != leader.node_id)
    cluster.isolate(lonely)
    cluster.run(5000)
    cluster.heal()
    cluster.run(1000)
    assert cluster.leader is leader
    assert {engine.epoch for engine in cluster.engines.values()} == {leader.epoch}


def test_what_was_committed_survives_the_death_of_everyone() -> None:
    cluster = Cluster(3)
    cluster.elect()
    cluster.commit(10, [NoOpRecord(), FeatureLevelRecord(name="x", feature_level=3)])
    for node_id in cluster.voters:
        cluster.kill(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.elect()
    cluster.run(300)
    for node_id in cluster.voters:
        assert cluster.followers[node_id].image.features["x"] == 3
        assert len(cluster.followers[node_id].batches) == 12


def test_a_follower_that_missed_more_than_the_log_has_gets_a_snapshot() -> None:
    cluster = Cluster(3, retention_bytes=1000, snapshot_bytes=2000)
    leader = cluster.elect()
    late = next(n for n in cluster.voters if n != leader.node_id)
    cluster.kill(late)
    for level in range(1, 7):
        cluster.commit(20, [FeatureLevelRecord(name="x", feature_level=level)])
        cluster.run(200)
        for node_id in set(cluster.voters) - cluster.down:
            cluster.engines[node_id].offer_snapshot(cluster.followers[node_id].image)
        cluster.run(50)
    assert leader.journal.metadata_log.log.start_offset > 40
    cluster.start(late)
    cluster.commit(3, [NoOpRecord()])
    cluster.run(1500)
    assert cluster.followers[late].snapshots
    assert cluster.followers[late].image == cluster.followers[leader.node_id].image
    start = cluster.engines[late].journal.metadata_log.log.start_offset
    assert cluster.log_bytes(late) == cluster.log_bytes(leader.node_id, start)
    # And it starts again from there.
    cluster.kill(late)
    cluster.start(late)
    cluster.commit(2)
    cluster.run(300)
    assert cluster.image_of(late) == cluster.image_of(leader.node_id)


def test_a_cancelled_future_stops_nobody() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    future = leader.propose(
        cluster.log_bytes(leader.node_id),
        epoch=leader.epoch,
        base_offset=leader.journal.metadata_log.log.end_offset,
    )
    assert future.cancel()
    cluster.run(100)
    cluster.commit(1)
