"""The thread of an engine: it ends in order, or says why, and never leaves anyone waiting."""

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from kraftpy.errors import DiskFault, FatalFault, KraftError, NotController, OutcomeUnknown
from kraftpy.quorum.consensus import CommittedBatch, Consensus
from kraftpy.quorum.raft.driver import RaftDriver
from tests.unit.quorum.tcp_cluster import PATIENCE_S, TcpCluster, wait_until


def test_it_is_a_consensus(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        consensus: Consensus = cluster.nodes[1].driver
        state = consensus.state()
        assert state.leader_id == 1
        assert consensus.read_barrier(epoch=state.epoch).result(PATIENCE_S) == state.high_watermark
        consensus.resign().result(PATIENCE_S)


def test_closing_the_leader_hands_leadership_over(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        end = cluster.commit(5)
        leader = cluster.leader()
        before = leader.engine.epoch
        cluster.stop(leader.engine.node_id)
        assert leader.engine.core._isLeader() is False
        assert not leader.driver.is_running
        # The others did not wait for a timeout: one of them stood in the very next epoch, because
        # it was asked to, and the leader had seen it before it stopped.
        assert leader.engine.core.raftCurrentTerm == before + 1
        successor = cluster.leader()
        assert successor.engine.epoch == before + 1
        assert cluster.commit() > end


def test_closing_a_leader_that_nobody_can_follow_takes_bounded_time(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        cluster.commit()
        leader = cluster.leader()
        for node_id in list(cluster.nodes):
            if cluster.nodes[node_id] is not leader:
                cluster.stop(node_id)
        leader.driver._resign_timeout_s = 0.2
        leader.driver.close()
        assert not leader.driver.is_running
        assert not leader.heard.faults


def test_closing_twice_or_before_the_start_is_fine(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        node = cluster.nodes[1]
        node.driver.close()
        node.driver.close()
        never_started = cluster.start(1, begin=False)
        never_started.driver.close()
        assert not never_started.driver.is_running


def test_what_is_proposed_after_the_end_is_refused(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        node.driver.close()
        assert isinstance(cluster.propose(node).exception(PATIENCE_S), NotController)
        assert isinstance(node.driver.read_barrier(epoch=1).exception(PATIENCE_S), NotController)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        OSError(5, "Input/output error"),
        DiskFault("the disk is full"),
        FatalFault("two leaders"),
    ],
)
def test_whatever_ends_the_thread_is_reported_exactly_once(
    tmp_path: Path, error: Exception
) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        node.heard.on_committed = lambda _batches: _raise(error)
        future = cluster.propose(node)
        node.heard.wait(lambda: bool(node.heard.faults))
        assert isinstance(future.exception(PATIENCE_S), KraftError)
        wait_until(lambda: not node.driver.is_running)
        node.driver.close()
        (fault,) = node.heard.faults
        assert fault is error or fault.__cause__ is error
        assert isinstance(fault, DiskFault) == isinstance(error, DiskFault | OSError)
        assert isinstance(cluster.propose(node).exception(PATIENCE_S), KraftError)


def test_a_failed_fsync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        log = node.engine.journal.metadata_log.log
        monkeypatch.setattr(log, "flush", lambda: _raise(DiskFault("fsync failed")))
        cluster.propose(node)
        node.heard.wait(lambda: bool(node.heard.faults))
        wait_until(lambda: not node.driver.is_running)
        assert len(node.heard.faults) == 1
        assert "fsync failed" in str(node.heard.faults[0])


def test_a_batch_whose_fsync_fails_gets_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        log = node.engine.journal.metadata_log.log
        monkeypatch.setattr(log, "flush", lambda: _raise(DiskFault("fsync failed")))
        future = cluster.propose(node)
        wait_until(lambda: not node.driver.is_running)
        assert isinstance(future.exception(0), OutcomeUnknown | FatalFault)


def test_when_a_node_fails_its_peers_go_on_without_it(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        cluster.commit()
        leader = cluster.leader()
        leader.heard.on_committed = lambda _batches: _raise(ValueError("a bug"))
        cluster.propose(leader)
        leader.heard.wait(lambda: bool(leader.heard.faults))
        cluster.stop(leader.engine.node_id)
        cluster.commit(3)
        assert not any(node.heard.faults for node in cluster.nodes.values())


def test_every_future_is_settled_when_the_node_stops(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        futures: list[Future[int]] = []
        stopping = threading.Event()

        def write() -> None:
            while not stopping.is_set() or len(futures) < 50:
                futures.append(cluster.propose(node))

        writer = threading.Thread(target=write)
        writer.start()
        node.driver.close()
        stopping.set()
        writer.join(PATIENCE_S)
        for future in futures:
            assert isinstance(future.exception(PATIENCE_S), KraftError | None)


def test_a_listener_may_close_the_driver_that_calls_it(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]

        def close(_batches: list[CommittedBatch]) -> None:
            node.driver.close()

        node.heard.on_committed = close
        cluster.propose(node)
        wait_until(lambda: not node.driver.is_running)
        assert not node.heard.faults


def test_a_thread_that_is_stuck_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        cluster.commit()
        node = cluster.nodes[1]
        release = threading.Event()
        driver: RaftDriver = node.driver
        driver._resign_timeout_s = driver._stop_timeout_s = 0.05
        node.heard.on_committed = lambda _batches: _wait(release)
        cluster.propose(node)
        with pytest.raises(FatalFault, match="did not stop"):
            driver.close()
        release.set()
        driver._stop_timeout_s = PATIENCE_S
        driver.close()


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE_S)
