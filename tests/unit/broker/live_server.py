"""A live server over a data plane that a test holds in its hands, and clients as plain as sockets.

The plane looks at the records of a request when `end_of_input` comes, not before: had the buffer
been used again by then, it would see something else than was sent.
"""

import asyncio
import os
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from kraftpy.broker.api_table import advertised, served
from kraftpy.broker.data_plane import Abandon, FetchAnswer, RespondToFetch, RespondToProduce
from kraftpy.broker.server import BrokerServer
from kraftpy.broker.server_limits import BrokerLimits
from kraftpy.clock import ManualClock
from kraftpy.describe.api_versions import api_versions
from kraftpy.errors import FatalFault
from kraftpy.network.listener import listening_sockets
from kraftpy.network.loop import new_event_loop
from kraftpy.storage import LogSlice, OsFiles
from kraftpy.wire import apis
from kraftpy.wire.apis import Request, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.fetch import FETCH, FetchedPartition, FetchRequest
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame
from kraftpy.wire.produce import PRODUCE, ProduceRequest, ProduceResult

TABLE = served([PRODUCE, FETCH, apis.METADATA])
LIMITS = BrokerLimits(
    frame_bytes_max=9_000_000,
    connections_max=40,
    connections_per_address_max=30,
    buffered_bytes_max=10_000_000,
    arrival_ms_max=2000,
    departure_ms_max=3000,
    idle_ms_max=20_000,
    in_flight_max=10,
    unsent_bytes_max=100_000,
    buffer_bytes=4096,
    buffer_bytes_busy=65536,
)
NOT_LEADER = 6


class Plane:
    """Answers acks=1 when the input ends, anything else when the test says so."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.log = OsFiles().open(os.path.join(self.directory.name, "log"))
        self.log_bytes = 0
        self.taken: list[ProduceRequest] = []
        self.appended: list[tuple[int, bytes]] = []  # Correlation id, records.
        self.inputs = 0
        self.before_answers: Callable[[], None] = lambda: None
        self.waiting: dict[int, RespondToProduce] = {}
        self.fetches: dict[int, tuple[FetchRequest, RespondToFetch]] = {}
        self.abandoned: list[int] = []
        self.error_code = 0
        self.fault: Exception | None = None
        self._pending: list[tuple[ProduceRequest, RespondToProduce]] = []

    def write_log(self, data: bytes) -> None:
        self.log.write(self.log_bytes, [data])
        self.log_bytes += len(data)

    def produce(self, request: ProduceRequest, respond: RespondToProduce) -> None:
        if request.timeout_ms == 13:
            raise RuntimeError("a bug")
        self.taken.append(request)
        self._pending.append((request, respond))

    def end_of_input(self) -> None:
        self.inputs += 1
        pending, self._pending = self._pending, []
        if self.fault is not None:
            raise self.fault
        for request, _ in pending:
            for partition in request.partitions:
                records = b"" if partition.records is None else bytes(partition.records)
                self.appended.append((request.correlation_id, records))
        self.before_answers()
        for request, respond in pending:
            if request.acks < 0:
                self.waiting[request.correlation_id] = respond
            else:
                respond(self.results(request))

    def results(self, request: ProduceRequest) -> list[ProduceResult]:
        offset = request.correlation_id
        return [ProduceResult(self.error_code, offset) for _ in request.partitions]

    def release(self, *numbers: int) -> None:
        """Answer these, in this order."""
        for number in numbers:
            self.waiting.pop(number)([ProduceResult(0, number)])

    def fetch(self, request: FetchRequest, respond: RespondToFetch) -> Abandon | None:
        if request.max_wait_ms:
            number = request.correlation_id
            self.fetches[number] = (request, respond)
            return lambda: self.abandoned.append(number)
        respond(self.answer(request))
        return None

    def answer(self, request: FetchRequest) -> FetchAnswer:
        """What the log has from the offset on, which counts bytes here."""
        return FetchAnswer(
            [
                FetchedPartition(
                    0,
                    self.log_bytes,
                    self.log_bytes,
                    0,
                    LogSlice(
                        self.log,
                        each.fetch_offset,
                        min(each.bytes_max, self.log_bytes - each.fetch_offset),
                    ),
                )
                for each in request.partitions
            ]
        )

    def release_fetch(self, number: int) -> None:
        request, respond = self.fetches.pop(number)
        respond(self.answer(request))


class Bench:
    """The server and its surroundings."""

    def __init__(self, limits: BrokerLimits = LIMITS) -> None:
        self.clock = ManualClock()
        self.plane = Plane()
        self.gate = asyncio.Event()
        self.asked: list[int] = []
        self.cancelled: list[int] = []
        self.faults: list[FatalFault] = []
        self._sockets: list[socket.socket] = []
        self.server = BrokerServer(
            TABLE,
            self.plane,
            self._handle,
            clock=self.clock,
            on_fault=self.faults.append,
            limits=limits,
        )
        self.server.start(listening_sockets("127.0.0.1", 0))
        self.loop = asyncio.get_running_loop()

    async def _handle(self, request: Request, address: str) -> bytearray | None:
        assert address == "127.0.0.1"
        if request.header.api_key == API_VERSIONS:
            return api_versions(advertised(TABLE), request)
        number = request.header.correlation_id
        self.asked.append(number)
        if number == 13:
            raise RuntimeError("a bug")
        if number == 14:
            raise FatalFault("the disk is gone")
        if number < 0:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
        return bytearray(struct.pack(">ii", 4, number))

    async def connect(self, receive_bytes: int = 0) -> socket.socket:
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        self._sockets.append(sock)
        await self.loop.sock_connect(sock, ("127.0.0.1", self.server.port))
        return sock

    async def send(self, sock: socket.socket, *frames: bytes) -> None:
        await self.loop.sock_sendall(sock, b"".join(frames))

    async def receive(self, sock: socket.socket, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = await self.loop.sock_recv(sock, count - len(data))
            if not more:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += more
        return bytes(data)

    async def next_frame(self, sock: socket.socket) -> bytes:
        (size,) = struct.unpack(">i", await self.receive(sock, 4))
        return await self.receive(sock, size)

    async def next_number(self, sock: socket.socket) -> int:
        """The correlation id of the next answer."""
        (number,) = struct.unpack_from(">i", await self.next_frame(sock))
        return int(number)

    async def numbers(self, sock: socket.socket, count: int) -> list[int]:
        return [await self.next_number(sock) for _ in range(count)]

    async def is_closed(self, sock: socket.socket) -> bool:
        """Wait for the other side to close; True, or the test hangs."""
        try:
            while await self.loop.sock_recv(sock, 65536):
                pass
        except ConnectionError:
            pass
        return True

    async def still_serves(self) -> None:
        sock = await self.connect()
        await self.send(sock, produce(77), metadata(78))
        assert await self.numbers(sock, 2) == [77, 78]
        sock.close()

    async def until(self, what: Callable[[], object]) -> None:
        for _ in range(2000):
            if what():
                return
            await asyncio.sleep(0.002)
        raise AssertionError("it does not happen")

    async def until_connections(self, count: int) -> None:
        await self.until(lambda: self.server.connection_count == count)

    async def let_pass(self, ms: int) -> None:
        """Time passes for what is so now."""
        await asyncio.sleep(0.02)
        self.server.sweep()
        self.clock.advance(ms)
        self.server.sweep()

    async def close(self) -> None:
        await self.server.close()
        for sock in self._sockets:
            sock.close()
        self.plane.directory.cleanup()


def on_both_loops(test: Callable[[Bench], Awaitable[None]]) -> Callable[[str], None]:
    """Run an `async def` test with a Bench, under uvloop and under Python's own loop."""

    @pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
    def run(loop: str) -> None:
        run_test(test, loop)

    return run


