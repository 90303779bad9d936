"""One node's connections, polled by the test: what lives, what ends, what waits and for how long.

Time is the clock's, which the test moves; nothing here sleeps and hopes.
"""

import random
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraftpy.limits import (
    PEER_COMPLAINTS_MAX,
    PEER_HANDSHAKES_MAX,
    PEER_SEND_BUFFER_BYTES_MAX,
    SNAPSHOT_CHUNK_BYTES,
)
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.handshake import PEER_MAGIC, Connector
from kraftpy.quorum.raft.peer_complaints import Complaints
from kraftpy.quorum.raft.peer_dialer import Dialer
from kraftpy.quorum.raft.peers import PeerTiming
from kraftpy.quorum.voters import Voter
from tests.unit.quorum.raw_peer import VOTE, Alone, MovingClock, RawPeer, frame, identity
from tests.unit.quorum.tcp_cluster import SECRET, listening, wait_until

CHUNK = {
    "type": "snapshot_chunk",
    "term": 1,
    "end_offset": 1,
    "epoch": 1,
    "size": 1 << 30,
    "position": 0,
    "data": b"x" * SNAPSHOT_CHUNK_BYTES,
}


def refusals(logged: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["reason"] for each in logged if each["event"] == "peer_refused"]


# -- messages ---------------------------------------------------------------------------------


def test_messages_go_both_ways_in_order() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        for term in range(100):
            peer.say({**VOTE, "term": term})
            alone.world.put(3, {**VOTE, "term": 1000 + term})
        alone.world.push()
        alone.poll_until(lambda: len(alone.told) == 101)
        assert alone.told[1:] == [(3, {**VOTE, "term": term}) for term in range(100)]
        assert [peer.hear()["term"] for _ in range(100)] == list(range(1000, 1100))


def test_a_message_to_a_voter_that_is_away_is_lost() -> None:
    with Alone() as alone:
        alone.world.put(2, VOTE)
        alone.world.push()
        alone.poll()
        assert alone.told == []


def test_frames_in_pieces_of_one_byte_arrive() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        for byte in peer.sealed(messages.encode(VOTE)):
            peer.send(bytes([byte]))
            alone.poll()
        alone.poll_until(lambda: (3, VOTE) in alone.told)


def test_a_large_message_arrives_whole() -> None:
    large = {**CHUNK, "data": random.Random(1).randbytes(12 << 20)}
    with Alone() as alone, RawPeer(alone.address) as peer:
        peer._drive = alone.poll
        peer.join(identity(3), 1)
        peer.sock.settimeout(10)
        sender = threading.Thread(target=peer.say, args=(large,))
        sender.start()
        alone.poll_until(lambda: len(alone.told) == 2)
        sender.join(10)
        assert alone.told[1] == (3, large)


# -- the newest connection wins ---------------------------------------------------------------


def test_the_newest_proven_connection_wins_and_the_old_one_is_not_heard_any_more() -> None:
    with (
        Alone() as alone,
        RawPeer(alone.address, alone.poll) as old,
        RawPeer(alone.address, alone.poll) as new,
    ):
        old.join(identity(3), 1)
        begun = old.sealed(messages.encode(VOTE))
        old.send(begun[:10])
        alone.poll(3)
        connector = Connector(identity(3), SECRET, 1, b"n" * 32)
        proof = new.hello(connector)
        # All of it is there before the next poll; the new one's proof came first.
        new.send(frame(proof))
        old.send(begun[10:])
        alone.poll_until(lambda: alone.told.count(("connected", 3)) == 2)
        connector.receive(new.receive_frame())
        new.session = connector.session
        new.say({**VOTE, "term": 9})
        alone.poll_until(lambda: (3, {**VOTE, "term": 9}) in alone.told)
        again = alone.told.index(("disconnected", 3))
        assert alone.told[again:] == [
            ("disconnected", 3),
            ("connected", 3),
            (3, {**VOTE, "term": 9}),
        ]
        assert old.is_closed()


def test_an_unproven_connection_replaces_nothing() -> None:
    with (
        Alone() as alone,
        RawPeer(alone.address, alone.poll) as live,
        RawPeer(alone.address, alone.poll) as stranger,
    ):
        live.join(identity(3), 1)
        stranger.send(frame(stranger.hello(Connector(identity(3), b"guessed", 1, b"n" * 32))))
        alone.poll_until_counted("wrong_secret")
        live.say(VOTE)
        alone.poll_until(lambda: (3, VOTE) in alone.told)
        assert alone.told == [("connected", 3), (3, VOTE)]


