"""A disk that fails under a voter: it stops, says so once, and the others go on without it."""

from contextlib import suppress

import pytest

from kraftpy.errors import CorruptRecord, FatalFault, NotController, OutcomeUnknown
from kraftpy.quorum.raft.engine import RaftEngine
from tests.unit.quorum.cluster import Cluster


def tick_until_failed(cluster: Cluster, engine: RaftEngine) -> FatalFault:
    """Run until a voter fails; it must be that one."""
    with suppress(FatalFault):
        cluster.run(2000)
    with pytest.raises(FatalFault) as failed:
        engine.tick(0)
    return failed.value


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("what", ["log", "quorum-state", "full disk"])
def test_a_voter_whose_disk_fails_stops_and_loses_nothing(who: str, what: str) -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(5)
    cluster.run(200)
    follower = next(e for e in cluster.engines.values() if e is not leader)
    victim = leader if who == "leader" else follower
    files = cluster.files[victim.node_id]
    if what == "full disk":
        files.capacity_bytes = 0
    else:
        suffix = ".log" if what == "log" else "quorum-state.tmp"
        files.fail_sync(path=lambda path: path.endswith(suffix))
    if what == "quorum-state":  # It is written when the epoch changes.
        leader.resign()
    future = leader.propose(
        cluster.log_bytes(leader.node_id, 1, 2),
        epoch=leader.epoch,
        base_offset=leader.journal.metadata_log.log.end_offset,
    )
    fault = tick_until_failed(cluster, victim)
    assert cluster.followers[victim.node_id].faults == [fault]
    with pytest.raises(FatalFault):  # It stays failed.
        victim.tick(0)
    late = victim.propose(b"", epoch=victim.epoch, base_offset=0)
    assert isinstance(late.exception(0), FatalFault)
    if victim is leader:
        assert isinstance(future.exception(0), OutcomeUnknown | NotController)
    cluster.kill(victim.node_id)
    cluster.elect()
    ends = cluster.commit(3)
    files = cluster.files[victim.node_id]
    files.capacity_bytes = None
    cluster.start(victim.node_id)
    cluster.run(1500)
    assert cluster.followers[victim.node_id].image.end_offset == ends[-1]


def test_a_damaged_quorum_state_is_refused() -> None:
    """To guess an epoch could mean to vote twice."""
    cluster = Cluster(1)
    cluster.elect()
    cluster.kill(1)
    path = "/node-1/quorum-state"
    whole = cluster.files[1].read_whole(path)
    for content in (b"", whole[:-3], whole.replace(b"1", b"2", 1), b"{}\n00000000\n"):
        cluster.files[1].replace(path, content)
        with pytest.raises(CorruptRecord, match="quorum-state"):
            cluster.start(1)
    cluster.files[1].replace(path, whole)
    cluster.start(1)
    cluster.elect()
