"""What one client can take of the server is bounded; a bad one costs its own connection."""

import asyncio
import os
import random
import socket
import struct
from contextlib import suppress

import pytest

from kraftpy.errors import FatalFault
from tests.unit.broker.live_server import (
    LIMITS,
    Bench,
    fetch,
    fetched,
    metadata,
    on_both_loops,
    produce,
    run_test,
)


@on_both_loops
async def test_a_giant_request_gets_its_memory_and_gives_it_back(bench: Bench) -> None:
    sock = await bench.connect()
    giant = random.Random(1).randbytes(8_000_000)
    await bench.send(sock, produce(1, b"small"), produce(2, giant), produce(3, b"after"))
    assert await bench.numbers(sock, 3) == [1, 2, 3]
    assert bench.plane.appended == [(1, b"small"), (2, giant), (3, b"after")]
    (connection,) = bench.server._connections
    assert bench.server.memory.held == connection.buffer.capacity - LIMITS.buffer_bytes > 7_000_000
    bench.server.sweep()
    bench.server.sweep()
    assert bench.server.memory.held == 0
    assert connection.buffer.capacity == 0  # A client that sends nothing holds nothing.
    await bench.send(sock, produce(4))
    assert await bench.next_number(sock) == 4


@on_both_loops
async def test_a_client_that_keeps_its_buffer_full_gets_a_larger_one(bench: Bench) -> None:
    sock = await bench.connect()
    numbers = list(range(300))
    sending = asyncio.ensure_future(
        bench.send(sock, *(produce(number, bytes(1000)) for number in numbers))
    )
    assert await bench.numbers(sock, 300) == numbers
    await sending
    (connection,) = bench.server._connections
    assert LIMITS.buffer_bytes < connection.buffer.capacity <= LIMITS.buffer_bytes_busy


@on_both_loops
async def test_requests_in_flight_are_bounded(bench: Bench) -> None:
    sock = await bench.connect()
    numbers = list(range(35))
    await bench.send(sock, *(produce(number, acks=-1) for number in numbers))
    await bench.until(lambda: len(bench.plane.waiting) == LIMITS.in_flight_max)
    await asyncio.sleep(0.02)
    assert len(bench.plane.taken) == LIMITS.in_flight_max
    while bench.plane.waiting:
        bench.plane.release(*reversed(bench.plane.waiting))
        await asyncio.sleep(0.02)
        assert len(bench.plane.waiting) <= LIMITS.in_flight_max
    assert await bench.numbers(sock, 35) == numbers


@on_both_loops
async def test_a_client_that_does_not_read_is_not_read_from(bench: Bench) -> None:
    rng = random.Random(2)
    log = rng.randbytes(3_000_000)
    bench.plane.write_log(log)
    sock = await bench.connect(receive_bytes=20_000)
    wanted = [(number, rng.randrange(1_000_000)) for number in range(40)]
    sending = asyncio.ensure_future(
        bench.send(sock, *(fetch(number, offset) for number, offset in wanted), bytes(3))
    )
    await bench.until(lambda: bench.server.traffic.requests[1] > 0)
    await asyncio.sleep(0.1)
    handled = bench.server.traffic.requests[1]
    assert handled < 10
    await bench.still_serves()
    # And it gets every byte when it does, through writes that the socket took in part.
    for number, offset in wanted:
        assert fetched(await bench.next_frame(sock)) == (number, [log[offset:]])
    await sending


@on_both_loops
async def test_answers_of_many_pieces_are_sent_whole(bench: Bench) -> None:
    log = random.Random(3).randbytes(100_000)
    bench.plane.write_log(log)
    sock = await bench.connect(receive_bytes=5000)
    await bench.send(sock, fetch(1, 50_000, partitions=200), produce(2), fetch(3, partitions=3))
    assert fetched(await bench.next_frame(sock)) == (1, [log[50_000:]] * 200)
    assert await bench.next_number(sock) == 2
    assert fetched(await bench.next_frame(sock)) == (3, [log] * 3)


@on_both_loops
async def test_a_file_that_was_cut_ends_the_connection(bench: Bench) -> None:
    bench.plane.write_log(bytes(20_000_000))
    sock = await bench.connect(receive_bytes=5000)
    await bench.send(sock, fetch(1))
    await bench.receive(sock, 1000)
    bench.plane.log.truncate(1000)
    assert await bench.is_closed(sock)
    assert bench.server.counts["lost"] == 1
    await bench.still_serves()


