"""Members and committers of groups on bare connections: what bench.groups measures brokers with.

A client library would add its own pauses, and its own cost a thousand times over in one process.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from bench.broker_systems import System
from kraftpy.network.client import WireClient

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
PATIENCE_S = 120.0
_CONNECTING_MAX = 50
_HEARTBEAT_S = 1.0
_SESSION = timedelta(seconds=30)
_REBALANCE = timedelta(seconds=60)


async def connections(system: System, count: int) -> list[WireClient]:
    """To the one broker of a system."""
    port = system.ports[system.brokers[0]]
    slots = asyncio.Semaphore(_CONNECTING_MAX)

    async def connect() -> WireClient:
        async with slots:
            return await WireClient.connect("127.0.0.1", port, timeout_s=PATIENCE_S)

    return list(await asyncio.gather(*(connect() for _ in range(count))))


async def close_all(clients: list[WireClient]) -> None:
    await asyncio.gather(*(client.close() for client in clients))


async def until_coordinated(client: WireClient, group: str) -> None:
    """Until the broker says that it is the group's coordinator, and acts as such."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await client.ask(FIND_COORDINATOR, {"key": group, "key_type": 0}, version_max=3)
            if found.error_code is ErrorCode.none and await fetch(client, group) is not None:
                return
            await asyncio.sleep(0.01)


async def fetch(client: WireClient, group: str, topic: str = "t", index: int = 0) -> int | None:
    """The offset that a group has committed, -1 if none; None if that cannot be said now."""
    topics = [{"name": topic, "partition_indexes": [index]}]
    asked: Mapping[str, Any] = {"group_id": group, "topics": topics, "require_stable": False}
    found = await client.ask(OFFSET_FETCH, asked, version_max=7)
    if found.error_code is not ErrorCode.none:
        return None
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


async def commit(client: WireClient, group: str, topic: str, partitions: range) -> None:
    found = await client.ask(
        OFFSET_COMMIT,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": each,
                            "committed_offset": each,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                        for each in partitions
                    ],
                }
            ],
        },
        version_max=8,
    )
    for topic_answer in found.topics:
        for each in topic_answer.partitions:
            assert each.error_code is ErrorCode.none, each.error_code


class Rebalance:
    """Members that join at the same moment; over when all have been assigned in one generation."""

    def __init__(self, group: str, clients: list[WireClient]) -> None:
        self._group = group
        self._clients = clients
        self._synced: dict[int, set[str]] = {}
        self._over = asyncio.Event()
        self.generations = 0

    async def run(self) -> float:
        """The seconds from the first join to the last assignment."""
        began = time.perf_counter()
        tasks = [asyncio.create_task(self._member(client)) for client in self._clients]
        over = asyncio.create_task(self._over.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_COMPLETED)
        took_s = time.perf_counter() - began
        for task in (over, *tasks):
            task.cancel()
        failed = [each for each in await asyncio.gather(*tasks, return_exceptions=True) if each]
        for each in failed:
            if not isinstance(each, asyncio.CancelledError):
                assert isinstance(each, BaseException)
                raise each
        return took_s

    async def _member(self, client: WireClient) -> None:
        member_id, wants = "", True
        while True:
            if wants:
                member_id, generation, members = await self._join(client, member_id)
                wants = not await self._sync(client, member_id, generation, members)
                continue
            await asyncio.sleep(_HEARTBEAT_S)
            asked = {
                "group_id": self._group,
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": None,
            }
            found = await client.ask(HEARTBEAT, asked)
            wants = found.error_code is not ErrorCode.none

    async def _join(self, client: WireClient, member_id: str) -> tuple[str, int, tuple[Any, ...]]:
        while True:
            asked = {
                "group_id": self._group,
                "session_timeout": _SESSION,
                "rebalance_timeout": _REBALANCE,
                "member_id": member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b"\0\0" + bytes(30)}],
                "reason": None,
            }
            found = await client.ask(JOIN_GROUP, asked, wait_s=PATIENCE_S)
            member_id = found.member_id
            if found.error_code is ErrorCode.none:
                self.generations = max(self.generations, found.generation_id)
                return member_id, found.generation_id, found.members
            assert found.error_code in (
                ErrorCode.member_id_required,
                ErrorCode.rebalance_in_progress,
            ), found.error_code

    async def _sync(
        self, client: WireClient, member_id: str, generation: int, members: tuple[Any, ...]
    ) -> bool:
        asked = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": each.member_id, "assignment": bytes(40)} for each in members
            ],
        }
        found = await client.ask(SYNC_GROUP, asked, wait_s=PATIENCE_S)
        if found.error_code is not ErrorCode.none:
            return False
        synced = self._synced.setdefault(generation, set())
        synced.add(member_id)
        if len(synced) == len(self._clients):
            self._over.set()
        return True
