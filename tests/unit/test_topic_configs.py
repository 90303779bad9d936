"""Topic configs are Kafka's, and what is wrong with a value is said in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.config_kinds import INT32_MAX, INT64_MAX
from kraftpy.dynamic_configs import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    validate_broker,
    validate_client_metrics,
    validate_group,
)
from kraftpy.errors import ConfigError
from kraftpy.topic_configs import TOPIC_CONFIGS, Synonym, parse, validate

# Names and defaults as `kafka-configs.sh --describe --all` shows them for Kafka 4.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "0",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_names_and_defaults_are_kafkas() -> None:
    described = {name: key.default for name, key in TOPIC_CONFIGS.items() if not key.internal}
    assert described == KAFKA_DEFAULTS


@pytest.mark.parametrize(
    "known", [TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS]
)
def test_every_default_is_a_legal_value_and_every_key_has_a_meaning(known: object) -> None:
    assert isinstance(known, dict)
    assert list(known) == sorted(known)
    for key in known.values():
        if key.default is not None:
            key.parse(key.default)
        assert key.meaning.endswith(".")
        assert "\n" not in key.meaning


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("preallocate", "TRUE", True),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("retention.bytes", "-5", -5),
        ("segment.bytes", str(INT32_MAX), INT32_MAX),
        ("flush.ms", f" {INT64_MAX} ", INT64_MAX),
        ("internal.segment.bytes", "100", 100),
    ],
)
def test_a_value_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value
    validate({name: text})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("min.insync.replicas", "0", "min.insync.replicas must be a whole number from 1 to"),
        ("min.insync.replicas", "two", "not 'two'"),
        ("cleanup.policy", "shred", "a list, without repetition, of compact, delete"),
        ("cleanup.policy", "delete,delete", "without repetition"),
        ("compression.gzip.level", "0", "-1, or a whole number from 1 to 9"),
        ("compression.type", "ZSTD", "one of uncompressed, zstd"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("preallocate", "yes", "true or false"),
        ("leader.replication.throttled.replicas", "0:1,*", "* or PARTITION:BROKER"),
        ("segment.bytes", "1024", "from 1048576"),
        ("segment.bytes", str(INT32_MAX + 1), "must be"),
        ("retention.ms", "-2", "from -1"),
        ("retention.sm", "1", "unknown topic config 'retention.sm'"),
        ("remote.storage.enable", "true", "tiered storage is not supported"),
    ],
)
def test_what_kafka_refuses_is_refused_in_one_line(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate({name: text})
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_lag_that_contradicts_the_other_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(10\) is above"):
        validate({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    validate({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"})


def refusal_of(name: str, text: str) -> str:
    try:
        parse(name, text)
    except ConfigError as refusal:
        return str(refusal)
    return ""


@given(st.text())
def test_no_text_does_worse_than_a_refusal_of_bounded_length(text: str) -> None:
    for name in TOPIC_CONFIGS:
        assert len(refusal_of(name, text)) < 1000
    if text not in TOPIC_CONFIGS:
        with pytest.raises(ConfigError):
            parse(text, "1")


def test_synonyms_are_kafkas_and_convert_units() -> None:
    keys = [synonym.key for synonym in TOPIC_CONFIGS["retention.ms"].synonyms]
    assert keys == ["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
    hours = TOPIC_CONFIGS["retention.ms"].synonyms[2]
    assert hours.converted("168") == TOPIC_CONFIGS["retention.ms"].default
    assert hours.converted("-1") == "-1"
    assert hours.converted("soon") == "soon"
    assert TOPIC_CONFIGS["segment.ms"].synonyms[0] == Synonym("log.roll.ms")
    assert [s.key for s in TOPIC_CONFIGS["max.message.bytes"].synonyms] == ["message.max.bytes"]


def test_broker_configs_are_the_dynamic_ones() -> None:
    validate_broker({"log.retention.ms": "1000", "num.io.threads": "4", "min.insync.replicas": "2"})
    with pytest.raises(ConfigError, match="read at the start"):
        validate_broker({"node.id": "2"})
    with pytest.raises(ConfigError, match="read at the start"):
        validate_broker({"log.retention.hours": "1"})
    with pytest.raises(ConfigError, match=r"unknown broker config 'retention\.ms'"):
        validate_broker({"retention.ms": "1"})
    with pytest.raises(ConfigError, match=r"num\.io\.threads must be"):
        validate_broker({"num.io.threads": "0"})


def test_group_and_client_metrics_configs_are_checked() -> None:
    validate_group({"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "earliest"})
    with pytest.raises(ConfigError, match="unknown group config"):
        validate_group({"session": "1"})
    validate_client_metrics(
        {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*, client_software_name=x"}
    )
    for name, text in (("interval.ms", "99"), ("match", "client=a"), ("match", "client_id=(")):
        with pytest.raises(ConfigError, match=f"{name} must be"):
            validate_client_metrics({name: text})
