"""A server that gives each connection a task: for clients that ask seldom.

One that turns out to be somebody else's is handed over, with the bytes that were read from it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from kraftpy.clock import Clock
from kraftpy.network.connection import Connection
from kraftpy.network.limits import ServerLimits
from kraftpy.network.listener import Listener, listening_sockets
from kraftpy.wire.apis import ApiTable, Request, read_request

__all__ = ["Handler", "WireServer", "listening_sockets"]

# Answers a request of the table; None if it wants no answer.
Handler = Callable[[Request, str], Awaitable[bytearray | None]]
# Whether a connection is not a Kafka client's, by its first bytes; None: too few to tell.
IsPeer = Callable[[bytes], bool | None]
# Takes over such a socket and the bytes that were read from it.
AdoptPeer = Callable[[socket.socket, bytes], None]


def _nobody_is_peer(_first: bytes) -> bool | None:
    return False


def _close(sock: socket.socket, _first: bytes) -> None:
    sock.close()


class WireServer(Listener[Connection]):
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
        super().__init__(clock=clock, limits=limits or ServerLimits())
        self._table = table
        self._handler = handler
        self.is_peer = is_peer
        self.adopt = adopt_peer

    def connected(self, sock: socket.socket, address: str) -> Connection:
        return Connection(self, sock, address)

    async def close(self) -> None:
        """Accept no more and let go of every client."""
        self.stop_accepting()
        tasks = [connection.task for connection in self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections:
            connection.abandon()
        self._connections.clear()

    async def answer(self, frame: bytes, connection: Connection) -> bytearray | None:
        return await self._handler(read_request(self._table, frame), connection.address)

    def has_room(self) -> bool:
        held = sum(len(connection.buffer) for connection in self._connections)
        return held < self.limits.buffered_bytes_max
