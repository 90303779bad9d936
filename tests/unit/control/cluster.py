"""A small cluster to decide on: an image with what the active controller keeps beside it.

`ask` goes the way of a real request: the message is built in one version, decided, its records are
replayed, and the answer is built in the same version. A misspelt field of an answer fails there.
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
from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.codec import build, encode
from kraftpy.wire.schema import plan_of

CLUSTER_ID = Uuid(b"K" * 16)
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
        message = message_of(api_key, version, values)
        return table[api_key].decide(self.situation(), message)

    def ask(
        self, table: Mapping[int, ControlApi], api_key: int, version: int, **values: Any
    ) -> Any:
        """The answer, in that version, after the decision's records were replayed."""
        message = message_of(api_key, version, values)
        api = table[api_key]
        try:
            decision = api.decide(self.situation(), message)
        except Refused as refused:
            return answer(api_key, version, api.refuse(message, refused.error_code, str(refused)))
        self.apply(decision.records)
        return answer(api_key, version, decision.response)

    # -- looking ------------------------------------------------------------------------------

    def partition(self, partition_id: int = 0, topic_id: TopicId = TOPIC_ID) -> Partition:
        found = self.image.partition(topic_id, partition_id)
        assert found is not None
        return found

    def broker(self, broker_id: int) -> Broker:
        return self.image.brokers[BrokerId(broker_id)]


def message_of(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """A request; values that its version lacks are left out."""
    return build(request_type(api_key, version), values)


def answer(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """The response in that version, which must be one that can be written."""
    entity = response_type(api_key, version)
    _no_unknown_names(api_key, values)
    built: Any = build(entity, values)
    encode(built)
    return built


def _no_unknown_names(api_key: int, values: Mapping[str, Any]) -> None:
    """`build` drops what a version lacks, so a misspelt name would be dropped by all."""
    entities = []
    for version in range(32):
        try:
            entities.append(response_type(api_key, version))
        except KeyError:
            continue
    _check_names(entities, values)


def _check_names(entities: list[type], values: Mapping[str, Any]) -> None:
    plans: dict[str, list[Any]] = {}
    for entity in entities:
        plan = plan_of(entity)
        for each in (*plan.fields, *plan.tagged):
            plans.setdefault(each.name, []).append(each)
    for name, value in values.items():
        assert name in plans, f"no version of the answer has {name}"
        nested = [plan.entity for plan in plans[name] if plan.entity is not None]
        if not nested or value is None:
            continue
        for inner in [value] if isinstance(value, Mapping) else value:
            _check_names(nested, inner)


def wire(uuid: bytes) -> UUID:
    return UUID(bytes=uuid)
