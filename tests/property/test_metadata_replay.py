"""Replay, snapshots, transactions and diffs agree with each other on every legal log.

Each property is a plain function, so that test_metadata_planted_bugs.py can run it against a replay
with a bug in it and see that it fails.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.errors import ReplayError
from kraftpy.metadata_log import (
    EMPTY,
    RECORD_TYPES,
    Changes,
    ClusterDelta,
    ClusterImage,
    MetadataRecord,
    decode_record,
    encode_record,
    image_to_json,
    replay,
    replay_all,
    replay_batch,
    snapshot_records,
)
from kraftpy.metadata_log import records as r
from tests.property.illegal_records import RULES, illegal_record
from tests.property.strategies import legal_logs

Log = list[list[MetadataRecord]]
TRANSACTION_ENDS = (r.EndTransactionRecord, r.AbortTransactionRecord)


def flat(log: Log) -> list[MetadataRecord]:
    return [record for batch in log for record in batch]


def replay_batches(log: Log) -> ClusterImage:
    image = EMPTY
    for batch in log:
        image = replay_batch(image, batch, image.end_offset, epoch=1)
    return image


def pending_or_visible(image: ClusterImage) -> ClusterImage:
    return image if image.transaction is None else image.transaction.pending


# --- properties -----------------------------------------------------------------------------------


def steps_do_not_matter(log: Log) -> None:
    """Record by record, batch by batch and all at once lead to the same image."""
    by_batch = replay_batches(log)
    one_by_one = EMPTY
    for offset, record in enumerate(flat(log)):
        one_by_one = replay(one_by_one, record, offset)
    at_once = ClusterDelta(EMPTY)
    end_offset = at_once.replay_all(flat(log), 0)
    assert by_batch.without_provenance() == one_by_one.without_provenance()
    assert at_once.image(end_offset, by_batch.epoch) == by_batch
    assert by_batch.end_offset == one_by_one.end_offset == end_offset == len(flat(log))


def a_snapshot_rebuilds_the_image(log: Log) -> None:
    image = pending_or_visible(replay_batches(log))
    values = [encode_record(record) for record in snapshot_records(image)]
    rebuilt = replay_all(EMPTY, map(decode_record, values))
    assert rebuilt.without_provenance() == image.without_provenance()
    assert [encode_record(record) for record in snapshot_records(rebuilt)] == values


def a_snapshot_and_the_tail_make_the_same_image(log: Log) -> None:
    """Cut at every offset that is not inside a transaction."""
    records = flat(log)
    whole = replay_all(EMPTY, records)
    head = EMPTY
    for cut in range(len(records) + 1):
        if head.transaction is None:
            loaded = replay_all(EMPTY, snapshot_records(head))
            # An image that was loaded stands where the snapshot ends, not at its record count.
            image = replay_batch(loaded, records[cut:], cut, whole.epoch)
            assert image == whole
        if cut < len(records):
            head = replay(head, records[cut], cut)


def epochs_move_as_kafka_says(log: Log) -> None:
    image = EMPTY
    for offset, record in enumerate(flat(log)):
        before, image = pending_or_visible(image), replay(image, record, offset)
        if isinstance(record, r.PartitionChangeRecord):
            old = before.partition(record.topic_id, record.partition_id)
            new = pending_or_visible(image).partition(record.topic_id, record.partition_id)
            assert old is not None
            assert new is not None
            assert new.partition_epoch == old.partition_epoch + 1
            assert new.leader_epoch == old.leader_epoch + (record.leader != r.NO_CHANGE)


def transactions_are_all_or_nothing(log: Log) -> None:
    """Nothing shows before End; after it, the log might as well have had no transactions."""
    image, before = EMPTY, EMPTY
    plain: list[MetadataRecord] = []
    open_since: int | None = None
    for offset, record in enumerate(flat(log)):
        image = replay(image, record, offset)
        if isinstance(record, r.BeginTransactionRecord):
            open_since = len(plain)
            before = image
        elif isinstance(record, TRANSACTION_ENDS):
            if isinstance(record, r.AbortTransactionRecord):
                del plain[open_since:]
            open_since = None
        else:
            plain.append(record)
        if open_since is None:
            assert image.transaction is None
            expected = replay_all(EMPTY, plain)
            assert image.without_provenance() == expected.without_provenance()
        else:
            assert contents(image) == contents(before)


def contents(image: ClusterImage) -> tuple[object, ...]:
    """What the image shows to anybody, by identity: an open transaction copies nothing."""
    sections = (image.topics, image.topic_ids, image.brokers, image.configs, image.features)
    others = (image.acls, image.scram, image.quotas, image.controllers, image.delegation_tokens)
    shown = tuple(map(id, sections + others))
    return (*shown, image.next_producer_id, image.zk_migration_state)


def an_illegal_record_changes_nothing(log: Log, rule: str) -> None:
    """Refused by record, offset and rule, alone and at the end of a batch that began well."""
    image, again = replay_batches(log), replay_batches(log)
    record = illegal_record(pending_or_visible(image), image.transaction is not None, rule)
    delta = ClusterDelta(image)
    assert refused(delta, record, image.end_offset)
    assert delta.image(image.end_offset, image.epoch) == again
    assert delta.changes() == Changes()
    feature = r.FeatureLevelRecord(name="f", feature_level=3)
    with pytest.raises(ReplayError) as refusal:
        replay_batch(image, [feature, record], image.end_offset, epoch=1)
    assert refusal.value.offset == image.end_offset + 1
    assert refusal.value.record is record
    assert image == again


def refused(delta: ClusterDelta, record: MetadataRecord, offset: int) -> bool:
    try:
        delta.replay(record, offset)
    except ReplayError as error:
        return error.record is record and error.offset == offset and bool(error.rule)
    return False


def the_image_is_well_formed(log: Log) -> None:
    image = EMPTY
    for batch in log:
        image = replay_batch(image, batch, image.end_offset, epoch=1)
        assert dict(image.topic_ids) == {t.name: i for i, t in image.topics.items()}
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                assert len(partition.directories) == len(partition.replicas)
        assert all(image.configs.values())
        assert all(image.quotas.values())


def changes_name_what_differs(log: Log) -> None:
    image = EMPTY
    for batch in log:
        delta = ClusterDelta(image)
        end = delta.replay_all(batch, image.end_offset)
        after, changes = delta.image(end, 1), delta.changes()
        topics_differ_as_named(image, after, changes)
        for broker_id in {*image.brokers, *after.brokers}:
            if image.brokers.get(broker_id) != after.brokers.get(broker_id):
                assert broker_id in changes.brokers
        for resource in {*image.configs, *after.configs}:
            if image.configs.get(resource) != after.configs.get(resource):
                assert resource in changes.configs
        for name in OTHER_SECTIONS:
            assert getattr(image, name) == getattr(after, name) or name in changes.others
        image = after


OTHER_SECTIONS = ["features", "acls", "scram", "quotas", "controllers", "delegation_tokens"]
OTHER_SECTIONS += ["next_producer_id", "zk_migration_state"]


def topics_differ_as_named(before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
    for topic_id in {*before.topics, *after.topics}:
        old, new = before.topics.get(topic_id), after.topics.get(topic_id)
        if new is None:
            assert topic_id in changes.deleted_topics
            assert topic_id not in changes.topics
            continue
        kept = old is not None and topic_id not in changes.deleted_topics
        known = dict(old.partitions) if old is not None and kept else {}
        differ = {p for p in new.partitions if new.partitions[p] != known.get(p)}
        assert differ <= changes.topics.get(topic_id, frozenset())
        assert kept or topic_id in changes.topics
        assert set(known) <= set(new.partitions)


# --- their tests ----------------------------------------------------------------------------------


@given(log=legal_logs())
def test_steps_do_not_matter(log: Log) -> None:
    steps_do_not_matter(log)


@given(log=legal_logs())
def test_a_snapshot_rebuilds_the_image(log: Log) -> None:
    a_snapshot_rebuilds_the_image(log)


@given(log=legal_logs())
def test_a_snapshot_and_the_tail_make_the_same_image(log: Log) -> None:
    a_snapshot_and_the_tail_make_the_same_image(log)


@given(log=legal_logs())
def test_epochs_move_as_kafka_says(log: Log) -> None:
    epochs_move_as_kafka_says(log)


@given(log=legal_logs())
def test_transactions_are_all_or_nothing(log: Log) -> None:
    transactions_are_all_or_nothing(log)


@given(log=legal_logs(), rule=st.sampled_from(sorted(RULES)))
@settings(max_examples=200)
def test_an_illegal_record_changes_nothing(log: Log, rule: str) -> None:
    an_illegal_record_changes_nothing(log, rule)


@given(log=legal_logs())
def test_the_image_is_well_formed(log: Log) -> None:
    the_image_is_well_formed(log)


@given(log=legal_logs())
@settings(max_examples=200)
def test_changes_name_what_differs(log: Log) -> None:
    changes_name_what_differs(log)


@given(log=legal_logs())
def test_no_record_of_a_snapshot_can_be_left_out(log: Log) -> None:
    image = pending_or_visible(replay_batches(log))
    records = list(snapshot_records(image))
    for left_out in range(len(records)):
        rest = records[:left_out] + records[left_out + 1 :]
        try:
            rebuilt = replay_all(EMPTY, rest)
        except ReplayError:
            continue  # A partition without its topic.
        assert rebuilt.without_provenance() != image.without_provenance()


@given(log=legal_logs(), data=st.data())
def test_a_diff_is_empty_exactly_for_equal_images(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    before = replay_batches(log[:cut]).without_provenance()
    after = replay_batches(log).without_provenance()
    assert (before.diff(after) == ()) == (before == after)
    assert (after.diff(before) == ()) == (before == after)


@given(log=legal_logs())
def test_json_is_the_same_for_equal_images(log: Log) -> None:
    image = replay_batches(log)
    again = replay_batch(EMPTY, flat(log), 0, epoch=image.epoch)
    assert image_to_json(image) == image_to_json(again)


def test_the_logs_hold_every_type_of_record() -> None:
    """Without this, a property could hold because what breaks it is never drawn."""
    seen: set[type] = set()

    @given(log=legal_logs())
    @settings(max_examples=200, derandomize=True, database=None)
    def draw(log: Log) -> None:
        seen.update(map(type, flat(log)))

    draw()
    assert seen == set(RECORD_TYPES.values())
