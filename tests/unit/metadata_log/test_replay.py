"""The rules of replay, one test each, and what legal records do to the image."""

import pytest
from immutables import Map

from kraftpy.errors import ReplayError
from kraftpy.metadata_log import (
    EMPTY,
    Changes,
    ClusterDelta,
    ClusterImage,
    MetadataRecord,
    replay_batch,
)
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.unit.metadata_log.makers import (
    DIR,
    OTHER_ID,
    TOPIC_ID,
    acl,
    brokers,
    change,
    config,
    controller,
    partition,
    producer_ids,
    quota,
    register,
    scram,
    token,
    topic,
)

ONE = BrokerId(1)
REMOVE = r.RemoveTopicRecord(topic_id=TOPIC_ID)


def image_of(*records: MetadataRecord) -> ClusterImage:
    return replay_batch(EMPTY, records, 0, epoch=1)


# Each case: what came before, the illegal record, and the rule it must name.
ILLEGAL: dict[str, tuple[list[MetadataRecord], MetadataRecord, str]] = {
    "fencing_an_unknown_broker": ([], r.FenceBrokerRecord(id=ONE, epoch=10), "not registered"),
    "fencing_with_an_old_epoch": (
        [register(), register(epoch=20)],
        r.FenceBrokerRecord(id=ONE, epoch=10),
        "broker 1 has epoch 20, the record says 10",
    ),
    "unfencing_with_another_epoch": (
        [register()],
        r.UnfenceBrokerRecord(id=ONE, epoch=11),
        "has epoch 10",
    ),
    "changing_with_another_epoch": (
        [register()],
        r.BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=11),
        "has epoch 10",
    ),
    "unregistering_with_another_epoch": (
        [register()],
        r.UnregisterBrokerRecord(broker_id=ONE, broker_epoch=11),
        "has epoch 10",
    ),
    "changing_an_unregistered_broker": (
        [register(), r.UnregisterBrokerRecord(broker_id=ONE, broker_epoch=10)],
        r.BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=10),
        "not registered",
    ),
    "an_unknown_fencing_change": (
        [register()],
        r.BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=10, fenced=2),
        "fenced is -1, 0 or 1",
    ),
    "an_unknown_shutdown_change": (
        [register()],
        r.BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=10, in_controlled_shutdown=-1),
        "in_controlled_shutdown is 0 or 1",
    ),
    "a_live_name_with_another_id": ([topic()], topic(topic_id=OTHER_ID), "orders exists with id"),
    "a_live_topic_again": ([topic()], topic(), "orders exists with id"),
    "a_live_id_with_another_name": ([topic()], topic("audit"), "belongs to another live topic"),
    "a_partition_of_an_unknown_topic": ([], partition(), "is unknown or was removed"),
    "a_change_of_an_unknown_topic": ([], change(), "is unknown or was removed"),
    "a_change_of_an_unknown_partition": ([topic(), partition()], change(1), "has no partition 1"),
    "removing_an_unknown_topic": ([], REMOVE, "is unknown or was removed"),
    "removing_a_topic_twice": ([topic(), REMOVE], REMOVE, "is unknown or was removed"),
    "a_partition_of_a_removed_topic": (
        [topic(), partition(), REMOVE],
        partition(),
        "is unknown or was removed",
    ),
    "a_change_of_a_removed_topic": (
        [topic(), partition(), REMOVE],
        change(),
        "is unknown or was removed",
    ),
    "clearing_the_elr_of_an_unknown_topic": (
        [],
        r.ClearElrRecord(topic_name="orders"),
        "no topic orders",
    ),
    "clearing_the_elr_of_a_removed_topic": (
        [topic(), REMOVE],
        r.ClearElrRecord(topic_name="orders"),
        "no topic orders",
    ),
    "a_wrong_partition_epoch": (
        [topic(), partition()],
        change(partition_epoch=9),
        "replay arrives at leader epoch 4 and partition epoch 8",
    ),
    "a_leader_epoch_without_a_leader": (
        [topic(), partition()],
        change(leader_epoch=5),
        "replay arrives at leader epoch 4",
    ),
    "a_leader_without_a_leader_epoch": (
        [topic(), partition()],
        change(leader=BrokerId(2), leader_epoch=4),
        "replay arrives at leader epoch 5",
    ),
    "too_few_directories": (
        [topic()],
        partition(directories=tuple(DIR[:2])),
        "2 directories for 3 replicas",
    ),
    "too_few_directories_in_a_change": (
        [topic(), partition()],
        change(directories=tuple(DIR[:2])),
        "2 directories for 3 replicas",
    ),
    "directories_for_the_old_replicas": (
        [topic(), partition()],
        change(replicas=brokers(1, 2), directories=tuple(DIR[:3])),
        "3 directories for 2 replicas",
    ),
    "replicas_that_named_a_broker_twice": (
        [topic(), partition(replicas=brokers(1, 1))],
        change(replicas=brokers(1, 2)),
        "name a broker twice",
    ),
    "an_unknown_recovery_state": (
        [topic()],
        partition(leader_recovery_state=2),
        "not a leader recovery state",
    ),
    "an_unknown_recovery_state_in_a_change": (
        [topic(), partition()],
        change(leader_recovery_state=2),
        "not a leader recovery state",
    ),
    "producer_ids_that_do_not_grow": ([producer_ids(1000)], producer_ids(1000), "does not grow"),
    "producer_ids_that_shrink": ([producer_ids(1000)], producer_ids(500), "does not grow"),
    "removing_an_unknown_acl": (
        [],
        r.RemoveAccessControlEntryRecord(id=Uuid(b"A" * 16)),
        "no ACL with id",
    ),
    "removing_an_acl_twice": (
        [acl(), r.RemoveAccessControlEntryRecord(id=Uuid(b"A" * 16))],
        r.RemoveAccessControlEntryRecord(id=Uuid(b"A" * 16)),
        "no ACL with id",
    ),
    "removing_an_unknown_credential": (
        [scram(mechanism=1)],
        r.RemoveUserScramCredentialRecord(name="alice", mechanism=2),
        "no SCRAM credential",
    ),
    "unregistering_an_unknown_controller": (
        [],
        r.UnregisterControllerRecord(controller_id=BrokerId(3000)),
        "controller 3000 is not registered",
    ),
    "a_negative_feature_level": (
        [],
        r.FeatureLevelRecord(name="group.version", feature_level=-1),
        "not negative",
    ),
    "an_unknown_migration_state": (
        [],
        r.ZkMigrationStateRecord(zk_migration_state=5),
        "not a ZooKeeper migration state",
    ),
    "a_transaction_in_a_transaction": (
        [r.BeginTransactionRecord()],
        r.BeginTransactionRecord(),
        "begun at offset 0 is still open",
    ),
    "an_end_without_a_begin": ([], r.EndTransactionRecord(), "no metadata transaction is open"),
    "an_abort_without_a_begin": (
        [r.BeginTransactionRecord(), r.EndTransactionRecord()],
        r.AbortTransactionRecord(),
        "no metadata transaction is open",
    ),
}


