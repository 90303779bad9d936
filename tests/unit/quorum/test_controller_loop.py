"""The controller in an event loop: threads hand over to it, and it never sees half of anything."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from kraftpy.clock import SystemClock
from kraftpy.errors import FatalFault
from kraftpy.metadata_log import EMPTY
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.records import MetadataRecord, PartitionRecord, TopicRecord
from kraftpy.network.loop import run
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.control.decision import ControlApi
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.controller_loop import ControllerLoop
from kraftpy.quorum.image_keeper import HandOver, ImageKeeper
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import read_header
from kraftpy.types import ZERO_UUID, BrokerId, TopicId, Uuid
from tests.unit.control.makers import CLUSTER_ID
from tests.unit.quorum.fake_consensus import GLANCE, NODE_ID, OTHER_ID, PUT, FakeConsensus
from tests.unit.quorum.served import wait_until

ON_BROKER = (BrokerId(1), BrokerId(2))


class NobodyRegisters:
    """In the place of a Registrar."""

    async def run(self) -> None:
        """There is nobody to register with."""


class SlowKeeper:
    """Hands over when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[HandOver] = []
        self.standing_by = 0

    def hand_over(self, take: HandOver) -> None:
        self.waiting.append(take)

    def stand_by(self) -> None:
        self.standing_by += 1


class Stage:
    """A loop with a controller in it, and another thread that plays the engine."""

    def __init__(self) -> None:
        self.consensus = FakeConsensus()
        self.keeper = SlowKeeper()
        self.faults: list[FatalFault] = []
        self.loop = ControllerLoop(
            node_id=NODE_ID,
            consensus=self.consensus,
            keeper=self.keeper,  # type: ignore[arg-type]
            settings=ControllerSettings(
                cluster_id=CLUSTER_ID, voter_ids=(), metadata_max_idle_interval_ms=0
            ),
            clock=SystemClock(),
            rng=random.Random(1),
            on_fault=self.faults.append,
            registration=None,
            registrar=NobodyRegisters(),  # type: ignore[arg-type]
        )

    async def engine(self, does: Callable[..., Any], *arguments: Any) -> None:
        """In a thread of its own, and then let the loop take what came of it."""
        thread = threading.Thread(target=does, args=arguments)
        thread.start()
        thread.join()
        await asyncio.sleep(0.01)

    async def lead(self, epoch: int = 1) -> None:
        self.consensus.win(epoch)
        await self.engine(self.loop.leadership_changed, NODE_ID, epoch)
        image = self.consensus.image()
        await self.engine(self.keeper.waiting.pop(), image, PartitionIndex(image))
        await self.engine(self.consensus.commit)

    def put(self, name: str) -> asyncio.Task[Any]:
        return asyncio.create_task(self.ask(PUT, names=[name]))

    async def ask(self, api: ControlApi, **message: Any) -> Any:
        return (await self.loop.ask(api, message))["error_code"]


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def whole() -> None:
        stage = Stage()
        try:
            await story(stage)
        finally:
            await stage.loop.close()

    run(whole())


def test_a_request_is_answered_from_the_engines_thread() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        asked = [stage.put(str(number)) for number in range(20)]
        await asyncio.sleep(0)
        await stage.engine(stage.consensus.commit)
        assert await asyncio.gather(*asked) == [ErrorCode.none] * 20

    play(story)


def test_a_single_outcome_wakes_the_loop() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        assert not stage.loop._outcomes, "that of its first batch was taken"
        asked = stage.put("a")
        await asyncio.sleep(0)
        await stage.engine(stage.consensus.commit)
        assert asked.done()
        assert asked.result() is ErrorCode.none

    play(story)


def test_it_leads_only_when_the_keeper_has_everything() -> None:
    async def story(stage: Stage) -> None:
        await stage.engine(stage.loop.leadership_changed, NODE_ID, 1)
        assert not stage.loop.controller.is_active
        assert await stage.ask(GLANCE, name="a") is ErrorCode.not_controller
        stage.consensus.win(1)
        await stage.engine(stage.keeper.waiting.pop(), EMPTY, PartitionIndex(EMPTY))
        assert stage.loop.controller.is_active

    play(story)


