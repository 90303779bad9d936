"""Voters on real sockets and files: they find each other, and go on whatever connects to them."""

import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from kraftpy.limits import PEER_SEND_BUFFER_BYTES_MAX
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log.records import ConfigRecord
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.handshake import NONCE_BYTES, PEER_MAGIC, Connector, PeerRefused
from kraftpy.types import Uuid
from tests.unit.quorum.raw_peer import VOTE, Address, MovingClock, RawPeer, frame, identity
from tests.unit.quorum.tcp_cluster import SECRET, TcpCluster, wait_until


def assert_same_logs(cluster: TcpCluster, end: int) -> None:
    cluster.wait_for_high_watermark(end)
    assert len({cluster.log_bytes(node_id, end) for node_id in cluster.nodes}) == 1


def test_three_voters_elect_and_commit(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        end = cluster.commit(20)
        assert_same_logs(cluster, end)
        for node in cluster.nodes.values():
            assert node.world.counts["connected"] == 2
            assert not node.heard.faults


def test_a_single_voter_needs_nobody(tmp_path: Path) -> None:
    with TcpCluster(tmp_path, size=1) as cluster:
        assert cluster.commit(3) == 4


def test_broken_connections_are_made_anew_and_nothing_is_lost(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        end = 0
        for round_number in range(6):
            end = cluster.commit(3)
            cluster.break_connections(1 + round_number % 3)
        end = max(end, cluster.commit(3))
        assert_same_logs(cluster, end)
        assert sum(node.world.counts["connected"] for node in cluster.nodes.values()) > 6


@pytest.mark.parametrize("role", ["leader", "lowest", "highest"])
def test_a_node_that_comes_back_is_connected_and_catches_up(tmp_path: Path, role: str) -> None:
    with TcpCluster(tmp_path) as cluster:
        cluster.commit(3)
        leader = cluster.leader().engine.node_id
        node_id = {"leader": leader, "lowest": 1, "highest": 3}[role]
        cluster.stop(node_id)
        cluster.commit(3)
        cluster.start(node_id)
        assert_same_logs(cluster, cluster.commit(3))


def test_a_follower_far_behind_catches_up_past_the_bound_on_unsent_bytes(tmp_path: Path) -> None:
    """If the bound closed connections, each attempt would end where the last one did."""
    value = "x" * (1 << 20)
    record: MetadataRecord = ConfigRecord(
        resource_type=2, resource_name="topic", name="retention.ms", value=value
    )
    with TcpCluster(tmp_path) as cluster:
        cluster.commit()
        follower = next(i for i in cluster.nodes if i != cluster.leader().engine.node_id)
        cluster.stop(follower)
        leader = cluster.leader()
        for _ in range(4 * PEER_SEND_BUFFER_BYTES_MAX // len(value)):
            cluster.propose(leader, [record]).result(20)
        cluster.start(follower)
        assert_same_logs(cluster, cluster.commit())


def test_nothing_is_ever_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise AssertionError("something was pickled or unpickled")

    for name in ("loads", "load", "Unpickler", "dumps", "dump", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    with TcpCluster(tmp_path) as cluster:
        cluster.commit(5)
        cluster.stop(cluster.leader().engine.node_id)
        end = cluster.commit(5)
        for node_id in (1, 2, 3):
            if node_id not in cluster.nodes:
                cluster.start(node_id)
        assert_same_logs(cluster, end)
        assert not any(node.heard.faults for node in cluster.nodes.values())


# -- what a running quorum does not even notice -----------------------------------------------


def stranger(_address: Address, peer: RawPeer) -> None:
    peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def huge_hello(_address: Address, peer: RawPeer) -> None:
    peer.send(PEER_MAGIC + (1 << 30).to_bytes(4, "big") + b"x" * 1000)


def pickled(_address: Address, peer: RawPeer) -> None:
    peer.send(pickle.dumps({"type": "response_vote", "term": 99}))


def wrong_secret(_address: Address, peer: RawPeer) -> None:
    peer.send(frame(peer.hello(Connector(identity(3), b"guess", 1, os.urandom(NONCE_BYTES)))))


def wrong_cluster(_address: Address, peer: RawPeer) -> None:
    with pytest.raises(PeerRefused, match="wrong_cluster"):
        peer.join(identity(3, cluster_id=Uuid(b"another cluster!")), 1)


def wrong_node(_address: Address, peer: RawPeer) -> None:
    with pytest.raises(PeerRefused, match="wrong_node"):
        peer.join(identity(3), 2)


def replayed_frame(_address: Address, peer: RawPeer) -> None:
    peer.join(identity(3), 1).send(peer.sealed(messages.encode(VOTE)) * 2)


def flipped_bit(_address: Address, peer: RawPeer) -> None:
    sealed = bytearray(peer.join(identity(3), 1).sealed(messages.encode(VOTE)))
    sealed[-3] ^= 0x10
    peer.send(bytes(sealed))


def pickle_in_a_proven_frame(_address: Address, peer: RawPeer) -> None:
    peer.join(identity(3), 1).send(peer.sealed(pickle.dumps(VOTE)))


ATTACKS: list[tuple[Callable[[Address, RawPeer], None], str]] = [
    (stranger, "bad_hello"),
    (huge_hello, "bad_hello"),
    (pickled, "bad_hello"),
    (wrong_secret, "wrong_secret"),
    (wrong_cluster, "wrong_cluster"),
    (wrong_node, "wrong_node"),
    (replayed_frame, "bad_frame"),
    (flipped_bit, "bad_frame"),
    (pickle_in_a_proven_frame, "bad_message"),
]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TcpCluster, MovingClock]]:
    """Voters 1 and 2 of three; the third is played by whoever likes to."""
    clock = MovingClock()
    path = tmp_path_factory.mktemp("quorum")
    with TcpCluster(path, running=(1, 2), peer_clock=clock) as cluster:
        cluster.commit()
        yield cluster, clock


@pytest.mark.parametrize(
    ("attack", "reason"), ATTACKS, ids=lambda each: getattr(each, "__name__", each)
)
def test_it_is_closed_counted_and_logged_once_and_commits_go_on(
    attack: Callable[[Address, RawPeer], None],
    reason: str,
    quorum: tuple[TcpCluster, MovingClock],
) -> None:
    cluster, clock = quorum
    clock.added_ms += 10 * 60 * 1000  # What was logged in another test may be logged again.
    cluster.commit()
    world = cluster.nodes[1].world
    state = cluster.leader().engine.state()
    before = world.counts[reason]
    with capture_logs() as logged:
        for _ in range(3):
            with RawPeer(cluster.address(1), source="127.0.0.77") as peer:
                attack(cluster.address(1), peer)
                assert peer.is_closed()
        wait_until(lambda: world.counts[reason] >= before + 3)
        cluster.commit()
    found = [each for each in logged if each["event"] == "peer_refused"]
    assert [each["reason"] for each in found] == [reason]
    assert found[0]["peer"] in ("at 127.0.0.77", "node 3")
    assert cluster.leader().engine.epoch == state.epoch
    assert not any(node.heard.faults for node in cluster.nodes.values())


def test_silent_and_slow_strangers_are_closed_when_their_time_is_over(
    quorum: tuple[TcpCluster, MovingClock],
) -> None:
    cluster, clock = quorum
    world = cluster.nodes[1].world
    before = world.counts["handshake_timeout"]
    epoch = cluster.leader().engine.epoch
    with RawPeer(cluster.address(1)) as silent, RawPeer(cluster.address(1)) as slow:
        slow.send(PEER_MAGIC[:1])
        wait_until(lambda: len(world._unproven) == 2)
        clock.added_ms += 1500
        slow.send(PEER_MAGIC[1:2])
        clock.added_ms += 1000
        assert silent.is_closed()
        assert slow.is_closed()
    wait_until(lambda: world.counts["handshake_timeout"] == before + 2)
    cluster.commit()
    assert cluster.leader().engine.epoch == epoch


def test_a_third_voter_that_proves_itself_and_then_says_nothing_is_gone_after_a_while(
    quorum: tuple[TcpCluster, MovingClock],
) -> None:
    cluster, clock = quorum
    world = cluster.nodes[1].world
    with RawPeer(cluster.address(1)) as peer:
        peer.join(identity(3), 1)
        wait_until(lambda: 3 in world._live)
        cluster.commit()
        before = world.counts["silent"]
        clock.added_ms += 2000
        cluster.commit()  # The others have been heard of since.
        clock.added_ms += 1500
        assert peer.is_closed()
        wait_until(lambda: world.counts["silent"] > before)
    cluster.commit()


def test_a_reset_in_the_middle_of_a_handshake_is_no_more_than_that(
    quorum: tuple[TcpCluster, MovingClock],
) -> None:
    cluster, _ = quorum
    for _ in range(20):
        with RawPeer(cluster.address(1)) as peer:
            peer.send(PEER_MAGIC + frame(Connector(identity(3), SECRET, 1, b"n" * 32).begin()))
            linger: Any = b"\1\0\0\0\0\0\0\0"
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    cluster.commit()
    assert not any(node.heard.faults for node in cluster.nodes.values())
