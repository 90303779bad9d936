"""The broker's listener: Kafka's protocol for clients and for other brokers.

Produce and Fetch go to the data plane in place (kraftpy/broker/connection.py); every other API that
the table lists goes to the handler, in a task. Only what the table lists is served.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from kraftpy.broker.connection import Connection
from kraftpy.broker.data_plane import DataPlane
from kraftpy.broker.request_memory import RequestMemory
from kraftpy.broker.server_limits import BrokerLimits, Traffic
from kraftpy.clock import Clock
from kraftpy.errors import FatalFault
from kraftpy.network.listener import Listener
from kraftpy.wire.apis import ApiTable, Request

# Answers a request of the table from this address; None if it wants no answer.
Handler = Callable[[Request, str], Awaitable[bytearray | None]]


class BrokerServer(Listener[Connection]):
    """The listener of one broker. Lives in one event loop.

    `on_fault` is called with what makes the broker stop; the caller sees to it.
    """

    limits: BrokerLimits

    def __init__(
        self,
        table: ApiTable,
        data_plane: DataPlane,
        handler: Handler,
        *,
        clock: Clock,
        on_fault: Callable[[FatalFault], None],
        limits: BrokerLimits | None = None,
    ) -> None:
        super().__init__(clock=clock, limits=limits or BrokerLimits())
        self.table = table
        self.data_plane = data_plane
        self.memory = RequestMemory(self.limits.buffered_bytes_max)
        self.traffic = Traffic()
        self.failed = on_fault
        self._handler = handler

    def connected(self, sock: socket.socket, address: str) -> Connection:
        return Connection(self, sock, address)

    async def close(self) -> None:
        """Accept no more and let go of every client."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close("stopped")
        await asyncio.sleep(0)  # Tasks that were cancelled end.

    # -- for connections ----------------------------------------------------------------------

    async def answer(self, request: Request, connection: Connection) -> bytearray | None:
        return await self._handler(request, connection.address)

    def shed_buffers(self) -> None:
        for connection in list(self._connections):
            connection.shed_buffer()
