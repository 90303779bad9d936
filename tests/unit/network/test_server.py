"""Bad clients cost their own connection and nothing else: real sockets, a clock that is stepped."""

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1.request import MetadataRequest

from kraftpy.clock import ManualClock, SystemClock
from kraftpy.errors import ConfigError, Unreachable, WireError
from kraftpy.network.client import WireClient
from kraftpy.network.limits import ServerLimits
from kraftpy.network.loop import new_event_loop
from kraftpy.network.server import WireServer, listening_sockets
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request, VersionRange
from kraftpy.wire.headers import API_VERSIONS, read_start, request_frame

TABLE = {apis.METADATA: VersionRange(1, 1), API_VERSIONS: VersionRange(0, 0)}
LIMITS = ServerLimits(
    frame_bytes_max=300_000,
    connections_max=20,
    connections_per_address_max=10,
    buffered_bytes_max=200_000,
    first_byte_ms_max=100,
    arrival_ms_max=200,
    departure_ms_max=300,
    idle_ms_max=1000,
)


class Bench:
    """A server whose answers tests decide, and clients as plain as sockets are."""

    def __init__(self, limits: ServerLimits = LIMITS) -> None:
        self.clock = ManualClock()
        self.answer_bytes = 0
        self.gate: asyncio.Event | None = None
        self.asked: list[int] = []
        self.server = WireServer(TABLE, self._handle, clock=self.clock, limits=limits)
        self.server.start(listening_sockets("127.0.0.1", 0))
        self.loop = asyncio.get_running_loop()

    async def _handle(self, request: Request, address: str) -> bytearray | None:
        assert address == "127.0.0.1"
        number = request.header.correlation_id
        self.asked.append(number)
        if number == 13:
            raise RuntimeError("a bug")
        if self.gate is not None and number < 0:
            await self.gate.wait()
        body = struct.pack(">i", number) + bytes(self.answer_bytes)
        return bytearray(struct.pack(">i", len(body)) + body)

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await self.loop.sock_connect(sock, ("127.0.0.1", self.server.port))
        return sock

    async def receive(self, sock: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self.loop.sock_recv(sock, count - len(data))
            if not more:
                return data
            data += more
        return data

    async def next_answer(self, sock: socket.socket) -> int:
        size, number = struct.unpack(">ii", await self.receive(sock, 8))
        await self.receive(sock, size - 4)
        return int(number)

    async def is_closed(self, sock: socket.socket) -> bool:
        """Wait for the other side to close; True, or the test hangs."""
        try:
            return await self.loop.sock_recv(sock, 1) == b""
        except ConnectionResetError:
            return True

    async def still_serves(self) -> None:
        sock = await self.connect()
        await self.loop.sock_sendall(sock, request(77))
        assert await self.next_answer(sock) == 77
        sock.close()

    async def until_connections(self, count: int) -> None:
        for _ in range(1000):
            if self.server.connection_count == count:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"{self.server.connection_count} connections")

    def let_pass(self, ms: int) -> None:
        self.clock.advance(ms)
        self.server.sweep()


def request(number: int) -> bytes:
    message = MetadataRequest(topics=None)
    return bytes(request_frame(message, apis.METADATA, 1, number, "test"))


def on_both_loops(test: Callable[[Bench], Awaitable[None]]) -> Callable[[str], None]:
    """Run an `async def` test with a Bench, under uvloop and under Python's own loop."""

    @pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
    def run(loop: str) -> None:
        factory = new_event_loop if loop == "uvloop" else asyncio.new_event_loop

        async def whole() -> None:
            bench = Bench()
            try:
                async with asyncio.timeout(60):
                    await test(bench)
            finally:
                await bench.server.close()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(whole())

    return run


@on_both_loops
async def test_pipelined_requests_are_answered_in_order(bench: Bench) -> None:
    bench.gate = asyncio.Event()
    sock = await bench.connect()
    numbers = [-1, 5, -2, 6, 7, 8]
    await bench.loop.sock_sendall(sock, b"".join(request(number) for number in numbers))
    while bench.asked != [-1]:
        await asyncio.sleep(0)
    await bench.still_serves()  # The first one waits; others are served, this one's rest is not.
    assert bench.asked == [-1, 77]
    bench.gate.set()
    assert [await bench.next_answer(sock) for _ in numbers] == numbers
    sock.close()


