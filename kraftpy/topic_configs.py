"""Every config that a topic may have: Kafka 4's names, types, defaults and ranges. Pure.

A topic's value is its own, else that of the first broker-level synonym that is set (dynamically
for all brokers, else in a broker's settings), else the default. Values are kept as the text that
was given, as Kafka keeps them; `parse` reads one and `validate` judges all of a topic's together.

What is not here is refused by name: a typing mistake must not pass for a setting. Tiered storage
is not supported: its configs are known, so that descriptions are complete, but it cannot be
turned on.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftpy.config_kinds import (
    INT32_MAX,
    INT64_MAX,
    Kind,
    either,
    exactly,
    items,
    list_matching,
    list_of,
    one_of_exactly,
    real_number,
    true_or_false,
    whole_number,
)
from kraftpy.errors import ConfigError

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_SHOWN_CHARACTERS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker-level key that decides where a topic has no value, and what its unit is worth."""

    key: str
    factor: int = 1

    def converted(self, text: str) -> str:
        """The value as the topic config has it."""
        if self.factor == 1:
            return text
        try:
            return str(max(-1, int(text) * self.factor))
        except ValueError:
            return text  # A log written by others may hold anything.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One config of a resource."""

    name: str
    kind: Kind[Any]
    default: str | None  # As text; None: not set.
    meaning: str
    synonyms: tuple[Synonym, ...] = ()  # The strongest first.
    internal: bool = False  # Accepted, never described.

    @property
    def is_list(self) -> bool:
        return self.kind.name == "list"

    @property
    def is_sensitive(self) -> bool:
        return self.kind.name == "password"

    def parse(self, text: str) -> Any:
        try:
            return self.kind.parse(text.strip())
        except ValueError:
            raise ConfigError(
                f"{self.name} must be {self.kind.allowed}, not {_shown(text)}"
            ) from None


def table(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """By name, in alphabetical order."""
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}


def _from(*keys: str) -> tuple[Synonym, ...]:
    factors = {"hours": _HOUR_MS, "minutes": _MINUTE_MS}
    return tuple(Synonym(key, factors.get(key.rpartition(".")[2], 1)) for key in keys)


def _config(name: str, kind: Kind[Any], default: object, meaning: str, *synonyms: str) -> ConfigKey:
    return ConfigKey(
        name=name, kind=kind, default=str(default), meaning=meaning, synonyms=_from(*synonyms)
    )


def _at_least(minimum: int) -> Kind[int]:
    return whole_number(minimum, INT64_MAX)


def _int_at_least(minimum: int) -> Kind[int]:
    return whole_number(minimum, INT32_MAX)


def _replica_list() -> Kind[tuple[str, ...]]:
    """`*`, or PARTITION:BROKER, separated by commas."""
    pairs = list_matching(r"([0-9]+:[0-9]+)?", "* or PARTITION:BROKER, separated by commas")

    def parse(text: str) -> tuple[str, ...]:
        return ("*",) if items(text) == ("*",) else pairs.parse(text)

    return Kind(name="list", allowed=pairs.allowed, parse=parse)


