"""What configs the other resources may have: brokers, groups, client metrics subscriptions. Pure.

A broker's config can be changed while it runs only if it is in BROKER_CONFIGS: the names are
Kafka's dynamic ones, those that decide topics' defaults among them. What Settings
(kraftpy/config.py) has beyond that is read when a process starts, and a change of it is refused
here rather than kept and ignored.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from kraftpy.config import SETTINGS, shown
from kraftpy.config_kinds import (
    INT32_MAX,
    INT64_MAX,
    Kind,
    any_text,
    list_matching,
    one_of_exactly,
    real_number,
    true_or_false,
    whole_number,
)
from kraftpy.errors import ConfigError
from kraftpy.topic_configs import TOPIC_CONFIGS, ConfigKey, table

# Kafka's resource types beside topic (2) and broker (4).
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

_DOUBLE_MAX: Final = 1.7976931348623157e308
# What a broker is started with and what nobody is shown.
SENSITIVE_SETTINGS: Final = frozenset({"quorum.auth.secret"})


def _config(name: str, kind: Kind[Any], default: object, meaning: str) -> ConfigKey:
    return ConfigKey(name=name, kind=kind, default=str(default), meaning=meaning)


def _positive() -> Kind[int]:
    return whole_number(1, INT32_MAX)


def _topic_defaults() -> dict[str, ConfigKey]:
    """The strongest synonym of each topic config: setting it changes every topic's default."""
    return {
        key.synonyms[0].key: ConfigKey(
            name=key.synonyms[0].key, kind=key.kind, default=key.default, meaning=key.meaning
        )
        for key in TOPIC_CONFIGS.values()
        if key.synonyms
    }


BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = table(
    (
        *_topic_defaults().values(),
        _config("background.threads", _positive(), 10, "Threads for background work."),
        _config(
            "follower.replication.throttled.rate",
            whole_number(0, INT64_MAX),
            INT64_MAX,
            "Bytes per second that throttled replicas of this broker fetch.",
        ),
        _config(
            "leader.replication.throttled.rate",
            whole_number(0, INT64_MAX),
            INT64_MAX,
            "Bytes per second that this broker sends to throttled replicas.",
        ),
        _config(
            "log.cleaner.backoff.ms",
            whole_number(0, INT64_MAX),
            15_000,
            "How long compaction sleeps when there is nothing to compact.",
        ),
        _config(
            "log.cleaner.dedupe.buffer.size",
            whole_number(1, INT64_MAX),
            128 * 1024**2,
            "Memory for the keys of a compaction.",
        ),
        _config(
            "log.cleaner.io.max.bytes.per.second",
            real_number(0, _DOUBLE_MAX),
            _DOUBLE_MAX,
            "Bytes per second that compaction reads and writes.",
        ),
        _config("log.cleaner.threads", whole_number(0, INT32_MAX), 1, "Threads that compact."),
        _config(
            "max.connection.creation.rate",
            whole_number(0, INT32_MAX),
            INT32_MAX,
            "New connections per second.",
        ),
        _config("max.connections", whole_number(0, INT32_MAX), INT32_MAX, "Connections in all."),
        _config(
            "max.connections.per.ip",
            whole_number(0, INT32_MAX),
            INT32_MAX,
            "Connections from one address.",
        ),
        _config(
            "max.connections.per.ip.overrides",
            any_text("HOST:COUNT, separated by commas"),
            "",
            "Connections from certain addresses.",
        ),
        _config("num.io.threads", _positive(), 8, "Threads that handle requests."),
        _config("num.network.threads", _positive(), 3, "Threads that read and write sockets."),
        _config("num.recovery.threads.per.data.dir", _positive(), 2, "Threads that recover logs."),
        _config("num.replica.fetchers", _positive(), 1, "Fetchers per other broker."),
        _config(
            "producer.id.expiration.ms",
            _positive(),
            86_400_000,
            "How long an idle producer's state is kept.",
        ),
        _config(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            whole_number(0, INT64_MAX),
            INT64_MAX,
            "Bytes per second at which replicas move between directories.",
        ),
        _config(
            "transaction.partition.verification.enable",
            true_or_false(),
            "true",
            "Whether a transaction's partitions are verified at Produce.",
        ),
    )
)

