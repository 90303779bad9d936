"""For any image, a record that breaks a given rule of replay."""

from collections.abc import Callable

from kraftpy.metadata_log import ClusterImage, MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, TopicId, Uuid

NOBODY = BrokerId(99)
NOWHERE = TopicId(Uuid(b"\xff" * 16))


def illegal_record(image: ClusterImage, in_transaction: bool, rule: str) -> MetadataRecord:
    """A record that breaks `rule`, or, where the image has nothing to break it with, another."""
    record = RULES[rule](image)
    if record is not None:
        return record
    return r.BeginTransactionRecord() if in_transaction else r.EndTransactionRecord()


def _stale_fence(image: ClusterImage) -> MetadataRecord | None:
    for broker_id, broker in sorted(image.brokers.items()):
        return r.FenceBrokerRecord(id=broker_id, epoch=broker.broker_epoch + 1)
    return None


def _stale_change(image: ClusterImage) -> MetadataRecord | None:
    for broker_id, broker in sorted(image.brokers.items()):
        return r.BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.broker_epoch - 1, fenced=r.FENCE
        )
    return None


def _stale_unregistration(image: ClusterImage) -> MetadataRecord | None:
    for broker_id, broker in sorted(image.brokers.items()):
        return r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch + 1)
    return None


def _unknown_broker(image: ClusterImage) -> MetadataRecord | None:
    assert NOBODY not in image.brokers
    return r.UnfenceBrokerRecord(id=NOBODY, epoch=1)


def _second_topic_of_a_name(image: ClusterImage) -> MetadataRecord | None:
    for name in sorted(image.topic_ids):
        return r.TopicRecord(name=name, topic_id=NOWHERE)
    return None


def _second_topic_of_an_id(image: ClusterImage) -> MetadataRecord | None:
    for topic_id in sorted(image.topics):
        return r.TopicRecord(name="another", topic_id=topic_id)
    return None


def _partition_of_no_topic(image: ClusterImage) -> MetadataRecord | None:
    assert NOWHERE not in image.topics
    return _partition(NOWHERE, ())


def _too_few_directories(image: ClusterImage) -> MetadataRecord | None:
    for topic_id in sorted(image.topics):
        return _partition(topic_id, (Uuid(b"d" * 16),))
    return None


def _change_of_no_partition(image: ClusterImage) -> MetadataRecord | None:
    for topic_id in sorted(image.topics):
        return r.PartitionChangeRecord(
            partition_id=50, topic_id=topic_id, leader_epoch=0, partition_epoch=1
        )
    return None


def _wrong_witness(leader_epochs: int, partition_epochs: int) -> "Rule":
    def broken(image: ClusterImage) -> MetadataRecord | None:
        for topic_id, topic in sorted(image.topics.items()):
            for partition_id, old in sorted(topic.partitions.items()):
                return r.PartitionChangeRecord(
                    partition_id=partition_id,
                    topic_id=topic_id,
                    isr=(),
                    leader=BrokerId(1),
                    leader_epoch=old.leader_epoch + leader_epochs,
                    partition_epoch=old.partition_epoch + partition_epochs,
                )
        return None

    return broken


def _partition(topic_id: TopicId, directories: tuple[Uuid, ...]) -> r.PartitionRecord:
    replicas = (BrokerId(1), BrokerId(2))
    return r.PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=BrokerId(1),
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )


def _used_producer_ids(image: ClusterImage) -> MetadataRecord | None:
    return r.ProducerIdsRecord(
        broker_id=NOBODY, broker_epoch=0, next_producer_id=image.next_producer_id
    )


Rule = Callable[[ClusterImage], MetadataRecord | None]
RULES: dict[str, Rule] = {
    "a_fence_has_the_broker_epoch": _stale_fence,
    "a_broker_change_has_the_broker_epoch": _stale_change,
    "an_unregistration_has_the_broker_epoch": _stale_unregistration,
    "only_registered_brokers_change": _unknown_broker,
    "a_name_has_one_topic": _second_topic_of_a_name,
    "an_id_has_one_topic": _second_topic_of_an_id,
    "a_partition_has_a_topic": _partition_of_no_topic,
    "a_replica_has_a_directory": _too_few_directories,
    "only_partitions_that_exist_change": _change_of_no_partition,
    "a_leader_has_a_new_epoch": _wrong_witness(0, 1),
    "a_change_has_a_new_partition_epoch": _wrong_witness(1, 0),
    "a_change_has_the_next_partition_epoch": _wrong_witness(1, 2),
    "only_topics_that_exist_go": lambda _: r.RemoveTopicRecord(topic_id=NOWHERE),
    "only_topics_that_exist_lose_their_elr": lambda _: r.ClearElrRecord(topic_name="nowhere"),
    "producer_ids_grow": _used_producer_ids,
    "only_acls_that_exist_go": lambda _: r.RemoveAccessControlEntryRecord(id=NOWHERE),
    "only_credentials_that_exist_go": lambda _: r.RemoveUserScramCredentialRecord(
        name="nobody", mechanism=1
    ),
    "only_registered_controllers_go": lambda _: r.UnregisterControllerRecord(controller_id=NOBODY),
    "feature_levels_are_not_negative": lambda _: r.FeatureLevelRecord(name="f", feature_level=-1),
    "migration_states_are_known": lambda _: r.ZkMigrationStateRecord(zk_migration_state=9),
    "transactions_are_not_nested": lambda _: None,
}
