"""Images in words and as JSON."""

import json

from kraftpy.metadata_log import (
    EMPTY,
    ClusterImage,
    MetadataRecord,
    image_to_json,
    replay_batch,
    snapshot_records,
)
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId
from tests.unit.metadata_log.makers import (
    OTHER_ID,
    TOPIC_ID,
    acl,
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


def image_of(*records: MetadataRecord) -> ClusterImage:
    return replay_batch(EMPTY, records, 0, epoch=1).without_provenance()


FULL = image_of(
    *(register(2), register(1), topic("b", OTHER_ID), topic(), partition(1), partition(0)),
    *(config("z", "1"), config("a", "2"), quota(2.5), quota(1.0, user=None), producer_ids(1000)),
    *(scram(), token(), acl(), controller()),
    r.FeatureLevelRecord(name="group.version", feature_level=1),
    r.FeatureLevelRecord(name=r.METADATA_VERSION, feature_level=25),
    r.ZkMigrationStateRecord(zk_migration_state=2),
)


def test_equal_images_have_no_diff() -> None:
    assert FULL.diff(FULL) == ()
    rebuilt = replay_batch(EMPTY, snapshot_records(FULL), 0, epoch=1).without_provenance()
    assert FULL.diff(rebuilt) == ()


def test_a_diff_says_what_was_added() -> None:
    assert EMPTY.diff(FULL) == (
        "feature group.version added at 1",
        "feature metadata.version added at 25",
        "controller 3000 added",
        "broker 1 added",
        "broker 2 added",
        "topic b (VVVVVVVVVVVVVVVVVVVVVQ) added with 0 partitions",
        "topic orders (VFRUVFRUVFRUVFRUVFRUVA) added with 2 partitions",
        "config of topic orders: a (none) -> 2",
        "config of topic orders: z (none) -> 1",
        "quota of user (default): producer_byte_rate (none) -> 1.0",
        "quota of user alice: producer_byte_rate (none) -> 2.5",
        "next producer id: 0 -> 1000",
        "SCRAM credential alice/1 added",
        "delegation token token-1 added",
        "ACL QUFBQUFBQUFBQUFBQUFBQQ added",
        "ZooKeeper migration state: 0 -> 2",
    )


def test_a_diff_says_what_was_removed() -> None:
    sentences = FULL.diff(EMPTY)
    assert "broker 1 removed" in sentences
    assert "topic orders (VFRUVFRUVFRUVFRUVFRUVA) removed" in sentences
    assert "config of topic orders: a 2 -> (none)" in sentences


def test_a_diff_says_what_changed_field_by_field() -> None:
    records: list[MetadataRecord] = [
        r.UnfenceBrokerRecord(id=BrokerId(1), epoch=10),
        partition(2),
        r.UserScramCredentialRecord(
            name="alice",
            mechanism=1,
            salt=b"salt",
            stored_key=b"new",
            server_key=b"server-secret",
            iterations=8192,
        ),
    ]
    after = replay_batch(FULL, records, 0, epoch=-1).without_provenance()
    assert FULL.diff(after) == (
        "broker 1: fenced True -> False",
        "partition orders-2 added: leader 1, isr [1, 2, 3]",
        "SCRAM credential alice/1: stored_key changed, iterations 4096 -> 8192",
    )


def test_a_diff_takes_names_as_they_are() -> None:
    before = image_of(topic("{x}"), partition(0))
    after = image_of(topic("{x}"), partition(0), partition(1))
    assert before.diff(after) == ("partition {x}-1 added: leader 1, isr [1, 2, 3]",)


def test_a_diff_shows_an_open_transaction() -> None:
    begun = replay_batch(EMPTY, [r.BeginTransactionRecord(name="t")], 0, epoch=-1)
    more = replay_batch(begun, [topic()], 1, epoch=-1)
    added = "topic orders (VFRUVFRUVFRUVFRUVFRUVA) added with 0 partitions"
    assert EMPTY.diff(begun) == ("end offset: 0 -> 1", "metadata transaction t open since 0")
    assert begun.diff(more)[1:] == (f"in the open metadata transaction: {added}",)
    assert more.diff(EMPTY)[1:] == ("metadata transaction begun at 0 closed",)


def test_json_has_text_ids_sorted_keys_and_no_secrets() -> None:
    text = json.dumps(image_to_json(FULL), allow_nan=False)
    found = json.loads(text)
    assert list(found["topics"]) == ["b", "orders"]
    assert found["topics"]["orders"]["topic_id"] == "VFRUVFRUVFRUVFRUVFRUVA"
    assert found["topics"]["orders"]["partitions"]["0"]["isr"] == [1, 2, 3]
    assert list(found["brokers"]) == ["1", "2"]
    assert found["scram"] == [{"name": "alice", "mechanism": 1, "iterations": 4096}]
    assert "secret" not in text
    assert found["transaction"] is None


def test_a_snapshot_begins_with_the_metadata_version_and_is_sorted() -> None:
    records = list(snapshot_records(FULL))
    assert isinstance(records[0], r.FeatureLevelRecord)
    assert records[0].name == r.METADATA_VERSION
    kinds = [type(record).__name__ for record in records]
    assert kinds == [
        *("FeatureLevelRecord", "FeatureLevelRecord", "RegisterControllerRecord"),
        *("RegisterBrokerRecord", "RegisterBrokerRecord"),
        *("TopicRecord", "TopicRecord", "PartitionRecord", "PartitionRecord"),
        *("ConfigRecord", "ConfigRecord", "ClientQuotaRecord", "ClientQuotaRecord"),
        *("ProducerIdsRecord", "UserScramCredentialRecord", "DelegationTokenRecord"),
        *("AccessControlEntryRecord", "ZkMigrationStateRecord"),
    ]
    assert [p.partition_id for p in records if isinstance(p, r.PartitionRecord)] == [0, 1]
    assert TOPIC_ID in FULL.topics
