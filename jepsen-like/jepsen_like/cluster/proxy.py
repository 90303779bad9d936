"""All traffic of the cluster goes through this process: one listening port per node.

`python -m jepsen_like.cluster.proxy` reads its orders as JSON lines from stdin and answers each
with a line. Nodes advertise the proxy's port and listen at another, so peers and clients alike come
here. Who connects is found out by the process that owns the other end of the socket (/proc): so
there is a link for each ordered pair of nodes, and one from and to "client", everyone else.

A rule belongs to a directed link and holds for bytes that flow that way, whoever had connected:

    {"do": "listen", "node": "b101", "target": ["127.0.0.1", 9092]}     -> {"port": 40001}
    {"do": "pids", "pids": {"b101": [4711]}}
    {"do": "rule", "from": "b101", "to": "c1", "rule": {...}}      {} heals it
    {"do": "reset", "from": ..., "to": ...}     RST to the connections of a link, or cut their frame

Rules: "hold" (nothing is delivered; what is there is delivered when it heals, late, as TCP does),
"delay_ms" and "jitter_ms", "bytes_per_s", "refuse" (a new connection is reset at once), "cut_after"
(so many bytes go on, then the connection is reset: mid-frame as often as not).
"""

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from jepsen_like.cluster.links import Joined, Link, Side

CLIENT: Final = "client"


class Proxy:
    """All links and all connections."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._links: dict[tuple[str, str], Link] = {}
        self._pids: dict[str, list[int]] = {}
        self._joined: set[Joined] = set()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def link(self, source: str, target: str) -> Link:
        key = (source, target)
        if key not in self._links:
            self._links[key] = Link(self._rng)
        return self._links[key]

    # -- orders --------------------------------------------------------------------------------

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "listen":
                return {"port": await self._listen(order["node"], tuple(order["target"]))}
            case "pids":
                self._pids = {name: list(pids) for name, pids in order["pids"].items()}
            case "rule":
                for source, target in _pairs(order):
                    self.link(source, target).change(dict(order["rule"]))
            case "reset":
                self._reset(set(_pairs(order)))
            case "heal":
                for link in self._links.values():
                    link.change({})
            case "stats":
                return {"bytes": {f"{a}>{b}": link.bytes for (a, b), link in self._links.items()}}
            case other:
                raise ValueError(f"unknown order {other!r}")
        return {}

    def _reset(self, pairs: set[tuple[str, str]]) -> None:
        for each in list(self._joined):
            if {(each.source, each.target), (each.target, each.source)} & pairs:
                each.reset()

    async def _listen(self, node: str, target: tuple[str, int]) -> int:
        loop = asyncio.get_running_loop()

        def accept() -> Side:
            return _Accepted(lambda side: self._begin(self._join(node, target, side)))

        server = await loop.create_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- connections ---------------------------------------------------------------------------

    async def _join(self, node: str, target: tuple[str, int], side: Side) -> None:
        """From the connection of one to that of the other, until they are over."""
        source = self._owner(side.transport)
        joined = Joined(source, node)
        joined.transports.append(side.transport)
        self._joined.add(joined)
        try:
            there, back = self.link(source, node), self.link(node, source)
            if there.rule.get("refuse") or back.rule.get("refuse"):
                joined.reset()
                return
            await there.wait_until_open()  # A SYN is lost one way,
            await back.wait_until_open()  # its answer the other.
            loop = asyncio.get_running_loop()
            transport, upstream = await loop.create_connection(Side, *target)
            joined.transports.append(transport)
            if joined.over.is_set():  # Reset while it was being made.
                joined.reset()
                return
            side.join(joined, there, transport)
            upstream.join(joined, back, side.transport)
            await joined.over.wait()
        except (OSError, RuntimeError):
            joined.reset()
        finally:
            self._joined.discard(joined)

    def _owner(self, transport: asyncio.Transport) -> str:
        """Which node's process has the other end; a client's, if none has."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer is None or own is None:
            return CLIENT
        inode = find_inode(_table_lines(), peer[1], own[1])
        if inode is None:
            return CLIENT
        wanted = f"socket:[{inode}]"
        for node, pids in self._pids.items():
            if any(wanted in _open_files(pid) for pid in pids):
                return node
        return CLIENT


class _Accepted(Side):
    """A connection that somebody made: it says so at once."""

    def __init__(self, accepted: Callable[[Side], None]) -> None:
        super().__init__()
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._accepted(self)


def find_inode(lines: Iterable[str], local_port: int, remote_port: int) -> str | None:
    """The socket of /proc/net/tcp that goes from one port to the other, on loopback."""
    local, remote = f"0100007F:{local_port:04X}", f"0100007F:{remote_port:04X}"
    for line in lines:
        if local in line:
            fields = line.split()
            if fields[1] == local and fields[2] == remote:
                return fields[9]
    return None


def _table_lines() -> list[str]:
    try:
        with open("/proc/net/tcp", encoding="ascii") as file:
            return file.readlines()
    except OSError:
        return []


def _open_files(pid: int) -> set[str]:
    found: set[str] = set()
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return found
    for name in names:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"{directory}/{name}"))
    return found


def _pairs(order: dict[str, Any]) -> list[tuple[str, str]]:
    if "pairs" in order:
        return [(source, target) for source, target in order["pairs"]]
    return [(order["from"], order["to"])]


async def serve(seed: int) -> None:
    """Obey until stdin ends."""
    proxy = Proxy(seed)
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            answer = {"ok": True, **await proxy.obey(json.loads(line))}
        except (ValueError, KeyError, TypeError, OSError) as error:
            answer = {"ok": False, "why": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(serve(seed))


if __name__ == "__main__":
    main()
