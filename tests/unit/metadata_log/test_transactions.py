"""Metadata transactions: everything at End, nothing before it, nothing after Abort."""

import pytest

from kraftpy.errors import ReplayError
from kraftpy.metadata_log import (
    EMPTY,
    ClusterDelta,
    ClusterImage,
    MetadataRecord,
    replay_batch,
    snapshot_records,
)
from kraftpy.metadata_log import records as r
from tests.unit.metadata_log.makers import TOPIC_ID, acl, change, partition, register, topic

BEGIN = r.BeginTransactionRecord(name="create topics")
END = r.EndTransactionRecord()
ABORT = r.AbortTransactionRecord(reason="failover")


def replay_each(image: ClusterImage, *records: MetadataRecord) -> ClusterImage:
    for record in records:
        image = replay_batch(image, [record], image.end_offset, epoch=1)
    return image


def test_nothing_is_visible_before_the_end() -> None:
    before = replay_each(EMPTY, register())
    image = replay_each(before, BEGIN, topic(), partition(), acl())
    assert not image.topics
    assert not image.acls
    assert image.brokers is before.brokers
    assert image.transaction is not None
    assert (image.transaction.name, image.transaction.begin_offset) == ("create topics", 1)
    assert image.end_offset == 5


def test_everything_is_visible_after_the_end() -> None:
    image = replay_each(EMPTY, register(), BEGIN, topic(), partition(), change(), END)
    plain = replay_each(EMPTY, register(), topic(), partition(), change())
    assert image.without_provenance() == plain.without_provenance()


def test_an_abort_restores_what_was() -> None:
    before = replay_each(EMPTY, register(), topic(), partition())
    remove = r.RemoveTopicRecord(topic_id=TOPIC_ID)
    image = replay_each(before, BEGIN, change(), remove, acl(), ABORT)
    assert image.without_provenance() == before.without_provenance()
    assert image.topics is before.topics


def test_a_transaction_within_one_batch_is_the_same_as_over_many() -> None:
    opened: list[MetadataRecord] = [register(), BEGIN, topic(), partition()]
    assert replay_batch(EMPTY, opened, 0, epoch=1) == replay_each(EMPTY, *opened)
    records = [*opened, END, change(), BEGIN, acl(), ABORT]
    assert replay_batch(EMPTY, records, 0, epoch=1) == replay_each(EMPTY, *records)


def test_records_in_a_transaction_obey_the_rules() -> None:
    image = replay_each(EMPTY, BEGIN, topic())
    with pytest.raises(ReplayError, match="orders exists"):
        replay_each(image, topic())


def test_a_failed_batch_leaves_the_transaction_open() -> None:
    image = replay_each(EMPTY, BEGIN, topic())
    with pytest.raises(ReplayError):
        replay_batch(image, [END, END], 2, epoch=1)
    assert image.transaction is not None
    assert "orders" in replay_each(image, END).topic_ids


def test_changes_of_a_transaction_show_at_its_end_batches_later() -> None:
    image = replay_each(EMPTY, BEGIN, topic(), register())
    delta = ClusterDelta(image)
    delta.replay(partition(2), 3)
    assert not delta.changes().topics
    delta.replay(END, 4)
    assert delta.changes().topics == {TOPIC_ID: {2}}
    assert delta.changes().brokers == {1}


def test_an_image_with_an_open_transaction_has_no_snapshot() -> None:
    image = replay_each(EMPTY, register(), BEGIN)
    with pytest.raises(ValueError, match="begun at offset 1 is open"):
        snapshot_records(image)
