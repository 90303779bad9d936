"""One connection to a voter: frames over a socket, with or without TLS, never blocking.

It knows nothing of Raft. It reads the magic (on the side that was connected to), runs the
handshake, and hands every proven frame to its owner. What always holds:
- a length is checked against its bound before anything of the frame is kept, and the bound is
  small until the peer is proven.
- a frame reaches the owner only if it is the next one, unchanged, of a proven peer.
- nothing is written from inside `put`. Whatever the socket or the peer does wrong becomes one
  PeerRefused, so that an OSError from elsewhere is never taken for a lost connection.

A frame without a body says only that the peer is alive.
"""

import hmac
import os
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

from kraftpy.limits import PEER_FRAME_BYTES_MAX, PEER_HELLO_BYTES_MAX, PEER_READ_BYTES
from kraftpy.quorum.raft.handshake import (
    MAC_BYTES,
    PEER_MAGIC,
    Handshake,
    PeerRefused,
    Session,
    check_refusal,
    is_peer,
    refusal,
)
from kraftpy.quorum.raft.peer_tls import TlsTunnel

_LENGTH: Final = struct.Struct(">I")
_RECEIVE_BYTES: Final = 256 * 1024


class Owner(Protocol):
    """Who is told what comes in. It may raise PeerRefused, or any WireError, to end this."""

    def check(self, session: Session) -> None:
        """A peer has proven itself: may it join?"""
        ...

    def joined(self, connection: "PeerConnection", session: Session) -> None: ...

    def message(self, connection: "PeerConnection", body: memoryview) -> None: ...


