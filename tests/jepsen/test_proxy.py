"""Links are cut, slowed and reset one way or both, and heal; the rest of the traffic goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from jepsen_like.cluster.proxy import Proxy, find_inode

WAIT_S = 30.0
SILENCE_S = 0.15


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


class Bench:
    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy = proxy
        self._port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.writers.append(writer)
        return reader, writer

    async def rule(self, source: str, target: str, **rule: object) -> None:
        await self.proxy.obey({"do": "rule", "from": source, "to": target, "rule": rule})


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy(seed=1)
    target = list(server.sockets[0].getsockname())
    port = (await proxy.obey({"do": "listen", "node": "b101", "target": target}))["port"]
    found = Bench(proxy, port)
    try:
        yield found
    finally:
        for writer in found.writers:
            writer.transport.abort()
        await proxy.obey({"do": "heal"})
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
        for listening in [*proxy._servers, server]:
            listening.close()
            await listening.wait_closed()
        for _ in range(3):  # Aborted transports close their sockets in the loop's next round.
            await asyncio.sleep(0)


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_S), bench() as found:
            await story(found)

    asyncio.run(main())


def test_bytes_go_through() -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"

    run(story)


@pytest.mark.parametrize("link", [("client", "b101"), ("b101", "client")])
def test_what_is_held_one_way_arrives_late(link: tuple[str, str]) -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        await found.rule(*link, hold=True)
        writer.write(b"late!")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(5), SILENCE_S)
        await found.rule(*link)
        assert await reader.readexactly(5) == b"late!"

    run(story)


def test_another_pair_is_not_touched() -> None:
    async def story(found: Bench) -> None:
        await found.rule("c1", "b101", hold=True)
        reader, writer = await found.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"

    run(story)


def test_a_new_connection_over_a_cut_link_waits_for_its_heal() -> None:
    async def story(found: Bench) -> None:
        await found.rule("client", "b101", hold=True)
        reader, writer = await found.connect()
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), SILENCE_S)
        await found.proxy.obey({"do": "heal"})
        assert await reader.readexactly(1) == b"x"

    run(story)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What still came before the connection broke."""
    got = b""
    try:
        while data := await reader.read(1000):
            got += data
    except ConnectionError:
        pass
    return got


def test_connections_are_reset() -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        await found.proxy.obey({"do": "reset", "from": "b101", "to": "client"})
        assert await ended(reader) == b""

    run(story)


def test_a_connection_is_cut_in_the_middle_of_what_it_says() -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        await found.rule("b101", "client", cut_after=3)
        writer.write(b"a long answer")
        assert len(await ended(reader)) <= 3

    run(story)


def test_new_connections_are_refused() -> None:
    async def story(found: Bench) -> None:
        await found.rule("client", "b101", refuse=True)
        reader, _ = await found.connect()
        assert await ended(reader) == b""

    run(story)


def test_an_order_that_nobody_knows_is_refused() -> None:
    async def story(found: Bench) -> None:
        with pytest.raises(ValueError, match="unknown order"):
            await found.proxy.obey({"do": "explode"})

    run(story)


def test_the_owner_of_a_socket_is_found_by_its_two_ports() -> None:
    table = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when ...",
        "   0: 0100007F:2387 0100007F:C350 01 0:0 00:0 0 0 0 111 1",
        "   1: 0100007F:C350 0100007F:2387 01 0:0 00:0 0 0 0 222 1",
    ]
    assert find_inode(table, 0xC350, 0x2387) == "222"
    assert find_inode(table, 0x2387, 0xC350) == "111"
    assert find_inode(table, 1, 2) is None


def test_what_is_sent_before_the_other_side_is_there_arrives() -> None:
    async def story(found: Bench) -> None:
        streams = [await found.connect() for _ in range(10)]
        for _, writer in streams:
            writer.write(b"early")
        for reader, _ in streams:
            assert await reader.readexactly(5) == b"early"

    run(story)


def test_a_held_connection_that_is_reset_ends_without_a_word() -> None:
    """Nobody is told of an error that is none, and nothing stays behind."""

    async def story(found: Bench) -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        reader, writer = await found.connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        await found.rule("client", "b101", hold=True)
        writer.write(b"held")
        await asyncio.sleep(0)
        await found.proxy.obey({"do": "reset", "from": "client", "to": "b101"})
        assert await ended(reader) == b""
        await found.proxy.obey({"do": "heal"})
        await asyncio.gather(*found.proxy._tasks)
        assert not found.proxy._joined
        assert told == []

    run(story)


def test_the_end_of_a_connection_waits_for_a_held_link() -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        await found.rule("client", "b101", hold=True)
        writer.close()
        await asyncio.sleep(SILENCE_S)
        assert len(found.proxy._joined) == 1
        await found.proxy.obey({"do": "heal"})
        await asyncio.gather(*found.proxy._tasks)
        assert not found.proxy._joined

    run(story)


def test_a_large_answer_arrives_whole_behind_a_slow_reader() -> None:
    async def story(found: Bench) -> None:
        reader, writer = await found.connect()
        sent = bytes(range(256)) * 8192

        async def send() -> None:
            for at in range(0, len(sent), 10_000):
                writer.write(sent[at : at + 10_000])
                await writer.drain()

        sending = asyncio.create_task(send())
        await asyncio.sleep(SILENCE_S)
        assert await reader.readexactly(len(sent)) == sent
        await sending

    run(story)
