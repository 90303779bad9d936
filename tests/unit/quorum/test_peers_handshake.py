"""Who is let in, and what is taken for a voter's word; with bugs planted in every check.

Method: each check is a function against one world that the test polls itself. It is run as it is,
where it must hold, and once more with the check it is about taken out, where it must not.
"""

import hmac
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.errors import WireError
from kraftpy.quorum.raft import handshake, messages, peer_connection, peers
from kraftpy.quorum.raft.handshake import (
    NONCE_BYTES,
    PEER_MAGIC,
    Acceptor,
    Connector,
    FrameMac,
    Session,
    is_peer,
)
from kraftpy.quorum.raft.peer_connection import PeerConnection
from kraftpy.quorum.voters import Voter
from kraftpy.types import Uuid
from tests.unit.quorum.raw_peer import VOTE, Alone, RawPeer, frame, identity, is_readable
from tests.unit.quorum.tcp_cluster import SECRET, listening

FORGED = {**VOTE, "term": 8}


def nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def refused(alone: Alone, peer: RawPeer, reason: str) -> None:
    """The connection is closed and counted, and the engine has not heard of any of it."""
    alone.poll_until_counted(reason)
    assert peer.is_closed()
    assert [told for told in alone.told if told != ("connected", 3)] in (
        [],
        [(3, VOTE), ("disconnected", 3)],
        [("disconnected", 3)],
    )


def wrong_secret() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.send(frame(peer.hello(Connector(identity(3), b"guessed", 1, nonce()))))
        alone.poll(5)
        assert alone.told == []
        refused(alone, peer, "wrong_secret")


def no_secret_at_all() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.hello(Connector(identity(3), b"", 1, nonce()))
        peer.send(frame(b"\0" * 32))
        alone.poll(5)
        assert alone.told == []
        refused(alone, peer, "wrong_secret")


def proof_of_another_connection() -> None:
    with Alone() as alone:
        with RawPeer(alone.address, alone.poll) as peer:
            connector = Connector(identity(3), b"a secret that all voters share", 1, nonce())
            hello, proof = connector.begin(), peer.hello(connector)
        with RawPeer(alone.address, alone.poll) as replayed:
            replayed.send(PEER_MAGIC + frame(hello))
            replayed.receive_frame()
            replayed.send(frame(proof))
            alone.poll(5)
            assert alone.told == []
            refused(alone, replayed, "wrong_secret")


def nothing_to_guess_on() -> None:
    """Who has not proven itself gets a nonce and a refusal: no MAC to try secrets on."""
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.hello(Connector(identity(3), b"", 1, nonce()))
        peer.send(frame(b"x" * 32))
        assert peer.receive_frame() == b"no:wrong_secret"
        refused(alone, peer, "wrong_secret")


def wrong_cluster() -> None:
    elsewhere = identity(3, cluster_id=Uuid(b"another cluster!"))
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        with pytest.raises(handshake.PeerRefused, match="wrong_cluster"):
            peer.join(elsewhere, 1)
        refused(alone, peer, "wrong_cluster")


def meant_for_another_node() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        with pytest.raises(handshake.PeerRefused, match="wrong_node"):
            peer.join(identity(3), 2)
        refused(alone, peer, "wrong_node")


def stranger_with_the_secret() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        with pytest.raises(handshake.PeerRefused, match="unknown_peer"):
            peer.join(identity(9), 1)
        refused(alone, peer, "unknown_peer")


def voter_with_another_directory() -> None:
    known = {3: identity(3).directory_id}
    wiped = identity(3, directory_id=Uuid(b"a new directory!"))
    with (
        Alone(accepts=lambda node_id, found: known[node_id] == found) as alone,
        RawPeer(alone.address, alone.poll) as peer,
    ):
        with pytest.raises(handshake.PeerRefused, match="other_directory"):
            peer.join(wiped, 1)
        refused(alone, peer, "other_directory")


def _impostor(answer: Callable[[bytes], bytes]) -> None:
    """Someone at a voter's address who does not know the secret, and answers a proof so."""
    with listening() as impostor:
        voters = [Voter(1, *impostor.getsockname()), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters) as alone:
            alone.poll_until(lambda: is_readable(impostor))
            sock, _ = impostor.accept()
            with sock:
                alone.poll_until(lambda: is_readable(sock))
                sock.recv(1000)
                sock.sendall(frame(identity(1).directory_id + b"n" * NONCE_BYTES))
                alone.poll_until(lambda: is_readable(sock))
                proof = sock.recv(1000)
                assert len(proof) == 4 + 32
                sock.sendall(frame(answer(proof[4:])))
                alone.poll_until_counted("wrong_secret")
                assert alone.told == []


def impostor_that_makes_up_a_proof() -> None:
    _impostor(lambda _proof: b"x" * 32)


def impostor_that_sends_our_proof_back() -> None:
    _impostor(lambda proof: proof)