@on_both_loops
async def test_a_request_may_come_byte_by_byte(bench: Bench) -> None:
    sock = await bench.connect()
    for byte in request(3) + request(4):
        await bench.loop.sock_sendall(sock, bytes([byte]))
        await asyncio.sleep(0)
    assert [await bench.next_answer(sock), await bench.next_answer(sock)] == [3, 4]
    sock.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x7f\xff\xff\xff",
        b"\x80\x00\x00\x00",
        struct.pack(">i", 300_001),
        struct.pack(">i", 0),
        struct.pack(">i", 7) + bytes(7),
        struct.pack(">ihhi", 8, 99, 0, 1),
        struct.pack(">ihhi", 8, 3, 9, 1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        request(13),
    ],
)
def test_bytes_that_are_no_request_close_their_connection(data: bytes) -> None:
    async def whole() -> None:
        bench = Bench()
        good = await bench.connect()
        await bench.loop.sock_sendall(good, request(1))
        assert await bench.next_answer(good) == 1
        bad = await bench.connect()
        await bench.loop.sock_sendall(bad, data)
        assert await bench.is_closed(bad)
        await bench.loop.sock_sendall(good, request(2))
        assert await bench.next_answer(good) == 2
        await bench.still_serves()
        assert sum(bench.server.counts[why] for why in ("malformed", "failed")) == 1
        for sock in (good, bad):
            sock.close()
        await bench.server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())


@on_both_loops
async def test_each_thing_that_a_client_may_be_slow_at_has_its_limit(bench: Bench) -> None:
    silent, started, idle, deaf = [await bench.connect() for _ in range(4)]
    await bench.loop.sock_sendall(started, request(1)[:5])
    await bench.loop.sock_sendall(idle, request(2))
    assert await bench.next_answer(idle) == 2
    bench.answer_bytes = 50_000_000  # More than any socket's buffers.
    await bench.loop.sock_sendall(deaf, request(3))
    while 3 not in bench.asked:
        await asyncio.sleep(0)
    bench.answer_bytes = 0
    await bench.until_connections(4)
    for ms, left, sock in ((101, 3, silent), (100, 2, started), (100, 1, deaf)):
        bench.let_pass(ms)
        await bench.until_connections(left)
        if sock is not deaf:
            assert await bench.is_closed(sock)
    bench.let_pass(500)
    await bench.loop.sock_sendall(idle, request(4))
    assert await bench.next_answer(idle) == 4
    bench.let_pass(900)
    await bench.until_connections(1)
    bench.let_pass(200)
    assert await bench.is_closed(idle)
    assert bench.server.counts["too_slow"] == 4
    for sock in (silent, started, idle, deaf):
        sock.close()


@on_both_loops
async def test_drops_do_not_keep_a_request_alive(bench: Bench) -> None:
    """Slow loris: a byte now and then is not progress."""
    sock = await bench.connect()
    data = request(1)
    for at in range(4):
        await bench.loop.sock_sendall(sock, data[at : at + 1])
        await asyncio.sleep(0.01)
        bench.let_pass(60)
    assert await bench.is_closed(sock)
    await bench.still_serves()
    sock.close()


@on_both_loops
async def test_connections_are_counted_per_address_and_let_go(bench: Bench) -> None:
    kept = [await bench.connect() for _ in range(10)]
    await bench.until_connections(10)
    refused = await bench.connect()
    assert await bench.is_closed(refused)
    assert bench.server.counts["too_many"] == 1
    kept.pop().close()
    await bench.until_connections(9)
    await bench.still_serves()
    for sock in [*kept, refused]:
        sock.close()
    await bench.until_connections(0)
    assert not bench.server._per_address


@on_both_loops
async def test_unfinished_requests_share_a_bound(bench: Bench) -> None:
    socks = [await bench.connect() for _ in range(5)]
    head = struct.pack(">i", 290_000)
    for sock in socks:
        await bench.loop.sock_sendall(sock, head + bytes(100_000))
    for _ in range(1000):
        if bench.server.counts["malformed"]:
            break
        await asyncio.sleep(0.002)
    held = sum(len(connection.buffer) for connection in bench.server._connections)
    assert bench.server.counts["malformed"] >= 1
    assert held <= LIMITS.buffered_bytes_max + 5 * 65536
    await bench.still_serves()
    for sock in socks:
        sock.close()


@on_both_loops
async def test_clients_that_vanish_in_any_state_leave_nothing(bench: Bench) -> None:
    rng = random.Random(2)
    bench.answer_bytes = 100_000
    for _ in range(100):
        sock = await bench.connect()
        data = request(1) * rng.randrange(4) + request(2)[: rng.randrange(10)]
        if data:
            await bench.loop.sock_sendall(sock, data)
        if rng.random() < 0.5:  # With a reset instead of an orderly end.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        await bench.until_connections(0)
    bench.answer_bytes = 0
    await bench.still_serves()
    await bench.until_connections(0)


