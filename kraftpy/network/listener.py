"""Accepts connections and keeps all of them within their limits, whatever they are used for.

Raw non-blocking sockets: what is done with one is up to the server that extends this. A malformed,
slow or half-open client costs its own connection and a line in the log, once per address; the rest
is counted.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from kraftpy.clock import Clock
from kraftpy.errors import AddressInUse, ConfigError
from kraftpy.limits import COMPLAINTS_MAX
from kraftpy.logs import get_logger
from kraftpy.network.limits import ServerLimits

log = get_logger(__name__)

_BACKLOG: Final = 512
_ACCEPTED_AT_ONCE: Final = 64
_SWEEP_S: Final = 1.0
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_WORTH_A_LINE: Final = {"malformed", "too_slow", "too_many"}


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
        is_taken = error.errno == errno.EADDRINUSE
        raise (AddressInUse if is_taken else ConfigError)(
            f"cannot listen on {host}:{port}: {error.strerror}"
        ) from None
    return found


class Client(Protocol):
    """A connection, as the listener knows it."""

    address: str  # Without the port: the same for all connections of a machine.

    def check(self, now_ms: int) -> None:
        """Close it if it takes longer for something than it may."""
        ...


C = TypeVar("C", bound=Client)


class Listener(Generic[C]):
    """The listening sockets of one server and the connections from them. Lives in one loop."""

    def __init__(self, *, clock: Clock, limits: ServerLimits) -> None:
        self.limits = limits
        self.clock = clock
        self.counts: Counter[str] = Counter()  # Why connections ended, for metrics.
        self._listening: list[socket.socket] = []
        self._connections: dict[C, None] = {}  # In the order in which they came.
        self._per_address: Counter[str] = Counter()
        self._complained: set[str] = set()
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def connected(self, sock: socket.socket, address: str) -> C:
        """Begin to serve a new client."""
        raise NotImplementedError

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

    def stop_accepting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listening = []

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
        self._connections[self.connected(sock, address)] = None

    # -- for connections ----------------------------------------------------------------------

    def closed(self, connection: C, reason: str, detail: str) -> None:
        """A connection is no more, and why."""
        self._connections.pop(connection, None)
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
        """Close every connection that takes too long."""
        now_ms = self.clock.monotonic_ms()
        for connection in list(self._connections):
            connection.check(now_ms)
