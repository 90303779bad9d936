"""A listener: accepts connections, gives each a task, and keeps all of them within their limits.

Raw non-blocking sockets, so that one that turns out to be somebody else's can be handed over with
the bytes that were read from it. A malformed, slow or half-open client costs its own connection and
a line in the log, once per address; the rest is counted.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from kraftpy.clock import Clock
from kraftpy.errors import ConfigError
from kraftpy.limits import COMPLAINTS_MAX
from kraftpy.logs import get_logger
from kraftpy.network.connection import Connection
from kraftpy.network.limits import ServerLimits
from kraftpy.wire.apis import ApiTable, Request, read_request

log = get_logger(__name__)

# Answers a request of the table; None if it wants no answer.
Handler = Callable[[Request, str], Awaitable[bytearray | None]]
# Whether a connection is not a Kafka client's, by its first bytes; None: too few to tell.
IsPeer = Callable[[bytes], bool | None]
# Takes over such a socket and the bytes that were read from it.
AdoptPeer = Callable[[socket.socket, bytes], None]

_BACKLOG: Final = 512
_ACCEPTED_AT_ONCE: Final = 64
_SWEEP_S: Final = 1.0
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_WORTH_A_LINE: Final = {"malformed", "too_slow", "too_many"}


def _nobody_is_peer(_first: bytes) -> bool | None:
    return False


def _close(sock: socket.socket, _first: bytes) -> None:
    sock.close()


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Bound sockets for every address that the host has; ConfigError says why not."""
    found: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            found.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.setblocking(False)
            sock.listen(_BACKLOG)
            if port == 0:
                break  # Any port: the first family's, as the others would get another one.
    except OSError as error:
        for sock in found:
            sock.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return found


class WireServer:
    """The listener of one node. Lives in one event loop."""

    def __init__(
        self,
        table: ApiTable,
        handler: Handler,
        *,
        clock: Clock,
        limits: ServerLimits | None = None,
        is_peer: IsPeer = _nobody_is_peer,
        adopt_peer: AdoptPeer = _close,
    ) -> None:
        self.limits = limits or ServerLimits()
        self.clock = clock
        self.counts: Counter[str] = Counter()  # Why connections ended, for metrics.
        self._table = table
        self._handler = handler
        self.is_peer = is_peer
        self.adopt = adopt_peer
        self._listening: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._complained: set[str] = set()
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from these sockets, which the server owns from now on; in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._listening = list(sockets)
        for sock in self._listening:
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._sweep_again()

    @property
    def port(self) -> int:
        """Where it listens, also if it was left to the system."""
        return int(self._listening[0].getsockname()[1])

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def close(self) -> None:
        """Accept no more and let go of every client."""
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listening = []
        tasks = [connection.task for connection in self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- accepting ----------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._pause_accepting(listening, error)
                return
            self._take(sock, str(address[0]))

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """The connection stays in the backlog: without a pause the loop would do nothing else."""
        log.warning("cannot_accept", reason=error.strerror)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_SWEEP_S, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _take(self, sock: socket.socket, address: str) -> None:
        if (
            len(self._connections) >= self.limits.connections_max
            or self._per_address[address] >= self.limits.connections_per_address_max
        ):
            sock.close()
            self._note(address, "too_many", f"{len(self._connections)} connections are open")
            return
        sock.setblocking(False)
        with suppress(OSError):  # It may have gone already.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._per_address[address] += 1
        self._connections.add(Connection(self, sock, address))

    # -- for connections ----------------------------------------------------------------------

    async def answer(self, frame: bytes, connection: Connection) -> bytearray | None:
        return await self._handler(read_request(self._table, frame), connection.address)

    def has_room(self) -> bool:
        held = sum(len(connection.buffer) for connection in self._connections)
        return held < self.limits.buffered_bytes_max

    def closed(self, connection: Connection, reason: str, detail: str) -> None:
        self._connections.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]
        self._note(connection.address, reason, detail)

    def _note(self, address: str, reason: str, detail: str) -> None:
        self.counts[reason] += 1
        if reason not in _WORTH_A_LINE or address in self._complained:
            return
        if len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(address)
            log.warning("connection_refused", address=address, reason=reason, detail=detail)

    # -- deadlines ----------------------------------------------------------------------------

    def _sweep_again(self) -> None:
        self.sweep()
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep_again)

    def sweep(self) -> None:
        """Close every connection whose deadline has passed."""
        now_ms = self.clock.monotonic_ms()
        for connection in list(self._connections):
            if connection.deadline_ms is not None and connection.deadline_ms < now_ms:
                connection.expire()
