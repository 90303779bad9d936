"""kafka-python against kraftpy."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.interop.clusters import MESSAGE_BYTES_MAX, Served, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of its own imports.
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        AlterConfigOp,
        ConfigResource,
        ConfigResourceType,
        NewPartitions,
        NewTopic,
        OffsetSpec,
    )
    from kafka.errors import (
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

CLIENT = "kafka-python"
WAIT_S = 60


@pytest.fixture(scope="module")
def _admins() -> Iterator[dict[str, Any]]:
    admins: dict[str, Any] = {}
    yield admins
    for each in admins.values():
        each.close()


@pytest.fixture
def admin(dev: Served, _admins: dict[str, Any]) -> Any:
    if dev.bootstrap not in _admins:
        _admins[dev.bootstrap] = KafkaAdminClient(
            bootstrap_servers=dev.bootstrap.split(","), client_id=CLIENT
        )
    return _admins[dev.bootstrap]


def create(admin: Any, served: Served, name: str, partitions: int = 1, **more: Any) -> str:
    topic = served.topic(name)
    admin.create_topics([NewTopic(topic, partitions, 1, **more)])
    return topic


def send(served: Served, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[Any]:
    producer = KafkaProducer(
        bootstrap_servers=served.bootstrap, client_id=CLIENT, max_request_size=10_000_000, **config
    )
    with closing(producer):
        futures = [producer.send(topic, **message) for message in messages]
        return [future.get(WAIT_S) for future in futures]


def read(served: Served, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=served.bootstrap,
        client_id=CLIENT,
        group_id=None,
        auto_offset_reset="earliest",
        **config,
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        found: list[Any] = []

        def enough() -> bool:
            for messages in consumer.poll(1000).values():
                found.extend(messages)
            return len(found) >= count

        wait_for(f"{count} messages", enough)
        return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_was_sent_comes_back_with_keys_and_headers(
    dev: Served, admin: Any, codec: str | None
) -> None:
    topic = create(admin, dev, f"kp-{codec}")
    messages = [
        {
            "key": b"k%d" % n if n % 3 else None,
            "value": b"v%d" % n * 20 if n % 5 or not n % 3 else None,
            "headers": [("a", b"1"), ("n", b"%d" % n)],
            "timestamp_ms": 1_700_000_000_000 + n,
        }
        for n in range(50)
    ]
    sent = send(dev, topic, messages, compression_type=codec, linger_ms=20)
    assert [each.offset for each in sent] == list(range(50))
    found = read(dev, topic, 50)
    assert [(m.key, m.value, list(m.headers), m.timestamp) for m in found] == [
        (m["key"], m["value"], m["headers"], m["timestamp_ms"]) for m in messages
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acks(dev: Served, admin: Any, acks: Any) -> None:
    topic = create(admin, dev, "kp-acks")
    send(dev, topic, [{"value": b"x"}] * 5, acks=acks, enable_idempotence=False)
    assert len(read(dev, topic, 5)) == 5


def test_a_big_message_fits_and_a_bigger_one_is_refused(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-big")
    assert send(dev, topic, [{"value": b"x" * (MESSAGE_BYTES_MAX - 200)}])[0].offset == 0
    with pytest.raises(MessageSizeTooLargeError):
        send(dev, topic, [{"value": b"x" * (MESSAGE_BYTES_MAX + 1)}])
    assert len(read(dev, topic, 1)[0].value) == MESSAGE_BYTES_MAX - 200


def test_read_committed(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-committed")
    send(dev, topic, [{"value": b"x"}] * 3)
    assert len(read(dev, topic, 3, isolation_level="read_committed")) == 3


def test_a_topic_is_created_by_use(dev: Served) -> None:
    assert send(dev, dev.topic("kp-auto"), [{"value": b"x"}])[0].offset == 0


def test_offsets_by_time(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-times")
    first = 1_600_000_000_000
    send(dev, topic, [{"value": b"x", "timestamp_ms": first + n * 1000} for n in range(9)])
    at = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=dev.bootstrap, client_id=CLIENT, group_id=None)
    with closing(consumer):
        assert consumer.offsets_for_times({at: first + 4500})[at].offset == 5
        assert consumer.offsets_for_times({at: first + 9500})[at] is None
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.end_offsets([at]) == {at: 9}
    expected = {OffsetSpec.EARLIEST: 0, OffsetSpec.LATEST: 9, OffsetSpec.MAX_TIMESTAMP: 8}
    for spec, offset in expected.items():
        assert admin.list_partition_offsets({at: spec})[at].offset == offset


def test_topics_are_created_described_grown_and_deleted(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-admin", 2, topic_configs={"retention.ms": "1234"})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    admin.create_partitions({topic: NewPartitions(5)})
    found = admin.describe_topic_partitions([topic])
    assert len(found["topics"][0]["partitions"]) == 5
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_configs_are_described_and_altered(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-configs", topic_configs={"retention.ms": "1234"})

    def values() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (found,) = admin.describe_configs([resource], config_filter="all")["topic"].values()
        return {name: each["value"] for name, each in found.items()}

    assert values()["retention.ms"] == "1234"
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "compact"})]
    )
    assert values()["cleanup.policy"] == "compact"
    assert values()["retention.ms"] == "1234"
    gone = {"retention.ms": (AlterConfigOp.DELETE, None)}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, gone)])
    assert values()["retention.ms"] == "604800000"
    wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"no.such.thing": "1"})
    answer = admin.alter_configs([wrong], raise_on_unknown=False)
    assert "InvalidConfigurationError" in str(answer)


def test_the_cluster_and_its_disks_are_described(dev: Served, admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert [each["broker_id"] for each in cluster["brokers"]] == [101]
    topic = create(admin, dev, "kp-dirs", 2)
    dirs = admin.describe_log_dirs()
    names = {each["name"] for broker in dirs for d in broker["log_dirs"] for each in d["topics"]}
    assert topic in names
    assert admin.describe_features()
    assert admin.describe_metadata_quorum()
    assert admin.list_config_resources()


def test_records_are_deleted_up_to_an_offset(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-delete")
    send(dev, topic, [{"value": b"%d" % n} for n in range(10)])
    at = TopicPartition(topic, 0)
    assert admin.delete_records({at: 4})[at]["low_watermark"] == 4
    assert [m.offset for m in read(dev, topic, 6)] == list(range(4, 10))
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({at: 100})


def test_leaders_and_reassignments(dev: Served, admin: Any) -> None:
    topic = create(admin, dev, "kp-elect")
    at = TopicPartition(topic, 0)
    admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    admin.alter_partition_reassignments({at: [101]})
    assert not admin.list_partition_reassignments()
