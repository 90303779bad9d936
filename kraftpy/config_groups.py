"""The settings of group coordinators; part of the one table. Pure."""

from dataclasses import dataclass

from kraftpy.config_kinds import INT32_MAX, INT64_MAX, one_of_exactly, whole_number
from kraftpy.config_rows import setting

_INT16_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Each field is its key with `_` for `.`."""

    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        whole_number(1, INT32_MAX),
        50,
        "Partitions of __consumer_offsets when it is created; each is one coordinator's log.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        whole_number(1, _INT16_MAX),
        3,
        "Replicas of __consumer_offsets. With fewer brokers it is not created, and no group works; "
        "`kraftpy dev` takes as many as it has brokers.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        whole_number(1024, INT32_MAX),
        100 * 1024**2,
        "Segments of __consumer_offsets: small ones are compacted, and loaded, sooner.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        whole_number(1, INT32_MAX),
        7 * 24 * 60,
        "How long the offsets of a group without members, or of topics that nobody of it reads, "
        "are kept.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        whole_number(1, INT64_MAX),
        600_000,
        "How often offsets are looked through for those to drop.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        whole_number(0, INT32_MAX),
        4096,
        "The longest text that a client may store with an offset.",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        whole_number(1, INT32_MAX),
        5000,
        "How long a commit waits for the replicas of __consumer_offsets.",
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        whole_number(1, INT32_MAX),
        5 * 1024**2,
        "How much of __consumer_offsets is read at a time when a coordinator loads it.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        whole_number(0, INT32_MAX),
        6000,
        "The shortest session that a member may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        whole_number(0, INT32_MAX),
        1_800_000,
        "The longest session that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        whole_number(0, INT32_MAX),
        3000,
        "How long a new group waits for more members; `kraftpy dev` does not wait.",
    )
    group_max_size: int = setting(
        "group.max.size",
        whole_number(1, INT32_MAX),
        INT32_MAX,
        "The most members of a group.",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        whole_number(1, INT32_MAX),
        45_000,
        "group.protocol=consumer: a member that is not heard for so long is taken out.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        whole_number(1, INT32_MAX),
        5000,
        "group.protocol=consumer: how often members are told to send heartbeats.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        whole_number(1, INT32_MAX),
        INT32_MAX,
        "group.protocol=consumer: the most members of a group.",
    )
    group_consumer_assignors: str = setting(
        "group.consumer.assignors",
        one_of_exactly("uniform,range", "range,uniform", "uniform", "range"),
        "uniform,range",
        "group.protocol=consumer: the assignors that members may ask for; the first one is taken "
        "if they do not.",
    )
