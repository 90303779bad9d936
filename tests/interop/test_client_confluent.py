"""confluent-kafka, which is librdkafka, against kraftpy."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)

from tests.interop.clusters import MESSAGE_BYTES_MAX, QUIET, Served, wait_for

api: Any = confluent_kafka.admin  # Its types are not complete.
CLIENT = "confluent-kafka"
WAIT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def common(served: Served) -> dict[str, Any]:
    return {"bootstrap.servers": served.bootstrap, "client.id": CLIENT, **QUIET}


def admin(served: Served) -> Any:
    return _admin(served.bootstrap)


@cache  # One that is thrown away takes its requests along.
def _admin(bootstrap: str) -> Any:
    return api.AdminClient({"bootstrap.servers": bootstrap, "client.id": CLIENT, **QUIET})


def create(served: Served, name: str, partitions: int = 1, **more: Any) -> str:
    topic = served.topic(name)
    made = admin(served).create_topics([api.NewTopic(topic, partitions, **more)])
    made[topic].result(WAIT_S)
    return topic


def send(served: Served, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[Any]:
    """What was delivered or why not, in the order of sending."""
    producer = Producer({**common(served), **{k.replace("_", "."): v for k, v in config.items()}})
    delivered: list[Any] = []

    def note(error: Any, message: Any) -> None:
        delivered.append(error or message)

    for message in messages:
        producer.produce(topic, on_delivery=note, **message)
    assert producer.flush(WAIT_S) == 0
    return delivered


def open_consumer(served: Served, **config: Any) -> Any:
    more = {k.replace("_", "."): v for k, v in config.items()}
    # It wants a group's name even where it is told what to read.
    no_group = {"group.id": "unused", "enable.auto.commit": False}
    return Consumer({**common(served), **no_group, **more})


def read(served: Served, topic: str, count: int, partition: int = 0, **config: Any) -> list[Any]:
    consumer = open_consumer(served, **config)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[Any] = []

        def enough() -> bool:
            for message in consumer.consume(count - len(found), 1.0):
                assert message.error() is None, message.error()
                found.append(message)
            return len(found) >= count

        wait_for(f"{count} messages", enough)
        return found
    finally:
        consumer.close()


def results(futures: dict[Any, "Future[Any]"]) -> dict[Any, Any]:
    return {key: future.result(WAIT_S) for key, future in futures.items()}


def refusal(call: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        call()
    code: int = raised.value.args[0].code()
    return code


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_sent_comes_back_with_keys_and_headers(dev: Served, codec: str) -> None:
    topic = create(dev, codec)
    messages = [
        {
            "key": b"k%d" % n if n % 3 else None,
            "value": b"v%d" % n * 20 if n % 5 else None,
            "headers": [("a", b"1"), ("a", None), ("n", b"%d" % n)],
            "timestamp": 1_700_000_000_000 + n,
        }
        for n in range(100)
    ]
    delivered = send(
        dev, topic, messages, compression_type=codec, enable_idempotence=True, linger_ms=20
    )
    assert [each.offset() for each in delivered] == list(range(100))
    found = read(dev, topic, 100)
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in found] == [
        (m["key"], m["value"], m["headers"], m["timestamp"]) for m in messages
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acks(dev: Served, acks: Any) -> None:
    topic = create(dev, "acks")
    send(dev, topic, [{"value": b"x"}] * 10, acks=acks)
    assert len(read(dev, topic, 10)) == 10


def test_keys_choose_partitions(dev: Served) -> None:
    topic = create(dev, "keyed", 4)
    delivered = send(dev, topic, [{"key": b"%d" % (n % 7), "value": b""} for n in range(70)])
    assert len({(m.key(), m.partition()) for m in delivered}) == 7
    assert len({m.partition() for m in delivered}) > 1


def test_a_big_message_fits_and_a_bigger_one_is_refused(dev: Served) -> None:
    topic = create(dev, "big")
    sizes = (MESSAGE_BYTES_MAX - 200, MESSAGE_BYTES_MAX + 1)
    for size, fits in zip(sizes, (True, False), strict=True):
        (outcome,) = send(dev, topic, [{"value": b"x" * size}], message_max_bytes=10_000_000)
        if fits:
            assert outcome.offset() == 0
        else:
            assert outcome.code() == KafkaError.MSG_SIZE_TOO_LARGE
    (found,) = read(dev, topic, 1, fetch_message_max_bytes=1000)
    assert len(found.value()) == sizes[0]


def test_read_committed_sees_what_no_transaction_holds_back(dev: Served) -> None:
    topic = create(dev, "committed")
    send(dev, topic, [{"value": b"x"}] * 5)
    assert len(read(dev, topic, 5, isolation_level="read_committed")) == 5


def test_offsets_by_time_and_watermarks(dev: Served) -> None:
    topic = create(dev, "times")
    send(dev, topic, [{"value": b"x", "timestamp": 1_600_000_000_000 + n * 1000} for n in range(9)])
    consumer = open_consumer(dev)
    try:
        asked = [TopicPartition(topic, 0, 1_600_000_000_000 + 4500)]
        assert consumer.offsets_for_times(asked, timeout=WAIT_S)[0].offset == 5
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 9)
    finally:
        consumer.close()
    at = TopicPartition(topic, 0)
    specs = {
        api.OffsetSpec.earliest(): 0,
        api.OffsetSpec.latest(): 9,
        api.OffsetSpec.max_timestamp(): 8,
        api.OffsetSpec.for_timestamp(1_600_000_000_001): 1,
    }
    for spec, offset in specs.items():
        answer = admin(dev).list_offsets({at: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert results(answer)[at].offset == offset


def test_a_topic_is_created_by_use_and_unknown_where_that_is_off(dev: Served) -> None:
    topic = dev.topic("auto")
    (delivered,) = send(dev, topic, [{"value": b"x"}])
    assert delivered.offset() == 0
    nowhere = dev.topic("nowhere")
    config = {"allow_auto_create_topics": False, "topic_metadata_propagation_max_ms": 0}
    (refused,) = send(dev, nowhere, [{"value": b"x"}], **config)
    assert refused.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    described = admin(dev).describe_topics(TopicCollection([nowhere]))
    assert refusal(lambda: results(described)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_an_offset_out_of_range_is_told(dev: Served) -> None:
    topic = create(dev, "range")
    consumer = open_consumer(dev, auto_offset_reset="error")
    try:
        consumer.assign([TopicPartition(topic, 0, 100)])
        message = wait_for("an error", lambda: consumer.poll(1.0))
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_topics_are_created_described_grown_and_deleted(dev: Served) -> None:
    client = admin(dev)
    topic = create(dev, "admin", 2, config={"retention.ms": "1234"})
    assert len(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 2
    again = client.create_topics([api.NewTopic(topic, 1)])[topic]
    assert refusal(lambda: again.result(WAIT_S)) == KafkaError.TOPIC_ALREADY_EXISTS
    bad = client.create_topics([api.NewTopic(dev.topic("too-many"), 1, 9)])
    assert refusal(lambda: results(bad)) == KafkaError.INVALID_REPLICATION_FACTOR
    results(client.create_partitions([api.NewPartitions(topic, 5)]))
    described = results(client.describe_topics(TopicCollection([topic])))[topic]
    assert [each.leader.id for each in described.partitions] == [101] * 5
    fewer = client.create_partitions([api.NewPartitions(topic, 3)])
    assert refusal(lambda: results(fewer)) == KafkaError.INVALID_PARTITIONS
    results(client.delete_topics([topic]))
    assert topic not in client.list_topics(timeout=WAIT_S).topics
    gone = client.delete_topics([topic])
    assert refusal(lambda: results(gone)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_are_described_and_altered(dev: Served) -> None:
    client = admin(dev)
    topic = create(dev, "configs", config={"retention.ms": "1234"})
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic)
    assert results(client.describe_configs([resource]))[resource]["retention.ms"].value == "1234"
    change = api.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=api.AlterConfigOpType.SET
    )
    changed = api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=[change])
    results(client.incremental_alter_configs([changed]))
    found = results(client.describe_configs([resource]))[resource]
    assert found["cleanup.policy"].value == "compact"
    assert found["retention.ms"].value == "1234"
    replaced = api.ConfigResource(
        api.ResourceType.TOPIC, topic, set_config={"max.message.bytes": "5000"}
    )
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        results(client.alter_configs([replaced]))
    found = results(client.describe_configs([resource]))[resource]
    assert found["max.message.bytes"].value == "5000"
    assert found["cleanup.policy"].value == "delete"
    broker = api.ConfigResource(api.ResourceType.BROKER, "101")
    assert results(client.describe_configs([broker]))[broker]["node.id"].value == "101"
    wrong = api.ConfigEntry("no.such.thing", "1", incremental_operation=api.AlterConfigOpType.SET)
    refused = client.incremental_alter_configs(
        [api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=[wrong])]
    )
    assert refusal(lambda: results(refused)) == KafkaError.INVALID_CONFIG


def test_the_cluster_is_described(dev: Served) -> None:
    cluster = admin(dev).describe_cluster().result(WAIT_S)
    assert [node.id for node in cluster.nodes] == [101]
    assert cluster.controller.id == 101
    assert cluster.cluster_id


def test_records_are_deleted_up_to_an_offset(dev: Served) -> None:
    topic = create(dev, "delete")
    send(dev, topic, [{"value": b"%d" % n} for n in range(10)])
    at = TopicPartition(topic, 0, 4)
    (deleted,) = results(admin(dev).delete_records([at])).values()
    assert deleted.low_watermark == 4
    assert [m.offset() for m in read(dev, topic, 6)] == list(range(4, 10))
    beyond = admin(dev).delete_records([TopicPartition(topic, 0, 100)])
    assert refusal(lambda: results(beyond)) == KafkaError.OFFSET_OUT_OF_RANGE


def test_messages_are_read_while_they_come(dev: Served) -> None:
    """A waiting fetch ends when something arrives."""
    topic = create(dev, "live")
    consumer = open_consumer(dev, fetch_wait_max_ms=10_000)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert consumer.poll(0.5) is None
        send(dev, topic, [{"value": b"now"}])
        message = wait_for("a message", lambda: consumer.poll(1.0))
        assert message.value() == b"now"
    finally:
        consumer.close()


def test_replicated_topics_survive_a_broker(three: Served) -> None:
    topic = create(
        three, "replicated", 3, replication_factor=3, config={"min.insync.replicas": "2"}
    )
    sent = send(three, topic, [{"key": b"%d" % n, "value": b"x"} for n in range(60)], acks="all")
    counts = [sum(m.partition() == each for m in sent) for each in range(3)]
    assert three.processes is not None
    three.processes.stop(102)
    more = send(three, topic, [{"key": b"%d" % n, "value": b"y"} for n in range(60)], acks="all")
    assert all(hasattr(each, "offset") for each in more), more
    three.processes.start(102)
    for partition, count in enumerate(counts):
        assert len(read(three, topic, 2 * count, partition)) == 2 * count
    wait_for("everyone in sync", lambda: _in_sync(three, topic) == {3})


def _in_sync(served: Served, topic: str) -> set[int]:
    found = admin(served).list_topics(topic, timeout=WAIT_S).topics[topic]
    return {len(each.isrs) for each in found.partitions.values()}


def test_leaders_are_elected_on_request(three: Served) -> None:
    topic = create(three, "elect", 3, replication_factor=3)
    wait_for("everyone in sync", lambda: _in_sync(three, topic) == {3})
    at = TopicPartition(topic, 0)
    outcome = admin(three).elect_leaders(ElectionType.PREFERRED, [at]).result(WAIT_S)
    error = outcome[at]
    assert error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED
