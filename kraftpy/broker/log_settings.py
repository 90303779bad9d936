"""What a topic's configs mean for the logs of its partitions. Pure.

A topic's own config wins over what brokers were told for all topics, that over what this broker was
started with, and that over Kafka's default; `describe` knows the order. A value that cannot be read
was written by others and is taken for the default: a log is served as well as possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kraftpy.broker.compaction import CompactionConfig
from kraftpy.broker.validation import CODECS, AppendConfig
from kraftpy.errors import ConfigError
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.segment import SegmentConfig
from kraftpy.topic_configs import TOPIC_CONFIGS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """All that a partition is kept and served by."""

    log: LogConfig
    append: AppendConfig
    compaction: CompactionConfig | None  # None: it is not compacted.
    is_deleted: bool  # Whether retention by time and size holds.
    min_insync_replicas: int
    file_delete_delay_ms: int


def partition_settings(
    texts: Mapping[str, str | None], *, jitter: float = 0.0
) -> PartitionSettings:
    """Of the values in force, as text. `jitter` is chance, from 0 to 1."""
    values = {name: _value(name, text) for name, text in texts.items()}
    policy = values["cleanup.policy"]
    compaction = _compaction(values) if "compact" in policy else None
    is_deleted = "delete" in policy
    return PartitionSettings(
        log=_log(values, compaction, is_deleted=is_deleted, jitter=jitter),
        append=_append(values, compacted=compaction is not None),
        compaction=compaction,
        is_deleted=is_deleted,
        min_insync_replicas=values["min.insync.replicas"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
    )


def _value(name: str, text: str | None) -> Any:
    key = TOPIC_CONFIGS[name]
    if text is None:
        return None
    try:
        return key.parse(text)
    except ConfigError:
        assert key.default is not None
        return key.parse(key.default)


def _segment_bytes(values: Mapping[str, Any]) -> int:
    internal: int | None = values["internal.segment.bytes"]
    usual: int = values["segment.bytes"]
    return usual if internal is None else internal


def _log(
    values: Mapping[str, Any],
    compaction: CompactionConfig | None,
    *,
    is_deleted: bool,
    jitter: float,
) -> LogConfig:
    segment_ms: int = values["segment.ms"]
    if compaction is not None:
        # The active segment is never compacted: it must not stay active for longer than this.
        segment_ms = min(segment_ms, compaction.max_compaction_lag_ms)
    segment_ms -= int(min(values["segment.jitter.ms"], segment_ms - 1) * jitter)
    keep_bytes, keep_ms = values["retention.bytes"], values["retention.ms"]
    return LogConfig(
        segment=SegmentConfig(
            segment_bytes=_segment_bytes(values),
            segment_ms=segment_ms,
            index_interval_bytes=values["index.interval.bytes"],
            index_bytes_max=values["segment.index.bytes"],
        ),
        batch_bytes_max=values["max.message.bytes"],
        flush_interval_messages=values["flush.messages"],
        flush_interval_ms=values["flush.ms"],
        retention_bytes=keep_bytes if is_deleted and keep_bytes >= 0 else None,
        retention_ms=keep_ms if is_deleted and keep_ms >= 0 else None,
        of_topic=True,
    )


def _append(values: Mapping[str, Any], *, compacted: bool) -> AppendConfig:
    return AppendConfig(
        batch_bytes_max=values["max.message.bytes"],
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        compression=CODECS.get(values["compression.type"]),
        compacted=compacted,
    )


def _compaction(values: Mapping[str, Any]) -> CompactionConfig:
    return CompactionConfig(
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        delete_retention_ms=values["delete.retention.ms"],
        segment_bytes=_segment_bytes(values),
    )
