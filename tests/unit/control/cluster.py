"""A small cluster to decide on: an image with what the active controller keeps beside it.

`ask` goes the way of a real request: the message is read in one version and decided, the records
are replayed, and the answer is built in every version that is served.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from kraftpy.metadata_log import EMPTY, ClusterDelta, MetadataRecord, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Broker, Partition
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.unit.control.makers import CLUSTER_ID, answers, request

TOPIC_ID = TopicId(Uuid(b"T" * 16))
SETTINGS = ControllerSettings(
    cluster_id=CLUSTER_ID, voter_ids=(BrokerId(3000), BrokerId(3001), BrokerId(3002))
)
METADATA_LEVEL = 25
SESSION_MS = SETTINGS.broker_session_timeout_ms


def ids(*broker_ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in broker_ids)


def directory(broker_id: int, number: int = 0) -> Uuid:
    """A log directory of a broker: no two brokers share one."""
    return Uuid(bytes([0xD0, number]) + broker_id.to_bytes(14, "big"))


def incarnation(broker_id: int, life: int = 1) -> Uuid:
    return Uuid(bytes([0xA0, life]) + broker_id.to_bytes(14, "big"))


def broker(broker_id: int, **changed: Any) -> r.RegisterBrokerRecord:
    """Unfenced, in its first life, with one directory; its epoch is 100 times its id."""
    known: dict[str, Any] = {
        "broker_epoch": 100 * broker_id,
        "incarnation_id": incarnation(broker_id),
        "end_points": (),
        "features": (),
        "rack": None,
        "fenced": False,
        "log_dirs": (directory(broker_id),),
    }
    return r.RegisterBrokerRecord(broker_id=BrokerId(broker_id), **(known | changed))


def topic(name: str = "orders", topic_id: TopicId = TOPIC_ID) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id)


def partition(partition_id: int, *replicas: int, **changed: Any) -> r.PartitionRecord:
    """Led by its first replica, with all in sync, each in the first directory of its broker."""
    known: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "replicas": ids(*replicas),
        "isr": ids(*replicas),
        "leader": BrokerId(replicas[0]),
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": tuple(directory(each) for each in replicas),
    }
    return r.PartitionRecord(partition_id=partition_id, **(known | changed))


def feature(name: str, level: int) -> r.FeatureLevelRecord:
    return r.FeatureLevelRecord(name=name, feature_level=level)


def config(name: str, value: str, topic_name: str = "orders") -> r.ConfigRecord:
    return r.ConfigRecord(
        resource_type=r.TOPIC_RESOURCE, resource_name=topic_name, name=name, value=value
    )


ELR = feature("eligible.leader.replicas.version", 1)


class Cluster:
    """An active controller's view. The log begins with the given records, as one batch."""

    def __init__(self, *records: MetadataRecord, **settings: Any) -> None:
        level = feature(r.METADATA_VERSION, METADATA_LEVEL)
        # Far enough in the log that the epochs of brokers lie behind.
        self.image = replay_batch(EMPTY, (level, *records), 10_000, epoch=1)
        self.settings = replace(SETTINGS, **settings)
        self.now_ms = 1_000_000
        self.rng = random.Random(1)
        self.index = PartitionIndex(self.image)
        self.heartbeats = Heartbeats.of(self.image, self.now_ms)

    def situation(self) -> Situation:
        return Situation(
            image=self.image,
            index=self.index,
            heartbeats=self.heartbeats,
            settings=self.settings,
            now_ms=self.now_ms,
            rng=self.rng,
        )

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        """Replay a batch, as the controller does after a decision."""
        delta = ClusterDelta(self.image)
        end_offset = delta.replay_all(records, self.image.end_offset)
        self.image = delta.image(end_offset, self.image.epoch)
        changes = delta.changes()
        self.index.move(self.image, changes)
        self.heartbeats.move(self.image, changes.brokers, self.now_ms)

    def fail_over(self) -> None:
        """Another controller becomes active: it knows the image and nothing else."""
        self.index = PartitionIndex(self.image)
        self.heartbeats = Heartbeats.of(self.image, self.now_ms)

    def decide(
        self, table: Mapping[int, ControlApi], api_key: int, version: int, **values: Any
    ) -> Decision:
        message = request(api_key, version, **values)
        return table[api_key].decide(self.situation(), message)

    def ask(
        self, table: Mapping[int, ControlApi], api_key: int, version: int, **values: Any
    ) -> Any:
        """The answer, in that version, after the decision's records were replayed."""
        message = request(api_key, version, **values)
        api = table[api_key]
        try:
            decision = api.decide(self.situation(), message)
        except Refused as refused:
            values = dict(api.refuse(message, refused.error_code, str(refused)))
            return answers(api_key, api, values)[version]
        self.apply(decision.records)
        return answers(api_key, api, decision.response)[version]

    # -- looking ------------------------------------------------------------------------------

    def partition(self, partition_id: int = 0, topic_id: TopicId = TOPIC_ID) -> Partition:
        found = self.image.partition(topic_id, partition_id)
        assert found is not None
        return found

    def broker(self, broker_id: int) -> Broker:
        return self.image.brokers[BrokerId(broker_id)]


def wire(uuid: bytes) -> UUID:
    return UUID(bytes=uuid)
