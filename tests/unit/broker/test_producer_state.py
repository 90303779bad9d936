"""Idempotent producers: what is appended, what was already, and what is refused."""

import struct
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.errors import ErrorCode

from kraftpy.broker.producer_state import (
    NO_PRODUCER_ID,
    ProducedBatch,
    Producer,
    ProducerStates,
    Rebuild,
    plan_rebuild,
)
from kraftpy.errors import StorageError
from kraftpy.storage.record_batch import CONTROL, TRANSACTIONAL, BatchHeader

LAST_SEQUENCE = 2**31 - 1


def header(offset: int = 0, sequence: int = 0, records: int = 1, **changed: Any) -> BatchHeader:
    known: dict[str, Any] = {
        "base_offset": offset,
        "batch_length": 100,
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": records - 1,
        "base_timestamp": 1_000 + offset,
        "max_timestamp": 1_000 + offset,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "record_count": records,
    }
    return BatchHeader(**(known | changed))


def states_with(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for each in headers:
        states.append(each)
    return states


def test_batches_without_a_producer_are_none_of_its_business() -> None:
    states = ProducerStates()
    plain = header(offset=4, producer_id=NO_PRODUCER_ID, producer_epoch=-1, sequence=-1)
    assert states.check(plain) is ErrorCode.none
    states.append(plain)
    assert states.producers == {}
    assert states.end_offset == 5


def test_a_sequence_goes_on_where_it_ended() -> None:
    states = states_with(header(0, sequence=0, records=3))
    assert states.check(header(sequence=3)) is ErrorCode.none
    assert states.check(header(sequence=4)) is ErrorCode.out_of_order_sequence_number
    assert states.check(header(sequence=2)) is ErrorCode.out_of_order_sequence_number


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(header(sequence=41, producer_epoch=3)) is ErrorCode.none


def test_any_of_the_last_five_batches_is_answered_with_its_old_place() -> None:
    states = states_with(*(header(10 * n, sequence=2 * n, records=2) for n in range(6)))
    for n in range(1, 6):
        found = states.check(header(sequence=2 * n, records=2))
        assert isinstance(found, ProducedBatch)
        assert (found.base_offset, found.last_offset) == (10 * n, 10 * n + 1)
        assert found.timestamp == 1_000 + 10 * n
    assert states.check(header(sequence=0, records=2)) is ErrorCode.out_of_order_sequence_number


def test_a_repetition_with_other_records_is_no_repetition() -> None:
    states = states_with(header(0, sequence=0, records=3))
    assert states.check(header(sequence=0, records=2)) is ErrorCode.out_of_order_sequence_number


@pytest.mark.parametrize("records", [1, 2, 5])
def test_sequences_begin_again_after_the_last_one(records: int) -> None:
    first = header(0, sequence=LAST_SEQUENCE, records=records)
    states = states_with(header(0, sequence=LAST_SEQUENCE - 1), first)
    assert isinstance(states.check(first), ProducedBatch)
    assert states.check(header(sequence=records - 1)) is ErrorCode.none
    assert states.check(header(sequence=LAST_SEQUENCE, records=9)) is (
        ErrorCode.out_of_order_sequence_number
    )


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    states = states_with(header(0, sequence=0))
    assert states.check(header(sequence=1, producer_epoch=1)) is (
        ErrorCode.out_of_order_sequence_number
    )
    assert states.check(header(sequence=0, producer_epoch=1)) is ErrorCode.none
    states.append(header(1, sequence=0, producer_epoch=1))
    assert states.check(header(sequence=1)) is ErrorCode.invalid_producer_epoch
    assert states.check(header(sequence=0)) is ErrorCode.invalid_producer_epoch
    assert isinstance(states.check(header(sequence=0, producer_epoch=1)), ProducedBatch)


def test_a_producer_without_a_sequence_is_refused() -> None:
    assert ProducerStates().check(header(sequence=-1)) is ErrorCode.invalid_record
    assert ProducerStates().check(header(producer_epoch=-1)) is ErrorCode.invalid_record


def test_idle_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    open_one = header(5, producer_id=8, attributes=TRANSACTIONAL)
    states = states_with(header(0), open_one)
    assert states.expire(now_ms=1_499, expiration_ms=500) == 0
    assert states.expire(now_ms=9_999, expiration_ms=500) == 1
    assert list(states.producers) == [8]


def test_the_oldest_open_transaction_is_known_until_its_marker() -> None:
    states = states_with(
        header(3, attributes=TRANSACTIONAL),
        header(4, sequence=1, attributes=TRANSACTIONAL),
        header(5, producer_id=8, attributes=TRANSACTIONAL),
    )
    assert states.first_undecided_offset == 3
    states.append(header(6, sequence=-1, attributes=TRANSACTIONAL | CONTROL))
    assert states.first_undecided_offset == 5
    states.append_marker(header(7, producer_id=8, producer_epoch=1), coordinator_epoch=2)
    assert states.first_undecided_offset is None
    assert states.producers[8] == Producer(1, [], 1_007, 2, -1)
    assert states.check(header(sequence=0, producer_id=8, producer_epoch=1)) is ErrorCode.none


def test_a_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    states = states_with(
        header(0, sequence=0, records=2),
        header(2, sequence=2),
        header(3, producer_id=9, attributes=TRANSACTIONAL),
        header(4, producer_id=8, sequence=-1, attributes=CONTROL),
    )
    again = ProducerStates.from_snapshot(states.snapshot(), states.end_offset)
    assert again.end_offset == 5
    assert again.producers[7] == Producer(0, [ProducedBatch(2, 2, 0, 1_002)], 1_002, -1, -1)
    assert again.producers[8] == Producer(0, [], 1_004, -1, -1)
    assert again.producers[9].transaction_first_offset == 3
    assert again.snapshot() == states.snapshot()


def test_a_snapshot_has_kafkas_bytes() -> None:
    states = states_with(header(40, sequence=5, records=3, producer_epoch=2))
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 7, 42, 2, 1_040, -1, -1)
    assert states.snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_damaged_snapshot_is_refused() -> None:
    whole = states_with(header(0)).snapshot()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        with pytest.raises(StorageError):
            ProducerStates.from_snapshot(bytes(broken), 1)
    for end in range(len(whole)):
        with pytest.raises(StorageError):
            ProducerStates.from_snapshot(whole[:end], 1)


def test_a_snapshot_and_the_tail_make_the_state_that_the_whole_log_makes() -> None:
    log = [header(n, sequence=n // 2, producer_id=7 + n % 2) for n in range(20)]
    whole = states_with(*log)
    for at in range(1, 20):
        states = ProducerStates.from_snapshot(states_with(*log[:at]).snapshot(), at)
        for each in log[at:]:
            states.append(each)
        for producer_id, producer in whole.producers.items():
            found = states.producers[producer_id]
            assert found.batches == producer.batches[-len(found.batches) :]
            assert found.last_sequence == producer.last_sequence


def test_a_snapshot_beyond_the_end_or_before_the_start_of_the_log_is_stale() -> None:
    assert plan_rebuild([5, 10, 20, 30, 31], start_offset=5, end_offset=30) == Rebuild(
        (30, 20, 10), (5, 31)
    )
    assert plan_rebuild([], 0, 10) == Rebuild((), ())
