"""The other end of a voter's connections, under a test's control: honest, wrong, or silent.

`Alone` is a TcpWorld without an engine and without a thread: the test itself polls it. `RawPeer`
is a socket that a test writes to as it likes, with the product's own handshake for the honest part.
"""

import os
import random
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from kraftpy.clock import SystemClock
from kraftpy.errors import WireError
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.guard import Message
from kraftpy.quorum.raft.handshake import NONCE_BYTES, PEER_MAGIC, Connector, Session
from kraftpy.quorum.raft.peers import PeerTiming, TcpWorld
from kraftpy.quorum.voters import Voter
from kraftpy.storage.identity import Identity
from tests.unit.quorum.tcp_cluster import CLUSTER_ID, SECRET, directory_id, listening

Address = tuple[str, int]
VOTE: Message = {"type": "response_vote", "term": 7}


def identity(node_id: int, **changes: Any) -> Identity:
    own = {"cluster_id": CLUSTER_ID, "node_id": node_id, "directory_id": directory_id(node_id)}
    return Identity(**{**own, **changes})


class MovingClock(SystemClock):
    """The machine's clock, and whatever a test adds."""

    def __init__(self) -> None:
        self.added_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.added_ms


class Alone:
    """A world, what it told its engine, and the test's hand on it."""

    polls_max = 5000  # Of a millisecond; only ever used up by a test that fails.

    def __init__(self, node_id: int = 1, voters: list[Voter] | None = None, **options: Any) -> None:
        self.listener = listening()
        self.address: Address = self.listener.getsockname()
        self.told: list[object] = []
        self.clock = MovingClock()
        known = voters or [Voter(i, *self.address) for i in (1, 2, 3)]
        given = {
            "identity": identity(node_id),
            "secret": SECRET,
            "voters": known,
            "accepts": lambda _id, _directory: True,
            "clock": self.clock,
            "rng": random.Random(1),
            "timing": PeerTiming(),
        }
        self.world = TcpWorld(**{**given, **options})
        self.world.attach(cast(RaftEngine, self))
        self.world.listen(self.listener)

    def __enter__(self) -> "Alone":
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    # As its engine:

    def connected(self, node_id: int) -> None:
        self.told.append(("connected", node_id))

    def disconnected(self, node_id: int) -> None:
        self.told.append(("disconnected", node_id))

    def receive(self, node_id: int, message: Message) -> None:
        if message["type"] == "timeout_now":
            raise WireError("it makes no sense here")
        self.told.append((node_id, message))

    # As its thread:

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self.world.poll(0.001)

    def poll_until(self, reached: Callable[[], bool]) -> None:
        for _ in range(self.polls_max):
            if reached():
                return
            self.world.poll(0.001)
        raise AssertionError(f"not reached; told {self.told}, counted {self.world.counts}")

    def poll_until_counted(self, reason: str, times: int = 1) -> None:
        self.poll_until(lambda: self.world.counts[reason] >= times)


def is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class RawPeer:
    """A client's socket. `drive` lets the other end run while this one waits."""

    def __init__(
        self, address: Address, drive: Callable[[], None] | None = None, source: str = "127.0.0.1"
    ) -> None:
        self.sock = socket.create_connection(address, timeout=10, source_address=(source, 0))
        self._drive = drive
        self.session: Session | None = None
        self.sent_frames: list[bytes] = []

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._wait(count - len(data))
            if not piece:
                raise ConnectionResetError("closed")
            data += piece
        return data

    def _wait(self, count: int) -> bytes:
        if self._drive is None:
            return self.sock.recv(count)
        self.sock.settimeout(0.001)
        for _ in range(2000):
            try:
                return self.sock.recv(count)
            except TimeoutError:
                self._drive()
        raise TimeoutError

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">I", self._receive(4))
        return self._receive(length)

    def is_closed(self) -> bool:
        """Whether the other end has closed; whatever it said before does not count."""
        try:
            while self._wait(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def hello(self, connector: Connector) -> bytes:
        """The first half of the handshake; the proof that is to be sent next."""
        self.send(PEER_MAGIC + frame(connector.begin()))
        return connector.receive(self.receive_frame())

    def join(
        self,
        own: Identity,
        peer_id: int,
        secret: bytes = SECRET,
    ) -> "RawPeer":
        """The whole handshake, honestly."""
        connector = Connector(own, secret, peer_id, os.urandom(NONCE_BYTES))
        self.send(frame(self.hello(connector)))
        connector.receive(self.receive_frame())
        self.session = connector.session
        return self

    def sealed(self, body: bytes) -> bytes:
        """The next frame."""
        assert self.session is not None
        return frame(self.session.sending.next(body) + body)

    def say(self, message: Message) -> None:
        self.send(self.sealed(messages.encode(message)))

    def hear(self) -> Message:
        """The next message, past any ping."""
        assert self.session is not None
        while True:
            received = self.receive_frame()
            assert self.session.receiving.next(received[16:]) == received[:16]
            if len(received) > 16:
                return messages.decode(received[16:])
