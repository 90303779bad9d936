"""The cluster at one offset of the metadata log: an immutable value.

Two images that share history share structure (immutables.Map), so keeping many of them is cheap
and handing one to another task is safe. Only replay makes images. Where the state of a thing is
exactly what one record says (a broker, an ACL), the image holds that record; topics and partitions,
of which there may be a million, have types of their own.

What always holds: `topic_ids` maps the name of each topic in `topics` to its id and nothing more;
a partition has as many directories as replicas; no Map in `configs` or `quotas` is empty. While a
metadata transaction is open the image shows the cluster as it was before it; `transaction.pending`
is what the image becomes if the transaction ends well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from immutables import Map

from kraftpy.metadata_log.records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from kraftpy.types import NO_EPOCH, BrokerId, Epoch, Offset, TopicId, Uuid

Broker: TypeAlias = RegisterBrokerRecord
Controller: TypeAlias = RegisterControllerRecord
Acl: TypeAlias = AccessControlEntryRecord
ScramCredential: TypeAlias = UserScramCredentialRecord
DelegationToken: TypeAlias = DelegationTokenRecord
ConfigResource: TypeAlias = tuple[int, str]  # (resource type, resource name)
ScramKey: TypeAlias = tuple[str, int]  # (user, mechanism)
QuotaKey: TypeAlias = tuple[QuotaEntity, ...]  # One per entity type, sorted by it.

_NOTHING: Final[Map[Any, Any]] = Map()
_START: Final = Offset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...]
    elr: tuple[BrokerId, ...]
    last_known_elr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: Map[int, Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between two images, by key; what it names may also have changed back."""

    # Created and changed topics, with those of their partitions that are new or changed.
    topics: Mapping[TopicId, frozenset[int]] = field(default_factory=dict)
    # Apply these first: a topic whose id came back, with none of its old partitions, is in both.
    deleted_topics: frozenset[TopicId] = frozenset()
    brokers: frozenset[BrokerId] = frozenset()
    configs: frozenset[ConfigResource] = frozenset()
    # Names of the other fields of ClusterImage that changed.
    others: frozenset[str] = frozenset()

    def then(self, later: "Changes") -> "Changes":
        """The changes of two steps, one after the other."""
        topics = {t: p for t, p in self.topics.items() if t not in later.deleted_topics}
        for topic_id, partitions in later.topics.items():
            topics[topic_id] = topics.get(topic_id, frozenset()) | partitions
        return Changes(
            topics=topics,
            deleted_topics=self.deleted_topics | later.deleted_topics,
            brokers=self.brokers | later.brokers,
            configs=self.configs | later.configs,
            others=self.others | later.others,
        )


NO_CHANGES: Final = Changes()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTransaction:
    """An open metadata transaction: what it has built so far, seen by nobody yet."""

    name: str | None
    begin_offset: Offset
    pending: "ClusterImage"
    changes: Changes = field(default=NO_CHANGES, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    brokers: Map[BrokerId, Broker] = _NOTHING
    controllers: Map[BrokerId, Controller] = _NOTHING
    topics: Map[TopicId, Topic] = _NOTHING
    topic_ids: Map[str, TopicId] = _NOTHING
    configs: Map[ConfigResource, Map[str, str]] = _NOTHING
    features: Map[str, int] = _NOTHING
    next_producer_id: int = 0
    acls: Map[Uuid, Acl] = _NOTHING
    scram: Map[ScramKey, ScramCredential] = _NOTHING
    quotas: Map[QuotaKey, Map[str, float]] = _NOTHING
    delegation_tokens: Map[str, DelegationToken] = _NOTHING
    zk_migration_state: int = 0
    transaction: MetadataTransaction | None = None
    # Provenance: the offset after the last record, its epoch and its batch's timestamp.
    end_offset: Offset = _START
    epoch: Epoch = NO_EPOCH
    timestamp_ms: int = -1

    def topic(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: TopicId, partition_id: int) -> Partition | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def without_provenance(self) -> "ClusterImage":
        """The same cluster, wherever in a log it was found: for comparing contents."""
        return replace(self, end_offset=_START, epoch=NO_EPOCH, timestamp_ms=-1)

    def diff(self, other: "ClusterImage") -> tuple[str, ...]:
        """What changed from this image to `other`, in words; nothing if they are equal."""
        from kraftpy.metadata_log.diff import diff_images  # diff.py imports this module.

        return diff_images(self, other)


EMPTY: Final = ClusterImage()
