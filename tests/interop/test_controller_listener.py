"""Real clients against a controller listener: they negotiate, describe, read the metadata log."""

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from kraftpy.metadata_log.codec import decode_record
from kraftpy.metadata_log.records import FeatureLevelRecord, MetadataRecord
from tests.unit.quorum.served import Served

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of kafka-python's own imports.
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

TOPIC = "__cluster_metadata"
RECORDS: list[MetadataRecord] = [
    FeatureLevelRecord(name=f"feature-{n}", feature_level=n) for n in range(5)
]


@pytest.fixture(scope="module")
def three() -> Iterator[Served]:
    with Served(3) as served:
        for record in RECORDS:
            served.cluster.commit(1, [record])
        served.cluster.run(500)
        yield served


def bootstrap(served: Served) -> list[str]:
    return [f"127.0.0.1:{port}" for port in served.ports.values()]


def test_kafka_python_reads_the_metadata_log(three: Served) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap(three), auto_offset_reset="earliest", enable_auto_commit=False
    )
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    assert end == three.views[three.leader_id].progress.high_watermark
    assert consumer.beginning_offsets([partition])[partition] == 0
    found: list[Any] = []
    while consumer.position(partition) < end:
        for messages in consumer.poll(timeout_ms=1000).values():
            found += messages
    consumer.close()
    assert [decode_record(message.value, message.offset) for message in found] == RECORDS
    assert [message.offset for message in found] == [1, 2, 3, 4, 5]  # 0 is the leader change.


def test_kafka_python_sees_a_commit_while_it_waits() -> None:
    with Served(1) as served:
        served.cluster.commit(1, RECORDS[:1])
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap(served), enable_auto_commit=False, fetch_max_wait_ms=20_000
        )
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, 2)
        consumer.poll(timeout_ms=500)
        served.cluster.commit(1, RECORDS[1:2])
        found: list[Any] = []
        while not found:
            found += consumer.poll(timeout_ms=1000).get(partition, [])
        consumer.close()
        assert decode_record(found[0].value, found[0].offset) == RECORDS[1]


def test_aiokafka_reads_the_metadata_log(three: Served) -> None:
    async def read() -> list[Any]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap(three), enable_auto_commit=False)
        await consumer.start()
        try:
            partition = AioTopicPartition(TOPIC, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [await consumer.getone() for _ in RECORDS]
        finally:
            await consumer.stop()

    found = asyncio.run(read())
    assert [decode_record(message.value, message.offset) for message in found] == RECORDS


def test_the_admin_client_of_kafka_python_describes_the_quorum(three: Served) -> None:
    """It asks any controller: those that do not lead say who does, and the leader says it all."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap(three))
    try:
        assert admin.list_topics() == [TOPIC]
        (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert partition["leader_id"] == three.leader_id
    finally:
        admin.close()
    with Served(1) as served:
        served.cluster.commit(1)
        admin = KafkaAdminClient(bootstrap_servers=bootstrap(served))
        try:
            (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        finally:
            admin.close()
        assert [voter["replica_id"] for voter in partition["current_voters"]] == [1]
        assert partition["high_watermark"] == 2
