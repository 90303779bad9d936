"""aiokafka, which sends the oldest versions of all, against kraftpy."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from tests.interop.clusters import MESSAGE_BYTES_MAX, Served

CLIENT = "aiokafka"
WAIT_S = 60
NONE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC, INVALID_CONFIG = 0, 36, 3, 40


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await story()

    asyncio.run(bounded())


@asynccontextmanager
async def administered(served: Served) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=served.bootstrap, client_id=CLIENT)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(admin: Any, served: Served, name: str, partitions: int = 1, **more: Any) -> str:
    topic = served.topic(name)
    answer = await admin.create_topics([NewTopic(topic, partitions, 1, **more)])
    assert answer.topic_errors[0][1] == NONE
    return topic


async def send(
    served: Served, topic: str, messages: list[dict[str, Any]], **config: Any
) -> list[Any]:
    producer = AIOKafkaProducer(
        bootstrap_servers=served.bootstrap,
        client_id=CLIENT,
        max_request_size=10_000_000,
        **config,
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, partition=0, **message) for message in messages]
        return [await each for each in sent]
    finally:
        await producer.stop()


async def read(served: Served, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=served.bootstrap,
        client_id=CLIENT,
        auto_offset_reset="earliest",
        **config,
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_was_sent_comes_back_with_keys_and_headers(dev: Served, codec: str | None) -> None:
    async def story() -> None:
        async with administered(dev) as admin:
            topic = await create(admin, dev, f"aio-{codec}")
        messages = [
            {
                "key": b"k%d" % n if n % 3 else None,
                "value": b"v%d" % n * 20,
                "headers": [("a", b"1"), ("n", b"%d" % n)],
                "timestamp_ms": 1_700_000_000_000 + n,
            }
            for n in range(50)
        ]
        options = {"compression_type": codec, "enable_idempotence": True, "linger_ms": 20}
        sent = await send(dev, topic, messages, **options)
        assert [each.offset for each in sent] == list(range(50))
        found = await read(dev, topic, 50, isolation_level="read_committed")
        assert [(m.key, m.value, list(m.headers), m.timestamp) for m in found] == [
            (m["key"], m["value"], m["headers"], m["timestamp_ms"]) for m in messages
        ]

    run(story)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acks_on_a_topic_created_by_use(dev: Served, acks: Any) -> None:
    async def story() -> None:
        topic = dev.topic("aio-acks")
        await send(dev, topic, [{"value": b"x"}] * 5, acks=acks)
        assert len(await read(dev, topic, 5)) == 5

    run(story)


def test_a_big_message_fits_and_a_bigger_one_is_refused(dev: Served) -> None:
    async def story() -> None:
        topic = dev.topic("aio-big")
        (sent,) = await send(dev, topic, [{"value": b"x" * (MESSAGE_BYTES_MAX - 200)}])
        assert sent.offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await send(dev, topic, [{"value": b"x" * (MESSAGE_BYTES_MAX + 1)}])
        (found,) = await read(dev, topic, 1)
        assert len(found.value) == MESSAGE_BYTES_MAX - 200

    run(story)


def test_offsets_by_time(dev: Served) -> None:
    async def story() -> None:
        topic, first = dev.topic("aio-times"), 1_600_000_000_000
        await send(
            dev, topic, [{"value": b"x", "timestamp_ms": first + n * 1000} for n in range(9)]
        )
        consumer = AIOKafkaConsumer(bootstrap_servers=dev.bootstrap, client_id=CLIENT)
        await consumer.start()
        try:
            at = TopicPartition(topic, 0)
            consumer.assign([at])
            assert (await consumer.offsets_for_times({at: first + 4500}))[at].offset == 5
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: 9}
            consumer.seek(at, 7)
            assert (await consumer.getone()).offset == 7
        finally:
            await consumer.stop()

    run(story)


def test_an_offset_out_of_range_is_told(dev: Served) -> None:
    async def story() -> None:
        topic = dev.topic("aio-range")
        await send(dev, topic, [{"value": b"x"}])
        consumer = AIOKafkaConsumer(
            bootstrap_servers=dev.bootstrap, client_id=CLIENT, auto_offset_reset="none"
        )
        await consumer.start()
        try:
            at = TopicPartition(topic, 0)
            consumer.assign([at])
            consumer.seek(at, 100)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()
        finally:
            await consumer.stop()

    run(story)


def test_topics_configs_and_the_cluster(dev: Served) -> None:
    async def story() -> None:
        async with administered(dev) as admin:
            topic = await create(admin, dev, "aio-admin", 2, topic_configs={"retention.ms": "99"})
            again = await admin.create_topics([NewTopic(topic, 1, 1)])
            assert again.topic_errors[0][1] == TOPIC_ALREADY_EXISTS
            assert topic in await admin.list_topics()
            await admin.create_partitions({topic: NewPartitions(5)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 5
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            assert ("retention.ms", "99") in [each[:2] for each in answer.resources[0][4]]
            wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "never"})
            (refused,) = await admin.alter_configs([wrong])
            assert refused.resources[0][0] == INVALID_CONFIG
            right = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "compact"})
            (altered,) = await admin.alter_configs([right])
            assert altered.resources[0][0] == NONE
            cluster = await admin.describe_cluster()
            assert [each["node_id"] for each in cluster["brokers"]] == [101]
            deleted = await admin.delete_topics([topic])
            assert deleted.topic_error_codes[0][1] == NONE
            gone = await admin.delete_topics([topic])
            assert gone.topic_error_codes[0][1] == UNKNOWN_TOPIC

    run(story)


def test_records_are_deleted_up_to_an_offset(dev: Served) -> None:
    async def story() -> None:
        topic = dev.topic("aio-delete")
        await send(dev, topic, [{"value": b"%d" % n} for n in range(10)])
        async with administered(dev) as admin:
            at = TopicPartition(topic, 0)
            assert (await admin.delete_records({at: RecordsToDelete(4)}))[at] == 4
        assert [each.offset for each in await read(dev, topic, 6)] == list(range(4, 10))

    run(story)
