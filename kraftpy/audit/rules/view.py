"""The cluster as a log has told it so far, for whoever judges the log. Pure.

An audit must go on where replay would stop, so this replay is lenient: it applies what can be
applied and never raises. Changes lie in dicts over a base image, which may be EMPTY: then the view
is the whole state and may follow a log of any length. With an image for its base it costs as much
as the records that were replayed onto it.

What always holds: a record that Draft (metadata_log) accepts has the same effect here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from immutables import Map

from kraftpy.audit.rules.rule import Defaults, PartitionKey, Writer
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Broker, ClusterImage, ConfigResource, Partition
from kraftpy.types import BrokerId, TopicId, Uuid

K = TypeVar("K")
V = TypeVar("V")

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
CLUSTER_CONFIG: Final[ConfigResource] = (r.BROKER_RESOURCE, "")
# From metadata.version 3.6-IV0 on, an ISR shrink alone no longer bumps the leader epoch.
_NO_BUMP_ON_SHRINK_LEVEL: Final = 12
_RESERVED_DIRECTORIES: Final = (r.MIGRATING_DIRECTORY, r.UNASSIGNED_DIRECTORY)


class Layer(Generic[K, V]):
    """A mapping with changes over it; None in `changed` is a key that is gone."""

    __slots__ = ("_find", "changed")

    def __init__(self, find: Callable[[K], V | None]) -> None:
        self._find = find
        self.changed: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        return self.changed[key] if key in self.changed else self._find(key)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Its name and how many partitions it has, which are 0 to n-1 if `highest` is n-1."""

    name: str
    partitions: int = 0
    highest: int = -1


class Saved(NamedTuple):
    """What Abort goes back to."""

    layers: tuple[dict[Any, Any], ...]
    next_producer_id: int


