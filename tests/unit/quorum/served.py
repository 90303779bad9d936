"""A cluster of real engines on simulated disks whose controller listeners are real sockets.

The test's thread ticks the engines; another one runs the listeners' event loop, as in a node.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from kraftpy.network.client import WireClient
from kraftpy.network.limits import ServerLimits
from kraftpy.network.loop import new_event_loop
from kraftpy.network.server import listening_sockets
from kraftpy.quorum.apis.context import METADATA_TOPIC, METADATA_TOPIC_ID, Controllers
from kraftpy.quorum.log_view import LogView
from kraftpy.quorum.server import ControllerServer
from kraftpy.quorum.voters import Voter
from kraftpy.storage.record_batch import read_header
from tests.unit.quorum.cluster import Cluster

T = TypeVar("T")

CLUSTER_ID = "aGVsbG8gdGhlcmUgd29ybA"
TIMEOUT_S = 30


class Served:
    """Use it as a context manager."""

    def __init__(
        self,
        size: int = 1,
        *,
        limits: ServerLimits | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
        **cluster: Any,
    ) -> None:
        self.cluster = Cluster(size, **cluster)
        self.peers: list[tuple[socket.socket, bytes]] = []
        self._sockets = {n: listening_sockets("127.0.0.1", 0) for n in self.cluster.voters}
        self.ports = {n: found[0].getsockname()[1] for n, found in self._sockets.items()}
        self.voters = tuple(Voter(n, "127.0.0.1", port) for n, port in self.ports.items())
        self.views: dict[int, LogView] = {}
        self.servers: dict[int, ControllerServer] = {}
        for node_id in self.cluster.voters:
            engine = self.cluster.engines[node_id]
            view = self.views[node_id] = LogView(engine, self.cluster.files[node_id])
            engine.start(view)
            self.servers[node_id] = ControllerServer(
                view,
                Controllers(cluster_id=CLUSTER_ID, voters=self.voters),
                clock=self.cluster.clock,
                is_peer=lambda first: first[0] >= 0x80 if first else None,
                adopt_peer=lambda sock, first: self.peers.append((sock, first)),
                limits=limits,
            )
        self.loop = loop_factory()
        self._thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self) -> "Served":
        self._thread.start()
        self.run(self._start())
        self.cluster.elect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        for sock, _ in self.peers:
            sock.close()

    async def _start(self) -> None:
        for node_id, server in self.servers.items():
            server.start(self._sockets[node_id])

    async def _stop(self) -> None:
        for server in self.servers.values():
            await server.close()

    # -- for tests ------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the listeners' loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT_S)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @property
    def leader_id(self) -> int:
        leader = self.cluster.leader
        assert leader is not None
        return leader.node_id

    @property
    def followers(self) -> list[int]:
        return [node_id for node_id in self.cluster.voters if node_id != self.leader_id]

    def ask(
        self, api_key: int, values: dict[str, Any], version: int, node_id: int | None = None
    ) -> Any:
        return self.run(self.asking(api_key, values, version, node_id))

    async def asking(
        self, api_key: int, values: dict[str, Any], version: int, node_id: int | None = None
    ) -> Any:
        port = self.ports[self.leader_id if node_id is None else node_id]
        client = await WireClient.connect("127.0.0.1", port, timeout_s=TIMEOUT_S)
        try:
            return await client.ask(api_key, values, version_max=version)
        finally:
            await client.close()

    def connect(self, node_id: int | None = None) -> socket.socket:
        port = self.ports[self.leader_id if node_id is None else node_id]
        return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def wait_until(reached: Callable[[], object]) -> None:
    """For what another thread is about to do."""
    for _ in range(10_000):
        if reached():
            return
        time.sleep(0.002)
    raise AssertionError("not reached")


def fetch_request(offset: int = 0, **values: Any) -> dict[str, Any]:
    replica_id = values.pop("replica_id", -1)
    partition = {
        "partition": values.pop("partition", 0),
        "current_leader_epoch": values.pop("leader_epoch", -1),
        "fetch_offset": offset,
        "last_fetched_epoch": values.pop("last_epoch", -1),
        "partition_max_bytes": values.pop("partition_max_bytes", 1 << 20),
    }
    topic = {
        "topic": values.pop("topic", METADATA_TOPIC),
        "topic_id": values.pop("topic_id", METADATA_TOPIC_ID),
        "partitions": [partition] * values.pop("times", 1),
    }
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id},
        "max_wait": timedelta(milliseconds=values.pop("max_wait_ms", 0)),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [topic],
        "forgotten_topics_data": [],
        **values,
    }


def partition_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def base_offsets(data: bytes) -> list[int]:
    found = []
    while data:
        header = read_header(data)
        found.append(header.base_offset)
        data = data[header.size :]
    return found


def list_request(timestamp: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    topic = {"name": METADATA_TOPIC, "partitions": [partition]}
    values = {"replica_id": -1, "isolation_level": 0, "topics": [topic]}
    return {**values, "timeout": timedelta(seconds=1)}
