"""A client's end of a connection that goes wrong."""

import asyncio
import socket

from kraftpy.network.client import WireClient


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
