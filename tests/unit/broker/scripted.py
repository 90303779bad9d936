"""Controllers that do as a test tells them, on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_finder import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftpy.clock import SystemClock
from kraftpy.errors import WireError
from kraftpy.network.places import Place
from kraftpy.network.server import WireServer, listening_sockets
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request, VersionRange
from kraftpy.wire.headers import API_VERSIONS

Answer = Callable[[Request], Awaitable[dict[str, Any] | None]]
TABLE = {
    API_VERSIONS: VersionRange(0, 4),
    apis.METADATA: VersionRange(0, 13),
    apis.FETCH: VersionRange(4, 18),
    apis.CREATE_TOPICS: VersionRange(2, 7),
    apis.FETCH_SNAPSHOT: VersionRange(0, 1),
    apis.BROKER_HEARTBEAT: VersionRange(0, 2),
    apis.BROKER_REGISTRATION: VersionRange(0, 4),
    apis.ENVELOPE: VersionRange(0, 0),
    apis.DESCRIBE_QUORUM: VersionRange(0, 2),
}


class HangUp(Exception):
    """Close the connection instead of answering."""


class ScriptedController:
    """`told` is what came, by API; `answers` what is said to it."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.leader_id = -1
        self.epoch = 0
        self.nodes: dict[int, Place] = {}
        self.told: list[tuple[int, Any]] = []
        self.answers: dict[int, Answer] = {}
        self._sockets = listening_sockets("127.0.0.1", 0)
        self.place = Place("127.0.0.1", self._sockets[0].getsockname()[1])
        self.server = WireServer(TABLE, self._answer, clock=SystemClock())

    def start(self) -> None:
        self.server.start(self._sockets)

    def count(self, api_key: int) -> int:
        return sum(key == api_key for key, _ in self.told)

    async def _answer(self, request: Request, _address: str) -> bytearray | None:
        key = request.header.api_key
        if key == API_VERSIONS:
            served = [
                {"api_key": k, "min_version": a, "max_version": b}
                for k, (a, b) in sorted(TABLE.items())
            ]
            return request.response(
                {"error_code": ErrorCode.none, "api_keys": served, "throttle_time": NO_THROTTLE}
            )
        self.told.append((key, request.message))
        answer = self.answers.get(key)
        if answer is None:
            assert key == apis.METADATA, f"nobody told what to say to {key}"
            return request.response(self._metadata())
        try:
            values = await answer(request)
        except HangUp:
            raise WireError("told to hang up") from None
        return None if values is None else request.response(values)

    def _metadata(self) -> dict[str, Any]:
        partition = {
            "error_code": ErrorCode.none,
            "partition_index": 0,
            "leader_id": self.leader_id,
            "leader_epoch": self.epoch,
            "replica_nodes": [],
            "isr_nodes": [],
            "offline_replicas": [],
        }
        topic = {
            "error_code": ErrorCode.none,
            "name": METADATA_TOPIC,
            "topic_id": METADATA_TOPIC_ID,
            "is_internal": True,
            "partitions": [partition],
            "topic_authorized_operations": 0,
        }
        brokers = [
            {"node_id": n, "host": p.host, "port": p.port, "rack": None}
            for n, p in self.nodes.items()
        ]
        return {
            "throttle_time": NO_THROTTLE,
            "brokers": brokers,
            "cluster_id": "the-cluster",
            "controller_id": self.leader_id,
            "topics": [topic],
            "error_code": ErrorCode.none,
        }


@asynccontextmanager
async def scripted(count: int = 1) -> AsyncIterator[list[ScriptedController]]:
    """Controllers 1 to n, of which the first leads in epoch 1."""
    nodes = [ScriptedController(node_id) for node_id in range(1, count + 1)]
    places = {node.node_id: node.place for node in nodes}
    for node in nodes:
        node.nodes = dict(places)
        node.start()
    lead(nodes, 1, epoch=1)
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.server.close() for node in nodes))


def lead(nodes: list[ScriptedController], leader_id: int, *, epoch: int) -> None:
    """All of them know."""
    for node in nodes:
        node.leader_id, node.epoch = leader_id, epoch


def always(**values: Any) -> Answer:
    async def answer(_request: Request) -> dict[str, Any]:
        return {"throttle_time": NO_THROTTLE, **values}

    return answer


async def silence(_request: Request) -> None:
    await asyncio.Event().wait()


async def hang_up(_request: Request) -> None:
    raise HangUp
