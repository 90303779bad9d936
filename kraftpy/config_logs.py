"""The settings of a broker's logs beyond those that every log has; part of the one table. Pure."""

from dataclasses import dataclass

from kraftpy.config_groups import GroupSettings
from kraftpy.config_kinds import (
    INT32_MAX,
    INT64_MAX,
    one_of,
    one_of_exactly,
    real_number,
    whole_number,
)
from kraftpy.config_rows import setting

_NO_LIMIT: float = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(GroupSettings):
    """Each field is its key with `_` for `.`."""

    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        whole_number(1, INT32_MAX),
        2,
        "Threads for each data directory that open logs at the start and close them at the end.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        whole_number(1, INT64_MAX),
        5_000,
        "How often high watermarks are written to disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        whole_number(1, INT32_MAX),
        60_000,
        "How often the start offsets of logs are written to disk.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        whole_number(1, INT64_MAX),
        300_000,
        "How often logs are looked through for segments to delete.",
    )
    log_cleanup_policy: str = setting(
        "log.cleanup.policy",
        one_of("delete", "compact", "compact,delete", "delete,compact"),
        "delete",
        "What happens to old segments, where a topic does not say.",
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        one_of_exactly("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whose time a record has, where a topic does not say: its producer's or the broker's.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        whole_number(0, INT64_MAX),
        15_000,
        "How long compaction sleeps when there is nothing to compact.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        whole_number(1, INT64_MAX),
        128 * 1024**2,
        "Memory for the keys of a compaction.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        real_number(0, _NO_LIMIT),
        _NO_LIMIT,
        "Bytes per second that compaction reads and writes.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        whole_number(1, INT32_MAX),
        86_400_000,
        "How long a partition remembers an idle producer.",
    )
