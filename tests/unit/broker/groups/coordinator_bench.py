"""A coordinator on one broker, its log on a simulated disk, asked through its APIs."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import apis
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.coordinator import GroupCoordinator
from kraftpy.broker.timers import TICK_MS
from kraftpy.clock import ManualClock
from kraftpy.metadata_log import ClusterDelta
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, TopicId, Uuid, to_wire_uuid
from tests.unit.broker.test_offsets import read, request
from tests.unit.broker.test_replica_manager import Broker, partition

OFFSETS_ID, FIRST_ID, SECOND_ID, UNKNOWN_ID = (TopicId(Uuid(bytes([n]) * 16)) for n in (1, 2, 3, 4))
FIRST, SECOND = "first", "second"
PARTITIONS = 3
CHECK_MS = 20
SESSION_MS = 6000
WAIT_S = 30.0
_ME = BrokerId(1)


class Coordinated(Broker):
    """Broker 1, which coordinates all groups; topics `first` and `second` are there."""

    def __init__(self, config: GroupConfig) -> None:
        super().__init__()
        self.clock: ManualClock = self.logs.clock
        self._config = config
        self.coordinator = self._made()
        records: list[r.MetadataRecord] = [
            r.TopicRecord(name="__consumer_offsets", topic_id=OFFSETS_ID),
            partition(OFFSETS_ID, (_ME,), _ME),
        ]
        for name, topic_id in ((FIRST, FIRST_ID), (SECOND, SECOND_ID)):
            records.append(r.TopicRecord(name=name, topic_id=topic_id))
            records += (
                r.PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=(BrokerId(2),),
                    isr=(BrokerId(2),),
                    leader=BrokerId(2),
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(PARTITIONS)
            )
        self.publish(*records)

    def _made(self) -> GroupCoordinator:
        clock, rng = self.clock, random.Random(1)
        return GroupCoordinator(self.manager, self._config, clock, rng, lambda: True)

    def publish(self, *records: r.MetadataRecord) -> None:
        delta = ClusterDelta(self.image)
        end_offset = delta.replay_all(records, self.image.end_offset)
        before, self.image = self.image, delta.image(end_offset, 1)
        self.manager.apply(before, self.image, delta.changes())
        if hasattr(self, "coordinator"):
            self.coordinator.apply(before, self.image, delta.changes())

    async def restart(self) -> None:
        """Another coordinator, which reads the log of the first one."""
        await self.coordinator.close()
        self.coordinator = self._made()
        delta = ClusterDelta(self.image)
        delta.replay_all([partition_again()], self.image.end_offset)
        self.coordinator.apply(self.image, self.image, delta.changes())

    async def ask(self, api_key: int, version: int, **values: Any) -> Any:
        """The answer, once the log has been loaded."""
        async with asyncio.timeout(WAIT_S):
            while not all(led.is_loaded for led in self.coordinator.led()):
                await asyncio.sleep(0.001)
            return await self.ask_now(api_key, version, **values)

    async def ask_now(self, api_key: int, version: int, **values: Any) -> Any:
        finder: Any = SimpleNamespace(find_coordinator=None)  # There is nothing to find.
        answers = apis.group_answers(self.coordinator, finder)
        asked = request(api_key, version, **values)
        return read(asked, await answers[api_key](asked, "/127.0.0.1"))

    # -- what clients do ----------------------------------------------------------------------

    async def commit(self, group: str, version: int = 8, **values: Any) -> list[ErrorCode]:
        """Of `topic`, or `topic_id`: `offsets` by partition; what is said of each."""
        by_index = values.pop("offsets", {0: 1})
        topic: dict[str, Any] = {"name": values.pop("topic", FIRST)}
        if version >= 10:
            topic["topic_id"] = to_wire_uuid(values.pop("topic_id", FIRST_ID))
        text = values.pop("text", "")
        topic["partitions"] = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": text,
            }
            for index, offset in by_index.items()
        ]
        asked = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [topic],
            **values,
        }
        found = await self.ask(apis.OFFSET_COMMIT, version, **asked)
        return [each.error_code for each in found.topics[0].partitions]

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """All of a group."""
        found = await self.ask(
            apis.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False
        )
        assert found.error_code is ErrorCode.none
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    async def join(self, group: str, member_id: str = "", **more: Any) -> Any:
        values = {
            "session_timeout": timedelta(milliseconds=SESSION_MS),
            "rebalance_timeout": timedelta(milliseconds=SESSION_MS),
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(FIRST)}],
            **more,
        }
        joining = asyncio.create_task(self.ask(apis.JOIN_GROUP, 7, group_id=group, **values))
        while not joining.done():  # It is a matter of timers, even if they are to wait for nothing.
            self.clock.advance(TICK_MS)
            await asyncio.sleep(TICK_MS / 1000)
        found = joining.result()
        if found.error_code is ErrorCode.member_id_required:
            return await self.join(group, found.member_id, **more)
        return found

    async def member(self, group: str) -> Any:
        """The only member of a group, assigned; its JoinGroup's answer."""
        joined = await self.join(group)
        assert joined.error_code is ErrorCode.none
        who = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        found = await self.ask(
            apis.SYNC_GROUP,
            5,
            group_id=group,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
            **who,
        )
        assert found.error_code is ErrorCode.none
        return joined

    async def leave(self, group: str, member_id: str) -> None:
        """The last one."""
        leaving = {"member_id": member_id, "group_instance_id": None, "reason": None}
        found = await self.ask(apis.LEAVE_GROUP, 5, group_id=group, members=[leaving])
        assert found.error_code is ErrorCode.none
        led = self.coordinator.find(group)
        assert not isinstance(led, ErrorCode)
        async with asyncio.timeout(WAIT_S):
            while led.shard.stored[group].members:  # It is told before it is stored.
                await asyncio.sleep(0)

    async def groups(self, **filters: Any) -> set[str]:
        filters = {"states_filter": [], "types_filter": [], **filters}
        found = await self.ask(apis.LIST_GROUPS, 5, **filters)
        assert found.error_code is ErrorCode.none
        return {each.group_id for each in found.groups}

    async def checked(self) -> None:
        """Until a check has been made for what is too old."""
        done = asyncio.Event()
        self.coordinator._timer.after(CHECK_MS, done.set)  # The check is due before that.
        self.clock.advance(CHECK_MS)
        async with asyncio.timeout(WAIT_S):
            await done.wait()


def partition_again() -> r.MetadataRecord:
    """What makes a new coordinator look at its partition."""
    return partition(OFFSETS_ID, (_ME,), _ME)


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself, in version 0."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def coordinated(story: Callable[[Coordinated], Coroutine[Any, Any, None]], **config: Any) -> None:
    """Tell a story of a coordinator that waits for nobody."""
    settings = {"initial_rebalance_delay_ms": 0, "retention_check_ms": CHECK_MS, **config}

    async def run() -> None:
        bench = Coordinated(GroupConfig(**settings))
        try:
            await story(bench)
        finally:
            await bench.coordinator.close()

    asyncio.run(run())
