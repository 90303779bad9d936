"""Real controllers in the test's own event loop: real sockets, threads and files, on loopback."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.client import WireClient
from kraftpy.network.places import Place
from kraftpy.quorum.node import QuorumNode, running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles
from kraftpy.wire import apis

PATIENCE_S = 30.0  # Only ever waited out by a test that fails.


async def until(reached: Callable[[], object]) -> None:
    """Wait for what nobody announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.005)


class LiveQuorum:
    """Controllers 1 to n; each can be stopped and started again."""

    def __init__(self, path: Path, size: int, settings: dict[str, Any]) -> None:
        self.path = path
        self.ports = {node_id: _free_port() for node_id in range(1, size + 1)}
        self.nodes: dict[int, QuorumNode] = {}
        self._settings = settings
        self._stacks: dict[int, AsyncExitStack] = {}

    @property
    def places(self) -> list[Place]:
        return [Place("127.0.0.1", port) for port in self.ports.values()]

    def finder(self) -> ControllerFinder:
        return ControllerFinder(self.places, random.Random(7))

    async def start(self, node_id: int) -> QuorumNode:
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.ports.items())
        settings = Settings(
            node_id=node_id,
            data_dir=str(self.path / f"controller-{node_id}"),
            controller_quorum_voters=voters,
            **self._settings,
        )
        stack = self._stacks[node_id] = AsyncExitStack()
        node = await stack.enter_async_context(
            running(NodeConfig.of(settings), OsFiles(), SystemClock(), random.Random(node_id))
        )
        self.nodes[node_id] = node
        return node

    async def stop(self, node_id: int) -> None:
        del self.nodes[node_id]
        await self._stacks.pop(node_id).aclose()

    async def leader(self) -> QuorumNode:
        """The active controller, as soon as all running ones agree on one that decides."""
        found: list[QuorumNode] = []

        def agreed() -> bool:
            told = {node.server._context.view.progress.leader_id for node in self.nodes.values()}
            if len(told) != 1 or (leader_id := next(iter(told))) not in self.nodes:
                return False
            found[:] = [self.nodes[leader_id]]
            return bool(found[0].image.features)

        await until(agreed)
        return found[0]

    async def ask(self, api_key: int, values: dict[str, Any], version: int | None = None) -> Any:
        """Ask the active controller directly."""
        leader = await self.leader()
        port = self.ports[leader.config.node_id]
        client = await WireClient.connect("127.0.0.1", port, timeout_s=PATIENCE_S)
        try:
            return await client.ask(api_key, values, version_max=version)
        finally:
            await client.close()

    async def write(self, count: int, size: int = 100) -> None:
        """Grow the log: each is a batch of about `size` bytes."""
        for number in range(count):
            await self.ask(apis.ALTER_CLIENT_QUOTAS, quota_values(f"user-{number}" + "x" * size))

    async def image(self) -> ClusterImage:
        return (await self.leader()).image


def quota_values(user: str, value: float = 1024.0) -> dict[str, Any]:
    """A small change of metadata that needs no brokers."""
    entity = [{"entity_type": "user", "entity_name": user}]
    ops = [{"key": "producer_byte_rate", "value": value, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def live_quorum(path: Path, size: int = 1, **settings: Any) -> AsyncIterator[LiveQuorum]:
    quorum = LiveQuorum(path, size, settings)
    try:
        await asyncio.gather(*(quorum.start(node_id) for node_id in quorum.ports))
        yield quorum
    finally:
        for node_id in list(quorum.nodes):
            await quorum.stop(node_id)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """A test's coroutine, bounded as a whole."""

    async def bounded() -> None:
        async with asyncio.timeout(4 * PATIENCE_S):
            await work()

    asyncio.run(bounded())
