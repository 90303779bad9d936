"""The same for the rules about partitions of data."""

from typing import Any

from kraftpy.audit.rules import data_logs as data
from kraftpy.audit.rules.rows import (
    AckRow,
    CommitRow,
    DataBatchRow,
    EpochRow,
    LeaderEpochRow,
    ProducerBlock,
    ReplicaLogRow,
)
from tests.unit.audit.logs import ORDERS
from tests.unit.audit.row_cases import Found, breaks, keeps


def stored(node: int, base: int, end: int, **changed: Any) -> DataBatchRow:
    known: dict[str, Any] = {"epoch": 3, "crc": 7, "records": end - base}
    return DataBatchRow(node, ORDERS, 0, base, end, **(known | changed))


def replica(node: int, end: int, watermark: int | None = None) -> ReplicaLogRow:
    return ReplicaLogRow(node, ORDERS, 0, 0, end, end if watermark is None else watermark)


KEY = (ORDERS, 0)


@breaks(54)
def an_acked_record_that_a_replica_lacks() -> Found:
    acks = [AckRow(1, ORDERS, 0, 417, 3)]
    return data.acked_records_are_in_sync(acks, [stored(1, 400, 420)], {KEY: [1, 2]})


@keeps(54)
def an_acked_record_that_who_is_out_of_sync_lacks() -> Found:
    acks = [AckRow(1, ORDERS, 0, 417, 3)]
    rows = [stored(1, 400, 420), stored(2, 410, 418)]
    return data.acked_records_are_in_sync(acks, rows, {KEY: [1, 2]})


@breaks(55)
def replicas_with_other_bytes() -> Found:
    rows = [stored(1, 0, 5), stored(2, 0, 5, crc=8)]
    return data.replicas_are_equal(rows, [replica(1, 5), replica(2, 5)])


@breaks(55)
def a_replica_whose_epochs_fall() -> Found:
    return data.replicas_are_equal([stored(1, 0, 5), stored(1, 5, 6, epoch=2)], [])


@keeps(55)
def replicas_that_differ_above_the_high_watermark() -> Found:
    rows = [stored(1, 0, 5), stored(2, 0, 5), stored(1, 5, 9), stored(2, 5, 8, epoch=4)]
    return data.replicas_are_equal(rows, [replica(1, 9, 5), replica(2, 8, 8)])


EPOCHS = [LeaderEpochRow(ORDERS, 0, epoch, 1 + epoch % 2) for epoch in range(6)]


@breaks(56)
def an_epoch_that_the_metadata_never_had() -> Found:
    return data.epochs_are_of_leaders([EpochRow(1, ORDERS, 0, 6, 0)], [], EPOCHS)


@breaks(56)
def a_checkpoint_that_does_not_grow() -> Found:
    rows = [EpochRow(1, ORDERS, 0, 3, 10), EpochRow(1, ORDERS, 0, 5, 5)]
    return data.epochs_are_of_leaders(rows, [], EPOCHS)


@breaks(56)
def an_entry_that_begins_after_its_first_batch() -> Found:
    rows = [EpochRow(1, ORDERS, 0, 3, 10)]
    return data.epochs_are_of_leaders(rows, [stored(1, 5, 20)], EPOCHS)


@keeps(56)
def a_checkpoint_with_an_epoch_that_wrote_nothing() -> Found:
    rows = [
        EpochRow(1, ORDERS, 0, 3, 0),
        EpochRow(1, ORDERS, 0, 4, 5),
        EpochRow(1, ORDERS, 0, 5, 5),
    ]
    return data.epochs_are_of_leaders(rows, [stored(1, 0, 5), stored(1, 5, 6, epoch=5)], EPOCHS)


@breaks(57)
def an_ack_by_who_does_not_lead() -> Found:
    return data.acks_are_by_the_leader([AckRow(1, ORDERS, 0, 5, 3)], EPOCHS)


@keeps(57)
def acks_by_leaders_of_their_epochs() -> Found:
    acks = [AckRow(2, ORDERS, 0, 5, 3), AckRow(1, ORDERS, 0, 6, 4), AckRow(9, ORDERS, 0, 7, -1)]
    return data.acks_are_by_the_leader(acks, EPOCHS)


def produced(base: int, sequence: int, records: int = 1, **changed: int) -> DataBatchRow:
    known = {"producer_id": 1000, "producer_epoch": 0, "base_sequence": sequence}
    return stored(1, base, base + records, **(known | changed))


@breaks(58)
def a_sequence_twice() -> Found:
    return data.sequences_are_dense([produced(0, 6), produced(1, 7), produced(2, 7)])


@breaks(58)
def a_sequence_that_is_missing() -> Found:
    return data.sequences_are_dense([produced(0, 6, 3), produced(3, 10)])


@breaks(58)
def a_producer_id_that_nobody_gave() -> Found:
    return data.sequences_are_dense([produced(0, 0, producer_id=5000)], [ProducerBlock(0, 2000)])


@keeps(58)
def sequences_of_two_producers_and_two_epochs() -> Found:
    rows = [
        produced(0, (1 << 31) - 2, 2),
        produced(2, 0),
        produced(3, 0, producer_id=1001),
        produced(4, 0, producer_epoch=1),
        produced(5, 1),
        stored(1, 6, 9),
    ]
    return data.sequences_are_dense(rows, [ProducerBlock(1000, 2000)])


@breaks(60)
def an_offset_beyond_the_end() -> Found:
    return data.commits_are_of_what_is_there([CommitRow("g", ORDERS, 0, 120)], [replica(1, 100)])


@keeps(60)
def an_offset_at_the_end() -> Found:
    rows = [CommitRow("g", ORDERS, 0, 100), CommitRow("g", ORDERS, 7, 5)]
    return data.commits_are_of_what_is_there(rows, [replica(1, 90), replica(2, 100)])