def flipped_bit() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        sealed = bytearray(peer.sealed(messages.encode(VOTE)))
        sealed[-1] ^= 1  # The term is the last byte.
        peer.send(bytes(sealed))
        refused(alone, peer, "bad_frame")


def flipped_bit_in_the_mac() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        sealed = bytearray(peer.sealed(messages.encode(VOTE)))
        sealed[4] ^= 0x80
        peer.send(bytes(sealed))
        refused(alone, peer, "bad_frame")


def replayed_frame() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        peer.send(peer.sealed(messages.encode(VOTE)) * 2)
        refused(alone, peer, "bad_frame")
        assert alone.told.count((3, VOTE)) == 1


def left_out_frame() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        peer.sealed(messages.encode(FORGED))
        peer.send(peer.sealed(messages.encode(VOTE)))
        refused(alone, peer, "bad_frame")
        assert (3, VOTE) not in alone.told


def frame_of_another_connection() -> None:
    with Alone() as alone:
        with RawPeer(alone.address, alone.poll) as peer:
            recorded = peer.join(identity(3), 1).sealed(messages.encode(VOTE))
        with RawPeer(alone.address, alone.poll) as another:
            another.join(identity(3), 1)
            another.send(recorded)
            alone.poll_until_counted("bad_frame")
            assert (3, VOTE) not in alone.told


def frame_sent_back() -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1)
        alone.world.put(3, VOTE)
        alone.world.push()
        peer.send(frame(peer.receive_frame()))
        refused(alone, peer, "bad_frame")
        assert (3, VOTE) not in alone.told


CHECKS: list[Callable[[], None]] = [
    wrong_secret,
    no_secret_at_all,
    proof_of_another_connection,
    nothing_to_guess_on,
    impostor_that_makes_up_a_proof,
    impostor_that_sends_our_proof_back,
    wrong_cluster,
    meant_for_another_node,
    stranger_with_the_secret,
    voter_with_another_directory,
    flipped_bit,
    flipped_bit_in_the_mac,
    replayed_frame,
    left_out_frame,
    frame_of_another_connection,
    frame_sent_back,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_is_refused(check: Callable[[], None]) -> None:
    check()


class _Trusting:
    """`hmac` for those who believe everything."""

    digest = staticmethod(hmac.digest)

    @staticmethod
    def compare_digest(_expected: object, _found: object) -> bool:
        return True


class _PlacelessMac(FrameMac):
    def next(self, body: bytes | memoryview) -> bytes:
        self._sequence = 0
        return super().next(body)


def _without_nonces(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, role + transcript[:41], "sha256")


def _without_roles(secret: bytes, _role: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, transcript, "sha256")


_unpack = handshake._HELLO.unpack


class _Gullible(handshake.Acceptor):
    """Believes the hello, whatever it says."""

    def _check_hello(self, hello: bytes) -> tuple[int, Uuid]:
        fields = _unpack(hello)
        return fields[1], Uuid(fields[4])


def _no_check(_self: object, _session: object) -> None: ...


ROLES = [frame_sent_back, impostor_that_sends_our_proof_back]
PLANTED: list[tuple[str, object, str, Any, list[Callable[[], None]]]] = [
    ("proofs are not looked at", handshake, "hmac", _Trusting, CHECKS[:6]),
    ("frames are not looked at", peer_connection, "hmac", _Trusting, CHECKS[10:]),
    ("frames have no place", handshake, "FrameMac", _PlacelessMac, [replayed_frame]),
    ("nonces are left out", handshake, "_keyed", _without_nonces, [frame_of_another_connection]),
    ("roles are left out", handshake, "_keyed", _without_roles, ROLES),
    ("hellos are believed", peers, "Acceptor", _Gullible, CHECKS[6:9]),
    ("directories are not asked", peers.TcpWorld, "check", _no_check, [CHECKS[9]]),
]


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"),
    [(owner, name, bug, check) for _, owner, name, bug, checks in PLANTED for check in checks],
    ids=[f"{what}: {check.__name__}" for what, _, _, _, checks in PLANTED for check in checks],
)
def test_a_planted_bug_is_caught(
    owner: object, name: str, bug: Any, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    monkeypatch.setattr(Alone, "polls_max", 300)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


# -- what is not a hello ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00\x00\x00\x20\x00\x12\x00\x03",
        pickle.dumps({"type": "request_vote"}),
        PEER_MAGIC + pickle.dumps(("set", os.system)),
        PEER_MAGIC + (1 << 30).to_bytes(4, "big"),
        PEER_MAGIC + frame(b""),
        PEER_MAGIC + frame(b"\0" * 500),
        PEER_MAGIC + frame(b"\2" + Connector(identity(3), b"", 1, b"n" * 32).begin()[1:]),
    ],
    ids=["HTTP", "Kafka", "pickle", "magic pickle", "1 GiB", "empty", "zeros", "version 2"],
)
def test_what_is_not_a_hello_is_closed_at_once(sent: bytes) -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.send(sent)
        refused(alone, peer, "bad_hello")


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps({"type": "request_vote", "term": 1}),
        b"\xc1",
        b"\x80",
        messages.encode({"type": "timeout_now", "term": 3}),  # The engine refuses that one.
        messages.encode({**VOTE, "more": 1}),
    ],
    ids=["pickle", "not msgpack", "empty map", "senseless", "extra field"],
)
def test_a_proven_peer_that_talks_nonsense_is_closed(body: bytes) -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1).send(peer.sealed(body))
        refused(alone, peer, "bad_message")