@pytest.mark.parametrize("case", ILLEGAL)
@pytest.mark.parametrize("same_batch", [True, False], ids=["in_one_batch", "batches_later"])
def test_an_illegal_record_is_refused_by_name(case: str, same_batch: bool) -> None:
    before, illegal, rule = ILLEGAL[case]
    image = EMPTY if same_batch else image_of(*before)
    expected = EMPTY if same_batch else image_of(*before)
    batch = [*before, illegal] if same_batch else [illegal]
    with pytest.raises(ReplayError) as refused:
        replay_batch(image, batch, image.end_offset, epoch=1)
    assert rule in refused.value.rule
    assert refused.value.offset == len(before)
    assert refused.value.record is illegal
    assert image == expected


@pytest.mark.parametrize("case", ILLEGAL)
def test_a_delta_is_as_it_was_after_an_illegal_record(case: str) -> None:
    before, illegal, _ = ILLEGAL[case]
    delta = ClusterDelta(EMPTY)
    delta.replay_all(before, 0)
    with pytest.raises(ReplayError):
        delta.replay(illegal, len(before))
    assert delta.image(len(before), 1) == image_of(*before)


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_record_changes_nothing_not_even_the_changes(case: str) -> None:
    before, illegal, _ = ILLEGAL[case]
    image = image_of(*before)
    delta = ClusterDelta(image)
    with pytest.raises(ReplayError):
        delta.replay(illegal, len(before))
    assert delta.changes() == Changes()
    assert delta.image(len(before), 1).topics is image.topics


def test_what_is_not_a_record_is_refused() -> None:
    with pytest.raises(ReplayError, match="str is not a metadata record"):
        replay_batch(EMPTY, ["TopicRecord"], 0, epoch=1)  # type: ignore[list-item]


def test_a_topic_may_be_created_again_after_its_removal() -> None:
    image = image_of(topic(), partition(), REMOVE, topic(topic_id=OTHER_ID))
    assert dict(image.topic_ids) == {"orders": OTHER_ID}
    assert list(image.topics) == [OTHER_ID]