@on_both_loops
async def test_a_file_that_is_gone_is_sent_to_its_end(bench: Bench) -> None:
    log = random.Random(4).randbytes(10_000_000)
    bench.plane.write_log(log)
    sock = await bench.connect(receive_bytes=5000)
    await bench.send(sock, fetch(1))
    head = await bench.receive(sock, 4)
    os.unlink(bench.plane.log.path)
    (size,) = struct.unpack(">i", head)
    assert fetched(await bench.receive(sock, size)) == (1, [log])


# -- bad clients ------------------------------------------------------------------------------


MALFORMED = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"\x80\x00\x00\x00",
    struct.pack(">i", LIMITS.frame_bytes_max + 1),
    struct.pack(">i", 0),
    struct.pack(">i", 3) + bytes(3),
    struct.pack(">ihhi", 8, 0, 9, 1),
    struct.pack(">ihhi", 8, 1, 12, 1),
    produce(5)[:-1] + b"\x01",
    produce(5, timeout_ms=13),
    metadata(13),
]


@pytest.mark.parametrize("data", MALFORMED)
def test_bytes_that_are_no_request_close_their_connection(data: bytes) -> None:
    async def whole(bench: Bench) -> None:
        good = await bench.connect()
        await bench.send(good, produce(1))
        assert await bench.next_number(good) == 1
        bad = await bench.connect()
        await bench.send(bad, produce(2, b"kept"), data)
        assert await bench.next_number(bad) == 2  # It came before, and was a request.
        assert await bench.is_closed(bad)
        assert (2, b"kept") in bench.plane.appended
        await bench.send(good, produce(3))
        assert await bench.next_number(good) == 3
        assert sum(bench.server.counts[why] for why in ("malformed", "failed")) == 1

    run_test(whole)


@on_both_loops
async def test_a_fault_is_told_to_whoever_stops_the_node(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, metadata(14))
    assert await bench.is_closed(sock)
    bench.plane.fault = FatalFault("two leaders")
    other = await bench.connect()
    await bench.send(other, produce(1))
    assert await bench.is_closed(other)
    assert [str(fault) for fault in bench.faults] == ["the disk is gone", "two leaders"]


@on_both_loops
async def test_a_client_that_goes_away_calls_off_what_it_waits_for(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, produce(1, acks=-1), fetch(2, wait_ms=1000), fetch(3, wait_ms=1000))
    await bench.until(lambda: len(bench.plane.fetches) == 2)
    alone = await bench.connect()
    await bench.send(alone, metadata(-4))
    await bench.until(lambda: bench.asked)
    for each in (sock, alone):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    await bench.until_connections(0)
    await bench.until(lambda: bench.cancelled == [-4])
    assert bench.plane.abandoned == [2, 3]
    bench.plane.release(1)  # Nobody listens, and nobody minds.
    bench.plane.release_fetch(2)
    await bench.still_serves()


@on_both_loops
async def test_clients_that_vanish_in_any_state_leave_nothing(bench: Bench) -> None:
    rng = random.Random(5)
    bench.plane.write_log(bytes(500_000))
    kinds = [produce(1), produce(2, bytes(20_000)), fetch(3), metadata(4), produce(5, acks=0)]
    for _ in range(150):
        sock = await bench.connect()
        data = b"".join(rng.choices(kinds, k=rng.randrange(6)))
        data += produce(9, bytes(50_000))[: rng.choice([0, 2, 10, 40_000])]
        if data:
            sock.setblocking(True)
            sock.settimeout(0.05)
            with suppress(TimeoutError):  # It does not read, so it is not read from either.
                sock.sendall(data)
        if rng.random() < 0.5:  # With a reset instead of an orderly end.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    bench.server.sweep()
    await bench.until_connections(0)
    assert not bench.server._per_address
    assert bench.server.memory.held == 0
    await bench.still_serves()


