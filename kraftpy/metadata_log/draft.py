"""Replay's workbench: an image's contents with changes laid over them, record by record.

A Draft applies records that are not about transactions (delta.py adds those). Every handler checks
first and changes afterwards, so a record that raises Illegal leaves the draft as it was. Changes
are kept in plain dicts over the base image's Maps and merged once, in `build`: a replayed record
costs dict operations, whether the batch has one record or the log has a million.

The checks are Kafka's (ClusterControlManager, ReplicationControlManager, TopicsDelta,
PartitionRegistration, AclControlManager, ScramControlManager, ProducerIdControlManager).
Like Kafka, and unlike an audit, a draft does not judge decisions: it accepts any PartitionRecord
for a known topic, re-registration of a broker, and removal of a config, quota or token never set.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from immutables import Map

from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.fastclass import constructor
from kraftpy.metadata_log.image import (
    NO_CHANGES,
    Broker,
    Changes,
    ClusterImage,
    ConfigResource,
    Partition,
    QuotaKey,
    Topic,
)
from kraftpy.metadata_log.partition_merge import Illegal, merge_partition, new_partition
from kraftpy.types import BrokerId, TopicId, uuid_text

K = TypeVar("K")
V = TypeVar("V")

_ZK_MIGRATION_STATES: Final = range(5)  # NONE, PRE_MIGRATION, MIGRATION, POST_MIGRATION, ZK
_new_topic: Final = constructor(Topic)


class Overlay(Generic[K, V]):
    """A Map with changes over it; None in `changed` is a removed key."""

    __slots__ = ("base", "changed")

    def __init__(self, base: Map[K, V]) -> None:
        self.base = base
        self.changed: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        return self.changed[key] if key in self.changed else self.base.get(key)

    def put(self, key: K, value: V | None) -> None:
        self.changed[key] = value

    def merged(self) -> Map[K, V]:
        if not self.changed:
            return self.base  # The same object: unchanged parts are shared.
        mutation = self.base.mutate()
        for key, value in self.changed.items():
            if value is not None:
                mutation[key] = value
            elif key in self.base:
                del mutation[key]
        return mutation.finish()


class TopicDraft:
    """A topic with the partitions that changed."""

    __slots__ = ("base", "changed", "name", "topic_id")

    def __init__(self, name: str, topic_id: TopicId, base: Map[int, Partition]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self.changed: dict[int, Partition] = {}

    def items(self) -> Iterator[tuple[int, Partition]]:
        yield from self.changed.items()
        for partition_id, partition in self.base.items():
            if partition_id not in self.changed:
                yield partition_id, partition

    def build(self) -> Topic:
        partitions = self.base.update(self.changed) if self.base else Map(self.changed)
        return _new_topic(self.name, self.topic_id, partitions)


class Draft:
    """The contents of an image while records are being replayed onto it."""

    def __init__(self, base: ClusterImage, earlier: Changes = NO_CHANGES) -> None:
        self._base = base
        self._earlier = earlier
        self._topics: dict[TopicId, TopicDraft] = {}
        self._deleted_topics: set[TopicId] = set()
        self._topic_ids = Overlay(base.topic_ids)
        self._brokers = Overlay(base.brokers)
        self._controllers = Overlay(base.controllers)
        self._configs = Overlay(base.configs)
        self._features = Overlay(base.features)
        self._acls = Overlay(base.acls)
        self._scram = Overlay(base.scram)
        self._quotas = Overlay(base.quotas)
        self._tokens = Overlay(base.delegation_tokens)
        self._next_producer_id = base.next_producer_id
        self._zk_migration_state = base.zk_migration_state

    def build(self) -> ClusterImage:
        """The image with every change merged; what did not change is shared with the base."""
        return replace(
            self._base,
            topics=self._merged_topics(),
            topic_ids=self._topic_ids.merged(),
            brokers=self._brokers.merged(),
            controllers=self._controllers.merged(),
            configs=self._configs.merged(),
            features=self._features.merged(),
            acls=self._acls.merged(),
            scram=self._scram.merged(),
            quotas=self._quotas.merged(),
            delegation_tokens=self._tokens.merged(),
            next_producer_id=self._next_producer_id,
            zk_migration_state=self._zk_migration_state,
        )

    def changes(self) -> Changes:
        """What was replayed onto this draft, and `earlier`, by key."""
        base = self._base
        sections: dict[str, bool] = {
            "controllers": bool(self._controllers.changed),
            "features": bool(self._features.changed),
            "acls": bool(self._acls.changed),
            "scram": bool(self._scram.changed),
            "quotas": bool(self._quotas.changed),
            "delegation_tokens": bool(self._tokens.changed),
            "next_producer_id": self._next_producer_id != base.next_producer_id,
            "zk_migration_state": self._zk_migration_state != base.zk_migration_state,
        }
        own = Changes(
            topics={t: frozenset(draft.changed) for t, draft in self._topics.items()},
            deleted_topics=frozenset(self._deleted_topics),
            brokers=frozenset(self._brokers.changed),
            configs=frozenset(self._configs.changed),
            others=frozenset(name for name, changed in sections.items() if changed),
        )
        return self._earlier.then(own)

    def _merged_topics(self) -> Map[TopicId, Topic]:
        if not self._topics and not self._deleted_topics:
            return self._base.topics
        mutation = self._base.topics.mutate()
        for topic_id in self._deleted_topics:
            del mutation[topic_id]
        for topic_id, topic in self._topics.items():
            mutation[topic_id] = topic.build()
        return mutation.finish()

    # --- topics and partitions ---------------------------------------------------------------

    def topic(self, record: r.TopicRecord) -> None:
        live_id = self._topic_ids.get(record.name)
        if live_id is not None:
            raise Illegal(
                f"topic {record.name} exists with id {uuid_text(live_id)} and was not removed"
            )
        if self._find_topic(record.topic_id) is not None:
            raise Illegal(f"topic id {uuid_text(record.topic_id)} belongs to another live topic")
        self._topics[record.topic_id] = TopicDraft(record.name, record.topic_id, Map())
        self._topic_ids.put(record.name, record.topic_id)

    def partition(self, record: r.PartitionRecord) -> None:
        topic_id = record.topic_id
        topic = self._topics.get(topic_id) or self._known_topic(topic_id)
        topic.changed[record.partition_id] = new_partition(record)
        self._topics[topic_id] = topic

    def partition_change(self, record: r.PartitionChangeRecord) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        topic = self._topics.get(topic_id) or self._known_topic(topic_id)
        old = topic.changed.get(partition_id)
        if old is not None:
            topic.changed[partition_id] = merge_partition(old, record)
            return
        old = topic.base.get(partition_id)
        if old is None:
            raise Illegal(f"topic {topic.name} has no partition {partition_id}")
        topic.changed[partition_id] = merge_partition(old, record)
        self._topics[topic_id] = topic

    def remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self._known_topic(record.topic_id)
        self._topics.pop(record.topic_id, None)
        if record.topic_id in self._base.topics:
            self._deleted_topics.add(record.topic_id)
        self._topic_ids.put(topic.name, None)
        # The log holds no ConfigRecord for this: Kafka's ConfigurationsDelta drops them too.
        resource = (r.TOPIC_RESOURCE, topic.name)
        if self._configs.get(resource) is not None:
            self._configs.put(resource, None)

    def clear_elr(self, record: r.ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self._topic_ids.get(record.topic_name)
            if topic_id is None:
                raise Illegal(f"there is no topic {record.topic_name} to clear the ELR of")
            topic_ids = [topic_id]
        else:
            base_ids = (t for t in self._base.topics if t not in self._deleted_topics)
            topic_ids = list({**self._topics, **dict.fromkeys(base_ids)})
        for topic_id in topic_ids:
            self._clear_topic_elr(topic_id)

    def _clear_topic_elr(self, topic_id: TopicId) -> None:
        topic = self._find_topic(topic_id)
        assert topic is not None
        for partition_id, old in list(topic.items()):
            if old.elr or old.last_known_elr:
                self._topics[topic_id] = topic
                topic.changed[partition_id] = replace(
                    old, elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1
                )

    def _find_topic(self, topic_id: TopicId) -> TopicDraft | None:
        """The live topic of that id; a topic removed in this draft is as unknown as any."""
        draft = self._topics.get(topic_id)
        if draft is None and topic_id not in self._deleted_topics:
            topic = self._base.topics.get(topic_id)
            if topic is not None:
                draft = TopicDraft(topic.name, topic_id, topic.partitions)
        return draft

    def _known_topic(self, topic_id: TopicId) -> TopicDraft:
        """The topic, to be put into `_topics` by whoever changes it, once nothing can fail."""
        topic = self._find_topic(topic_id)
        if topic is None:
            raise Illegal(f"topic id {uuid_text(topic_id)} is unknown or was removed")
        return topic

    # --- brokers and controllers -------------------------------------------------------------

    def register_broker(self, record: r.RegisterBrokerRecord) -> None:
        self._brokers.put(record.broker_id, record)

    def unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self._brokers.put(record.broker_id, None)

    def fence_broker(self, record: r.FenceBrokerRecord) -> None:
        broker = self._registered(record.id, record.epoch)
        self._brokers.put(record.id, replace(broker, fenced=True))

    def unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        broker = self._registered(record.id, record.epoch)
        self._brokers.put(record.id, replace(broker, fenced=False))

    def change_broker(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        if record.fenced not in (r.UNFENCE, r.UNCHANGED, r.FENCE):
            raise Illegal(f"fenced is -1, 0 or 1, not {record.fenced}")
        if record.in_controlled_shutdown not in (r.UNCHANGED, r.SHUTTING_DOWN):
            raise Illegal(f"in_controlled_shutdown is 0 or 1, not {record.in_controlled_shutdown}")
        changed: dict[str, Any] = {}
        if record.fenced != r.UNCHANGED:
            changed["fenced"] = record.fenced == r.FENCE
        if record.in_controlled_shutdown == r.SHUTTING_DOWN:
            changed["in_controlled_shutdown"] = True
        if record.log_dirs is not None:
            changed["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changed["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._brokers.put(record.broker_id, replace(broker, **changed))

    def _registered(self, broker_id: BrokerId, epoch: int) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise Illegal(f"broker {broker_id} is not registered")
        if broker.broker_epoch != epoch:
            raise Illegal(
                f"broker {broker_id} has epoch {broker.broker_epoch}, the record says {epoch}"
            )
        return broker

    def register_controller(self, record: r.RegisterControllerRecord) -> None:
        self._controllers.put(record.controller_id, record)

    def unregister_controller(self, record: r.UnregisterControllerRecord) -> None:
        if self._controllers.get(record.controller_id) is None:
            raise Illegal(f"controller {record.controller_id} is not registered")
        self._controllers.put(record.controller_id, None)

    # --- everything else ---------------------------------------------------------------------

    def config(self, record: r.ConfigRecord) -> None:
        resource: ConfigResource = (record.resource_type, record.resource_name)
        self._put_nested(self._configs, resource, record.name, record.value)

    def client_quota(self, record: r.ClientQuotaRecord) -> None:
        # A later entity of the same type replaces an earlier one, as in Kafka's map.
        by_type = {entity.entity_type: entity for entity in record.entity}
        key: QuotaKey = tuple(by_type[entity_type] for entity_type in sorted(by_type))
        value = None if record.remove else record.value
        self._put_nested(self._quotas, key, record.key, value)

    @staticmethod
    def _put_nested(overlay: Overlay[K, Map[str, V]], key: K, name: str, value: V | None) -> None:
        old = overlay.get(key)
        if old is None:
            old = Map()
        if value is not None:
            overlay.put(key, old.set(name, value))
        elif name in old:
            overlay.put(key, old.delete(name) if len(old) > 1 else None)

    def feature_level(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level < 0:
            raise Illegal(f"a feature level is not negative, as {record.feature_level} is")
        self._features.put(record.name, record.feature_level or None)

    def producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise Illegal(
                f"next producer id {record.next_producer_id} does not grow from "
                f"{self._next_producer_id}: two brokers would own the same ids"
            )
        self._next_producer_id = record.next_producer_id

    def access_control_entry(self, record: r.AccessControlEntryRecord) -> None:
        self._acls.put(record.id, record)

    def remove_access_control_entry(self, record: r.RemoveAccessControlEntryRecord) -> None:
        if self._acls.get(record.id) is None:
            raise Illegal(f"there is no ACL with id {uuid_text(record.id)}")
        self._acls.put(record.id, None)

    def scram_credential(self, record: r.UserScramCredentialRecord) -> None:
        self._scram.put((record.name, record.mechanism), record)

    def remove_scram_credential(self, record: r.RemoveUserScramCredentialRecord) -> None:
        key = (record.name, record.mechanism)
        if self._scram.get(key) is None:
            raise Illegal(f"{record.name} has no SCRAM credential for mechanism {key[1]}")
        self._scram.put(key, None)

    def delegation_token(self, record: r.DelegationTokenRecord) -> None:
        self._tokens.put(record.token_id, record)

    def remove_delegation_token(self, record: r.RemoveDelegationTokenRecord) -> None:
        self._tokens.put(record.token_id, None)

    def zk_migration_state(self, record: r.ZkMigrationStateRecord) -> None:
        if record.zk_migration_state not in _ZK_MIGRATION_STATES:
            raise Illegal(f"{record.zk_migration_state} is not a ZooKeeper migration state")
        self._zk_migration_state = record.zk_migration_state

    def no_op(self, record: r.NoOpRecord) -> None:
        """It only moves the log on, which the image's end offset shows."""


