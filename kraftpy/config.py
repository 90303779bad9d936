"""Every setting: its name, type, default, bounds and meaning, and how one value is chosen.

Names, units and defaults are Kafka's where Kafka has the setting. A value is taken from a flag,
else from the environment, else from the config file, else it is the default. What a source says
is checked even where a stronger source wins, so a typing mistake never waits for its turn.

Some times have a key per unit: log.retention.ms, .minutes, .hours. Within a source the finest one
wins, as in Kafka; but a stronger source wins over all units of a weaker one, so a flag in hours
is not undone by milliseconds in a forgotten file. `retention_ms` and `roll_ms` give the result.

This module reads nothing: callers hand it what the sources say (kraftpy/config_files.py for files,
kraftpy/cli/settings.py for the rest). What it refuses, it refuses with a ConfigError of one line
that names the key, where it came from and, for an unknown key, the nearest one that exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from kraftpy.config_broker import BrokerSettings
from kraftpy.config_kinds import (
    INT32_MAX,
    INT64_MAX,
    any_text,
    file_path,
    one_of,
    time_or_no_limit,
    true_or_false,
    whole_number,
)
from kraftpy.config_rows import ENVIRONMENT_PREFIX, Setting
from kraftpy.config_rows import setting as _setting
from kraftpy.config_rows import unset as _unset
from kraftpy.errors import ConfigError

T = TypeVar("T")

CONFIG_FILE_VARIABLE: Final = "KRAFTPY_CONFIG"  # Names the config file; not a setting itself.
BOOTSTRAP_VARIABLE: Final = "KRAFTPY_BOOTSTRAP_SERVER"  # For the commands that are clients.
_NOT_SETTINGS: Final = (CONFIG_FILE_VARIABLE, BOOTSTRAP_VARIABLE)
METADATA_PARTITION: Final = "__cluster_metadata-0"

_INT16_MAX: Final = 2**15 - 1
_SHOWN_CHARACTERS_MAX: Final = 60
_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
_LIKELY_SIMILARITY: Final = 0.6


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, not yet checked, and where they gave it."""

    key: str
    text: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(BrokerSettings):
    """The values in force. Each field is its key with `_` for `.`; SETTINGS is made from these."""

    data_dir: str = _setting(
        "data.dir",
        file_path(),
        "",
        "Where everything is kept. Empty: `kraftpy dev` uses a temporary directory.",
    )
    node_id: int | None = _unset(
        "node.id",
        whole_number(0, INT32_MAX),
        "The number of this node; no other node of the cluster has it.",
    )
    cluster_id: str = _setting(
        "cluster.id",
        any_text("a UUID in Kafka's text form, or empty"),
        "",
        "The cluster that a new data directory will belong to. Empty: it follows from the voters.",
    )
    controller_quorum_voters: str = _setting(
        "controller.quorum.voters",
        any_text("ID@HOST:PORT, separated by commas, or empty"),
        "",
        "Every controller and its address. Empty: this node is the only one.",
    )
    listeners: str = _setting(
        "listeners",
        any_text("CONTROLLER://HOST:PORT, or empty"),
        "",
        "Where this node listens. Empty: at its own address among the voters.",
    )
    admin_listeners: str = _setting(
        "admin.listeners",
        any_text("HOST:PORT, none, or empty"),
        "",
        "Where health, metrics and the dashboard are served. Empty: at 127.0.0.1:9644, or at any "
        "free port if that is taken; `none`: nowhere.",
    )
    controller_quorum_election_timeout_ms: int = _setting(
        "controller.quorum.election.timeout.ms",
        whole_number(50, INT32_MAX),
        300,
        "A controller that hears of no leader for one to two times this stands for election.",
    )
    quorum_auth_secret: str = _setting(
        "quorum.auth.secret",
        any_text("text, or empty"),
        "",
        "What controllers prove to each other that they know. Needed beyond loopback; better in "
        "quorum.auth.secret-file or in the environment than on a command line.",
    )
    quorum_auth_secret_file: str = _setting(
        "quorum.auth.secret-file",
        file_path(),
        "",
        "A file whose first line is the secret.",
    )
    quorum_ssl_ca: str = _setting(
        "quorum.ssl.ca",
        file_path(),
        "",
        "Certificates (PEM) that controllers must be signed by. With cert and key: mutual TLS.",
    )
    quorum_ssl_cert: str = _setting(
        "quorum.ssl.cert",
        file_path(),
        "",
        "This controller's certificate (PEM).",
    )
    quorum_ssl_key: str = _setting(
        "quorum.ssl.key",
        file_path(),
        "",
        "The key (PEM) of this controller's certificate.",
    )
    metadata_log_dir: str = _setting(
        "metadata.log.dir",
        file_path(),
        "",
        f"Where the metadata log's directory {METADATA_PARTITION} is kept. Empty: data.dir.",
    )
    metadata_log_segment_bytes: int = _setting(
        "metadata.log.segment.bytes",
        whole_number(1024, INT32_MAX),
        1024**3,
        "A metadata log segment that would grow beyond this is closed and a new one begun.",
    )
    metadata_log_segment_ms: int = _setting(
        "metadata.log.segment.ms",
        whole_number(1, INT64_MAX),
        7 * 24 * _HOUR_MS,
        "A metadata log segment older than this is closed at the next append.",
    )
    metadata_max_retention_bytes: int = _setting(
        "metadata.max.retention.bytes",
        whole_number(-1, INT64_MAX),
        100 * 1024**2,
        "Old metadata log and snapshots beyond this size are deleted, once a newer snapshot "
        "covers them; -1: no limit.",
    )
    metadata_max_retention_ms: int = _setting(
        "metadata.max.retention.ms",
        whole_number(-1, INT64_MAX),
        7 * 24 * _HOUR_MS,
        "Old metadata log and snapshots beyond this age are deleted, once a newer snapshot "
        "covers them; -1: no limit.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = _setting(
        "metadata.log.max.record.bytes.between.snapshots",
        whole_number(1, INT64_MAX),
        20 * 1024**2,
        "A snapshot is written after this many bytes of new metadata records.",
    )
    metadata_log_max_snapshot_interval_ms: int = _setting(
        "metadata.log.max.snapshot.interval.ms",
        whole_number(0, INT64_MAX),
        _HOUR_MS,
        "A snapshot is written when there are new records and the last one is this old; 0: never.",
    )
    metadata_max_idle_interval_ms: int = _setting(
        "metadata.max.idle.interval.ms",
        whole_number(0, INT32_MAX),
        500,
        "The active controller writes a no-op record when the log is idle for this long; 0: never.",
    )
    broker_session_timeout_ms: int = _setting(
        "broker.session.timeout.ms",
        whole_number(1, INT32_MAX),
        9000,
        "A broker that sends no heartbeat for longer than this is fenced.",
    )
    broker_heartbeat_interval_ms: int = _setting(
        "broker.heartbeat.interval.ms",
        whole_number(1, INT32_MAX),
        2000,
        "How often a broker tells the active controller that it is alive.",
    )
    initial_broker_registration_timeout_ms: int = _setting(
        "initial.broker.registration.timeout.ms",
        whole_number(1, INT32_MAX),
        60_000,
        "A broker that cannot register for this long stops.",
    )
    max_request_partition_size_limit: int = _setting(
        "max.request.partition.size.limit",
        whole_number(1, INT32_MAX),
        2000,
        "The most partitions in one answer that describes topics; the rest is asked for in turn.",
    )
    num_partitions: int = _setting(
        "num.partitions",
        whole_number(1, INT32_MAX),
        1,
        "Partitions of a topic whose creator does not say how many.",
    )
    default_replication_factor: int = _setting(
        "default.replication.factor",
        whole_number(1, _INT16_MAX),
        1,
        "Replicas of each partition of a topic whose creator does not say how many.",
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas",
        whole_number(1, INT32_MAX),
        1,
        "Replicas that must be in sync for a write with acks=all, where a topic does not say.",
    )
    replica_lag_time_max_ms: int = _setting(
        "replica.lag.time.max.ms",
        whole_number(1, INT64_MAX),
        30_000,
        "A follower that has not caught up with its leader for longer than this is out of sync.",
    )
    unclean_leader_election_enable: bool = _setting(
        "unclean.leader.election.enable",
        true_or_false(),
        False,
        "Whether a replica that is not in sync may lead, at the price of losing records, where a "
        "topic does not say.",
    )
    unclean_leader_election_interval_ms: int = _setting(
        "unclean.leader.election.interval.ms",
        whole_number(1, INT64_MAX),
        5 * _MINUTE_MS,
        "How often partitions without a leader are looked at again for an unclean election.",
    )
    auto_leader_rebalance_enable: bool = _setting(
        "auto.leader.rebalance.enable",
        true_or_false(),
        True,
        "Whether leadership goes back to preferred replicas by itself.",
    )
    leader_imbalance_check_interval_seconds: int = _setting(
        "leader.imbalance.check.interval.seconds",
        whole_number(1, INT32_MAX),
        300,
        "How often it is looked whether leadership is balanced.",
    )
    leader_imbalance_per_broker_percentage: int = _setting(
        "leader.imbalance.per.broker.percentage",
        whole_number(0, INT32_MAX),
        10,
        "Leadership goes back to a broker that lost more than this part of what it should lead.",
    )
    log_segment_bytes: int = _setting(
        "log.segment.bytes",
        whole_number(1024, INT32_MAX),
        1024**3,
        "A log segment that would grow beyond this is closed and a new one begun.",
    )
    log_roll_ms: int | None = _unset(
        "log.roll.ms",
        whole_number(1, INT64_MAX),
        "A log segment older than this is closed at the next append. Unset: log.roll.hours.",
    )
    log_roll_hours: int = _setting(
        "log.roll.hours",
        whole_number(1, INT32_MAX),
        168,
        "The same in hours.",
    )
    log_index_interval_bytes: int = _setting(
        "log.index.interval.bytes",
        whole_number(0, INT32_MAX),
        4096,
        "One index entry is written for about this many bytes of log.",
    )
    log_index_size_max_bytes: int = _setting(
        "log.index.size.max.bytes",
        whole_number(12, INT32_MAX),
        10 * 1024**2,
        "A segment whose offset or time index reaches this size is closed.",
    )
    log_retention_bytes: int = _setting(
        "log.retention.bytes",
        whole_number(-1, INT64_MAX),
        -1,
        "Whole segments are deleted, oldest first, while a log is larger; -1: no limit.",
    )
    log_retention_ms: int | None = _unset(
        "log.retention.ms",
        time_or_no_limit(INT64_MAX),
        "A segment is deleted when its newest record is older than this; -1: no limit. "
        "Unset: log.retention.minutes.",
    )
    log_retention_minutes: int | None = _unset(
        "log.retention.minutes",
        time_or_no_limit(INT32_MAX),
        "The same in minutes. Unset: log.retention.hours.",
    )
    log_retention_hours: int = _setting(
        "log.retention.hours",
        time_or_no_limit(INT32_MAX),
        168,
        "The same in hours.",
    )
    log_flush_interval_messages: int = _setting(
        "log.flush.interval.messages",
        whole_number(1, INT64_MAX),
        INT64_MAX,
        "fsync a data log after this many records. The default leaves durability to replication.",
    )
    log_flush_interval_ms: int = _setting(
        "log.flush.interval.ms",
        whole_number(0, INT64_MAX),
        INT64_MAX,
        "fsync a data log when its oldest unsynced record is this old.",
    )
    message_max_bytes: int = _setting(
        "message.max.bytes",
        whole_number(0, INT32_MAX),
        1024**2 + 12,
        "The largest record batch that a data log accepts.",
    )
    socket_request_max_bytes: int = _setting(
        "socket.request.max.bytes",
        whole_number(1, INT32_MAX),
        100 * 1024**2,
        "The largest request that a broker accepts.",
    )
    queued_max_request_bytes: int = _setting(
        "queued.max.request.bytes",
        whole_number(-1, INT64_MAX),
        -1,
        "Large requests that arrive at a time take this much memory in all; -1: 512 MiB.",
    )
    max_connections: int = _setting(
        "max.connections",
        whole_number(0, INT32_MAX),
        INT32_MAX,
        "Connections to a broker that are open at a time.",
    )
    max_connections_per_ip: int = _setting(
        "max.connections.per.ip",
        whole_number(0, INT32_MAX),
        INT32_MAX,
        "The same from one address.",
    )
    connections_max_idle_ms: int = _setting(
        "connections.max.idle.ms",
        whole_number(-1, INT64_MAX),
        10 * _MINUTE_MS,
        "A connection on which nothing happens for this long is closed; -1: never.",
    )
    logging_format: str = _setting(
        "logging.format",
        one_of("auto", "text", "json"),
        "auto",
        "How events are written to stderr; auto: text on a terminal, JSON elsewhere.",
    )
    logging_level: str = _setting(
        "logging.level",
        one_of("debug", "info", "warning", "error", "critical"),
        "info",
        "The least severe event that is written.",
    )


