"""The links between the nodes of a test cluster: proxies in a process of their own.

There is one for every pair and direction of connecting, so that each knows whom it joins. A link
that is cut behaves as a network that loses all packets: connections stay open and nothing comes
through; new ones are not answered. When it heals, what was sent in between arrives, as TCP would
send it again. Nothing is lost or reordered, and no more is held than the two buffers.

The process is told its cuts as lines of JSON, each the complete list of pairs, and reports when it
has done so.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from kraftpy.errors import FatalFault

Pair = tuple[int, int]
Report = Callable[[dict[str, Any]], None]

_HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 256 * 1024
_PORTS_PER_EVENT: Final = 64  # An event must fit into one short write.


class Link:
    """Where one node's connections to another pass."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self, is_cut: bool) -> None:
        """From now on nothing comes through; or all does."""
        if is_cut:
            self._open.clear()
        else:
            self._open.set()

    async def accepted(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        """Carry one connection, until either end closes it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            far_reader, far = await asyncio.open_connection(_HOST, self._port)
            await asyncio.gather(self._carry(near_reader, far), self._carry(far_reader, near))
        except OSError:
            pass  # An end that resets its connection: the other's is closed below.
        finally:
            self._tasks.discard(task)
            for writer in (near, far):
                if writer is not None:
                    writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        await self._open.wait()
        if writer.can_write_eof():
            writer.write_eof()


async def serve_links(spec: dict[str, Any], told_fd: int, report: Report) -> None:
    """Listen for every pair, say where, and obey."""
    links: dict[Pair, Link] = {}
    ports: dict[str, int] = {}
    for source, target, port in spec["pairs"]:
        link = links[source, target] = Link(port)
        listening = socket.create_server((_HOST, 0))
        ports[f"{source}-{target}"] = listening.getsockname()[1]
        await asyncio.start_server(link.accepted, sock=listening)
    names = list(ports)
    for start in range(0, len(names), _PORTS_PER_EVENT):
        some = {name: ports[name] for name in names[start : start + _PORTS_PER_EVENT]}
        report({"key": spec["key"], "event": "told", "facts": some})
    report({"key": spec["key"], "event": "ready", "facts": {}})
    told = await _lines(told_fd)
    while line := await told.readline():
        order = json.loads(line)
        apply_cuts(links, [(a, b) for a, b in order["cuts"]])
        report({"key": spec["key"], "event": "told", "facts": {"obeyed": order["number"]}})
    raise FatalFault("whoever gives the orders is gone")


def apply_cuts(links: dict[Pair, Link], cuts: Iterable[Pair]) -> None:
    """A cut is between two nodes, whoever connects to whom."""
    apart = {frozenset(pair) for pair in cuts}
    for pair, link in links.items():
        link.cut(frozenset(pair) in apart)


async def _lines(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
