"""The other voters, over TCP: what a real node's engine waits with and talks through.

All of it runs in the engine's thread, inside `poll`, `put` and `push`; only `wake` and `adopt` may
be called from elsewhere. A node listens on one address, which belongs to the listener for Kafka
requests: that one accepts, looks at the first bytes (`is_peer`) and hands voters over (`adopt`). A
node without it lets this module accept (`listen`).

What always holds:
- at most one connection per voter is live, the one that was proven last. Once it is, nothing that
  the one before it brought is delivered any more.
- what a peer does wrong closes its connection, is counted, and is logged once per peer and reason
  in a while; it never reaches the engine and never stops anyone else.
- nobody waits for a peer: bytes that a socket does not take are kept up to a bound. Beyond it,
  messages to that peer are dropped whole; Raft sends again what was not answered. To close instead
  would throw away what is under way, and a follower that is far behind would never catch up.
"""

import errno
import os
import random
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kraftpy.clock import Clock
from kraftpy.errors import WireError
from kraftpy.limits import PEER_HANDSHAKES_MAX, PEER_SEND_BUFFER_BYTES_MAX
from kraftpy.logs import get_logger
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.raft.guard import Message
from kraftpy.quorum.raft.handshake import (
    NONCE_BYTES,
    PEER_MAGIC,
    Acceptor,
    Connector,
    PeerRefused,
    Session,
    is_peer,
)
from kraftpy.quorum.raft.peer_complaints import Complaints
from kraftpy.quorum.raft.peer_connection import PeerConnection
from kraftpy.quorum.raft.peer_dialer import Dialer, SocketAddress
from kraftpy.quorum.raft.peer_tls import PeerTls, TlsTunnel
from kraftpy.quorum.voters import Voter
from kraftpy.storage.identity import Identity
from kraftpy.types import Uuid, uuid_text

__all__ = ["PEER_MAGIC", "PeerTiming", "TcpWorld", "is_peer"]

log = get_logger(__name__)

_ACCEPTED_AT_ONCE: Final = 8
_PING: Final = b""
# What only a bug, an attacker or a wrong directory does on a connection that is proven.
_FAULTS: Final = frozenset(("bad_frame", "bad_message", "tls_failed", "refused_by_peer"))
# A connection is told of when it has lasted: one that a peer refuses at once comes again and again.
_LASTING_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTiming:
    """How patient a node is with others. Raft's own times are shorter and do not depend on it."""

    connect_ms: int = 1000
    handshake_ms: int = 2000  # From the first byte to the last, however slowly they come.
    silence_ms: int = 3000  # A peer that is heard of for so long no more is gone.
    ping_ms: int = 1000
    retry_ms_min: int = 10
    retry_ms_max: int = 250