SETTINGS: Final[tuple[Setting, ...]] = tuple(f.metadata["setting"] for f in fields(Settings))
_BY_KEY: Final[Mapping[str, Setting]] = {setting.key: setting for setting in SETTINGS}


def metadata_directory(settings: Settings) -> str:
    """The directory of the metadata log itself; data.dir or metadata.log.dir must be set."""
    parent = settings.metadata_log_dir or settings.data_dir
    assert parent, "the caller chooses a data directory first"
    return f"{parent.rstrip('/')}/{METADATA_PARTITION}"


def roll_ms(settings: Settings) -> int:
    """How old a data segment may become, from the finest unit that is set."""
    if settings.log_roll_ms is not None:
        return settings.log_roll_ms
    return settings.log_roll_hours * _HOUR_MS


def retention_ms(settings: Settings) -> int:
    """How long data is kept, from the finest unit that is set; -1: no limit."""
    if settings.log_retention_ms is not None:
        return settings.log_retention_ms
    if settings.log_retention_minutes is not None:
        return max(-1, settings.log_retention_minutes * _MINUTE_MS)
    return max(-1, settings.log_retention_hours * _HOUR_MS)


def resolve(*layers: Iterable[Given]) -> Settings:
    """The settings that `layers` agree on, the strongest layer first; all of them are checked."""
    chosen: dict[str, Any] = {}
    decided: set[str] = set()
    for layer in layers:
        values = _check_layer(layer)
        for setting, value in values.items():
            if setting.subject not in decided:
                chosen[setting.attribute] = value
        decided |= {setting.subject for setting in values}
    return Settings(**chosen)