@on_both_loops
async def test_closing_lets_go_of_everybody(bench: Bench) -> None:
    bench.gate = asyncio.Event()
    sock = await bench.connect()
    await bench.loop.sock_sendall(sock, request(-1))
    while not bench.asked:
        await asyncio.sleep(0)
    port = bench.server.port
    await bench.server.close()
    assert await bench.is_closed(sock)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    sock.close()


def test_a_port_in_use_is_one_line() -> None:
    (taken,) = listening_sockets("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=r"cannot listen on 127.0.0.1:\d+: Address already"):
        listening_sockets("127.0.0.1", taken.getsockname()[1])
    taken.close()


# -- the client -------------------------------------------------------------------------------


async def connect_to(reply: bytes | None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = read_start((await reader.read(1000))[4:])
        if reply is not None:
            writer.write(reply.replace(b"ID", start.correlation_id.to_bytes(2, "big")))
            await writer.drain()
            writer.close()
        else:
            await reader.read()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        client = await WireClient.connect("127.0.0.1", port, timeout_s=0.2 if reply is None else 20)
        await client.close()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (b"", Unreachable, "closed the connection without an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n", WireError, "does not speak Kafka's protocol"),
        (b"\0\0\0\6\0\0ID\0\0", WireError, "does not speak Kafka's protocol"),
        (b"\0\0\0\x0a\0\0\7\7\0\0\0\0\0\0", WireError, "out of order"),
        (b"\0\0\0\x0a\0\0ID\0\x23\0\0\0\0", WireError, "refuses ApiVersions: unsupported_version"),
        (None, Unreachable, "does not answer within 0.2 s"),
    ],
)
def test_the_client_says_what_is_wrong_with_a_server(
    reply: bytes | None, error: type[Exception], message: str
) -> None:
    with asyncio.Runner() as runner, pytest.raises(error, match=message):
        runner.run(connect_to(reply))


def test_the_client_says_who_refuses() -> None:
    (free,) = listening_sockets("127.0.0.1", 0)
    port = free.getsockname()[1]
    free.close()
    with asyncio.Runner() as runner, pytest.raises(Unreachable, match=f"127.0.0.1:{port}: "):
        runner.run(WireClient.connect("127.0.0.1", port, timeout_s=5))


def test_the_client_gets_its_answers_in_order_and_drops_the_late_one() -> None:
    """Three requests at once; the first one's asker has gone before it is answered."""
    asked: list[int] = []
    gate = asyncio.Event()

    async def answer(request: Request, _address: str) -> bytearray:
        if request.header.api_key != API_VERSIONS:
            asked.append(request.header.correlation_id)
            await gate.wait()
        api = {"api_key": 60, "min_version": 0, "max_version": 0}
        versions = {"error_code": ErrorCode.none, "api_keys": [api]}
        cluster: dict[str, object] = {
            "error_message": None,
            "brokers": [],
            "cluster_authorized_operations": 0,
        }
        number = {"controller_id": request.header.correlation_id, "cluster_id": "c"}
        return request.response({**versions, **cluster, **number, "throttle_time": NO_THROTTLE})

    async def main() -> None:
        table = {API_VERSIONS: VersionRange(0, 0), 60: VersionRange(0, 0)}
        server = WireServer(table, answer, clock=SystemClock())
        server.start(listening_sockets("127.0.0.1", 0))
        client = await WireClient.connect("127.0.0.1", server.port, timeout_s=30)
        values = {"include_cluster_authorized_operations": False}
        tasks = [asyncio.create_task(client.ask(60, values)) for _ in range(3)]
        while not asked:
            await asyncio.sleep(0.001)
        tasks[0].cancel()
        gate.set()
        answers = await asyncio.gather(*tasks[1:])
        assert [each.controller_id for each in answers] == [3, 4]
        waiting = asyncio.create_task(client.ask(60, values))
        gate.clear()
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(Unreachable, match="was closed"):
            await waiting
        with pytest.raises(Unreachable, match="was closed"):
            await client.ask(60, values)
        await server.close()

    with asyncio.Runner() as runner:
        runner.run(main())


def test_a_server_that_closes_lets_go_of_a_client_it_has_just_accepted() -> None:
    async def main() -> None:
        server = WireServer({}, lambda _r, _a: asyncio.sleep(0), clock=SystemClock())
        (listening,) = listening_sockets("127.0.0.1", 0)
        server.start([listening])
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            server._accept(listening)
            assert server.connection_count == 1
            await server.close()
            assert server.connection_count == 0
            client.settimeout(20)
            assert client.recv(1) == b""

    with asyncio.Runner() as runner:
        runner.run(main())