# Which method replays which record; delta.py handles the three transaction records.
HANDLERS: Final[dict[type, Callable[[Draft, Any], None]]] = {
    r.RegisterBrokerRecord: Draft.register_broker,
    r.UnregisterBrokerRecord: Draft.unregister_broker,
    r.TopicRecord: Draft.topic,
    r.PartitionRecord: Draft.partition,
    r.ConfigRecord: Draft.config,
    r.PartitionChangeRecord: Draft.partition_change,
    r.FenceBrokerRecord: Draft.fence_broker,
    r.UnfenceBrokerRecord: Draft.unfence_broker,
    r.RemoveTopicRecord: Draft.remove_topic,
    r.DelegationTokenRecord: Draft.delegation_token,
    r.UserScramCredentialRecord: Draft.scram_credential,
    r.FeatureLevelRecord: Draft.feature_level,
    r.ClientQuotaRecord: Draft.client_quota,
    r.ProducerIdsRecord: Draft.producer_ids,
    r.BrokerRegistrationChangeRecord: Draft.change_broker,
    r.AccessControlEntryRecord: Draft.access_control_entry,
    r.RemoveAccessControlEntryRecord: Draft.remove_access_control_entry,
    r.NoOpRecord: Draft.no_op,
    r.ZkMigrationStateRecord: Draft.zk_migration_state,
    r.RemoveUserScramCredentialRecord: Draft.remove_scram_credential,
    r.RemoveDelegationTokenRecord: Draft.remove_delegation_token,
    r.RegisterControllerRecord: Draft.register_controller,
    r.ClearElrRecord: Draft.clear_elr,
    r.UnregisterControllerRecord: Draft.unregister_controller,
}
