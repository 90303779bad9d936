"""A client's end of a connection that goes wrong."""

import asyncio
import socket

import pytest

from kraftpy.errors import Unreachable
from kraftpy.network.client import WireClient
from kraftpy.network.loop import new_event_loop
from kraftpy.wire.headers import API_VERSIONS


def test_closing_does_not_wait_for_a_server_that_takes_nothing() -> None:
    """What was sent last fills the buffers on both sides, and nobody reads it."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            client = WireClient("there", reader, writer, timeout_s=5)
            writer.write(bytes(64 * 1024 * 1024))
            async with asyncio.timeout(30):
                await client.close()

    asyncio.run(story())


def test_a_request_over_a_connection_that_was_just_reset_is_refused_in_words() -> None:
    """The transport is closed, and the task that reads has not been told yet."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            client = WireClient("there", reader, writer, timeout_s=5)
            client._reading.cancel()
            await asyncio.wait([client._reading])
            writer.transport.abort()
            await asyncio.sleep(0.01)  # The loop closes it in its next round.
            with pytest.raises(Unreachable, match="closed the connection"):
                await client._ask(API_VERSIONS, 0, {}, 0.0)
            await client.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())
