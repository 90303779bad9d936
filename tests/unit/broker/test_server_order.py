"""Answers come in the order of requests, after what they speak of, however the bytes came."""

import asyncio
import random
import socket
import struct

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.connection import Connection
from kraftpy.wire.apis import response_type
from kraftpy.wire.fetch import FETCH
from kraftpy.wire.headers import API_VERSIONS, read_response
from kraftpy.wire.produce import PRODUCE
from tests.unit.broker.live_server import (
    NOT_LEADER,
    Bench,
    fetch,
    fetched,
    metadata,
    on_both_loops,
    produce,
    run_test,
)


@on_both_loops
async def test_requests_of_one_read_are_written_together(bench: Bench) -> None:
    sock = await bench.connect()
    numbers = list(range(1, 8))
    await bench.send(sock, *(produce(number, b"r%d" % number) for number in numbers))
    assert await bench.numbers(sock, 7) == numbers
    assert bench.plane.appended == [(number, b"r%d" % number) for number in numbers]
    assert bench.plane.inputs < 7


@on_both_loops
async def test_no_answer_leaves_before_its_input_ended(bench: Bench) -> None:
    await no_answer_before_the_end(bench)


async def no_answer_before_the_end(bench: Bench) -> None:
    sock = await bench.connect()
    seen: list[bytes] = []

    def look() -> None:
        try:
            seen.append(sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            seen.append(b"")

    bench.plane.before_answers = look
    for number in range(20):
        await bench.send(sock, produce(number), produce(100 + number))
        assert await bench.numbers(sock, 2) == [number, 100 + number]
    assert set(seen) == {b""}


@on_both_loops
async def test_answers_wait_for_those_before_them(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, *(produce(number, acks=-1) for number in range(6)), produce(6))
    await bench.until(lambda: len(bench.plane.waiting) == 6)
    bench.plane.release(5, 3, 1, 2, 4)
    await asyncio.sleep(0.02)
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    bench.plane.release(0)
    assert await bench.numbers(sock, 7) == list(range(7))


@on_both_loops
async def test_records_may_come_byte_by_byte(bench: Bench) -> None:
    sock = await bench.connect()
    for byte in produce(3, b"abc") + metadata(4) + fetch(5) + produce(6, b"def"):
        await bench.send(sock, bytes([byte]))
        await asyncio.sleep(0)
    assert await bench.numbers(sock, 4) == [3, 4, 5, 6]
    assert bench.plane.appended == [(3, b"abc"), (6, b"def")]


@on_both_loops
async def test_other_requests_are_alone_on_their_connection(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, produce(1, acks=-1), metadata(-2), produce(3))
    await bench.until(lambda: bench.plane.waiting)
    await asyncio.sleep(0.02)
    assert bench.asked == []  # What came before it is not answered.
    bench.plane.release(1)
    await bench.until(lambda: bench.asked)
    assert await bench.next_number(sock) == 1
    await asyncio.sleep(0.02)
    assert len(bench.plane.taken) == 1  # What comes after it waits.
    await bench.still_serves()
    bench.gate.set()
    assert await bench.numbers(sock, 2) == [-2, 3]


@on_both_loops
async def test_a_fetch_finds_what_was_produced_just_before_it(bench: Bench) -> None:
    sock = await bench.connect()
    bench.plane.before_answers = lambda: bench.plane.write_log(b"new")
    await bench.send(sock, produce(1), fetch(2), produce(3), fetch(4))
    await bench.next_frame(sock)
    assert fetched(await bench.next_frame(sock)) == (2, [b"new"])
    await bench.next_frame(sock)
    assert fetched(await bench.next_frame(sock)) == (4, [b"newnew"])


@on_both_loops
async def test_a_fetch_that_waits_lets_others_of_its_connection_be_handled(bench: Bench) -> None:
    sock = await bench.connect()
    bench.plane.write_log(b"old")
    await bench.send(sock, fetch(1, wait_ms=500), produce(2))
    await bench.until(lambda: bench.plane.appended)
    bench.plane.release_fetch(1)
    assert fetched(await bench.next_frame(sock)) == (1, [b"old"])
    assert await bench.next_number(sock) == 2


@on_both_loops
async def test_acks_0_is_not_answered(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, produce(1, acks=0), produce(2), produce(3, acks=0), metadata(4))
    assert await bench.numbers(sock, 2) == [2, 4]
    assert [number for number, _ in bench.plane.appended] == [1, 2, 3]


@on_both_loops
async def test_an_error_with_acks_0_closes_the_connection(bench: Bench) -> None:
    sock = await bench.connect()
    bench.plane.error_code = NOT_LEADER
    await bench.send(sock, produce(1), produce(2, acks=0))
    assert await bench.next_number(sock) == 1
    assert await bench.is_closed(sock)
    assert bench.server.counts["unacknowledged"] == 1


@on_both_loops
async def test_a_client_that_sends_no_more_is_answered(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, produce(1, acks=-1), metadata(-2))
    await bench.until(lambda: bench.plane.waiting)
    sock.shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.02)
    bench.plane.release(1)
    await bench.until(lambda: bench.asked)
    bench.gate.set()
    assert await bench.numbers(sock, 2) == [1, -2]
    assert await bench.is_closed(sock)
    assert bench.server.counts["closed"] == 1