def run_test(test: Callable[[Bench], Awaitable[None]], loop: str = "uvloop") -> None:
    factory = new_event_loop if loop == "uvloop" else asyncio.new_event_loop

    async def whole() -> None:
        bench = Bench()
        try:
            async with asyncio.timeout(20):
                await test(bench)
        finally:
            await bench.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(whole())


# -- requests ---------------------------------------------------------------------------------


def produce(
    number: int,
    records: bytes = b"records",
    *,
    acks: int = 1,
    version: int = 9,
    timeout_ms: int = 1,
) -> bytes:
    partition = {"index": 0, "records": records}
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": [{"name": "t", "topic_id": None, "partition_data": [partition]}],
    }
    message: Any = build(request_type(PRODUCE, version), values)
    return bytes(request_frame(message, PRODUCE, version, number, "test"))


def fetch(
    number: int,
    offset: int = 0,
    bytes_max: int = 1 << 30,
    *,
    wait_ms: int = 0,
    session_epoch: int = -1,
    partitions: int = 1,
) -> bytes:
    wanted = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": bytes_max,
        }
        for index in range(partitions)
    ]
    values = {
        "replica_id": -1,
        "max_wait": timedelta(milliseconds=wait_ms),
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": session_epoch,
        "topics": [{"topic": "t", "partitions": wanted}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    message: Any = build(request_type(FETCH, 12), values)
    return bytes(request_frame(message, FETCH, 12, number, "test"))


def metadata(number: int) -> bytes:
    message: Any = build(request_type(apis.METADATA, 1), {"topics": None})
    return bytes(request_frame(message, apis.METADATA, 1, number, "test"))


def fetched(frame: bytes) -> tuple[int, Sequence[bytes]]:
    """(correlation id, records of each partition)."""
    number, answer = read_response(frame, response_type(FETCH, 12), FETCH)
    (topic,) = answer.responses
    return number, [each.records for each in topic.partitions]