GROUP_CONFIGS: Final[Mapping[str, ConfigKey]] = table(
    (
        _config(
            "consumer.heartbeat.interval.ms",
            whole_number(5_000, 15_000),
            5_000,
            "How often members of a consumer group report.",
        ),
        _config(
            "consumer.session.timeout.ms",
            whole_number(45_000, 60_000),
            45_000,
            "After how long a silent member of a consumer group is removed.",
        ),
        _config(
            "share.auto.offset.reset",
            one_of_exactly("latest", "earliest"),
            "latest",
            "Where a share group begins.",
        ),
        _config(
            "share.heartbeat.interval.ms",
            whole_number(5_000, 15_000),
            5_000,
            "How often members of a share group report.",
        ),
        _config(
            "share.isolation.level",
            one_of_exactly("read_committed", "read_uncommitted"),
            "read_uncommitted",
            "Whether a share group sees records of open transactions.",
        ),
        _config(
            "share.record.lock.duration.ms",
            whole_number(15_000, 60_000),
            30_000,
            "How long a record belongs to the consumer that acquired it.",
        ),
        _config(
            "share.session.timeout.ms",
            whole_number(45_000, 60_000),
            45_000,
            "After how long a silent member of a share group is removed.",
        ),
        _config(
            "streams.heartbeat.interval.ms",
            whole_number(5_000, 15_000),
            5_000,
            "How often members of a streams group report.",
        ),
        _config(
            "streams.num.standby.replicas",
            whole_number(0, 2),
            0,
            "Standby replicas of each task of a streams group.",
        ),
        _config(
            "streams.session.timeout.ms",
            whole_number(45_000, 60_000),
            45_000,
            "After how long a silent member of a streams group is removed.",
        ),
    )
)

_CLIENT_FIELDS: Final = (
    "client_instance_id|client_id|client_software_name|client_software_version"
    "|client_source_address|client_source_port"
)


def _client_patterns() -> Kind[tuple[str, ...]]:
    fields = list_matching(rf"({_CLIENT_FIELDS})\s*=[^=]+", "FIELD=PATTERN, separated by commas")

    def parse(text: str) -> tuple[str, ...]:
        found = fields.parse(text)
        for item in found:
            try:
                re.compile(item.partition("=")[2].strip())
            except (re.error, OverflowError, RecursionError):
                raise ValueError from None
        return found

    return Kind(name="list", allowed=fields.allowed, parse=parse)


CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigKey]] = table(
    (
        _config(
            "interval.ms",
            whole_number(100, 3_600_000),
            300_000,
            "How often clients push the metrics (KIP-714).",
        ),
        _config("match", _client_patterns(), "", "Which clients push them; empty: all."),
        _config(
            "metrics",
            list_matching(r"[^\s]*", "prefixes of metrics, separated by commas, or *"),
            "",
            "Which metrics clients push, by prefix.",
        ),
    )
)

_STARTED_WITH: Final = frozenset(setting.key for setting in SETTINGS)


def validate_broker(configs: Mapping[str, str]) -> None:
    """Whether a broker, or all of them, may be given these configs while they run."""
    for name, text in configs.items():
        key = BROKER_CONFIGS.get(name)
        if key is not None:
            key.parse(text)
        elif name in _STARTED_WITH:
            raise ConfigError(f"{name} is read at the start and cannot be changed dynamically")
        else:
            raise ConfigError(f"unknown broker config {shown(name)}")


def validate_group(configs: Mapping[str, str]) -> None:
    """Group configs; Kafka's bounds for timeouts and intervals keep them in order."""
    _validate(GROUP_CONFIGS, "group", configs)


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    _validate(CLIENT_METRICS_CONFIGS, "client metrics", configs)


def _validate(known: Mapping[str, ConfigKey], what: str, configs: Mapping[str, str]) -> None:
    for name, text in configs.items():
        if name not in known:
            raise ConfigError(f"unknown {what} config {shown(name)}")
        known[name].parse(text)