@on_both_loops
async def test_sessions_are_not_offered(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, fetch(1, session_epoch=3), fetch(2, session_epoch=0))
    _, refused = read_response(await bench.next_frame(sock), response_type(FETCH, 12), FETCH)
    assert refused.error_code is ErrorCode.fetch_session_id_not_found
    _, full = read_response(await bench.next_frame(sock), response_type(FETCH, 12), FETCH)
    assert (full.error_code, full.session_id) == (ErrorCode.none, 0)


@on_both_loops
async def test_versions_that_are_not_served_are_answered_as_by_kafka(bench: Bench) -> None:
    sock = await bench.connect()
    await bench.send(sock, struct.pack(">ihhih", 10, API_VERSIONS, 99, 5, -1))
    number, answer = read_response(
        await bench.next_frame(sock), response_type(API_VERSIONS, 0), API_VERSIONS
    )
    assert (number, answer.error_code) == (5, ErrorCode.unsupported_version)
    await bench.send(sock, struct.pack(">ihhih", 10, API_VERSIONS, 0, 6, -1))
    _, answer = read_response(
        await bench.next_frame(sock), response_type(API_VERSIONS, 0), API_VERSIONS
    )
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert listed == {PRODUCE: (0, 13), FETCH: (4, 18), 3: (0, 13), API_VERSIONS: (0, 4)}
    for key, version in ((PRODUCE, 2), (PRODUCE, 14), (FETCH, 3), (3, 14), (999, 0)):
        other = await bench.connect()
        await bench.send(other, struct.pack(">ihhih", 10, key, version, 7, -1))
        assert await bench.is_closed(other)


# -- any schedule -----------------------------------------------------------------------------


async def random_clients(bench: Bench) -> None:
    """Clients that send in pieces of any size; answers that come in any order."""
    rng = random.Random(11)
    bench.plane.write_log(rng.randbytes(30_000))

    async def client(seed: int) -> None:
        mine = random.Random(seed)
        sock = await bench.connect()
        numbers = [seed * 1000 + at for at in range(60)]
        frames = [random_request(mine, number) for number in numbers]
        data = b"".join(frames)
        reader = asyncio.ensure_future(read_all(bench, sock, [n for n in numbers if n % 7]))
        at = 0
        while at < len(data):
            step = mine.choice([1, 3, 50, 500, 5000, 100_000])
            await bench.send(sock, data[at : at + step])
            at += step
            await asyncio.sleep(0)
        await reader

    async def release() -> None:
        while True:
            await asyncio.sleep(0.001)
            ready = list(bench.plane.waiting)
            rng.shuffle(ready)
            bench.plane.release(*ready[: rng.randrange(5)])
            for number in list(bench.plane.fetches):
                bench.plane.release_fetch(number)

    releasing = asyncio.ensure_future(release())
    try:
        await asyncio.gather(*(client(seed) for seed in range(1, 9)))
    finally:
        releasing.cancel()
    for seed in range(1, 9):
        mine = [(n, data) for n, data in bench.plane.appended if n // 1000 == seed]
        assert mine == sorted(mine)
        for number, data in mine:
            assert data == records_of(number)


def records_of(number: int) -> bytes:
    rng = random.Random(number)
    return rng.randbytes(rng.choice([1, 100, 3000, 30_000]))


def random_request(rng: random.Random, number: int) -> bytes:
    if number % 7 == 0:
        return produce(number, records_of(number), acks=0)
    match rng.randrange(5):
        case 0:
            return fetch(number, rng.randrange(30_000), wait_ms=rng.choice([0, 5]))
        case 1:
            return metadata(number)
        case 2:
            return produce(number, records_of(number), acks=-1, version=rng.randrange(3, 13))
    return produce(number, records_of(number))


async def read_all(bench: Bench, sock: socket.socket, numbers: list[int]) -> None:
    assert await bench.numbers(sock, len(numbers)) == numbers


@on_both_loops
async def test_every_client_gets_its_own_answers_in_order(bench: Bench) -> None:
    await random_clients(bench)
    assert bench.server.counts.keys() <= {"closed"}


# -- planted bugs -----------------------------------------------------------------------------


def test_answers_as_they_become_known_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Connection._send_answers

    def any_that_is_known(self: Connection) -> None:
        self._answers = type(self._answers)(sorted(self._answers, key=lambda a: a.pieces is None))
        right(self)

    monkeypatch.setattr(Connection, "_send_answers", any_that_is_known)
    with pytest.raises(AssertionError):
        run_test(random_clients)


def test_a_buffer_that_is_used_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was handled is overwritten before `end_of_input` instead of after it."""
    right = Connection._end_of_input

    def late(self: Connection) -> None:
        handled = self.buffer._start
        self.buffer._view[:handled] = bytes(handled)
        right(self)

    monkeypatch.setattr(Connection, "_end_of_input", late)
    with pytest.raises((AssertionError, ConnectionError)):
        run_test(random_clients)


def test_answers_before_the_end_of_input_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def eager(bench: Bench) -> None:
        right = bench.plane.produce

        def at_once(request, respond):  # type: ignore[no-untyped-def]
            respond(bench.plane.results(request))
            right(request, lambda _: None)

        bench.plane.produce = at_once  # type: ignore[method-assign]
        await no_answer_before_the_end(bench)

    def too_early(self: Connection) -> None:
        self._send_answers()
        if self._appending:
            self._appending = False
            self._owner.data_plane.end_of_input()

    monkeypatch.setattr(Connection, "_end_of_input", too_early)
    with pytest.raises(AssertionError):
        run_test(eager)
