"""One client's connection: a task that reads a request, answers it, and only then reads on.

So answers leave in the order of the requests, a client that does not read is not read from either,
and what one client can have in memory is one request and one answer. The kernel's buffers hold the
rest back. Everything that a client may take its time for has a deadline, which the server's sweep
enforces: the first byte, the rest of a request, taking the answer, the next request.
"""

import asyncio
import socket
from typing import Final, Protocol

from kraftpy.clock import Clock
from kraftpy.errors import WireError
from kraftpy.logs import get_logger
from kraftpy.network.limits import ServerLimits
from kraftpy.wire.frames import FrameBuffer

log = get_logger(__name__)

_RECEIVE_BYTES: Final = 64 * 1024


class Owner(Protocol):
    """What a connection asks of its server."""

    limits: ServerLimits
    clock: Clock

    def is_peer(self, first: bytes) -> bool | None:
        """Whether the connection is somebody else's, by its first bytes; None: too few to tell."""
        ...

    def adopt(self, sock: socket.socket, first: bytes) -> None:
        """Take the socket: it is no longer a client's."""
        ...

    async def answer(self, frame: bytes, connection: "Connection") -> bytearray | None:
        """The answer's frame, or None if the request wants none; WireError closes."""
        ...

    def has_room(self) -> bool:
        """Whether unfinished requests, all together, leave room for more of one."""
        ...

    def closed(self, connection: "Connection", reason: str, detail: str) -> None: ...


class Connection:
    """From accept to close."""

    def __init__(self, owner: Owner, sock: socket.socket, address: str) -> None:
        self.address = address  # Without the port: the same for all connections of a machine.
        self.buffer = FrameBuffer(owner.limits.frame_bytes_max)
        self._deadline_ms: int | None = None
        self._owner = owner
        self._sock = sock
        self._expired = False
        self._loop = asyncio.get_running_loop()
        self._expect_within(owner.limits.first_byte_ms_max)
        self.task = self._loop.create_task(self._run())

    def check(self, now_ms: int) -> None:
        """End it if its deadline has passed."""
        if self._deadline_ms is None or now_ms <= self._deadline_ms:
            return
        self._expired = True
        self._deadline_ms = None
        self.task.cancel()

    def abandon(self) -> None:
        """Its task was cancelled before it had begun, so nobody has closed the socket."""
        self._sock.close()

    def _expect_within(self, milliseconds: int) -> None:
        self._deadline_ms = self._owner.clock.monotonic_ms() + milliseconds

    async def _run(self) -> None:
        reason, detail = "closed", ""
        adopted = False
        try:
            first, adopted = await self._first_bytes()
            if adopted:
                self._owner.adopt(self._sock, first)
                reason = "adopted"
            elif first:
                self.buffer.feed(first)
                await self._serve()
        except WireError as error:
            reason, detail = "malformed", str(error)
        except OSError as error:
            reason, detail = "lost", str(error)
        except asyncio.CancelledError:
            if not self._expired:
                raise
            reason, detail = "too_slow", "it took too long"
        except Exception as error:
            # A bug in what answers requests: it must not take other clients with it.
            reason, detail = "failed", repr(error)
            log.error("request_failed", address=self.address, exc_info=True)
        finally:
            if not adopted:
                self._sock.close()
            self._owner.closed(self, reason, detail)

    async def _first_bytes(self) -> tuple[bytes, bool]:
        """What came first, and whether it is a peer's."""
        first = b""
        while (is_peer := self._owner.is_peer(first)) is None or not first:
            data = await self._loop.sock_recv(self._sock, _RECEIVE_BYTES)
            if not data:
                return b"", False
            first += data
        return first, is_peer

    async def _serve(self) -> None:
        while (frame := await self._next_frame()) is not None:
            self._deadline_ms = None  # Whoever answers keeps its own time.
            answer = await self._owner.answer(frame, self)
            if answer is not None:
                self._expect_within(self._owner.limits.departure_ms_max)
                await self._loop.sock_sendall(self._sock, answer)

    async def _next_frame(self) -> bytes | None:
        """The next request; None when the client has gone."""
        frame = self.buffer.next_frame()
        begun = False
        while frame is None:
            if not begun:
                begun = len(self.buffer) > 0
                limits = self._owner.limits
                self._expect_within(limits.arrival_ms_max if begun else limits.idle_ms_max)
            data = await self._loop.sock_recv(self._sock, _RECEIVE_BYTES)
            if not data:
                return None
            if len(self.buffer) + len(data) > _RECEIVE_BYTES and not self._owner.has_room():
                raise WireError("there are too many unfinished requests to take more of this one")
            self.buffer.feed(data)
            frame = self.buffer.next_frame()
        return frame