def test_an_id_that_returns_brings_no_partitions_back() -> None:
    image = image_of(topic(), partition())
    image = replay_batch(image, [REMOVE, topic("audit")], 2, epoch=1)
    found = image.topic("audit")
    assert found is not None
    assert not found.partitions
    assert image.topic("orders") is None


def test_removing_a_topic_removes_its_configs_only() -> None:
    image = image_of(
        topic(), config("retention.ms", "5"), config("retention.ms", "6", "audit"), REMOVE
    )
    assert list(image.configs) == [(r.TOPIC_RESOURCE, "audit")]


def test_a_config_without_keys_is_gone() -> None:
    image = image_of(config("a", "1"), config("b", "2"), config("a", None))
    assert dict(image.configs[r.TOPIC_RESOURCE, "orders"]) == {"b": "2"}
    assert not image_of(config("a", "1"), config("a", None), config("b", None)).configs


def test_a_change_keeps_what_it_does_not_name() -> None:
    before = image_of(topic(), partition(directories=tuple(DIR[:3])))
    after = replay_batch(before, [change(isr=brokers(1, 2))], 2, epoch=1)
    assert before.diff(after) == (
        "end offset: 2 -> 3",
        "partition orders-0: isr [1, 2, 3] -> [1, 2], partition_epoch 7 -> 8",
    )


def test_naming_the_same_leader_is_an_election() -> None:
    image = image_of(topic(), partition(), change(leader=ONE, leader_epoch=5))
    found = image.partition(TOPIC_ID, 0)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (1, 5, 8)


def test_every_named_field_is_taken_over() -> None:
    image = image_of(
        topic(),
        partition(),
        change(
            isr=brokers(4),
            leader=BrokerId(4),
            replicas=brokers(4, 1),
            removing_replicas=brokers(1),
            adding_replicas=brokers(4),
            leader_recovery_state=r.RECOVERING,
            eligible_leader_replicas=brokers(2),
            last_known_elr=brokers(3),
            directories=tuple(DIR[:2]),
            leader_epoch=5,
        ),
    )
    found = image.partition(TOPIC_ID, 0)
    assert found is not None
    assert (found.isr, found.leader, found.replicas) == ((4,), 4, (4, 1))
    assert (found.removing_replicas, found.adding_replicas) == ((1,), (4,))
    assert (found.leader_recovery_state, found.elr, found.last_known_elr) == (1, (2,), (3,))
    assert found.directories == tuple(DIR[:2])


def test_replicas_that_stay_keep_their_directories() -> None:
    image = image_of(
        topic(), partition(directories=tuple(DIR[:3])), change(replicas=brokers(3, 4, 1))
    )
    found = image.partition(TOPIC_ID, 0)
    assert found is not None
    assert found.directories == (DIR[2], r.UNASSIGNED_DIRECTORY, DIR[0])


def test_a_partition_without_directories_has_migrating_ones() -> None:
    image = image_of(topic(), partition())
    found = image.partition(TOPIC_ID, 0)
    assert found is not None
    assert found.directories == (r.MIGRATING_DIRECTORY,) * 3


@pytest.mark.parametrize("name", ["orders", ""])
def test_clearing_the_elr_moves_the_partition_epoch_of_those_that_had_one(name: str) -> None:
    before = image_of(
        topic(),
        partition(0, eligible_leader_replicas=brokers(2), last_known_elr=brokers(3)),
        partition(1),
        topic("audit", OTHER_ID),
        partition(0, topic_id=OTHER_ID, last_known_elr=brokers(3)),
    )
    after = replay_batch(before, [r.ClearElrRecord(topic_name=name)], 5, epoch=1)
    cleared = "partition orders-0: partition_epoch 7 -> 8, elr [2] -> [], last_known_elr [3] -> []"
    other = "partition audit-0: partition_epoch 7 -> 8, last_known_elr [3] -> []"
    assert before.diff(after)[1:] == ((cleared,) if name else (other, cleared))


def test_clearing_every_elr_does_not_bring_a_removed_topic_back() -> None:
    image = image_of(topic(), partition(last_known_elr=brokers(3)))
    image = replay_batch(image, [REMOVE, r.ClearElrRecord(topic_name="")], 2, epoch=1)
    assert not image.topics