_ROWS: Final = (
    _config(
        "cleanup.policy",
        list_of("compact", "delete"),
        "delete",
        "What happens to old segments: deleted, compacted, both, or (an empty list) neither.",
        "log.cleanup.policy",
    ),
    _config(
        "compression.gzip.level",
        either(exactly(-1), whole_number(1, 9)),
        -1,
        "The level if compression.type is gzip; -1: the library's.",
        "compression.gzip.level",
    ),
    _config(
        "compression.lz4.level",
        whole_number(1, 17),
        9,
        "The level if compression.type is lz4.",
        "compression.lz4.level",
    ),
    _config(
        "compression.type",
        one_of_exactly("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "How batches are kept; producer: as they came.",
        "compression.type",
    ),
    _config(
        "compression.zstd.level",
        whole_number(-131072, 22),
        3,
        "The level if compression.type is zstd.",
        "compression.zstd.level",
    ),
    _config(
        "delete.retention.ms",
        _at_least(0),
        _DAY_MS,
        "How long a compacted topic keeps the mark that a key was deleted.",
        "log.cleaner.delete.retention.ms",
    ),
    _config(
        "file.delete.delay.ms",
        _at_least(0),
        _MINUTE_MS,
        "How long a deleted segment stays on disk.",
        "log.segment.delete.delay.ms",
    ),
    _config(
        "flush.messages",
        _at_least(1),
        INT64_MAX,
        "fsync after this many records. The default leaves durability to replication.",
        "log.flush.interval.messages",
    ),
    _config(
        "flush.ms",
        _at_least(0),
        INT64_MAX,
        "fsync when the oldest unsynced record is this old.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    _config(
        "follower.replication.throttled.replicas",
        _replica_list(),
        "",
        "Replicas whose fetching is throttled: PARTITION:BROKER, or * for all.",
    ),
    _config(
        "index.interval.bytes",
        _int_at_least(0),
        4096,
        "One index entry is written for about this many bytes of log.",
        "log.index.interval.bytes",
    ),
    ConfigKey(
        name="internal.segment.bytes",
        kind=_int_at_least(1),
        default=None,
        meaning="segment.bytes without its lower bound, for tests.",
        internal=True,
    ),
    _config(
        "leader.replication.throttled.replicas",
        _replica_list(),
        "",
        "Replicas whose leader is throttled towards them: PARTITION:BROKER, or * for all.",
    ),
    _config(
        "local.retention.bytes",
        _at_least(-2),
        -2,
        "What stays on local disk with tiered storage; -2: retention.bytes.",
        "log.local.retention.bytes",
    ),
    _config(
        "local.retention.ms",
        _at_least(-2),
        -2,
        "How long data stays on local disk with tiered storage; -2: retention.ms.",
        "log.local.retention.ms",
    ),
    _config(
        "max.compaction.lag.ms",
        _at_least(1),
        INT64_MAX,
        "The longest that a record stays uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _config(
        "max.message.bytes",
        _int_at_least(0),
        1024**2 + 12,
        "The largest record batch that is accepted.",
        "message.max.bytes",
    ),
    _config(
        "message.timestamp.after.max.ms",
        _at_least(0),
        _HOUR_MS,
        "How far a record's timestamp may lie in the future.",
        "log.message.timestamp.after.max.ms",
    ),
    _config(
        "message.timestamp.before.max.ms",
        _at_least(0),
        INT64_MAX,
        "How far a record's timestamp may lie in the past.",
        "log.message.timestamp.before.max.ms",
    ),
    _config(
        "message.timestamp.type",
        one_of_exactly("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whose time a record has: its producer's or the broker's.",
        "log.message.timestamp.type",
    ),
    _config(
        "min.cleanable.dirty.ratio",
        real_number(0, 1),
        0.5,
        "The share of uncompacted log from which on it is compacted.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _config(
        "min.compaction.lag.ms",
        _at_least(0),
        0,
        "The shortest that a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _config(
        "min.insync.replicas",
        _int_at_least(1),
        1,
        "How many replicas must have a record before acks=all is answered.",
        "min.insync.replicas",
    ),
    _config(
        "preallocate",
        true_or_false(),
        "false",
        "Whether a new segment is given its full size at once.",
        "log.preallocate",
    ),
    _config(
        "remote.copy.lag.bytes",
        _at_least(-1),
        0,
        "What is not yet copied to tiered storage; -1: local.retention.bytes.",
    ),
    _config(
        "remote.copy.lag.ms",
        _at_least(-1),
        0,
        "How long data is not yet copied to tiered storage; -1: local.retention.ms.",
    ),
    _config(
        "remote.log.copy.disable",
        true_or_false(),
        "false",
        "Whether tiered data is only read and no longer copied.",
    ),
    _config(
        "remote.log.delete.on.disable",
        true_or_false(),
        "false",
        "Whether tiered data is deleted when tiered storage is turned off.",
    ),
    _config(
        "remote.storage.enable",
        true_or_false(),
        "false",
        "Tiered storage, which is not supported.",
    ),
    _config(
        "retention.bytes",
        whole_number(-(2**63), INT64_MAX),
        -1,
        "Whole segments are deleted, oldest first, while a partition is larger; -1: no limit.",
        "log.retention.bytes",
    ),
    _config(
        "retention.ms",
        _at_least(-1),
        7 * _DAY_MS,
        "A segment is deleted when its newest record is older than this; -1: no limit.",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ),
    _config(
        "segment.bytes",
        _int_at_least(1024**2),
        1024**3,
        "A segment that would grow beyond this is closed and a new one begun.",
        "log.segment.bytes",
    ),
    _config(
        "segment.index.bytes",
        _int_at_least(4),
        10 * 1024**2,
        "A segment whose offset or time index reaches this size is closed.",
        "log.index.size.max.bytes",
    ),
    _config(
        "segment.jitter.ms",
        _at_least(0),
        0,
        "Up to this much is taken from segment.ms by chance, so that not all close at once.",
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
    ),
    _config(
        "segment.ms",
        _at_least(1),
        7 * _DAY_MS,
        "A segment older than this is closed at the next append.",
        "log.roll.ms",
        "log.roll.hours",
    ),
    _config(
        "unclean.leader.election.enable",
        true_or_false(),
        "false",
        "Whether a replica that may lack records leads rather than nobody.",
        "unclean.leader.election.enable",
    ),
)
TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = table(_ROWS)


def parse(name: str, text: str) -> Any:
    """The value of a topic config; ConfigError says what is wrong with it, in one line."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        raise ConfigError(f"unknown topic config {_shown(name)}")
    return key.parse(text)


def validate(configs: Mapping[str, str]) -> None:
    """Whether a topic may have these configs, all of them together."""
    values = {name: parse(name, text) for name, text in configs.items()}
    for rule in _RULES:
        if why := rule(values):
            raise ConfigError(why)


def _no_tiered_storage(values: Mapping[str, Any]) -> str | None:
    if values.get("remote.storage.enable"):
        return "remote.storage.enable cannot be true: tiered storage is not supported"
    return None


def _compaction_lag(values: Mapping[str, Any]) -> str | None:
    shortest = values.get("min.compaction.lag.ms", 0)
    longest = values.get("max.compaction.lag.ms", INT64_MAX)
    if shortest > longest:
        return f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})"
    return None


# What Kafka checks between configs. The rest of its rules speak of tiered storage only.
_RULES: Final[tuple[Callable[[Mapping[str, Any]], str | None], ...]] = (
    _no_tiered_storage,
    _compaction_lag,
)


def _shown(text: str) -> str:
    """On one line and of bounded length: the text comes from a client."""
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "..."
    return ascii(text)
