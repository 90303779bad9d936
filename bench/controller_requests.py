"""What brokers and admin tools ask of the active controller, as values for WireClient.

Simulated brokers: they register, send heartbeats and alter partitions, and hold no data.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from kraftpy.quorum.control.features import supported_features

CAUGHT_UP = 1 << 60  # A metadata offset that no log reaches.
NONE_YET = -1


def broker_uuid(kind: int, broker_id: int, life: int = 1) -> UUID:
    """The same one for the same broker; never zero and none of Kafka's reserved ones."""
    return UUID(bytes=bytes([0xB0, kind, life]) + broker_id.to_bytes(13, "big"))


def registration(broker_id: int, cluster_id: str, *, life: int = 1) -> dict[str, Any]:
    listener = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9092, "security_protocol": 0}
    features = [
        {
            "name": each.name,
            "min_supported_version": each.min_supported_version,
            "max_supported_version": each.max_supported_version,
        }
        for each in supported_features()
    ]
    return {
        "broker_id": broker_id,
        "cluster_id": cluster_id,
        "incarnation_id": broker_uuid(1, broker_id, life),
        "listeners": [listener],
        "features": features,
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": [broker_uuid(2, broker_id)],
        "previous_broker_epoch": NONE_YET,
    }


def heartbeat(broker_id: int, broker_epoch: int, **changed: Any) -> dict[str, Any]:
    known = {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "current_metadata_offset": CAUGHT_UP,
        "want_fence": False,
        "want_shut_down": False,
        "offline_log_dirs": [],
        "cordoned_log_dirs": None,
    }
    return {**known, **changed}


def topics(names: Iterable[str], *, partitions: int, replicas: int) -> dict[str, Any]:
    asked = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": asked, "timeout": timedelta(seconds=30), "validate_only": False}


def alter_partition(
    leader: tuple[int, int],
    topic_id: UUID,
    partition_id: int,
    isr: Iterable[tuple[int, int]],
    *,
    leader_epoch: int,
    partition_epoch: int,
) -> dict[str, Any]:
    """`leader` and the members of `isr` are brokers with their epochs."""
    members = list(isr)
    partition = {
        "partition_index": partition_id,
        "leader_epoch": leader_epoch,
        "new_isr": [broker_id for broker_id, _ in members],
        "new_isr_with_epochs": [
            {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in members
        ],
        "leader_recovery_state": 0,
        "partition_epoch": partition_epoch,
    }
    return {
        "broker_id": leader[0],
        "broker_epoch": leader[1],
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
    }