class PeerConnection:
    """A socket and what is known of its other end."""

    def __init__(
        self,
        sock: socket.socket,
        handshake: Handshake,
        owner: Owner,
        *,
        peer_id: int | None,
        tunnel: TlsTunnel | None,
        now_ms: int,
    ) -> None:
        """`peer_id` is whom we connect to; None if they connected to us."""
        self.sock = sock
        self.peer_id = peer_id
        self.is_dialed = peer_id is not None
        self.is_connecting = self.is_dialed
        self.session: Session | None = None
        self.joined_ms: int | None = None
        self.is_announced = False  # Whether the log speaks of it.
        self.is_closed = False
        self.watched = 0  # The events that the owner waits for.
        self.broken: PeerRefused | None = None  # To be closed when the owner's turn comes.
        self.opened_ms = self.heard_ms = self.sent_ms = self.moved_ms = now_ms
        self._handshake = handshake
        self._owner = owner
        self._tunnel = tunnel
        self._magic_seen = self.is_dialed
        self._received = bytearray()
        self._unsent = bytearray()
        self.remote = _remote(sock)
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.is_dialed:
            self._begin()

    def _begin(self) -> None:
        self._unsent += PEER_MAGIC
        if self._tunnel is not None:
            self._tunnel.begin()
        self._put_frame(self._handshake.begin())

    # -- out ----------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def put(self, body: bytes) -> None:
        """Take a proven frame; `push` sends it."""
        assert self.session is not None, "only a proven peer is told anything"
        assert len(body) <= PEER_FRAME_BYTES_MAX - MAC_BYTES
        self._put_frame(self.session.sending.next(body) + body)

    def _put_frame(self, frame: bytes) -> None:
        self._wrap(_LENGTH.pack(len(frame)) + frame)

    def _wrap(self, data: bytes) -> None:
        if self._tunnel is None:
            self._unsent += data
        else:
            self._tunnel.encrypt(data)
            self._unsent += self._tunnel.outgoing.read()

    def push(self, now_ms: int) -> None:
        """Send what the socket takes. A failure is kept in `broken`."""
        if self.is_connecting or self.is_closed or self.broken is not None:
            return
        unsent = self._unsent
        try:
            while unsent:
                del unsent[: self.sock.send(unsent)]
                self.sent_ms = self.moved_ms = now_ms
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.broken = PeerRefused("lost", f"cannot send: {error.strerror or error}")
        else:
            self.moved_ms = now_ms

    def finish_connecting(self) -> None:
        """The socket can be written to: it is connected, or will never be."""
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise PeerRefused("unreachable", f"cannot connect: {os.strerror(code)}")
        self.is_connecting = False

    # -- in -----------------------------------------------------------------------------------

    def read(self, now_ms: int) -> None:
        """Take what has come, up to a bound, and tell the owner. PeerRefused ends it."""
        taken = 0
        while taken < PEER_READ_BYTES and not self.is_closed:
            try:
                data = self.sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise PeerRefused("lost", f"cannot read: {error.strerror or error}") from None
            if not data:
                raise self._ended()
            taken += len(data)
            self.heard_ms = now_ms
            self.feed(data)
            if len(data) < _RECEIVE_BYTES:
                return

    def _ended(self) -> PeerRefused:
        if self.session is not None:
            return PeerRefused("lost", "the peer has closed the connection")
        return PeerRefused("refused_by_peer", "closed before the handshake was done")

    def feed(self, data: bytes) -> None:
        """Take bytes of the wire."""
        if not self._magic_seen:
            self._received += data
            if not self._take_magic():
                return
            data, self._received = bytes(self._received), bytearray()
        if self._tunnel is not None:
            try:
                data = self._tunnel.decrypt(data)
            finally:
                self._unsent += self._tunnel.outgoing.read()  # An alert says why, too.
        self._received += data
        self._take_frames()

    def _take_magic(self) -> bool:
        found = is_peer(bytes(self._received[: len(PEER_MAGIC)]))
        if found is False:
            raise PeerRefused("bad_hello", "not the peer protocol")
        if found is None:
            return False
        del self._received[: len(PEER_MAGIC)]
        self._magic_seen = True
        return True

    def _take_frames(self) -> None:
        received, position = self._received, 0
        with memoryview(received) as view:
            while len(received) - position >= _LENGTH.size and not self.is_closed:
                (length,) = _LENGTH.unpack_from(received, position)
                self._check_length(length)
                begin = position + _LENGTH.size
                if len(received) - begin < length:
                    break
                position = begin + length
                with view[begin:position] as frame:
                    self._take_frame(frame)
        del received[:position]

    def _check_length(self, length: int) -> None:
        if self.session is None:
            if not 0 < length <= PEER_HELLO_BYTES_MAX:
                raise PeerRefused("bad_hello", f"a hello of {length} bytes")
        elif not MAC_BYTES <= length <= PEER_FRAME_BYTES_MAX:
            raise PeerRefused("bad_frame", f"a frame of {length} bytes")

    def _take_frame(self, frame: memoryview) -> None:
        if self.session is None:
            self._shake_hands(bytes(frame))
            return
        with frame[MAC_BYTES:] as body:
            expected = self.session.receiving.next(body)
            if not hmac.compare_digest(expected, frame[:MAC_BYTES]):
                raise PeerRefused("bad_frame", "a frame that the peer did not send, or not here")
            check_refusal(self.peer_id, body)
            if body:
                self._owner.message(self, body)

    def _shake_hands(self, frame: bytes) -> None:
        answer = self._handshake.receive(frame)
        session = self._handshake.session
        if session is not None:
            self._check(session)  # It may be refused; then our proof is not sent.
        if answer:
            self._put_frame(answer)
        if session is not None:
            self.peer_id, self.session = session.peer_id, session
            self._owner.joined(self, session)

    def _check(self, session: Session) -> None:
        try:
            self._owner.check(session)
        except PeerRefused as reason:
            if self.is_dialed:  # Who accepted us has seen our proof, and would wonder.
                body = refusal(reason.reason)
                self._put_frame(session.sending.next(body) + body)
            raise

    # -- the end ------------------------------------------------------------------------------

    def close(self, reason: PeerRefused | None = None) -> None:
        """Close at once. A connector that is still unproven is told why, if that is possible."""
        if self.is_closed:
            return
        if reason is not None and self._magic_seen and not self.is_dialed and not self.session:
            self._put_frame(refusal(reason.reason))
        if not self.is_connecting and self.broken is None and self.session is None:
            with suppress(OSError):  # It is a courtesy.
                self.sock.send(self._unsent)
        self.is_closed = True
        self.sock.close()


def _remote(sock: socket.socket) -> str:
    try:
        name = sock.getpeername()
    except OSError:  # Not connected yet, or no more.
        return "unknown"
    return str(name[0]) if isinstance(name, tuple) else "this machine"
