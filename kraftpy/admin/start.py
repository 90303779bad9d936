"""Starts a node's admin listener beside it, so that the node waits for nothing and loses nothing.

The port is bound at once: whoever asked for an address that is taken hears of it. Nobody asked for
the usual one; if it is taken, as on a machine with several nodes, any other will do. The server
itself is loaded when somebody connects for the first time, in a thread: aiohttp takes as long to
load as a node to start, and much of its memory. The node goes on if that fails.
"""

import asyncio
import importlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from kraftpy.admin.sources import NodeSource
from kraftpy.clock import Clock
from kraftpy.errors import AddressInUse
from kraftpy.logs import get_logger
from kraftpy.network.listener import listening_sockets
from kraftpy.network.places import parse_place
from kraftpy.storage.file_layer import FileLayer

log = get_logger(__name__)

USUAL_HOST: Final = "127.0.0.1"
USUAL_PORT: Final = 9644
NONE: Final = "none"
_KEY: Final = "admin.listeners"
_LOOPBACK: Final = frozenset(("127.0.0.1", "localhost", "::1"))


def bind(setting: str) -> list[socket.socket]:
    """The sockets that the setting asks for; none if it says so. AddressInUse, ConfigError."""
    if setting == NONE:
        return []
    if setting:
        asked = parse_place(setting, _KEY, "127.0.0.1:9644", port_min=0)
        if asked.host not in _LOOPBACK:
            log.warning("admin_is_open", host=asked.host, why="anyone who reaches it can read it")
        return listening_sockets(asked.host, asked.port)
    try:
        return listening_sockets(USUAL_HOST, USUAL_PORT)
    except AddressInUse:
        return listening_sockets(USUAL_HOST, 0)


def address_of(sockets: list[socket.socket]) -> str | None:
    """Where a browser finds it."""
    if not sockets:
        return None
    host, port = sockets[0].getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@asynccontextmanager
async def serving(
    source: NodeSource, sockets: list[socket.socket], files: FileLayer, clock: Clock
) -> AsyncIterator[None]:
    """Serve on these sockets, as soon as that is possible, until the end of the block."""
    if not sockets:
        yield
        return
    task = asyncio.get_running_loop().create_task(_serve(source, sockets, files, clock))
    task.add_done_callback(_tell)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for sock in sockets:
            with suppress(OSError):
                sock.close()


async def _serve(
    source: NodeSource, sockets: list[socket.socket], files: FileLayer, clock: Clock
) -> None:
    loop = asyncio.get_running_loop()
    await _somebody(sockets)
    # By name: an import statement would load aiohttp with this module, before the node serves.
    module: Any = await loop.run_in_executor(None, importlib.import_module, "kraftpy.admin.server")
    server = module.AdminServer(source, files, clock)
    await server.start(sockets)
    try:
        await loop.create_future()
    finally:
        await server.close()


async def _somebody(sockets: list[socket.socket]) -> None:
    """Wait for the first connection; it stays in the backlog."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    for sock in sockets:
        loop.add_reader(sock.fileno(), came.set)
    try:
        await came.wait()
    finally:
        for sock in sockets:
            loop.remove_reader(sock.fileno())


def _tell(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("admin_failed", why=repr(task.exception()))