@pytest.mark.parametrize("length", [0, 15, 1 << 30])
def test_a_frame_of_an_impossible_length_is_refused_before_it_is_read(length: int) -> None:
    with Alone() as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.join(identity(3), 1).send(length.to_bytes(4, "big"))
        refused(alone, peer, "bad_frame")


def test_the_magic_can_be_told_from_kafka_and_tls() -> None:
    assert PEER_MAGIC[0] >= 0x80
    assert is_peer(b"") is None
    for count in range(1, len(PEER_MAGIC)):
        assert is_peer(PEER_MAGIC[:count]) is None
    assert is_peer(PEER_MAGIC) is True
    assert is_peer(PEER_MAGIC + b"\0\0") is True
    assert is_peer(b"\x00\x00\x00\x20") is False
    assert is_peer(b"\x16\x03\x01") is False
    assert is_peer(PEER_MAGIC[:3] + b"?") is False


def test_a_secret_is_not_shown() -> None:
    own = replace(identity(3), node_id=4)
    assert "secret" not in repr(own)
    assert "shared" not in repr(Connector(own, b"shared", 1, nonce()))


# -- every bit --------------------------------------------------------------------------------


class _Owner:
    """Of a connection that is fed by hand."""

    def __init__(self) -> None:
        self.joined_ids: list[int] = []
        self.heard: list[bytes] = []

    def check(self, _session: Session) -> None: ...

    def joined(self, _connection: PeerConnection, session: Session) -> None:
        self.joined_ids.append(session.peer_id)

    def message(self, _connection: PeerConnection, body: memoryview) -> None:
        self.heard.append(bytes(body))


def fed(stream: bytes, piece: int) -> _Owner:
    """What an acceptor makes of a stream. Its nonce is always the same, so streams can be kept."""
    owner = _Owner()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        acceptor = Acceptor(identity(1), SECRET, {2, 3}, b"a" * NONCE_BYTES)
        connection = PeerConnection(ours, acceptor, owner, peer_id=None, tunnel=None, now_ms=0)
        with suppress(WireError):
            for position in range(0, len(stream), piece):
                connection.feed(stream[position : position + piece])
    return owner


def honest_stream() -> bytes:
    connector = Connector(identity(3), SECRET, 1, b"c" * NONCE_BYTES)
    acceptor = Acceptor(identity(1), SECRET, {2, 3}, b"a" * NONCE_BYTES)
    hello = connector.begin()
    proof = connector.receive(acceptor.receive(hello))
    connector.receive(acceptor.receive(proof))
    assert connector.session is not None
    sealing = connector.session.sending
    frames = [frame(sealing.next(body) + body) for body in BODIES]
    return b"".join([PEER_MAGIC, frame(hello), frame(proof), *frames])


BODIES = [b"first", b"the second", b"and the third one"]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_an_honest_stream_is_heard_however_it_is_cut(piece: int) -> None:
    owner = fed(honest_stream(), piece)
    assert owner.joined_ids == [3]
    assert owner.heard == BODIES


def test_no_bit_can_be_changed_and_no_byte_left_out_or_put_in() -> None:
    stream = honest_stream()
    changed = [
        *(
            stream[:i] + bytes([stream[i] ^ 1 << bit]) + stream[i + 1 :]
            for i, bit in every_bit(stream)
        ),
        *(stream[:i] + stream[i + 1 :] for i in range(len(stream))),
        *(stream[:i] + b"\0" + stream[i:] for i in range(len(stream))),
    ]
    for each in changed:
        owner = fed(each, 1 << 20)
        assert owner.joined_ids in ([], [3])
        assert len(owner.heard) < len(BODIES)
        assert owner.heard == BODIES[: len(owner.heard)]


def every_bit(stream: bytes) -> Iterator[tuple[int, int]]:
    return ((i, bit) for i in range(len(stream)) for bit in range(8))


@given(st.binary(max_size=700), st.booleans())
def test_arbitrary_bytes_are_nobody(data: bytes, with_magic: bool) -> None:
    owner = fed(PEER_MAGIC * with_magic + data, 64)
    assert owner.joined_ids == []
    assert owner.heard == []
