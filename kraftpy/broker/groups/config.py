"""What the settings say to group coordinators. Pure."""

from dataclasses import dataclass

from kraftpy.config import Settings
from kraftpy.config_groups import GroupSettings

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """By Kafka's names; kraftpy.config_groups says what each means."""

    offsets_partitions: int = 50
    offsets_replicas: int = 3
    offsets_segment_bytes: int = 100 * 1024**2
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    retention_check_ms: int = 600_000
    metadata_bytes_max: int = 4096
    commit_timeout_ms: int = 5000
    load_bytes: int = 5 * 1024**2
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    size_max: int = 2**31 - 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")

    @staticmethod
    def of(settings: GroupSettings) -> "GroupConfig":
        return GroupConfig(
            offsets_partitions=settings.offsets_topic_num_partitions,
            offsets_replicas=settings.offsets_topic_replication_factor,
            offsets_segment_bytes=settings.offsets_topic_segment_bytes,
            offsets_retention_ms=settings.offsets_retention_minutes * _MINUTE_MS,
            retention_check_ms=settings.offsets_retention_check_interval_ms,
            metadata_bytes_max=settings.offset_metadata_max_bytes,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            load_bytes=settings.offsets_load_buffer_size,
            session_timeout_ms_min=settings.group_min_session_timeout_ms,
            session_timeout_ms_max=settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            size_max=settings.group_max_size,
            consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
            consumer_size_max=settings.group_consumer_max_size,
            consumer_assignors=tuple(settings.group_consumer_assignors.split(",")),
        )


def read_lease_ms(settings: Settings) -> int:
    """How old what a broker knows of the metadata may be while it answers for committed offsets.

    Another coordinator's commits need all of the ISR. This broker is out of it only after its
    session has ended, or its lag lasted too long: who heard of the metadata since then still leads.
    One that was stopped for longer could tell of offsets that others have moved on from.
    """
    session_ms = settings.broker_session_timeout_ms - settings.broker_heartbeat_interval_ms
    return max(min(session_ms, settings.replica_lag_time_max_ms) * 4 // 5, 1)