def _check_layer(layer: Iterable[Given]) -> dict[Setting, Any]:
    values: dict[Setting, Any] = {}
    origins: dict[str, str] = {}
    for given in layer:
        setting = _find(given)
        if given.key in origins:
            raise ConfigError(
                f"{given.key} is set twice: {origins[given.key]} and {given.origin}; remove one"
            )
        origins[given.key] = given.origin
        values[setting] = _parse(setting, given)
    return values


def _find(given: Given) -> Setting:
    try:
        return _BY_KEY[given.key]
    except KeyError:
        raise ConfigError(
            f"{given.origin}: unknown setting {shown(given.key)}; "
            f"{_advice(given.key.lower(), list(_BY_KEY))}"
        ) from None


def _parse(setting: Setting, given: Given) -> Any:
    try:
        return setting.kind.parse(given.text.strip())
    except ValueError:
        raise ConfigError(
            f"{given.origin}: {setting.key} must be {setting.kind.allowed}, not {shown(given.text)}"
        ) from None


def _advice(wrong: str, names: list[str]) -> str:
    wrong = wrong[:_SHOWN_CHARACTERS_MAX]  # Similarity takes time with the square of the length.
    if near := get_close_matches(wrong, names, n=1, cutoff=_LIKELY_SIMILARITY):
        return f"did you mean {near[0]}?"
    nearest = get_close_matches(wrong, names, n=1, cutoff=0)
    return f"the nearest is {nearest[0]}, `kraftpy config list` shows all"


def shown(text: str) -> str:
    """The text on one line and of bounded length, whatever is in it."""
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "..."
    return ascii(text)


def from_environment(environment: Mapping[str, str]) -> tuple[Given, ...]:
    """What the KRAFTPY_ variables say; one that sets nothing is an error, not a surprise."""
    keys = {setting.environment_name: setting.key for setting in SETTINGS}
    given = []
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_SETTINGS:
            continue
        if name not in keys:
            raise ConfigError(
                f"environment variable {shown(name)} sets nothing; "
                f"{_advice(name, [*keys, *_NOT_SETTINGS])}"
            )
        given.append(Given(keys[name], environment[name], f"environment variable {name}"))
    return tuple(given)


def from_assignment(text: str, origin: str) -> Given:
    """A `key=value`, as --set takes it."""
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"{origin}: expected key=value, not {shown(text)}")
    return Given(key.strip(), value.strip(), origin)
