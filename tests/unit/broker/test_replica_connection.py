"""A follower's connection: answers in one piece or many, and every way in which it can end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from kraftpy.broker.replica_connection import ReplicaConnection
from kraftpy.errors import Unreachable, WireError
from kraftpy.types import TopicId, Uuid
from kraftpy.wire.apis import FETCH, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.fetch import FetchedPartition, FetchRequest, fetch_response, read_fetch
from kraftpy.wire.headers import API_VERSIONS, response_frame
from kraftpy.wire.replica_fetch import ReplicaFetch, WantedPartition

TOPIC = TopicId(Uuid(bytes(range(16))))
ASKED = ReplicaFetch(7, 3, 0, 1, 10_000_000, {TOPIC: [WantedPartition(0, 5, 100, 4, 0, 1000)]})
# What the leader does with a Fetch: gives bytes, in pieces; an empty one closes the connection.
Leader = Callable[[FetchRequest], list[bytes]]


class Records:
    """Records that are sent from memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.count = len(data)


def answer_of(request: FetchRequest, records: bytes) -> bytes:
    pieces = fetch_response(request, [FetchedPartition(0, 9, 9, 0, Records(records))])
    return b"".join(each if isinstance(each, bytes) else each.data for each in pieces)


def versions_answer(number: int, fetch_version_max: int) -> bytes:
    served = [{"api_key": FETCH, "min_version": 4, "max_version": fetch_version_max}]
    values = {"error_code": ErrorCode.none, "api_keys": served}
    message: Any = build(response_type(API_VERSIONS, 0), values)
    return bytes(response_frame(message, API_VERSIONS, number))


async def scripted(
    leader: Leader, story: Callable[[int], Awaitable[None]], fetch_version_max: int = 18
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if int.from_bytes(frame[:2], "big") == API_VERSIONS:
                    number = int.from_bytes(frame[4:8], "big")
                    writer.write(versions_answer(number, fetch_version_max))
                    continue
                for piece in leader(read_fetch(memoryview(frame))):
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        await story(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


def run(leader: Leader, use: Callable[[ReplicaConnection], Awaitable[None]]) -> None:
    async def story(port: int) -> None:
        connection = await ReplicaConnection.connect("127.0.0.1", port, timeout_s=30)
        try:
            await use(connection)
        finally:
            connection.close()

    async def whole() -> None:
        async with asyncio.timeout(60):
            await scripted(leader, story)

    for runner in (asyncio.run, uvloop.run):
        runner(whole())


def in_bytes(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 100_000, 10**7])
def test_answers_arrive_in_pieces_of_any_size(size: int) -> None:
    """Small ones, one that is larger than the buffer, and a small one again."""
    sizes = [10, 0, 2_000, 300 if size < 100 else 3_000_000, 50]
    given = [bytes([number]) * count for number, count in enumerate(sizes)]
    left: list[bytes] = []

    async def use(connection: ReplicaConnection) -> None:
        left[:] = given
        for expected in given:
            answer = await connection.fetch(ASKED, wait_s=0)
            (found,) = answer.partitions
            assert (found.topic_id, found.partition, found.high_watermark) == (TOPIC, 0, 9)
            assert bytes(found.records or b"") == expected

    run(lambda request: in_bytes(answer_of(request, left.pop(0)), size), use)


def test_the_leader_is_told_who_asks_and_for_what() -> None:
    told: list[FetchRequest] = []

    def leader(request: FetchRequest) -> list[bytes]:
        told.append(request)
        return [answer_of(request, b"")]

    async def use(connection: ReplicaConnection) -> None:
        await connection.fetch(ASKED, wait_s=0)

    run(leader, use)
    assert (told[0].replica_id, told[0].replica_epoch) == (7, 3)
    asked = told[0].partitions[0]
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (100, 5, 4)


@pytest.mark.parametrize(
    ("leader", "error", "why"),
    [
        (lambda _: [b""], Unreachable, "closed the connection"),
        (lambda r: [answer_of(r, b"")[:6], b""], Unreachable, "closed the connection"),
        (lambda r: [answer_of(r._replace(correlation_id=99), b"")], WireError, "out of order"),
        (lambda _: [b"\x7f\xff\xff\xff"], WireError, "at most"),
        (lambda _: [b"\0\0\0\x06\0\0\0\0\0\0"], WireError, "malformed"),
        (lambda r: [answer_of(r, b"") * 2], WireError, "nobody asked"),
    ],
)
def test_a_connection_that_fails_once_is_done_with(
    leader: Leader, error: type[Exception], why: str
) -> None:
    async def use(connection: ReplicaConnection) -> None:
        with pytest.raises(error, match=why):
            await connection.fetch(ASKED, wait_s=0)
        assert connection.is_broken
        with pytest.raises(Unreachable):
            await connection.fetch(ASKED, wait_s=0)

    run(leader, use)


def test_an_answer_that_is_late_is_not_taken_for_another() -> None:
    async def story(port: int) -> None:
        connection = await ReplicaConnection.connect("127.0.0.1", port, timeout_s=30)
        with pytest.raises(Unreachable, match="does not answer"):
            await connection.fetch(ASKED, wait_s=-30)
        assert connection.is_broken

    asyncio.run(scripted(lambda _: [], story))


def test_a_leader_that_knows_only_old_versions_is_not_asked() -> None:
    async def story(port: int) -> None:
        connection = await ReplicaConnection.connect("127.0.0.1", port, timeout_s=30)
        with pytest.raises(Unreachable, match="serves Fetch up to 14"):
            await connection.fetch(ASKED, wait_s=0)
        connection.close()

    asyncio.run(scripted(lambda _: [], story, fetch_version_max=14))


def test_nobody_there_is_said_in_one_line() -> None:
    async def story() -> None:
        with pytest.raises(Unreachable, match="cannot connect"):
            await ReplicaConnection.connect("127.0.0.1", 1, timeout_s=30)

    asyncio.run(story())
