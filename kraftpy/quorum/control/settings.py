"""What the operator decided for the controller; Kafka's names and defaults. Pure."""

from dataclasses import dataclass

from kraftpy.types import BrokerId, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Fixed while the node runs, and the same on every controller of a cluster."""

    cluster_id: Uuid
    voter_ids: tuple[BrokerId, ...]
    num_partitions: int = 1  # num.partitions
    default_replication_factor: int = 1  # default.replication.factor
    min_insync_replicas: int = 1  # min.insync.replicas
    unclean_leader_election_enable: bool = False  # unclean.leader.election.enable
    unclean_leader_election_interval_ms: int = 300_000  # unclean.leader.election.interval.ms
    broker_session_timeout_ms: int = 9000  # broker.session.timeout.ms
    metadata_max_idle_interval_ms: int = 500  # metadata.max.idle.interval.ms
    auto_leader_rebalance_enable: bool = True  # auto.leader.rebalance.enable
    leader_imbalance_check_interval_ms: int = 300_000  # leader.imbalance.check.interval.seconds
    leader_imbalance_per_broker_percentage: int = 10  # leader.imbalance.per.broker.percentage
