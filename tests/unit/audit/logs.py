"""Short ways to write metadata logs that keep or break a rule, batch by batch."""

from collections.abc import Iterator
from typing import Any

from kraftpy.audit.rules import Evidence
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, NO_EVIDENCE
from kraftpy.audit.rules.view import ELR_FEATURE, View
from kraftpy.metadata_log import EMPTY, MetadataRecord, Partition
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId, TopicId, Uuid

ORDERS = TopicId(Uuid(b"O" * 16))
OTHER = TopicId(Uuid(b"P" * 16))
EPOCH = 1
FEATURES = tuple(
    r.Feature(name=name, min_supported_version=0, max_supported_version=33)
    for name in (r.METADATA_VERSION, ELR_FEATURE, "x")
)
Batch = tuple[int, tuple[MetadataRecord, ...], Evidence]


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(n) for n in numbers)


def directory(number: int) -> Uuid:
    return Uuid(bytes([200 + number]) * 16)


class Log:
    """A log that is being written. It knows its state, so a change gets the epochs it must have."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end_offset = 0
        self._view = View(EMPTY, KAFKA_DEFAULTS)

    def write(self, *records: MetadataRecord, **evidence: Any) -> None:
        """One batch."""
        known = Evidence(**evidence) if evidence else NO_EVIDENCE
        self.batches.append((self.end_offset, records, known))
        self.end_offset += len(records)
        for record in records:
            self._view.replay(record)

    def partition(self, partition_id: int = 0, topic_id: TopicId = ORDERS) -> Partition:
        found = self._view.partition((topic_id, partition_id))
        assert found is not None
        return found

    def epoch_of(self, broker_id: int) -> int:
        broker = self._view.brokers.get(BrokerId(broker_id))
        assert broker is not None
        return broker.broker_epoch

    # -- records ----------------------------------------------------------------------------------

    def change(self, partition_id: int = 0, **changed: Any) -> r.PartitionChangeRecord:
        """With the epochs that follow from the partition as it is."""
        old = self.partition(partition_id)
        known: dict[str, Any] = {
            "leader_epoch": old.leader_epoch + ("leader" in changed),
            "partition_epoch": old.partition_epoch + 1,
        }
        if "elr" in changed:
            changed["eligible_leader_replicas"] = changed.pop("elr")
        return r.PartitionChangeRecord(
            topic_id=ORDERS, partition_id=partition_id, **(known | changed)
        )

    def register(self, broker_id: int, incarnation: int = 1, **changed: Any) -> MetadataRecord:
        known: dict[str, Any] = {
            "broker_epoch": self.end_offset,
            "end_points": (),
            "features": FEATURES,
            "rack": None,
            "fenced": True,
            "log_dirs": (directory(broker_id),),
        }
        return r.RegisterBrokerRecord(
            broker_id=BrokerId(broker_id),
            incarnation_id=Uuid(bytes([incarnation]) * 16),
            **(known | changed),
        )

    def broker(self, broker_id: int, **changed: Any) -> MetadataRecord:
        known: dict[str, Any] = {"broker_epoch": self.epoch_of(broker_id)}
        return r.BrokerRegistrationChangeRecord(broker_id=BrokerId(broker_id), **(known | changed))

    def fence(self, broker_id: int) -> MetadataRecord:
        return self.broker(broker_id, fenced=r.FENCE)

    def unfence(self, broker_id: int) -> MetadataRecord:
        return self.broker(broker_id, fenced=r.UNFENCE)


def new_partition(partition_id: int = 0, **changed: Any) -> r.PartitionRecord:
    replicas = changed.get("replicas", ids(1, 2, 3))
    known: dict[str, Any] = {
        "topic_id": ORDERS,
        "replicas": replicas,
        "isr": replicas,
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": tuple(directory(broker_id) for broker_id in replicas),
    }
    return r.PartitionRecord(partition_id=partition_id, **(known | changed))


def topic(name: str = "orders", topic_id: TopicId = ORDERS) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id)


def config(name: str, value: str | None, resource: str = "orders") -> r.ConfigRecord:
    return r.ConfigRecord(
        resource_type=r.TOPIC_RESOURCE, resource_name=resource, name=name, value=value
    )


def level(name: str, feature_level: int) -> r.FeatureLevelRecord:
    return r.FeatureLevelRecord(name=name, feature_level=feature_level)


def brokers(*broker_ids: int) -> Log:
    """Registered and unfenced."""
    log = Log()
    for broker_id in broker_ids:
        log.write(log.register(broker_id))
        log.write(log.unfence(broker_id))
    return log


def cluster(*replicas: int, elr: bool = False) -> Log:
    """Brokers 1 to 4, and orders-0 on the replicas; with ELR, two must be in sync."""
    log = brokers(1, 2, 3, 4)
    if elr:
        log.write(level(ELR_FEATURE, 1))
    placed = ids(*(replicas or (1, 2, 3)))
    log.write(topic(), new_partition(replicas=placed))
    if elr:
        log.write(config("min.insync.replicas", "2"))
    return log


def fence_in_order(log: Log, *broker_ids: int) -> Iterator[None]:
    """Fence brokers one by one, as a controller without ELR does for orders-0."""
    for broker_id in broker_ids:
        old = log.partition()
        isr = tuple(member for member in old.isr if member != broker_id) or old.isr
        changed: dict[str, Any] = {} if isr == old.isr else {"isr": isr}
        if old.leader == broker_id:
            left = [member for member in isr if member != broker_id]
            changed["leader"] = left[0] if left else NO_LEADER
        log.write(*([log.change(**changed)] if changed else []), log.fence(broker_id))
        yield


def reassigned_to_124() -> Log:
    log = cluster()
    log.write(
        log.change(replicas=ids(1, 2, 4, 3), adding_replicas=ids(4), removing_replicas=ids(3))
    )
    return log
