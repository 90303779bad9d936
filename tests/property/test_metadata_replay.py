"""Replay, snapshots and diffs agree with each other on every legal log."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.metadata_log import (
    EMPTY,
    ClusterDelta,
    ClusterImage,
    MetadataRecord,
    decode_record,
    encode_record,
    image_to_json,
    replay,
    replay_batch,
    snapshot_records,
)
from tests.property.strategies import legal_logs

Log = list[list[MetadataRecord]]


def replay_batches(log: Log) -> ClusterImage:
    image = EMPTY
    for batch in log:
        image = replay_batch(image, batch, image.end_offset, epoch=1)
    return image


@given(log=legal_logs())
def test_replaying_one_by_one_or_by_batch_or_all_at_once_is_the_same(log: Log) -> None:
    by_batch = replay_batches(log)
    flat = [record for batch in log for record in batch]
    one_by_one = EMPTY
    for offset, record in enumerate(flat):
        one_by_one = replay(one_by_one, record, offset)
    at_once = replay_batch(EMPTY, flat, 0, epoch=1)
    assert by_batch.without_provenance() == one_by_one.without_provenance()
    assert at_once.without_provenance() == by_batch.without_provenance()
    assert by_batch.end_offset == one_by_one.end_offset == at_once.end_offset == len(flat)


@given(log=legal_logs())
def test_a_snapshot_rebuilds_the_image(log: Log) -> None:
    image = replay_batches(log)
    if image.transaction is not None:
        image = image.transaction.pending
    values = [encode_record(record) for record in snapshot_records(image)]
    rebuilt = replay_batch(EMPTY, map(decode_record, values), 0, epoch=1)
    assert rebuilt.without_provenance() == image.without_provenance()
    assert [encode_record(record) for record in snapshot_records(rebuilt)] == values


@given(log=legal_logs())
def test_no_record_of_a_snapshot_can_be_left_out(log: Log) -> None:
    image = replay_batches(log)
    if image.transaction is not None:
        image = image.transaction.pending
    records = list(snapshot_records(image))
    assert len(records) == (
        len(image.features)
        + len(image.controllers)
        + len(image.brokers)
        + sum(1 + len(topic.partitions) for topic in image.topics.values())
        + sum(map(len, image.configs.values()))
        + sum(map(len, image.quotas.values()))
        + (image.next_producer_id > 0)
        + len(image.scram)
        + len(image.delegation_tokens)
        + len(image.acls)
        + (image.zk_migration_state != 0)
    )


@given(log=legal_logs(), data=st.data())
def test_a_snapshot_and_the_tail_make_the_same_image(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    head, whole = replay_batches(log[:cut]), replay_batches(log)
    if head.transaction is not None:
        return
    image = replay_batch(EMPTY, snapshot_records(head), 0, epoch=1)
    offset = head.end_offset
    for batch in log[cut:]:
        image = replay_batch(image, batch, offset, epoch=1)
        offset = image.end_offset
    assert image.without_provenance() == whole.without_provenance()


@given(log=legal_logs(), data=st.data())
def test_a_diff_is_empty_exactly_for_equal_images(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    before = replay_batches(log[:cut]).without_provenance()
    after = replay_batches(log).without_provenance()
    assert (before.diff(after) == ()) == (before == after)
    assert (after.diff(before) == ()) == (before == after)


@given(log=legal_logs())
def test_topic_names_and_ids_always_match(log: Log) -> None:
    image = EMPTY
    for batch in log:
        image = replay_batch(image, batch, image.end_offset, epoch=1)
        assert dict(image.topic_ids) == {t.name: i for i, t in image.topics.items()}
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                assert len(partition.directories) == len(partition.replicas)
        assert all(image.configs.values())
        assert all(image.quotas.values())


@given(log=legal_logs())
@settings(max_examples=200)
def test_changes_name_everything_that_differs(log: Log) -> None:
    image = EMPTY
    for batch in log:
        delta = ClusterDelta(image)
        end = delta.replay_all(batch, image.end_offset)
        after, changes = delta.image(end, 1), delta.changes()
        for topic_id in {*image.topics, *after.topics}:
            old, new = image.topics.get(topic_id), after.topics.get(topic_id)
            if new is None:
                assert topic_id in changes.deleted_topics
                assert topic_id not in changes.topics
            elif old != new:
                partitions = changes.topics[topic_id]
                assert (
                    old is None
                    or {p for p in new.partitions if new.partitions[p] != old.partitions.get(p)}
                    <= partitions
                )
        for broker_id in {*image.brokers, *after.brokers}:
            if image.brokers.get(broker_id) != after.brokers.get(broker_id):
                assert broker_id in changes.brokers
        for resource in {*image.configs, *after.configs}:
            if image.configs.get(resource) != after.configs.get(resource):
                assert resource in changes.configs
        for name in ("features", "acls", "scram", "quotas", "controllers", "next_producer_id"):
            assert getattr(image, name) == getattr(after, name) or name in changes.others
        image = after


@given(log=legal_logs())
def test_json_is_the_same_for_equal_images(log: Log) -> None:
    image = replay_batches(log)
    flat = [record for batch in log for record in batch]
    again = replay_batch(EMPTY, flat, 0, epoch=image.epoch)
    assert image_to_json(image) == image_to_json(again)
