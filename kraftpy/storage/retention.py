"""Which of a log's oldest segments may go. Pure."""

from collections.abc import Sequence
from typing import Protocol

from kraftpy.storage.record_batch import NO_TIMESTAMP


class SegmentFacts(Protocol):
    """What retention looks at."""

    size: int
    max_timestamp: int


class RetentionConfig(Protocol):
    """What is kept: kraftpy.storage.log_config.LogConfig."""

    @property
    def retention_bytes(self) -> int | None: ...
    @property
    def retention_ms(self) -> int | None: ...


def count_deletable(
    segments: Sequence[SegmentFacts],
    ends: Sequence[int],
    config: RetentionConfig,
    now_ms: int,
    start_offset: int,
    upto: int,
) -> int:
    """How many segments, from the oldest on, are too old, too much, or before the start.

    `ends` are their end offsets. As in Kafka, a log is not cut below `retention_bytes`, and age
    counts from the newest record. None goes that holds a record at or behind `upto`.
    """
    retention_bytes, retention_ms = config.retention_bytes, config.retention_ms
    size = sum(segment.size for segment in segments)
    for count, (segment, end_offset) in enumerate(zip(segments, ends, strict=True)):
        size -= segment.size
        too_much = retention_bytes is not None and size >= retention_bytes
        too_old = (
            retention_ms is not None
            and segment.max_timestamp != NO_TIMESTAMP
            and now_ms - segment.max_timestamp > retention_ms
        )
        is_gone = end_offset <= start_offset
        if end_offset > upto or segment.size == 0 or not (too_much or too_old or is_gone):
            return count
    return len(segments)
