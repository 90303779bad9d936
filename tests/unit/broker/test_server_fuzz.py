"""A live server under random frames: it serves a client beside it, and nothing piles up."""

import asyncio
import random
import struct
from contextlib import suppress

import pytest

from kraftpy.broker.data_plane import FetchAnswer
from kraftpy.wire import apis
from kraftpy.wire.apis import request_type
from kraftpy.wire.codec import encode
from kraftpy.wire.fetch import FETCH, FetchRequest
from kraftpy.wire.headers import API_VERSIONS, request_frame
from kraftpy.wire.produce import PRODUCE
from tests.unit.broker.live_server import TABLE, Bench, fetch, produce, run_test
from tests.unit.wire.fuzz import mutated
from tests.unit.wire.messages import random_message

CONNECTIONS = 400
# What is well-formed may also be senseless: then it is the data plane's to refuse.
KEYS = (PRODUCE, FETCH, apis.METADATA, API_VERSIONS)


def noise(rng: random.Random) -> bytes:
    key = rng.choice(KEYS)
    versions = TABLE[key]
    version = rng.randint(versions.min_version, versions.max_version)
    message = random_message(request_type(key, version), rng, 2)
    kind = rng.random()
    if kind < 0.2:
        return rng.randbytes(rng.randrange(1, 100))
    if kind < 0.6:
        body = mutated(bytes(encode(message)), rng)
        head = struct.pack(">hhi", key, version, 1) + b"\0\1x\0"
        return struct.pack(">i", len(head) + len(body)) + head + body
    return mutated(bytes(request_frame(message, key, version, 1, "x")), rng)


async def attack(bench: Bench, seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        sock = await bench.connect()
        with suppress(ConnectionError):
            for _ in range(rng.randrange(1, 5)):
                await bench.send(sock, noise(rng))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
        sock.close()


async def good_client(bench: Bench) -> int:
    """Produces and fetches until it is cancelled; everything must be answered, in order."""
    sock = await bench.connect()
    number = 0
    while not bench.gate.is_set():
        number += 1
        await bench.send(sock, produce(number, b"good"), fetch(-number))
        assert await bench.numbers(sock, 2) == [number, -number]
    return number


@pytest.mark.parametrize("seed", [1, 2])
def test_random_frames_close_their_connection_at_most(seed: int) -> None:
    async def whole(bench: Bench) -> None:
        good = asyncio.ensure_future(good_client(bench))
        answer = bench.plane.answer

        def answer_sanely(request: FetchRequest) -> FetchAnswer:
            sane = all(each.topic == "t" for each in request.partitions)
            return answer(request) if sane else FetchAnswer([], error_code=1)

        bench.plane.answer = answer_sanely  # type: ignore[method-assign]
        await asyncio.gather(*(attack(bench, 10 * seed + n, CONNECTIONS // 4) for n in range(4)))
        bench.gate.set()
        assert await good > 10
        await bench.let_pass(60_000)
        await bench.until(lambda: bench.server.connection_count == 0)
        counts = bench.server.counts
        assert counts["malformed"] > CONNECTIONS / 4
        assert counts["failed"] == 0, counts
        assert bench.server.memory.held == 0

    run_test(whole)
