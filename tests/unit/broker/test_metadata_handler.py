"""Fast Metadata answers are those of the pure functions, byte for byte, whatever was published.

Method: brokers, topics and partitions come, change and go at random; after each publication all
versions are asked, by name, by id and for everything, and compared with the slow answer.
"""

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest

from kraftpy.broker.apis import metadata_handler
from kraftpy.broker.apis.client_view import ClientView
from kraftpy.broker.apis.metadata import metadata
from kraftpy.broker.apis.metadata_encoding import uvarint
from kraftpy.broker.apis.metadata_handler import MetadataHandler, _Kept
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.metadata_log import EMPTY, ClusterDelta, MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import Endpoint
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import Request, VersionRange, read_request, request_type
from kraftpy.wire.codec import build
from kraftpy.wire.headers import request_frame
from tests.unit.broker.history import topic_id
from tests.unit.metadata_log.makers import brokers, partition, register, topic

VERSIONS = range(14)


def directory(broker_id: int) -> Uuid:
    return Uuid(bytes([100 + broker_id]) * 16)


class World:
    """A cluster that changes at random, and the handler that follows it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.publisher = MetadataPublisher(MetadataCache())
        self.handler = MetadataHandler(self.publisher.cache, "the-cluster", BrokerId(1))
        self.topics: dict[str, int] = {}
        self.number = 0

    @property
    def image(self) -> ClusterImage:
        return self.publisher.cache.image

    def change(self) -> None:
        kind = self.rng.choice(["broker", "topic", "topic", "partition", "partition", "delete"])
        self.publish(list(getattr(self, f"_{kind}")()))

    def publish(self, records: list[MetadataRecord]) -> None:
        delta = ClusterDelta(self.image)
        end = delta.replay_all(records, self.image.end_offset)
        self.publisher.publish(delta.image(end, 1), delta.changes())

    def _broker(self) -> list[MetadataRecord]:
        rng, broker_id = self.rng, self.rng.randint(1, 4)
        names = rng.choice([("L",), ("L", "M"), ("M",)])
        points = tuple(
            Endpoint(name=name, host=f"h{broker_id}", port=9000, security_protocol=0)
            for name in names
        )
        dirs = rng.choice([(), (directory(broker_id),), (Uuid(b"?" * 16),)])
        self.number += 1
        return [
            register(
                broker_id,
                epoch=self.number,
                end_points=points,
                fenced=rng.random() < 0.3,
                log_dirs=dirs,
                rack=rng.choice([None, "r"]),
            )
        ]

    def _topic(self) -> list[MetadataRecord]:
        name = self.rng.choice("abcdefg") + self.rng.choice(["", "_consumer"])
        if name in self.topics:
            return self._partition()
        self.number += 1
        self.topics[name] = self.number
        uuid = topic_id(self.number)
        count = self.rng.randint(0, 4)
        return [topic(name, uuid), *(self._state(uuid, index) for index in range(count))]

    def _state(self, uuid: Any, index: int) -> MetadataRecord:
        replicas = brokers(*self.rng.sample(range(1, 6), self.rng.randint(1, 4)))
        isr = replicas[: self.rng.randint(1, len(replicas))]
        return partition(
            index,
            topic_id=uuid,
            replicas=replicas,
            isr=isr,
            leader=self.rng.choice([*isr, BrokerId(-1)]),
            leader_epoch=self.rng.randint(0, 1000),
            directories=tuple(directory(each) for each in replicas),
        )

    def _partition(self) -> list[MetadataRecord]:
        if not self.topics:
            return [r.NoOpRecord()]
        uuid = topic_id(self.topics[self.rng.choice(sorted(self.topics))])
        found = self.image.topics[uuid]
        return [self._state(uuid, len(found.partitions))]

    def _delete(self) -> list[MetadataRecord]:
        if not self.topics:
            return [r.NoOpRecord()]
        name = self.rng.choice(sorted(self.topics))
        return [r.RemoveTopicRecord(topic_id=topic_id(self.topics.pop(name)))]

    # -- asking ---------------------------------------------------------------------------

    def requests(self, version: int) -> list[Request]:
        names = [*sorted(self.topics)[:3], "missing", "no/good", "missing"]
        asked: list[Any] = [[] if version == 0 else None]
        asked.append([{"name": name, "topic_id": None} for name in names])
        if version >= 12:
            ids = [UUID(bytes=topic_id(n)) for n in (*sorted(self.topics.values())[:2], 9999)]
            asked.append([{"name": None, "topic_id": each} for each in ids])
        operations = self.rng.random() < 0.3
        return [request_for(version, each, operations) for each in asked]

    async def compare(self, version: int, listener: str) -> None:
        for request in self.requests(version):
            view = self.handler.view(listener)
            expected = metadata(view, version, request.message, auto_create=True)
            answer, create = await self.handler.metadata(request, listener, auto_create=True)
            assert bytes(answer[4:]) == bytes(request.response(expected.values)[4:])
            assert int.from_bytes(answer[:4], "big") == len(answer) - 4
            assert create == expected.topics_to_create


def request_for(version: int, topics: Any, operations: bool = False) -> Request:
    values = {
        "topics": topics,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": operations,
        "include_cluster_authorized_operations": operations,
    }
    message: Any = build(request_type(apis.METADATA, version), values)
    frame = bytes(request_frame(message, apis.METADATA, version, 7, "c"))[4:]
    return read_request({apis.METADATA: VersionRange(0, 13)}, frame)


async def compare_through_changes(seed: int, steps: int = 60) -> None:
    world = World(seed)
    for _ in range(steps):
        world.change()
        for version in world.rng.sample(VERSIONS, 4):
            await world.compare(version, world.rng.choice(["L", "M", "NONE"]))
    kept = [each for found in world.handler._kept.values() for each in found.topics.values()]
    assert world.handler._kept_bytes == sum(len(data) for _, data in kept)


@pytest.mark.parametrize("seed", range(6))
def test_fast_answers_are_the_right_ones_after_every_change(seed: int) -> None:
    asyncio.run(compare_through_changes(seed))


@pytest.mark.parametrize("forgotten", ["brokers", "topics"])
def test_a_planted_forgotten_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    """Encoded bytes are used again although the brokers, or the topic, are not the same ones."""
    original = MetadataHandler._kept_for

    def forgetful(handler: MetadataHandler, view: ClientView, key: tuple[str, int]) -> _Kept:
        if forgotten == "brokers" and key in handler._kept:
            return handler._kept[key]
        kept = original(handler, view, key)
        if forgotten == "topics":
            for uuid, (_, data) in kept.topics.items():
                if uuid in view.image.topics:
                    kept.topics[uuid] = (view.image.topics[uuid], data)
        return kept

    monkeypatch.setattr(MetadataHandler, "_kept_for", forgetful)
    caught = 0
    for seed in range(6):
        try:
            asyncio.run(compare_through_changes(seed))
        except AssertionError:
            caught += 1
    assert caught > 0


def test_portions_leave_time_for_others_and_answer_from_one_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_handler, "_PARTITIONS_AT_ONCE", 3)

    async def main() -> None:
        world = World(3)
        while len(world.topics) < 8:
            world.change()
        request = request_for(12, None)
        view = world.handler.view("L")
        expected = bytes(request.response(metadata(view, 12, request.message).values))
        asking = asyncio.create_task(world.handler.metadata(request, "L", auto_create=False))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            world.change()
            turns += 1
        assert turns > 2
        answer, _ = await asking
        assert bytes(answer[4:]) == expected[4:]
        for version in VERSIONS:
            await world.compare(version, "L")

    asyncio.run(main())


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_handler, "METADATA_ENCODED_BYTES_MAX", 300)
    highest = 0
    original = MetadataHandler._keep

    def watched(handler: MetadataHandler, *arguments: Any) -> None:
        nonlocal highest
        original(handler, *arguments)
        highest = max(highest, handler._kept_bytes)

    monkeypatch.setattr(MetadataHandler, "_keep", watched)
    asyncio.run(compare_through_changes(1, steps=30))
    assert 0 < highest <= 300


def test_very_many_replicas_are_written_right() -> None:
    async def main() -> None:
        world = World(1)
        replicas = brokers(*range(1, 400))
        many = partition(
            0, replicas=replicas, isr=replicas[:200], directories=(Uuid(b"d" * 16),) * 399
        )
        delta = ClusterDelta(EMPTY)
        end = delta.replay_all([topic("many"), many], 0)
        world.publisher.publish(delta.image(end, 1), delta.changes())
        for version in VERSIONS:
            await world.compare(version, "L")

    asyncio.run(main())


def test_lengths_are_written_as_kafka_writes_them() -> None:
    assert [uvarint(n) for n in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\1", b"\xac\2"]
