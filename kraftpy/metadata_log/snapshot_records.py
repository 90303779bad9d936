"""The shortest list of records that rebuilds an image, in one order for everybody.

Features come first, metadata.version before the others, since its level decides how the rest may be
written; then what others refer to: controllers, brokers, topics with their partitions. Within a
section the order is by key, so that equal images give equal snapshots, byte for byte.
"""

from collections.abc import Iterator

from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.metadata_log.records import (
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from kraftpy.types import BrokerId


def snapshot_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Records that, replayed onto EMPTY, give this image's contents.

    An image with an open transaction has no snapshot: the End or Abort that follows in the log
    would find nothing to end. ValueError, at the call.
    """
    if image.transaction is not None:
        raise ValueError(
            f"the metadata transaction begun at offset {image.transaction.begin_offset} is open"
        )
    return _records(image)


def _records(image: ClusterImage) -> Iterator[MetadataRecord]:
    yield from _features(image)
    for _, controller in sorted(image.controllers.items()):
        yield controller
    for _, broker in sorted(image.brokers.items()):
        yield broker
    for _, topic_id in sorted(image.topic_ids.items()):
        yield from _topic(image.topics[topic_id])
    yield from _configs(image)
    yield from _quotas(image)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(
            broker_id=BrokerId(-1), broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    for _, credential in sorted(image.scram.items()):
        yield credential
    for _, token in sorted(image.delegation_tokens.items()):
        yield token
    for _, acl in sorted(image.acls.items()):
        yield acl
    if image.zk_migration_state:
        yield ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state)


def _features(image: ClusterImage) -> Iterator[FeatureLevelRecord]:
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _topic(topic: Topic) -> Iterator[TopicRecord | PartitionRecord]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition_id in sorted(topic.partitions):
        yield _partition(topic, partition_id, topic.partitions[partition_id])


def _partition(topic: Topic, partition_id: int, partition: Partition) -> PartitionRecord:
    directories = partition.directories
    if all(directory == MIGRATING_DIRECTORY for directory in directories):
        directories = ()  # What replay makes of it is the same.
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic.topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=directories,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def _configs(image: ClusterImage) -> Iterator[ConfigRecord]:
    for (resource_type, resource_name), configs in sorted(image.configs.items()):
        for name, value in sorted(configs.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )


def _quotas(image: ClusterImage) -> Iterator[ClientQuotaRecord]:
    # None, the default entity, sorts before every name, the empty one included.
    def order(entity_key: object) -> list[tuple[str, bool, str]]:
        assert isinstance(entity_key, tuple)
        return [(e.entity_type, e.entity_name is not None, e.entity_name or "") for e in entity_key]

    for entity in sorted(image.quotas, key=order):
        for key, value in sorted(image.quotas[entity].items()):
            yield ClientQuotaRecord(entity=entity, key=key, value=value)
