"""Every property of the codec and of replay can fail: each bug planted here is caught by one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kraftpy.errors import RecordDecodeError, ReplayError
from kraftpy.metadata_log import RECORD_TYPES, ClusterImage, MetadataRecord, codec
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.draft import HANDLERS, Draft, Overlay
from kraftpy.metadata_log.fieldcheck import WireType
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.partition_merge import Illegal, merge_partition
from tests.property import test_metadata_codec as codec_properties
from tests.property import test_metadata_replay as properties
from tests.property.illegal_records import RULES
from tests.property.strategies import legal_logs, records_of

Patch = pytest.MonkeyPatch
# The package has a function of that name.
snapshots: Any = import_module("kraftpy.metadata_log.snapshot_records")
# A property fails when it says so, and when a legal record is refused.
CAUGHT = (AssertionError, pytest.fail.Exception, ReplayError)


def is_caught(check: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """The property fails on some example; any other error would be a mistake in the planting."""
    run = settings(
        max_examples=5000,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
    )(given(st.tuples(*strategies))(lambda drawn: check(*drawn)))
    with pytest.raises(CAUGHT):
        run()


# --- replay ---------------------------------------------------------------------------------------


def test_a_leader_epoch_that_stays(monkeypatch: Patch) -> None:
    def merge(old: Partition, record: r.PartitionChangeRecord) -> Partition:
        epoch = old.leader_epoch + (record.leader != r.NO_CHANGE)
        right = merge_partition(old, replace(record, leader_epoch=epoch))
        return replace(right, leader_epoch=old.leader_epoch)

    monkeypatch.setattr("kraftpy.metadata_log.draft.merge_partition", merge)
    is_caught(properties.epochs_move_as_kafka_says, legal_logs())


def test_a_partition_epoch_that_stays_when_only_the_isr_changes(monkeypatch: Patch) -> None:
    def merge(old: Partition, record: r.PartitionChangeRecord) -> Partition:
        right = merge_partition(old, replace(record, partition_epoch=old.partition_epoch + 1))
        return right if record.isr is None else replace(right, partition_epoch=old.partition_epoch)

    monkeypatch.setattr("kraftpy.metadata_log.draft.merge_partition", merge)
    is_caught(properties.epochs_move_as_kafka_says, legal_logs())


def test_an_abort_that_keeps_the_changes(monkeypatch: Patch) -> None:
    def kept(self: ClusterDelta, record: MetadataRecord, offset: int) -> None:
        aborted = isinstance(record, r.AbortTransactionRecord)
        right(self, r.EndTransactionRecord() if aborted else record, offset)

    right = ClusterDelta._replay_transaction
    monkeypatch.setattr(ClusterDelta, "_replay_transaction", kept)
    is_caught(properties.transactions_are_all_or_nothing, legal_logs())


def test_a_transaction_that_shows_before_its_end(monkeypatch: Patch) -> None:
    def shown(self: ClusterDelta, *place: int) -> ClusterImage:
        image = right(self, *place)
        if image.transaction is None:
            return image
        return replace(image, features=image.transaction.pending.features)

    right = ClusterDelta.image
    monkeypatch.setattr(ClusterDelta, "image", shown)
    is_caught(properties.transactions_are_all_or_nothing, legal_logs())


def test_a_snapshot_that_forgets_the_elr(monkeypatch: Patch) -> None:
    def forgetful(*arguments: Any) -> Any:
        return replace(right(*arguments), eligible_leader_replicas=())

    right = snapshots._partition
    monkeypatch.setattr(snapshots, "_partition", forgetful)
    is_caught(properties.a_snapshot_rebuilds_the_image, legal_logs())
    is_caught(properties.a_snapshot_and_the_tail_make_the_same_image, legal_logs())


# What a snapshot is made of; KAFKA-15860 and KAFKA-13357 were two of these.
KEPT = [r.FeatureLevelRecord, r.RegisterControllerRecord, r.RegisterBrokerRecord, r.ConfigRecord]
KEPT += [r.PartitionRecord, r.ClientQuotaRecord, r.ProducerIdsRecord, r.DelegationTokenRecord]
KEPT += [r.UserScramCredentialRecord, r.AccessControlEntryRecord, r.ZkMigrationStateRecord]


@pytest.mark.parametrize("forgotten", KEPT)
def test_a_snapshot_that_forgets_one_type(forgotten: type, monkeypatch: Patch) -> None:
    def forgetful(image: ClusterImage) -> Iterator[MetadataRecord]:
        return (record for record in right(image) if type(record) is not forgotten)

    right = snapshots._records
    monkeypatch.setattr(snapshots, "_records", forgetful)
    is_caught(properties.a_snapshot_rebuilds_the_image, legal_logs())
    is_caught(properties.a_snapshot_and_the_tail_make_the_same_image, legal_logs())


def test_clearing_every_elr_brings_removed_topics_back(monkeypatch: Patch) -> None:
    """KAFKA-19383."""

    def resurrecting(self: Draft, record: r.ClearElrRecord) -> None:
        if not record.topic_name:
            self._deleted_topics.clear()
        right(self, record)

    right = HANDLERS[r.ClearElrRecord]
    monkeypatch.setitem(HANDLERS, r.ClearElrRecord, resurrecting)
    is_caught(properties.steps_do_not_matter, legal_logs())
    is_caught(properties.the_image_is_well_formed, legal_logs())


def test_a_removal_that_is_not_merged(monkeypatch: Patch) -> None:
    def merged(self: Overlay[Any, Any]) -> Any:
        return self.base.update({k: v for k, v in self.changed.items() if v is not None})

    monkeypatch.setattr(Overlay, "merged", merged)
    is_caught(properties.steps_do_not_matter, legal_logs())


def test_a_handler_that_changes_first_and_checks_afterwards(monkeypatch: Patch) -> None:
    def hasty(self: Draft, record: r.UnregisterBrokerRecord) -> None:
        broker = self._brokers.get(record.broker_id)
        self._brokers.put(record.broker_id, None)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise Illegal("not the broker's epoch")

    monkeypatch.setitem(HANDLERS, r.UnregisterBrokerRecord, hasty)
    rule = st.just("an_unregistration_has_the_broker_epoch")
    is_caught(properties.an_illegal_record_changes_nothing, legal_logs(), rule)


def test_a_stale_broker_epoch_that_is_accepted(monkeypatch: Patch) -> None:
    def registered(self: Draft, broker_id: Any, _epoch: int) -> Any:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise Illegal("not registered")
        return broker

    monkeypatch.setattr(Draft, "_registered", registered)
    rules = st.sampled_from(sorted(RULES))
    is_caught(properties.an_illegal_record_changes_nothing, legal_logs(), rules)


def test_changes_that_leave_out_what_a_change_record_changed(monkeypatch: Patch) -> None:
    def silent(self: Draft) -> Any:
        found = right(self)
        return replace(found, topics={t: p for t, p in found.topics.items() if 0 not in p})

    right = Draft.changes
    monkeypatch.setattr(Draft, "changes", silent)
    is_caught(properties.changes_name_what_differs, legal_logs())


# --- the codec ------------------------------------------------------------------------------------

FENCE = (r.FenceBrokerRecord, 0)
PARTITION = (r.PartitionRecord, 2)


@pytest.mark.parametrize("kind", ["i32", "i64", "i8", "i32s", "uuids", "uuid"])
def test_a_decoder_that_skips_a_check(kind: str, monkeypatch: Patch) -> None:
    def unchecked(self: WireType, name: str) -> list[str]:
        return [] if self.kind == kind else right(self, name)

    cls, version = FENCE if kind == "i64" else PARTITION
    right = WireType.decode_lines
    with monkeypatch.context() as generating:
        generating.setattr(WireType, "decode_lines", unchecked)
        lax = codec._decoder(cls, version)
    monkeypatch.setitem(codec._decoders, codec._prefix(cls, version), lax)
    check = codec_properties.every_wrong_field_is_refused_by_name
    is_caught(check, records_of(cls, version), st.just(version))


def test_a_decoder_that_swaps_two_fields(monkeypatch: Patch) -> None:
    prefix = codec._prefix(*PARTITION)
    right = codec._decoder_of(*PARTITION)

    def swapped(array: tuple[Any, ...]) -> MetadataRecord:
        return right((*array[:4], array[5], array[4], *array[6:]))

    monkeypatch.setitem(codec._decoders, prefix, swapped)
    check = codec_properties.survives_the_wire
    is_caught(check, records_of(*PARTITION), st.just(PARTITION[1]))


def test_a_decoder_that_ignores_what_follows(monkeypatch: Patch) -> None:
    def lenient(value: bytes, use_list: bool = True) -> Any:
        unpacker = msgpack.Unpacker(use_list=use_list)
        unpacker.feed(value)
        try:
            return unpacker.unpack()
        except msgpack.OutOfData:
            raise ValueError("Unpack failed: incomplete input") from None

    monkeypatch.setattr(msgpack, "unpackb", lenient)
    records = st.sampled_from(list(RECORD_TYPES.values())).flatmap(records_of)
    is_caught(codec_properties.more_bytes_are_refused, records, st.binary(min_size=1))


def test_a_refusal_at_the_wrong_offset(monkeypatch: Patch) -> None:
    def misplaced(value: bytes, offset: int) -> MetadataRecord:
        try:
            return right(value, offset)
        except RecordDecodeError as error:
            raise RecordDecodeError(error.reason, offset + 1) from None

    right = codec._decode_carefully
    monkeypatch.setattr(codec, "_decode_carefully", misplaced)
    is_caught(codec_properties.is_decoded_or_refused, st.binary(max_size=20))