# -- what takes too long ----------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", PEER_MAGIC[:2], PEER_MAGIC, PEER_MAGIC + b"\0\0\0"])
def test_a_silent_stranger_is_closed_when_its_time_is_over(sent: bytes) -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer, capture_logs() as logged:
        peer.send(sent)
        alone.poll(5)
        alone.clock.added_ms += PeerTiming().handshake_ms - 500
        alone.poll(5)
        assert alone.world.counts["handshake_timeout"] == 0
        alone.clock.added_ms += 501
        alone.poll_until_counted("handshake_timeout")
        assert peer.is_closed()
        assert refusals(logged) == ["handshake_timeout"]
        assert alone.told == []


def test_a_stranger_that_sends_a_byte_at_a_time_gets_no_more_time_than_any_other() -> None:
    hello = PEER_MAGIC + frame(Connector(identity(3), SECRET, 1, b"n" * 32).begin())
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        for byte in hello[:-1]:
            if alone.world.counts["handshake_timeout"]:
                break
            peer.send(bytes([byte]))
            alone.clock.added_ms += 100
            alone.poll(2)
        assert alone.world.counts["handshake_timeout"] == 1
        assert peer.is_closed()


def test_a_proven_peer_that_is_heard_of_no_more_is_gone() -> None:
    """Half-open: its machine lost power, so nothing says that it is not there any more."""
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        alone.clock.added_ms += PeerTiming().silence_ms - 500
        alone.poll(5)
        assert alone.told == [("connected", 3)]
        (connection,) = alone.world._live.values()
        before_ms = connection.heard_ms
        peer.send(peer.sealed(b""))  # A ping: it says nothing, and that it lives.
        alone.poll_until(lambda: connection.heard_ms > before_ms)
        alone.clock.added_ms += PeerTiming().silence_ms - 500
        alone.poll(5)
        assert alone.told == [("connected", 3)]
        alone.clock.added_ms += 501
        alone.poll_until_counted("silent")
        assert alone.told == [("connected", 3), ("disconnected", 3)]
        assert peer.is_closed()


def test_a_quiet_connection_is_kept_alive() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        alone.clock.added_ms += PeerTiming().ping_ms
        alone.poll(3)
        assert len(peer.receive_frame()) == 16


