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
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Any, Final

CLIENT: Final = "client"
_CHUNK_BYTES: Final = 64 * 1024
_HELD_LOOK_S: Final = 0.02
_LINGER_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """What holds for bytes that flow one way between two."""

    def __init__(self, rng: random.Random) -> None:
        self.rule: dict[str, Any] = {}
        self.moved = asyncio.Event()
        self._rng = rng
        self.bytes = 0

    async def wait_until_open(self) -> None:
        while self.rule.get("hold"):
            self.moved.clear()
            await self.moved.wait()

    async def pace(self, count: int) -> None:
        """The time that so many bytes take."""
        rule = self.rule
        delay_ms = rule.get("delay_ms", 0.0) + self._rng.random() * rule.get("jitter_ms", 0.0)
        if rate := rule.get("bytes_per_s"):
            delay_ms += 1000 * count / rate
        if delay_ms > 0:
            await asyncio.sleep(delay_ms / 1000)

    def change(self, rule: dict[str, Any]) -> None:
        self.rule = rule
        self.moved.set()


class Joined:
    """Two connections that are one: from who connected to the node that it wanted."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.writers: list[asyncio.StreamWriter] = []

    def reset(self) -> None:
        """Both sides get an RST."""
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            if sock is not None:
                # One side may be closed by now; uvloop then has no descriptor: ValueError.
                with contextlib.suppress(OSError, ValueError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            writer.transport.abort()


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
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await self._join(node, target, reader, writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_CHUNK_BYTES)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    # -- connections ---------------------------------------------------------------------------

    async def _join(
        self,
        node: str,
        target: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        source = self._owner(writer)
        joined = Joined(source, node)
        joined.writers.append(writer)
        self._joined.add(joined)
        try:
            there, back = self.link(source, node), self.link(node, source)
            if there.rule.get("refuse") or back.rule.get("refuse"):
                joined.reset()
                return
            await there.wait_until_open()  # A SYN is lost one way,
            await back.wait_until_open()  # its answer the other.
            upstream_reader, upstream_writer = await asyncio.open_connection(
                *target, limit=_CHUNK_BYTES
            )
            joined.writers.append(upstream_writer)
            await asyncio.gather(
                self._pump(joined, there, reader, upstream_writer),
                self._pump(joined, back, upstream_reader, writer),
            )
        except (OSError, RuntimeError):
            joined.reset()
        finally:
            self._joined.discard(joined)
            for each in joined.writers:
                each.transport.abort()

    async def _pump(
        self, joined: Joined, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                await link.wait_until_open()
                if link.rule:
                    await link.pace(len(data))
                    await link.wait_until_open()
                    cut = link.rule.get("cut_after")
                    if cut is not None:
                        writer.write(data[: self._rng.randint(0, min(cut, len(data)))])
                        await asyncio.sleep(0)
                        joined.reset()
                        return
                writer.write(data)
                link.bytes += len(data)
                await writer.drain()
            await link.wait_until_open()
        except (OSError, RuntimeError):  # The second is uvloop's, of what was reset just now.
            joined.reset()
            return
        for each in joined.writers:  # One side has closed; half-closed is nothing Kafka knows.
            with contextlib.suppress(OSError, RuntimeError):
                each.close()

    def _owner(self, writer: asyncio.StreamWriter) -> str:
        """Which node's process has the other end; a client's, if none has."""
        peer, own = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
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
