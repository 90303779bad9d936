"""How one log behaves."""

from dataclasses import dataclass, field

from kraftpy.config import Settings, retention_ms, roll_ms
from kraftpy.storage.segment import SegmentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The defaults are Kafka's for a partition; None is "never"."""

    segment: SegmentConfig = field(default_factory=SegmentConfig)
    batch_bytes_max: int = 1_048_588
    flush_interval_messages: int | None = None  # 1: every append is durable when it returns.
    flush_interval_ms: int | None = None
    retention_bytes: int | None = None
    retention_ms: int | None = 7 * 24 * 3_600_000
    # A topic's partition: compaction, here or on its leader, leaves gaps between batches, and what
    # the leader accepted is not judged by its size again.
    of_topic: bool = False
    verify_all: bool = False  # At opening, check every batch and not only those behind the mark.

    @staticmethod
    def of(settings: Settings) -> "LogConfig":
        """What the settings say for a partition that has no settings of its own."""
        keep_ms = retention_ms(settings)
        keep_bytes = settings.log_retention_bytes
        return LogConfig(
            segment=SegmentConfig(
                segment_bytes=settings.log_segment_bytes,
                segment_ms=roll_ms(settings),
                index_interval_bytes=settings.log_index_interval_bytes,
                index_bytes_max=settings.log_index_size_max_bytes,
            ),
            batch_bytes_max=settings.message_max_bytes,
            flush_interval_messages=settings.log_flush_interval_messages,
            flush_interval_ms=settings.log_flush_interval_ms,
            retention_bytes=None if keep_bytes < 0 else keep_bytes,
            retention_ms=None if keep_ms < 0 else keep_ms,
        )
