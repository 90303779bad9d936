"""The cache and the publisher: what is looked up is always that of the image; order is kept."""

import asyncio
import random
from itertools import pairwise

import pytest

from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.image_changes import changes_between
from kraftpy.broker.metadata.nodes import BrokerNode, node_of
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.metadata_log import EMPTY, Changes, ClusterDelta, ClusterImage, MetadataRecord
from kraftpy.metadata_log.records import Endpoint, RemoveTopicRecord
from tests.unit.broker.history import History, life_of_a_cluster, topic_id
from tests.unit.metadata_log.makers import partition, register, topic


def step(image: ClusterImage, *records: MetadataRecord) -> tuple[ClusterImage, Changes]:
    delta = ClusterDelta(image)
    end = delta.replay_all(records, image.end_offset)
    return delta.image(end, 1), delta.changes()


def end_points(port: int) -> tuple[Endpoint, ...]:
    return (
        Endpoint(name="PLAINTEXT", host="here", port=port, security_protocol=0),
        Endpoint(name="SSL", host="here", port=port + 1, security_protocol=1),
    )


def test_nodes_are_those_of_the_listener_and_follow_the_brokers() -> None:
    publisher = MetadataPublisher(MetadataCache())
    cache = publisher.cache

    def nodes(listener: str) -> list[BrokerNode]:
        return list(cache.listener(listener).nodes.values())

    assert nodes("PLAINTEXT") == []
    image, changes = step(
        EMPTY, register(2, end_points=end_points(20)), register(1, end_points=end_points(10)[:1])
    )
    publisher.publish(image, changes)
    assert [(n.broker_id, n.port, n.fenced) for n in nodes("PLAINTEXT")] == [
        (1, 10, True),
        (2, 20, True),
    ]
    assert [n.broker_id for n in nodes("SSL")] == [2]
    assert nodes("NONE") == []
    before = cache.listener("SSL")
    publisher.publish(*step(image, topic("a")))
    assert cache.listener("SSL") is before, "a topic does not change the brokers"
    publisher.publish(*step(cache.image, register(2, epoch=99, end_points=(), fenced=False)))
    assert nodes("SSL") == []


def test_a_broker_without_the_listener_has_no_node() -> None:
    assert node_of(None, "X") is None
    broker = register(1, end_points=end_points(10), rack="r", fenced=False)
    assert node_of(broker, "X") is None
    assert node_of(broker, "SSL") == BrokerNode(broker.broker_id, "here", 11, "r", False)


def test_topic_names_follow_topics_that_come_and_go() -> None:
    publisher, rng = MetadataPublisher(MetadataCache()), random.Random(3)
    cache = publisher.cache
    there: dict[str, int] = {}
    number = 0
    for _ in range(300):
        records: list[MetadataRecord] = []
        for name in rng.sample("abcdefghij", rng.randint(1, 3)):
            if name in there:
                records.append(RemoveTopicRecord(topic_id=topic_id(there.pop(name))))
            if rng.random() < 0.6:
                number += 1
                there[name] = number
                records += [topic(name, topic_id(number)), partition(topic_id=topic_id(number))]
        if records:
            publisher.publish(*step(cache.image, *records))
        assert list(cache.topic_names()) == sorted(there) == sorted(cache.image.topic_ids)


def test_subscribers_are_told_one_after_the_other_and_find_the_image_in_the_cache() -> None:
    history = History(life_of_a_cluster(4))
    publisher = MetadataPublisher(MetadataCache())
    told: list[tuple[str, int, int]] = []

    def subscriber(name: str) -> None:
        def note(before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
            assert publisher.cache.image is after
            assert publisher.cache.end_offset == before.end_offset, "not announced yet"
            assert changes == changes_between(before, after)
            told.append((name, before.end_offset, after.end_offset))

        publisher.subscribe(note)

    subscriber("first")
    subscriber("second")
    ends = sorted(history.images)
    for before, after in pairwise(ends):
        changes = changes_between(history.images[before], history.images[after])
        publisher.publish(history.images[after], changes)
        assert told[-2:] == [("first", before, after), ("second", before, after)]
    assert publisher.cache.end_offset == history.end_offset


def test_what_a_subscriber_raises_goes_up_and_nobody_is_told_that_it_was_reached() -> None:
    publisher = MetadataPublisher(MetadataCache())

    def broken(_before: ClusterImage, _after: ClusterImage, _changes: Changes) -> None:
        raise RuntimeError("no")

    publisher.subscribe(broken)
    with pytest.raises(RuntimeError):
        publisher.publish(*step(EMPTY, topic("a")))
    assert publisher.cache.end_offset == 0


def test_who_waits_for_an_offset_goes_on_when_it_is_published() -> None:
    async def main() -> None:
        publisher = MetadataPublisher(MetadataCache())
        cache = publisher.cache
        assert await cache.reached(0, 30)
        assert not await cache.reached(1, 0.001)
        early = asyncio.create_task(cache.reached(1, 30))
        late = asyncio.create_task(cache.reached(3, 30))
        gone = asyncio.create_task(cache.reached(1, 30))
        await asyncio.sleep(0)
        gone.cancel()
        publisher.publish(*step(EMPTY, topic("a"), partition()))
        assert await early
        assert not late.done()
        publisher.publish(*step(cache.image, register(1)))
        assert await late
        assert not cache._waiting

    asyncio.run(main())


def test_how_current_it_is_is_known_only_after_it_was_told() -> None:
    cache = MetadataCache()
    assert not cache.is_current(0, within_ms=10**9)
    cache.was_current(100)
    assert cache.is_current(149, within_ms=50)
    assert not cache.is_current(150, within_ms=50)


def test_who_waits_for_a_broker_that_serves_goes_on_when_one_is_unfenced() -> None:
    async def scenario() -> None:
        publisher = MetadataPublisher(MetadataCache())
        cache = publisher.cache
        assert not await cache.somebody_serves("PLAINTEXT", 0.01)
        waiting = asyncio.ensure_future(cache.somebody_serves("PLAINTEXT", 60))
        publisher.publish(*step(EMPTY, register(1, end_points=end_points(10))))
        publisher.publish(*step(cache.image, register(2, end_points=(), fenced=False)))
        await asyncio.sleep(0)
        assert not waiting.done(), "1 is fenced, 2 has no listener"
        publisher.publish(
            *step(cache.image, register(1, epoch=99, end_points=end_points(10)[:1], fenced=False))
        )
        assert await waiting
        assert await cache.somebody_serves("SSL", 0) is False
        assert await cache.somebody_serves("PLAINTEXT", 0)

    asyncio.run(scenario())