class View:
    """A cluster to ask and to replay onto."""

    def __init__(self, base: ClusterImage, defaults: Defaults) -> None:
        self.base = base
        self.defaults = defaults
        self.brokers: Layer[BrokerId, Broker] = Layer(base.brokers.get)
        self.topics: Layer[TopicId, TopicFacts] = Layer(self._base_topic)
        self.topic_ids: Layer[str, TopicId] = Layer(base.topic_ids.get)
        self.partitions: Layer[PartitionKey, Partition] = Layer(lambda key: base.partition(*key))
        self.configs: Layer[ConfigResource, Map[str, str]] = Layer(base.configs.get)
        self.features: Layer[str, int] = Layer(base.features.get)
        self.next_producer_id = base.next_producer_id

    # -- facts --------------------------------------------------------------------------------

    def partition(self, key: PartitionKey) -> Partition | None:
        return None if self.topics.get(key[0]) is None else self.partitions.get(key)

    def topic_name(self, topic_id: TopicId) -> str:
        topic = self.topics.get(topic_id)
        return "" if topic is None else topic.name

    def all_brokers(self) -> Iterator[tuple[BrokerId, Broker]]:
        changed = self.brokers.changed
        for broker_id in sorted({*self.base.brokers, *changed}):
            broker = self.brokers.get(broker_id)
            if broker is not None:
                yield broker_id, broker

    def all_features(self) -> Iterator[tuple[str, int]]:
        for name in sorted({*self.base.features, *self.features.changed}):
            level = self.features.get(name)
            if level:
                yield name, level

    def keys_of(self, topic_id: TopicId) -> list[PartitionKey]:
        """The partitions that the topic has, if it is live."""
        facts = self.topics.get(topic_id)
        if facts is None:
            return []
        if facts.highest + 1 == facts.partitions:
            return [(topic_id, partition_id) for partition_id in range(facts.partitions)]
        topic = self.base.topics.get(topic_id)
        ids = set() if topic is None else set(topic.partitions)
        ids |= {p for t, p in self.partitions.changed if t == topic_id}
        return [(topic_id, p) for p in sorted(ids) if self.partitions.get((topic_id, p))]

    def is_active(self, broker_id: BrokerId) -> bool:
        """Registered, unfenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def may_lead(self, partition: Partition, broker_id: BrokerId) -> bool:
        """Active, and the directory of its replica is online."""
        if not self.is_active(broker_id) or broker_id not in partition.replicas:
            return False
        at = partition.replicas.index(broker_id)
        directory = partition.directories[at] if at < len(partition.directories) else None
        log_dirs = self.brokers.get(broker_id).log_dirs  # type: ignore[union-attr]
        known = directory is not None and directory not in _RESERVED_DIRECTORIES
        return not known or not log_dirs or directory in log_dirs

    @property
    def elr_enabled(self) -> bool:
        return (self.features.get(ELR_FEATURE) or 0) >= 1

    @property
    def shrink_bumps_leader_epoch(self) -> bool:
        level = self.features.get(r.METADATA_VERSION)
        return level is not None and level < _NO_BUMP_ON_SHRINK_LEVEL

    @property
    def is_kafka(self) -> bool:
        return self.defaults.writer is Writer.KAFKA

    def min_insync_replicas(self, topic_name: str) -> int:
        value = self._setting(topic_name, MIN_INSYNC_REPLICAS)
        if value is None or not value.strip().lstrip("-").isdigit():
            return self.defaults.min_insync_replicas
        return int(value)

    def unclean_election_enabled(self, topic_name: str) -> bool:
        value = self._setting(topic_name, UNCLEAN_ELECTION)
        if value is None:
            return self.defaults.unclean_leader_election_enable
        return value.strip().lower() == "true"

    def _setting(self, topic_name: str, name: str) -> str | None:
        for resource in ((r.TOPIC_RESOURCE, topic_name), CLUSTER_CONFIG):
            values = self.configs.get(resource)
            if values is not None and name in values:
                return values[name]
        return None

    def _base_topic(self, topic_id: TopicId) -> TopicFacts | None:
        topic = self.base.topics.get(topic_id)
        if topic is None:
            return None
        return TopicFacts(topic.name, len(topic.partitions), max(topic.partitions, default=-1))

    # -- transactions -------------------------------------------------------------------------

    def _layers(self) -> tuple[Layer[Any, Any], ...]:
        return (
            self.brokers,
            self.topics,
            self.topic_ids,
            self.partitions,
            self.configs,
            self.features,
        )

    def save(self) -> Saved:
        return Saved(tuple(dict(layer.changed) for layer in self._layers()), self.next_producer_id)

    def restore(self, saved: Saved) -> None:
        for layer, changed in zip(self._layers(), saved.layers, strict=True):
            layer.changed = changed
        self.next_producer_id = saved.next_producer_id

    # -- replay -------------------------------------------------------------------------------

    def replay(self, record: r.MetadataRecord) -> None:
        """Apply a record of what is judged here, as far as it can be."""
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)

    def _topic(self, record: r.TopicRecord) -> None:
        self.topics.changed[record.topic_id] = TopicFacts(record.name)
        self.topic_ids.changed[record.name] = record.topic_id

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return
        for key in self.keys_of(record.topic_id):
            self.partitions.changed[key] = None
        self.topics.changed[record.topic_id] = None
        if self.topic_ids.get(topic.name) == record.topic_id:
            self.topic_ids.changed[topic.name] = None
        self.configs.changed[(r.TOPIC_RESOURCE, topic.name)] = None

    def _partition(self, record: r.PartitionRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return
        key = (record.topic_id, record.partition_id)
        if self.partitions.get(key) is None:
            highest = max(topic.highest, record.partition_id)
            facts = replace(topic, partitions=topic.partitions + 1, highest=highest)
            self.topics.changed[record.topic_id] = facts
        self.partitions.changed[key] = partition_of(record)

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        old = self.partition(key)
        if old is not None:
            self.partitions.changed[key] = changed_partition(old, record)

    def clear_elr(
        self, record: r.ClearElrRecord
    ) -> list[tuple[PartitionKey, Partition, Partition]]:
        """Replay it; which partitions it changed, from what to what."""
        found = []
        if record.topic_name:
            topic_id = self.topic_ids.get(record.topic_name)
            topic_ids = [] if topic_id is None else [topic_id]
        else:
            topic_ids = sorted({*self.base.topics, *self.topics.changed})
        for key in (key for topic_id in topic_ids for key in self.keys_of(topic_id)):
            old = self.partitions.get(key)
            if old is not None and (old.elr or old.last_known_elr):
                new = replace(
                    old, elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1
                )
                self.partitions.changed[key] = new
                found.append((key, old, new))
        return found

    def _register(self, record: r.RegisterBrokerRecord) -> None:
        self.brokers.changed[record.broker_id] = record

    def _unregister(self, record: r.UnregisterBrokerRecord) -> None:
        self.brokers.changed[record.broker_id] = None

    def _fence(self, record: r.FenceBrokerRecord) -> None:
        self._change(record.id, fenced=True)

    def _unfence(self, record: r.UnfenceBrokerRecord) -> None:
        self._change(record.id, fenced=False)

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord) -> None:
        changed: dict[str, Any] = {}
        if record.fenced != r.UNCHANGED:
            changed["fenced"] = record.fenced == r.FENCE
        if record.in_controlled_shutdown != r.UNCHANGED:
            changed["in_controlled_shutdown"] = record.in_controlled_shutdown == r.SHUTTING_DOWN
        if record.log_dirs is not None:
            changed["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changed["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._change(record.broker_id, **changed)

    def _change(self, broker_id: BrokerId, **changed: Any) -> None:
        broker = self.brokers.get(broker_id)
        if broker is not None:
            self.brokers.changed[broker_id] = replace(broker, **changed)

    def _config(self, record: r.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        old: Map[str, str] = self.configs.get(resource) or Map()
        if record.value is not None:
            self.configs.changed[resource] = old.set(record.name, record.value)
        elif record.name in old:
            self.configs.changed[resource] = old.delete(record.name) or None

    def _feature(self, record: r.FeatureLevelRecord) -> None:
        self.features.changed[record.name] = record.feature_level or None

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)


_HANDLERS: Final[dict[type, Callable[[View, Any], object]]] = {
    r.RegisterBrokerRecord: View._register,
    r.UnregisterBrokerRecord: View._unregister,
    r.FenceBrokerRecord: View._fence,
    r.UnfenceBrokerRecord: View._unfence,
    r.BrokerRegistrationChangeRecord: View._change_broker,
    r.TopicRecord: View._topic,
    r.RemoveTopicRecord: View._remove_topic,
    r.PartitionRecord: View._partition,
    r.PartitionChangeRecord: View._partition_change,
    r.ClearElrRecord: View.clear_elr,
    r.ConfigRecord: View._config,
    r.FeatureLevelRecord: View._feature,
    r.ProducerIdsRecord: View._producer_ids,
}


def partition_of(record: r.PartitionRecord) -> Partition:
    return Partition(
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories or (r.MIGRATING_DIRECTORY,) * len(record.replicas),
        elr=record.eligible_leader_replicas,
        last_known_elr=record.last_known_elr,
    )


def changed_partition(old: Partition, record: r.PartitionChangeRecord) -> Partition:
    """What follows from the record; the epochs that it carries are not believed, but compared."""
    names_leader = record.leader != r.NO_CHANGE
    recovery = record.leader_recovery_state
    if recovery == r.RECOVERY_UNCHANGED:
        recovery = old.leader_recovery_state
    return Partition(
        replicas=_or(record.replicas, old.replicas),
        isr=_or(record.isr, old.isr),
        removing_replicas=_or(record.removing_replicas, old.removing_replicas),
        adding_replicas=_or(record.adding_replicas, old.adding_replicas),
        leader=record.leader if names_leader else old.leader,
        leader_recovery_state=recovery,
        leader_epoch=old.leader_epoch + int(names_leader),
        partition_epoch=old.partition_epoch + 1,
        directories=_directories(old, record),
        elr=_or(record.eligible_leader_replicas, old.elr),
        last_known_elr=_or(record.last_known_elr, old.last_known_elr),
    )


def _directories(old: Partition, record: r.PartitionChangeRecord) -> tuple[Uuid, ...]:
    if record.directories:
        return record.directories
    if record.replicas is None:
        return old.directories
    kept = dict(zip(old.replicas, old.directories, strict=False))
    return tuple(kept.get(broker, r.UNASSIGNED_DIRECTORY) for broker in record.replicas)


def _or(new: tuple[BrokerId, ...] | None, old: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return old if new is None else new
