"""What every system under measurement offers, and the connection that all their clients share.

A client is one asyncio connection with one request in flight. Requests are bytes that were made
before the clock runs, and of an answer only what tells success from failure is looked at: so a
client costs the machine about the same whichever system it talks to.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from typing import Any

from bench.quorum_processes import ServerProcesses

NODES = range(1, 4)
VALUE_BYTES = 64
BATCH_RECORDS = 100
ANSWER_TIMEOUT_S = 10.0
START_TIMEOUT_S = 60.0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class NoCommit(Exception):
    """The answer says that nothing was committed, or there is no answer."""


class Channel(asyncio.Protocol):
    """A connection on which one question at a time is asked."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.settle(NoCommit(f"the connection is lost: {error}"))

    def data_received(self, data: bytes) -> None:
        """Frames as Kafka's protocol and ZooKeeper's have them: a length, then so many bytes."""
        received = self._received
        received += data
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4], "big")
            if len(received) < end:
                return
            frame = bytes(received[4:end])
            del received[:end]
            self.settle(frame)

    def settle(self, outcome: bytes | NoCommit) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        if isinstance(outcome, bytes):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def ask(self, frame: bytes | bytearray) -> asyncio.Future[bytes]:
        """Send bytes; the answer is the next frame. NoCommit if the connection is lost."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            answer.set_exception(NoCommit("the connection is lost"))
            return answer
        self._answer = answer
        self._transport.write(frame)
        return answer

    def send(self, data: bytes) -> None:
        """Send bytes that nothing answers."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Client(ABC):
    """One writer's connection to one server."""

    @abstractmethod
    async def commit(self) -> None:
        """Write one record; it is committed when this returns. NoCommit if that is not known."""

    @abstractmethod
    async def commit_batch(self) -> None:
        """Write BATCH_RECORDS records, all or none."""

    @abstractmethod
    def close(self) -> None: ...


class System(ABC):
    """Three servers of one kind."""

    name: str
    processes: ServerProcesses

    @staticmethod
    @abstractmethod
    def missing() -> str | None:
        """What to install, if it is not there."""

    @abstractmethod
    async def leader(self) -> int | None:
        """Who leads now, if that can be said."""

    @abstractmethod
    async def is_whole(self) -> bool:
        """Whether there is a leader and everyone has all that it has."""

    @abstractmethod
    async def connect(self, node_id: int, number: int) -> Client:
        """A client of this node, the so-manyth writer. NoCommit or OSError if it cannot be."""

    async def prepare(self) -> None:
        """Whatever must be there before the first write; the servers are running."""
        return  # Most need nothing.

    async def wait_for_leader(self) -> int:
        async with asyncio.timeout(START_TIMEOUT_S):
            while (leader := await self.leader()) is None:
                await asyncio.sleep(0.02)
            return leader

    async def wait_until_whole(self) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self.is_whole():
                await asyncio.sleep(0.05)

    def cpu_s(self) -> float:
        """Processor seconds that the servers which run now have used since they were started."""
        return sum(cpu_s(pid) for pid in self.processes.pids)


async def open_channel(kind: type[Channel], port: int) -> Any:
    """A channel to a port of this machine; OSError or TimeoutError if nobody listens."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        return (await loop.create_connection(kind, "127.0.0.1", port))[1]


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