@on_both_loops
async def test_closing_lets_go_of_everybody(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, fetch(1, wait_ms=9), metadata(-2))
    await bench.until(lambda: bench.plane.fetches)
    other = await bench.connect()
    await bench.send(other, metadata(-3))
    await bench.until(lambda: bench.asked == [-3])
    port = bench.server.port
    await bench.server.close()
    assert await bench.is_closed(sock)
    assert await bench.is_closed(other)
    assert (bench.cancelled, bench.plane.abandoned) == ([-3], [1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# -- connections and deadlines ----------------------------------------------------------------


@on_both_loops
async def test_connections_are_counted_per_address(bench: Bench) -> None:
    kept = [await bench.connect() for _ in range(LIMITS.connections_per_address_max)]
    await bench.until(lambda: bench.server.connection_count == len(kept))
    refused = await bench.connect()
    assert await bench.is_closed(refused)
    assert bench.server.counts["too_many"] == 1
    kept.pop().close()
    await bench.until(lambda: bench.server.connection_count == len(kept))
    await bench.still_serves()


@on_both_loops
async def test_each_thing_that_a_client_may_be_slow_at_has_its_limit(bench: Bench) -> None:
    bench.plane.write_log(bytes(30_000_000))
    started, deaf, idle, waiting = [await bench.connect() for _ in range(4)]
    await bench.send(started, produce(1)[:10])
    await bench.send(deaf, fetch(2))
    await bench.send(waiting, fetch(3, wait_ms=1))
    await bench.until(lambda: bench.server.traffic.sent and bench.plane.fetches)
    await asyncio.sleep(0.05)
    for ms, left, sock in ((2100, 3, started), (1000, 2, deaf), (18_000, 1, idle)):
        await bench.let_pass(ms)
        await bench.until_connections(left)
        assert await bench.is_closed(sock)
    # One that waits for us has all the time that we take.
    await bench.let_pass(10**9)
    bench.plane.release_fetch(3)
    assert len(await bench.receive(waiting, 4)) == 4
    assert bench.server.counts == {"too_slow": 2, "idle": 1}


@on_both_loops
async def test_drops_do_not_keep_a_request_alive(bench: Bench) -> None:
    """Slow loris: a byte now and then is not progress."""
    sock = await bench.connect()
    data = produce(1)
    for at in range(4):
        await bench.send(sock, data[at : at + 1])
        await bench.let_pass(600)
    assert await bench.is_closed(sock)
    await bench.still_serves()


@on_both_loops
async def test_a_large_request_on_a_slow_line_has_its_time(bench: Bench) -> None:
    sock = await bench.connect()
    data = produce(1, bytes(4_000_000))
    for at in range(0, len(data), 400_000):
        await bench.send(sock, data[at : at + 400_000])
        await bench.let_pass(4000)  # 100 kB/s.
    assert await bench.next_number(sock) == 1


@on_both_loops
async def test_a_half_open_client_is_given_up(bench: Bench) -> None:
    """It has ended its side, and its answer never comes: it may not stay for ever."""
    sock = await bench.connect()
    await bench.send(sock, metadata(-1))
    await bench.until(lambda: bench.asked)
    sock.shutdown(socket.SHUT_WR)
    await bench.let_pass(LIMITS.departure_ms_max + 1)
    assert await bench.is_closed(sock)
    await bench.until(lambda: bench.cancelled == [-1])


# -- memory -----------------------------------------------------------------------------------


@on_both_loops
async def test_large_requests_share_a_bound_and_wait_for_each_other(bench: Bench) -> None:
    socks = [await bench.connect() for _ in range(6)]
    frames = [produce(number, bytes([number]) * 4_000_000) for number in range(6)]
    for sock, frame in zip(socks, frames, strict=True):
        await bench.send(sock, frame[:5000])
    await bench.until(lambda: bench.server.memory.is_wanted)
    sending = [
        asyncio.ensure_future(bench.send(sock, frame[5000:]))
        for sock, frame in zip(socks, frames, strict=True)
    ]
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, bench.server.memory.held)
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    for number, sock in enumerate(socks):
        assert await bench.next_number(sock) == number
    watching.cancel()
    await asyncio.gather(*sending)
    assert 7_900_000 < most <= LIMITS.buffered_bytes_max
    assert {data[0] for _, data in bench.plane.appended} == set(range(6))


@on_both_loops
async def test_while_others_wait_a_slow_holder_must_hurry(bench: Bench) -> None:
    slow = [await bench.connect() for _ in range(2)]
    for sock in slow:
        await bench.send(sock, produce(1, bytes(4_500_000))[:5000])
    await bench.until(lambda: bench.server.memory.held > 8_000_000)
    await bench.let_pass(1000)
    assert bench.server.connection_count == 2
    honest = await bench.connect()
    sending = asyncio.ensure_future(bench.send(honest, produce(3, bytes(4_000_000))))
    await bench.until(lambda: bench.server.memory.is_wanted)
    gone = await bench.connect()  # Waits too, and goes away.
    await bench.send(gone, produce(4, bytes(9_000_000 - 1000))[:5000])
    await bench.until(lambda: len(bench.server.memory._waiting) == 2)
    gone.close()
    await bench.let_pass(2100)
    assert await bench.next_number(honest) == 3
    await sending
    assert bench.server.counts["too_slow"] == 2
    honest.close()
    await bench.until(lambda: bench.server.connection_count <= 1)