def test_a_broker_is_fenced_unfenced_changed_and_unregistered() -> None:
    image = image_of(register(), r.UnfenceBrokerRecord(id=ONE, epoch=10))
    assert not image.brokers[ONE].fenced
    shutdown = r.BrokerRegistrationChangeRecord(
        broker_id=ONE,
        broker_epoch=10,
        in_controlled_shutdown=1,
        log_dirs=(DIR[0],),
        cordoned_log_dirs=(DIR[1],),
    )
    image = replay_batch(image, [shutdown], 2, epoch=1)
    broker = image.brokers[ONE]
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ((DIR[0],), (DIR[1],))
    image = replay_batch(image, [r.FenceBrokerRecord(id=ONE, epoch=10)], 3, epoch=1)
    assert image.brokers[ONE].fenced
    unfence = r.BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=10, fenced=-1)
    image = replay_batch(image, [unfence], 4, epoch=1)
    assert not image.brokers[ONE].fenced
    gone = r.UnregisterBrokerRecord(broker_id=ONE, broker_epoch=10)
    assert not replay_batch(image, [gone], 5, epoch=1).brokers


def test_the_other_sections_take_and_lose_their_entries() -> None:
    added: list[MetadataRecord] = [
        acl(),
        scram(),
        token(),
        controller(),
        quota(5.0),
        producer_ids(1000),
    ]
    added += [r.FeatureLevelRecord(name="group.version", feature_level=1)]
    added += [r.ZkMigrationStateRecord(zk_migration_state=2)]
    image = image_of(*added)
    assert (len(image.acls), len(image.scram), len(image.delegation_tokens)) == (1, 1, 1)
    assert (len(image.controllers), len(image.quotas), len(image.features)) == (1, 1, 1)
    assert (image.next_producer_id, image.zk_migration_state) == (1000, 2)
    removed: list[MetadataRecord] = [
        r.RemoveAccessControlEntryRecord(id=Uuid(b"A" * 16)),
        r.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        r.RemoveDelegationTokenRecord(token_id="token-1"),
        r.UnregisterControllerRecord(controller_id=BrokerId(3000)),
        quota(0.0, remove=True),
        r.FeatureLevelRecord(name="group.version", feature_level=0),
        r.ZkMigrationStateRecord(zk_migration_state=0),
    ]
    image = replay_batch(image, removed, 8, epoch=1)
    assert image.without_provenance() == image_of(producer_ids(1000)).without_provenance()


def test_a_quota_entity_is_the_same_in_any_order() -> None:
    user = r.QuotaEntity(entity_type="user", entity_name="alice")
    client = r.QuotaEntity(entity_type="client-id", entity_name=None)
    first = r.ClientQuotaRecord(entity=(user, client), key="k", value=1.0)
    second = r.ClientQuotaRecord(entity=(client, user), key="k", value=2.0)
    assert list(image_of(first, second).quotas.items()) == [((client, user), Map(k=2.0))]


def test_what_did_not_change_is_shared() -> None:
    before = image_of(
        register(), topic(), partition(), topic("audit", OTHER_ID), config("a", "1"), acl()
    )
    after = replay_batch(before, [change(isr=brokers(1))], 6, epoch=1)
    assert after.topics[OTHER_ID] is before.topics[OTHER_ID]
    for name in ("brokers", "configs", "acls", "topic_ids", "features", "quotas", "controllers"):
        assert getattr(after, name) is getattr(before, name)
    assert before.partition(TOPIC_ID, 0) != after.partition(TOPIC_ID, 0)


def test_changes_name_what_became_visible() -> None:
    image = image_of(topic(), partition(0), partition(1), topic("audit", OTHER_ID))
    delta = ClusterDelta(image)
    gone = r.RemoveTopicRecord(topic_id=OTHER_ID)
    delta.replay_all([change(1), gone, register(), config("a", "1"), acl()], 4)
    changes = delta.changes()
    assert changes.topics == {TOPIC_ID: {1}}
    assert changes.deleted_topics == {OTHER_ID}
    assert changes.brokers == {1}
    assert changes.configs == {(r.TOPIC_RESOURCE, "orders")}
    assert changes.others == {"acls"}


def test_a_topic_whose_id_came_back_was_deleted_too() -> None:
    image = image_of(topic(), partition(0), partition(1))
    delta = ClusterDelta(image)
    delta.replay_all([REMOVE, topic(), partition(1)], 3)
    changes = delta.changes()
    assert changes.deleted_topics == {TOPIC_ID}
    assert changes.topics == {TOPIC_ID: {1}}


def test_the_image_says_where_it_ends() -> None:
    image = replay_batch(EMPTY, [r.NoOpRecord(), topic()], 40, epoch=3, timestamp_ms=99)
    assert (image.end_offset, image.epoch, image.timestamp_ms) == (42, 3, 99)
    assert image.topics[TopicId(TOPIC_ID)].name == "orders"
