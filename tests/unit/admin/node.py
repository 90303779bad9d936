"""A node for the admin listener to look at: a real metadata log, and an image that follows it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kraftpy.clock import ManualClock
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.network.places import Place
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.unit.metadata_log.makers import brokers, partition, register, topic


class LookedAt:
    """A NodeSource whose log the test writes."""

    role = "controller"
    node_id = 1
    cluster_id = "c"

    def __init__(self, path: Path) -> None:
        self.metadata_dir = str(path / "__cluster_metadata-0")
        self.controllers: Sequence[Place] = [Place("127.0.0.1", 1)]  # Nobody listens there.
        self.log = MetadataLog(OsFiles(), self.metadata_dir, MetadataLogConfig(), ManualClock())
        self.log.append_control(leader_change(1, [1], [1]), 1)
        self.image = self.log.load_image()
        self.ready = True

    def say(self, *records: MetadataRecord) -> None:
        """Write a batch and show what it makes of the cluster."""
        self.log.append(records, 1)
        self.image = self.log.load_image()

    def state(self) -> str:
        return "active" if self.ready else "electing"

    def is_ready(self) -> bool:
        return self.ready

    def numbers(self) -> Mapping[str, float]:
        return {"kafka_server_raft_metrics_current_epoch": 1}

    def requests(self) -> Mapping[str, int]:
        return {"produce": 7, "fetch": 3}

    def details(self) -> Mapping[str, Any]:
        return {"leader_id": 1}


def small_cluster() -> list[MetadataRecord]:
    """Three brokers, one topic of two partitions; all is well."""
    return [
        *(register(each, 10 + each, fenced=False) for each in (1, 2, 3)),
        topic(),
        partition(0, directories=()),
        partition(1, leader=BrokerId(2), directories=()),
    ]


def large_topic(number: int, partitions: int) -> list[MetadataRecord]:
    topic_id = TopicId(Uuid(number.to_bytes(16, "big")))
    made: list[MetadataRecord] = [topic(f"topic-{number:04}", topic_id)]
    for index in range(partitions):
        replicas = brokers(*(1 + (index + k) % 3 for k in range(3)))
        made.append(
            partition(index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0])
        )
    return made
