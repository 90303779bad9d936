"""What a broker tells of its directories: what differs from metadata, until metadata agrees."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.directory_channel import DirectoryChannel, Key
from kraftpy.errors import Unreachable
from kraftpy.metadata_log import EMPTY, MetadataRecord, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Changes
from kraftpy.types import BrokerId, Uuid
from tests.unit.metadata_log.makers import DIR, TOPIC_ID, brokers, change, partition, topic

UNASSIGNED = r.UNASSIGNED_DIRECTORY
PATIENCE_S = 20.0


class Controller:
    """Answers what the test wants, and keeps what it was told."""

    def __init__(self, *codes: ErrorCode | None) -> None:
        self.codes = list(codes)
        self.told: list[dict[bytes, list[int]]] = []
        self.asked = asyncio.Event()

    async def send(self, request: ChannelRequest) -> Any:
        self.told.append(
            {
                directory["id_"].bytes: [
                    each["partition_index"]
                    for found in directory["topics"]
                    for each in found["partitions"]
                ]
                for directory in request.values["directories"]
            }
        )
        self.asked.set()
        code = self.codes.pop(0) if self.codes else ErrorCode.none
        if code is None:
            raise Unreachable("nobody is there")
        return SimpleNamespace(error_code=code)

    async def heard(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.told) < times:
                self.asked.clear()
                await self.asked.wait()


class Broker:
    """Broker 1, with its logs and its image."""

    def __init__(self, controller: Controller) -> None:
        self.logs: dict[Key, Uuid] = {}
        self.image = EMPTY
        self.channel = DirectoryChannel(
            BrokerId(1),
            self.logs.get,
            cast(ControllerChannel, controller),
            lambda: 7,
            random.Random(1),
        )

    def publish(self, *records: MetadataRecord, indexes: tuple[int, ...] = (0, 1)) -> None:
        before = self.image
        self.image = replay_batch(before, records, before.end_offset, epoch=1)
        changes = Changes(topics={TOPIC_ID: frozenset(indexes)})
        self.channel.apply(before, self.image, changes)


def run(story: Callable[[Controller, Broker], Awaitable[None]], *codes: ErrorCode | None) -> None:
    async def tell() -> None:
        controller = Controller(*codes)
        broker = Broker(controller)
        try:
            await story(controller, broker)
        finally:
            await broker.channel.close()

    asyncio.run(tell())


def placed(index: int, *directories: Uuid) -> r.PartitionRecord:
    return partition(index, replicas=brokers(1, 2), isr=brokers(1, 2), directories=directories)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_metadata_does_not_know_is_told_once_and_together() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0], (TOPIC_ID, 1): DIR[1]}
        broker.publish(topic(), placed(0, UNASSIGNED, DIR[2]), placed(1, UNASSIGNED, DIR[2]))
        await controller.heard(1)
        assert controller.told == [{DIR[0]: [0], DIR[1]: [1]}]
        broker.publish(change(0, directories=(DIR[0], DIR[2])), indexes=(0,))
        await settle()
        assert len(controller.told) == 1

    run(story)


def test_what_metadata_says_already_is_not_told() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0]}
        broker.publish(topic(), placed(0, DIR[0], DIR[2]), placed(1, DIR[1], UNASSIGNED))
        await settle()
        assert controller.told == []

    run(story)


def test_a_refusal_and_silence_are_followed_by_another_attempt() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0]}
        broker.publish(topic(), placed(0, UNASSIGNED, DIR[2]), indexes=(0,))
        await controller.heard(3)
        assert controller.told == [{DIR[0]: [0]}] * 3
        await settle()
        assert len(controller.told) == 3

    run(story, None, ErrorCode.stale_broker_epoch)


def test_a_directory_that_fails_before_it_was_told_is_told_all_the_same() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0]}
        broker.publish(topic(), placed(0, UNASSIGNED, DIR[2]), indexes=(0,))
        del broker.logs[TOPIC_ID, 0]
        broker.publish(change(0, isr=brokers(1)), indexes=(0,))
        await controller.heard(2)
        assert controller.told == [{DIR[0]: [0]}] * 2

    run(story, None)


def test_a_replica_that_is_no_longer_here_is_not_told() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0]}
        broker.publish(topic(), placed(0, UNASSIGNED, DIR[2]), indexes=(0,))
        await controller.heard(1)
        before = broker.image
        broker.channel.apply(before, before, Changes(deleted_topics=frozenset([TOPIC_ID])))
        await settle()
        assert not broker.channel._untold

    run(story, None)


def test_a_log_that_is_damaged_is_told_as_lost_without_waiting_for_metadata() -> None:
    async def story(controller: Controller, broker: Broker) -> None:
        broker.logs |= {(TOPIC_ID, 0): DIR[0], (TOPIC_ID, 1): DIR[0]}
        broker.publish(topic(), placed(0, DIR[0], DIR[2]), placed(1, DIR[0], DIR[2]))
        broker.logs[TOPIC_ID, 1] = r.LOST_DIRECTORY
        broker.channel.log_lost((TOPIC_ID, 1))
        await controller.heard(1)
        assert controller.told == [{r.LOST_DIRECTORY: [1]}]

    run(story)
