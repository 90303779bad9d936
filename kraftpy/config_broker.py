"""The settings that only brokers have; config.py makes them part of the one table. Pure."""

from dataclasses import dataclass
from typing import Final

from kraftpy.config_kinds import (
    INT32_MAX,
    INT64_MAX,
    any_text,
    one_of_exactly,
    true_or_false,
    whole_number,
)
from kraftpy.config_logs import LogSettings
from kraftpy.config_rows import setting

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(LogSettings):
    """Each field is its key with `_` for `.`."""

    controller_quorum_bootstrap_servers: str = setting(
        "controller.quorum.bootstrap.servers",
        any_text("HOST:PORT, separated by commas"),
        "127.0.0.1:9093",
        "Controllers that a broker asks for the active one.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners",
        any_text("HOST:PORT, or empty"),
        "",
        "Where clients are told to find this broker. Empty: where it listens.",
    )
    log_dirs: str = setting(
        "log.dirs",
        any_text("directories, separated by commas, or empty"),
        "",
        "Where a broker keeps its partitions. Empty: in data.dir.",
    )
    broker_rack: str = setting(
        "broker.rack",
        any_text("text, or empty"),
        "",
        "Where the broker stands: replicas of a partition are spread over racks.",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        true_or_false(),
        True,
        "Whether a topic is created when a client asks for it.",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        whole_number(1, INT64_MAX),
        30_000,
        "A follower that has not caught up for this long leaves the ISR.",
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        whole_number(0, INT32_MAX),
        500,
        "How long a follower lets its leader wait for records.",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        whole_number(0, INT32_MAX),
        1,
        "How many bytes a follower lets its leader wait for.",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        whole_number(0, INT32_MAX),
        1_048_576,
        "The most bytes of one partition that a follower fetches at a time.",
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        whole_number(0, INT32_MAX),
        10_485_760,
        "The most bytes of all partitions that a follower fetches at a time.",
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        one_of_exactly("", RACK_AWARE_SELECTOR),
        "",
        "Which replica consumers read from: empty, the leader; else one in their rack (KIP-392).",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        whole_number(0, INT32_MAX),
        30_000,
        "How long a broker that stops waits for its leaderships to be moved away.",
    )