def test_a_victory_that_a_defeat_overtook_is_ignored() -> None:
    async def story(stage: Stage) -> None:
        stage.consensus.win(1)  # What it would propose would be taken.
        await stage.engine(stage.loop.leadership_changed, NODE_ID, 1)
        await stage.engine(stage.loop.leadership_changed, None, 1)
        assert stage.keeper.standing_by == 1
        await stage.engine(stage.keeper.waiting.pop(), EMPTY, PartitionIndex(EMPTY))
        assert not stage.loop.controller.is_active

    play(story)


def test_a_client_that_goes_away_stops_nobody() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        gone, stays = stage.put("a"), stage.put("b")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        await stage.engine(stage.consensus.commit)
        assert await stays is ErrorCode.none
        assert gone.cancelled()
        assert stage.faults == []

    play(story)


def test_a_defeat_is_told_to_those_who_wait() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        asked = stage.put("a")
        await asyncio.sleep(0)

        def defeat() -> None:
            stage.consensus.lose()
            stage.loop.leadership_changed(OTHER_ID, 2)

        await stage.engine(defeat)
        assert await asked is ErrorCode.request_timed_out
        assert await stage.ask(GLANCE, name="a") is ErrorCode.not_controller

    play(story)


def test_a_bug_in_a_callback_ends_the_node() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        stage.loop.controller.resign = None  # type: ignore[method-assign, assignment]
        with capture_logs() as logged:
            await stage.engine(stage.loop.leadership_changed, OTHER_ID, 2)
        assert [each["event"] for each in logged] == ["controller_failed"]
        assert len(stage.faults) == 1

    play(story)


def test_a_controller_that_stops_refuses() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead()
        stage.loop.stop()
        assert await stage.ask(PUT, names=["a"]) is ErrorCode.not_controller
        await stage.engine(stage.loop.leadership_changed, NODE_ID, 2)
        await stage.engine(stage.keeper.waiting.pop(), EMPTY, PartitionIndex(EMPTY))
        assert not stage.loop.controller.is_active

    play(story)


# -- the keeper's index -----------------------------------------------------------------------


def topic(number: int) -> list[MetadataRecord]:
    topic_id = TopicId(Uuid(bytes([number]) * 16))
    partition = PartitionRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=ON_BROKER,
        isr=ON_BROKER,
        leader=ON_BROKER[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=(ZERO_UUID, ZERO_UUID),
    )
    return [TopicRecord(name=f"t{number}", topic_id=topic_id), partition]


class Kept:
    """A keeper that is told one topic after the other."""

    def __init__(self) -> None:
        self.faults: list[FatalFault] = []
        self.keeper = ImageKeeper(OsFiles(), "", FakeConsensus(), SystemClock(), self.faults.append)
        self._end = 0
        self.handed: list[tuple[Any, PartitionIndex]] = []

    def commit(self) -> None:
        records = topic(self._end // 2 + 1)
        batch = record_batch(records, base_offset=self._end, epoch=1, timestamp_ms=0)
        self._end += len(records)
        self.keeper.committed([CommittedBatch(read_header(batch), bytes(batch))])

    def take(self) -> tuple[Any, PartitionIndex]:
        self.keeper.hand_over(lambda image, index: self.handed.append((image, index)))
        wait_until(lambda: self.handed)
        return self.handed.pop()


@pytest.fixture
def kept() -> Any:
    kept = Kept()
    yield kept
    kept.keeper.close()
    assert kept.faults == []


def test_an_image_is_handed_over_with_all_that_was_told_before(kept: Kept) -> None:
    for _ in range(50):
        kept.commit()
    image, index = kept.take()
    assert image.end_offset == 100
    assert index.image is image
    assert len(index.holding(ON_BROKER[0])) == 50


def test_the_index_of_a_standby_is_there_before_it_is_needed(kept: Kept) -> None:
    kept.commit()
    wait_until(lambda: kept.keeper.image.end_offset == 2 and kept.keeper._index._is_built)
    kept.commit()
    _, index = kept.take()
    assert index._is_built
    assert len(index.holding(ON_BROKER[0])) == 2


def test_what_was_handed_over_is_left_alone(kept: Kept) -> None:
    kept.commit()
    image, index = kept.take()
    kept.commit()
    wait_until(lambda: kept.keeper.image.end_offset == 4)
    assert index.image is image, "the active controller moves it"
    assert not kept.keeper._index._is_built, "and the keeper has no use for one"
    kept.keeper.stand_by()
    wait_until(lambda: kept.keeper._index._is_built)
    _, again = kept.take()
    assert len(again.holding(ON_BROKER[0])) == 2