def test_a_peer_that_takes_nothing_costs_bounded_memory_and_then_its_connection() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        for _ in range(4 * PEER_SEND_BUFFER_BYTES_MAX // SNAPSHOT_CHUNK_BYTES):
            alone.world.put(3, CHUNK)
            alone.world.push()
        assert alone.world.counts["dropped_message"] > 0
        (connection,) = alone.world._live.values()
        assert connection.unsent_bytes < PEER_SEND_BUFFER_BYTES_MAX + 2 * SNAPSHOT_CHUNK_BYTES
        counts = alone.world.counts

        def is_heard_or_given_up() -> bool:
            now_ms = alone.clock.monotonic_ms()
            return counts["stalled"] > 0 or now_ms - connection.heard_ms < 500

        for _ in range(PeerTiming().silence_ms // 1000 + 1):
            if not counts["stalled"]:
                peer.send(peer.sealed(b""))
                alone.clock.added_ms += 1000
                alone.poll_until(is_heard_or_given_up)
        assert alone.told == [("connected", 3), ("disconnected", 3)]


def test_what_was_kept_is_sent_when_the_peer_takes_it_and_no_frame_is_torn() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        put = 2 * PEER_SEND_BUFFER_BYTES_MAX // SNAPSHOT_CHUNK_BYTES + 40
        for position in range(put):
            alone.world.put(3, {**CHUNK, "position": position})
            alone.world.push()
        dropped = alone.world.counts["dropped_message"]
        assert dropped
        heard = [peer.hear()["position"] for _ in range(put - dropped)]
        assert heard == sorted(set(heard))  # The MACs fit too, or `hear` had complained.
        alone.world.put(3, VOTE)
        alone.world.push()
        assert peer.hear() == VOTE


# -- strangers in numbers ---------------------------------------------------------------------


def test_strangers_that_hold_on_cannot_keep_a_voter_out() -> None:
    with Alone() as alone, ExitStack() as stack:

        def come(count: int) -> None:
            for _ in range(count):
                stack.enter_context(RawPeer(alone.address))
                alone.poll()
            assert len(alone.world._unproven) <= PEER_HANDSHAKES_MAX

        come(2 * PEER_HANDSHAKES_MAX)
        alone.poll_until_counted("too_many", PEER_HANDSHAKES_MAX)
        peer = stack.enter_context(RawPeer(alone.address, alone.poll))
        proof = peer.hello(Connector(identity(3), SECRET, 1, b"n" * 32))
        come(PEER_HANDSHAKES_MAX // 2)
        peer.send(frame(proof))
        alone.poll_until(lambda: alone.told == [("connected", 3)])


def test_one_stranger_is_logged_once_and_counted_each_time() -> None:
    with Alone() as alone, capture_logs() as logged:
        for _ in range(5):
            with RawPeer(alone.address, alone.poll) as peer:
                peer.send(b"\x80\x04nonsense")
                assert peer.is_closed()
        with RawPeer(alone.address, alone.poll, source="127.0.0.2") as peer:
            peer.send(b"\x80\x04nonsense")
            assert peer.is_closed()
        assert alone.world.counts["bad_hello"] == 6
        found = [each["peer"] for each in logged if each["event"] == "peer_refused"]
        assert found == ["at 127.0.0.1", "at 127.0.0.2"]


def test_complaints_are_bounded_and_come_again_after_a_while() -> None:
    clock = MovingClock()
    complaints = Complaints(clock, 1)
    with capture_logs() as logged:
        for number in range(2 * PEER_COMPLAINTS_MAX):
            complaints.note("bad_hello", f"at {number}", "why")
        assert len(logged) == PEER_COMPLAINTS_MAX
        assert complaints.counts["bad_hello"] == 2 * PEER_COMPLAINTS_MAX
        clock.added_ms += 10 * 60 * 1000
        complaints.note("bad_hello", "at 0", "why")
        complaints.note("bad_hello", "another", "why")
        assert len(logged) == PEER_COMPLAINTS_MAX + 2


def test_a_voter_that_is_not_up_yet_is_logged_only_if_that_lasts() -> None:
    clock = MovingClock()
    complaints = Complaints(clock, 1)
    with capture_logs() as logged:
        complaints.note("unreachable", "node 2", "refused")
        clock.added_ms += 4000
        complaints.note("unreachable", "node 2", "refused")
        complaints.forgive("node 2")
        clock.added_ms += 4000
        complaints.note("unreachable", "node 2", "refused")
        assert logged == []
        clock.added_ms += 6000
        complaints.note("unreachable", "node 2", "refused")
        assert refusals(logged) == ["unreachable"]


# -- the side that connects -------------------------------------------------------------------


def test_the_higher_id_connects_to_the_lower_and_again_when_it_is_gone() -> None:
    with Alone(1) as low:
        voters = [Voter(1, *low.address), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters) as high:

            def poll_low() -> bool:
                low.poll()
                return ("connected", 1) in high.told and ("connected", 2) in low.told

            high.poll_until(poll_low)
            low.world._end(low.world._live[2], low.world._live[2]._ended())
            high.told.clear()
            high.poll_until(poll_low)
            assert high.told == [("disconnected", 1), ("connected", 1)]
        low.poll_until(lambda: low.told[-1] == ("disconnected", 2))


def test_an_acceptor_with_another_secret_is_told_nothing() -> None:
    with Alone(1, secret=b"another") as low:
        voters = [Voter(1, *low.address), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters) as high, capture_logs() as logged:

            def refused_twice() -> bool:
                low.poll()
                return high.world.counts["refused_by_peer"] >= 2

            high.poll_until(refused_twice)
            assert high.told == low.told == []
            assert sorted(refusals(logged)) == ["refused_by_peer", "wrong_secret"]


def test_an_acceptor_that_says_nothing_is_given_up() -> None:
    silent = listening()
    with Alone(2, [Voter(1, *silent.getsockname()), Voter(2, "127.0.0.1", 1)]) as high:
        high.poll(5)
        high.clock.added_ms += PeerTiming().handshake_ms + 1
        high.poll_until_counted("handshake_timeout")
        assert high.told == []
    silent.close()


def test_nobody_there_is_tried_again_with_growing_pauses() -> None:
    nowhere = listening()
    address = nowhere.getsockname()
    nowhere.close()
    with Alone(2, [Voter(1, *address), Voter(2, "127.0.0.1", 1)]) as high:
        high.poll_until_counted("unreachable", 3)
        before = high.world.counts["unreachable"]
        high.clock.added_ms += 250  # The longest pause.
        high.poll_until_counted("unreachable", before + 1)


def test_pauses_grow_to_a_bound_and_a_connection_that_lasted_ends_them() -> None:
    voter = Voter(1, "127.0.0.1", 9)
    dialer = Dialer(
        [voter],
        retry_ms_min=10,
        retry_ms_max=250,
        now_ms=0,
        rng=random.Random(1),
        wake=lambda: None,
    )
    now_ms, pauses = 0, []
    for _ in range(12):
        assert [node_id for node_id, _ in dialer.due(now_ms)] == [1]
        assert dialer.due(now_ms) == []  # One at a time.
        dialer.ended(1, now_ms=now_ms, lived_ms=None)
        due_ms = dialer.next_due_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
    assert max(pauses) <= 250
    assert min(pauses[-4:]) >= 125
    assert pauses[0] <= 10
    dialer.due(now_ms)
    dialer.ended(1, now_ms=now_ms, lived_ms=5000)
    due_ms = dialer.next_due_ms()
    assert due_ms is not None
    assert due_ms - now_ms <= 10


def test_names_are_looked_up_elsewhere_and_all_their_addresses_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered, woken = threading.Event(), threading.Event()

    def look_up(host: str, port: int, **options: Any) -> list[Any]:
        if options["flags"] == socket.AI_NUMERICHOST:
            raise socket.gaierror
        assert answered.wait(20)
        if host == "unknown":
            raise socket.gaierror
        first, second = (host, port, 0, 0), (host, port)
        return [(socket.AF_INET6, 0, 0, "", first), (socket.AF_INET, 0, 0, "", second)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    dialer = Dialer(
        [Voter(1, "known", 9), Voter(2, "unknown", 9)],
        retry_ms_min=10,
        retry_ms_max=250,
        now_ms=0,
        rng=random.Random(1),
        wake=woken.set,
    )
    assert dialer.due(0) == dialer.due(0) == []  # It does not wait for the answer.
    answered.set()
    found: dict[int, Any] = {}

    def looked_up() -> bool:
        found.update(dialer.due(0))
        return len(found) == 2

    wait_until(looked_up)
    assert woken.is_set()
    assert found == {1: (socket.AF_INET6, ("known", 9, 0, 0)), 2: None}
    dialer.ended(1, now_ms=0, lived_ms=None)
    assert dialer.due(1000) == [(1, (socket.AF_INET, ("known", 9)))]


# -- from other threads -----------------------------------------------------------------------


def test_wake_ends_a_wait() -> None:
    with Alone() as alone:
        waiting = threading.Thread(target=alone.world.poll, args=(60,))
        waiting.start()
        alone.world.wake()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_wake_before_the_wait_is_not_lost() -> None:
    with Alone() as alone:
        for _ in range(3):
            alone.world.wake()
        waiting = threading.Thread(target=alone.world.poll, args=(60,))
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive()


@pytest.mark.parametrize("read", [0, 2, 4, 7])
def test_a_connection_that_another_listener_accepted_is_adopted(read: int) -> None:
    with (
        Alone() as alone,
        listening() as elsewhere,
        RawPeer(elsewhere.getsockname(), alone.poll) as peer,
    ):
        connector = Connector(identity(3), SECRET, 1, b"n" * 32)
        peer.send(PEER_MAGIC + frame(connector.begin()))
        sock, _ = elsewhere.accept()
        first = sock.recv(read) if read else b""
        threading.Thread(target=alone.world.adopt, args=(sock, first)).start()
        peer.send(frame(connector.receive(peer.receive_frame())))
        alone.poll_until(lambda: alone.told == [("connected", 3)])


def test_a_closed_world_adopts_nothing_and_can_be_woken() -> None:
    with Alone() as alone:
        pass
    ours, theirs = socket.socketpair()
    alone.world.adopt(ours, PEER_MAGIC)
    assert ours.fileno() == -1
    theirs.close()
    alone.world.wake()
    alone.world.close()


def test_adoptions_that_nobody_takes_are_bounded() -> None:
    with Alone() as alone:
        pairs = [socket.socketpair() for _ in range(PEER_HANDSHAKES_MAX + 5)]
        for ours, _ in pairs:
            alone.world.adopt(ours, PEER_MAGIC)
        assert sum(ours.fileno() == -1 for ours, _ in pairs) == 5
        alone.poll()
        assert alone.world.counts["too_many"] == 5
        for _, theirs in pairs:
            theirs.close()