class TcpWorld:
    """A node's end of all connections to voters."""

    def __init__(
        self,
        *,
        identity: Identity,
        secret: bytes,
        voters: Sequence[Voter],
        accepts: Callable[[int, Uuid], bool],
        clock: Clock,
        rng: random.Random,
        tls: PeerTls | None = None,
        timing: PeerTiming | None = None,
    ) -> None:
        """`accepts` says whether a proven voter may come with that directory."""
        self._identity = identity
        self._secret = secret
        self._accepts = accepts
        self._clock = clock
        self._tls = tls
        self._timing = timing or PeerTiming()
        self._engine: RaftEngine
        self._complaints = Complaints(clock, identity.node_id)
        self.counts = self._complaints.counts
        self._live: dict[int, PeerConnection] = {}
        self._unproven: dict[PeerConnection, None] = {}  # Oldest first.
        self._touched: dict[PeerConnection, None] = {}
        self._listeners: list[socket.socket] = []
        self._connectors = {v.node_id for v in voters if v.node_id > identity.node_id}
        self._dialer = Dialer(
            [voter for voter in voters if voter.node_id < identity.node_id],
            retry_ms_min=self._timing.retry_ms_min,
            retry_ms_max=self._timing.retry_ms_max,
            now_ms=clock.monotonic_ms(),
            rng=rng,
            wake=self.wake,
        )
        self._lock = threading.Lock()  # For the four below, which other threads use too.
        self._adopted: deque[tuple[socket.socket, bytes]] = deque()
        self._turned_away = 0
        self._is_closed = False
        self._is_woken = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)

    # -- from any thread ----------------------------------------------------------------------

    def wake(self) -> None:
        """End a `poll` that is waiting."""
        if self._is_woken:
            return  # A poll that has not begun to look for work yet will see it.
        with self._lock:
            if not self._is_closed and not self._is_woken:
                self._is_woken = True
                os.write(self._wake_writer, b"w")

    def adopt(self, sock: socket.socket, first: bytes) -> None:
        """Take over a connection that begins as a voter's; `first` was read from it already."""
        with self._lock:
            is_welcome = not self._is_closed and len(self._adopted) < PEER_HANDSHAKES_MAX
            if is_welcome:
                self._adopted.append((sock, first))
            else:
                self._turned_away += 1
        if not is_welcome:
            sock.close()
            return
        self.wake()

    # -- World: the engine's thread -----------------------------------------------------------

    def attach(self, engine: RaftEngine) -> None:
        self._engine = engine

    def listen(self, sock: socket.socket) -> None:
        """Accept voters on this socket, where nobody else does; it is closed with the rest."""
        sock.setblocking(False)
        self._listeners.append(sock)
        self._selector.register(sock, selectors.EVENT_READ, sock)

    def put(self, node_id: int, message: Message) -> None:
        connection = self._live.get(node_id)
        if connection is None or connection.broken is not None:
            return
        if connection.unsent_bytes >= PEER_SEND_BUFFER_BYTES_MAX:
            connection.push(self._clock.monotonic_ms())
            if connection.unsent_bytes >= PEER_SEND_BUFFER_BYTES_MAX:
                self.counts["dropped_message"] += 1
                return
        connection.put(messages.encode(message))
        self._touched[connection] = None

    def push(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for connection in self._touched:
            if not connection.is_closed:
                connection.push(now_ms)
                self._watch(connection)
        self._touched.clear()

    def poll(self, timeout_s: float) -> None:
        """Wait for whatever comes first, and handle all that has come."""
        for key, events in self._selector.select(self._wait_s(timeout_s)):
            if key.data is None:
                os.read(self._wake_reader, 64)
            elif isinstance(key.data, PeerConnection):
                self._serve(key.data, events)
            else:
                self._accept(key.data)
        self._is_woken = False  # From here on whatever is added is seen by the tick that follows.
        self._take_adopted()
        self._dial()
        self._tend()

    def _wait_s(self, timeout_s: float) -> float:
        due_ms = self._dialer.next_due_ms()
        if due_ms is None:
            return timeout_s
        return max(0.0, min(timeout_s, (due_ms - self._clock.monotonic_ms()) / 1000))

    def close(self) -> None:
        """Close everything. Nobody is told: the engine is going too."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            adopted, self._adopted = self._adopted, deque()
            os.close(self._wake_writer)
        for sock in (*self._listeners, *(sock for sock, _ in adopted)):
            sock.close()
        for connection in (*self._live.values(), *self._unproven):
            connection.close()
        self._selector.close()
        os.close(self._wake_reader)

    # -- new connections ----------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _address = listener.accept()
            except OSError:  # Nobody is waiting any more, or there are too many open files.
                return
            self._take(sock, b"")

    def _take_adopted(self) -> None:
        with self._lock:
            adopted, self._adopted = self._adopted, deque()
            turned_away, self._turned_away = self._turned_away, 0
        if turned_away:
            self.counts["too_many"] += turned_away
        for sock, first in adopted:
            self._take(sock, first)

    def _take(self, sock: socket.socket, first: bytes) -> None:
        if len(self._unproven) >= PEER_HANDSHAKES_MAX:
            # The oldest goes, not the newest: a voter is done in a moment, so that strangers who
            # only hold on to their connections cannot keep it out.
            reason = PeerRefused("too_many", "too many connections that prove nothing")
            self._end(next(iter(self._unproven)), reason)
        nonce = os.urandom(NONCE_BYTES)
        handshake = Acceptor(self._identity, self._secret, self._connectors, nonce)
        tls = self._tls
        tunnel = None if tls is None else TlsTunnel(tls.accepting, server_side=True)
        connection = self._add(sock, handshake, None, tunnel)
        if connection is not None and first:
            self._guarded(connection, lambda: connection.feed(first))

    def _dial(self) -> None:
        for node_id, address in self._dialer.due(self._clock.monotonic_ms()):
            if address is None:
                self._unreachable(node_id, "nobody knows its name")
            else:
                self._connect(node_id, address)

    def _unreachable(self, node_id: int, why: str) -> None:
        self._complaints.note("unreachable", f"node {node_id}", why)
        self._dialer.ended(node_id, now_ms=self._clock.monotonic_ms(), lived_ms=None)

    def _connect(self, node_id: int, address: SocketAddress) -> None:
        family, where = address
        handshake = Connector(self._identity, self._secret, node_id, os.urandom(NONCE_BYTES))
        tls = self._tls
        tunnel = None if tls is None else TlsTunnel(tls.connecting, server_side=False)
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            code = sock.connect_ex(where)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            if sock is not None:
                sock.close()
            self._unreachable(node_id, f"cannot connect: {error.strerror or error}")
            return
        self._add(sock, handshake, node_id, tunnel)

    def _add(
        self,
        sock: socket.socket,
        handshake: Acceptor | Connector,
        peer_id: int | None,
        tunnel: TlsTunnel | None,
    ) -> PeerConnection | None:
        now_ms = self._clock.monotonic_ms()
        try:
            connection = PeerConnection(
                sock, handshake, self, peer_id=peer_id, tunnel=tunnel, now_ms=now_ms
            )
            self._selector.register(sock, selectors.EVENT_READ, connection)
        except OSError as error:  # It is gone already.
            sock.close()
            if peer_id is not None:
                self._unreachable(peer_id, str(error))
            return None
        self._unproven[connection] = None
        self._watch(connection)
        return connection

    # -- what comes in ------------------------------------------------------------------------

    def _serve(self, connection: PeerConnection, events: int) -> None:
        if not connection.is_closed:
            self._guarded(connection, lambda: self._exchange(connection, events))

    def _exchange(self, connection: PeerConnection, events: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if connection.is_connecting and events & selectors.EVENT_WRITE:
            connection.finish_connecting()
            connection.push(now_ms)
        if events & selectors.EVENT_READ:
            connection.read(now_ms)

    def _guarded(self, connection: PeerConnection, act: Callable[[], None]) -> None:
        """Do something with what a peer has sent; what it did wrong is its own affair."""
        try:
            act()
        except PeerRefused as refused:
            self._end(connection, refused)
        except WireError as error:
            self._end(connection, PeerRefused("bad_message", str(error)))
        else:
            connection.push(self._clock.monotonic_ms())
            self._watch(connection)

    def _watch(self, connection: PeerConnection) -> None:
        """Ask for room to write only while there is something to be written."""
        wanted = selectors.EVENT_READ
        if connection.is_connecting or connection.unsent_bytes:
            wanted |= selectors.EVENT_WRITE
        if wanted != connection.watched and not connection.is_closed:
            self._selector.modify(connection.sock, wanted, connection)
            connection.watched = wanted

    def check(self, session: Session) -> None:
        """Owner: a voter has proven itself; does it still have the directory it had?"""
        if not self._accepts(session.peer_id, session.directory_id):
            why = f"node {session.peer_id} has another directory than before"
            raise PeerRefused("other_directory", f"{why}, {uuid_text(session.directory_id)}")

    def joined(self, connection: PeerConnection, session: Session) -> None:
        """Owner: from here on this is the voter's connection."""
        old = self._live.get(session.peer_id)
        if old is not None:
            self._end(old, PeerRefused("replaced", "it has connected anew"))
        self._unproven.pop(connection)
        self._live[session.peer_id] = connection
        connection.joined_ms = self._clock.monotonic_ms()
        self.counts["connected"] += 1
        self._complaints.forgive(f"node {session.peer_id}")
        self._engine.connected(session.peer_id)

    def message(self, connection: PeerConnection, body: memoryview) -> None:
        """Owner: a proven frame. WireError if it makes no sense, here or to the engine."""
        assert connection.peer_id is not None
        self._engine.receive(connection.peer_id, messages.decode(body))

    # -- what ends ----------------------------------------------------------------------------

    def _end(self, connection: PeerConnection, reason: PeerRefused) -> None:
        """Close a connection, for this reason, and tell whom it concerns."""
        self._selector.unregister(connection.sock)
        connection.close(reason)
        self._unproven.pop(connection, None)
        now_ms = self._clock.monotonic_ms()
        peer_id, joined_ms = connection.peer_id, connection.joined_ms
        who = f"at {connection.remote}" if peer_id is None else f"node {peer_id}"
        if joined_ms is None or reason.reason in _FAULTS:
            self._complaints.note(reason.reason, who, str(reason))
        else:
            self.counts[reason.reason] += 1
        if peer_id is not None and connection.is_dialed:
            lived_ms = None if joined_ms is None else now_ms - joined_ms
            self._dialer.ended(peer_id, now_ms=now_ms, lived_ms=lived_ms)
        if peer_id is not None and self._live.get(peer_id) is connection:
            del self._live[peer_id]
            if connection.is_announced:
                node_id = self._identity.node_id
                log.info("peer_disconnected", node=node_id, peer=peer_id, why=str(reason))
            self._engine.disconnected(peer_id)

    def _tend(self) -> None:
        """What is due by time, or was found broken where it could not be closed."""
        now_ms = self._clock.monotonic_ms()
        for connection in (*self._unproven, *self._live.values()):
            reason = connection.broken or self._overdue(connection, now_ms)
            if reason is not None:
                self._end(connection, reason)
        for connection in self._live.values():
            self._announce(connection, now_ms)
            if now_ms - connection.sent_ms >= self._timing.ping_ms and not connection.unsent_bytes:
                connection.put(_PING)
                connection.push(now_ms)
                self._watch(connection)

    def _announce(self, connection: PeerConnection, now_ms: int) -> None:
        joined_ms = connection.joined_ms
        if connection.is_announced or joined_ms is None or now_ms - joined_ms < _LASTING_MS:
            return
        connection.is_announced = True
        log.info("peer_connected", node=self._identity.node_id, peer=connection.peer_id)

    def _overdue(self, connection: PeerConnection, now_ms: int) -> PeerRefused | None:
        timing = self._timing
        if connection.session is None:
            age_ms = now_ms - connection.opened_ms
            if connection.is_connecting and age_ms > timing.connect_ms:
                return PeerRefused("unreachable", f"no answer in {age_ms} ms")
            if age_ms > timing.handshake_ms:
                return PeerRefused("handshake_timeout", f"no proof in {age_ms} ms")
        elif now_ms - connection.heard_ms > timing.silence_ms:
            return PeerRefused("silent", f"nothing heard for {now_ms - connection.heard_ms} ms")
        elif connection.unsent_bytes and now_ms - connection.moved_ms > timing.silence_ms:
            return PeerRefused("stalled", f"takes nothing for {now_ms - connection.moved_ms} ms")
        return None
