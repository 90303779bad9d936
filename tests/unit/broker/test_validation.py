"""What a partition accepts from clients, and why it refuses the rest."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.errors import ErrorCode

from kraftpy.broker.validation import Accepted, AppendConfig, RefusedBatch, accept
from kraftpy.storage.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kraftpy.storage.record_batch import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    damage,
    iter_records,
    read_header,
)

NOW_MS = 1_700_000_000_000
PLAIN = AppendConfig()


def records(count: int = 3, **changes: Any) -> list[Record]:
    values = {"key": b"k", "value": b"v", **changes}
    return [Record(offset=i, timestamp=NOW_MS + i, **values) for i in range(count)]


def batch(found: Sequence[Record] | None = None, **fields: Any) -> bytearray:
    return build_batch(found or records(), **fields)


def with_crc(data: bytearray) -> bytearray:
    """A batch that was changed on purpose."""
    struct.pack_into(">I", data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
    return data


def refused(data: bytes | bytearray, config: AppendConfig = PLAIN, **options: Any) -> ErrorCode:
    with pytest.raises(RefusedBatch) as caught:
        accept(data, config, NOW_MS, **options)
    assert caught.value.code == caught.value.error.value
    return caught.value.error


def accepted(data: bytes | bytearray, config: AppendConfig = PLAIN, **options: Any) -> Accepted:
    found = accept(data, config, NOW_MS, **options)
    ((position, header),) = found.request.batches
    assert position == 0
    assert read_header(found.request.data) == header
    assert damage(found.request.data, 0, len(found.request.data)) is None
    return found


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_sound_batch_passes_untouched_whatever_its_codec(codec: int) -> None:
    data = batch(attributes=codec)
    before = bytes(data)
    found = accepted(data)
    assert found.request.data is data
    assert bytes(data) == before
    assert found.append_time_ms == -1


def test_read_only_bytes_are_copied() -> None:
    assert accepted(bytes(batch())).request.data == batch()
    assert accepted(memoryview(bytes(batch()))).request.data == batch()  # type: ignore[arg-type]


def test_a_batch_that_is_not_whole_is_corrupt() -> None:
    data = batch()
    data[-1] ^= 1
    assert refused(data) is ErrorCode.corrupt_message
    assert refused(batch()[:-1]) is ErrorCode.corrupt_message


def test_one_batch_of_format_2_and_nothing_else() -> None:
    assert refused(b"") is ErrorCode.invalid_record
    assert refused(batch() + batch()) is ErrorCode.invalid_record
    old = batch()
    old[16] = 1
    assert refused(old) is ErrorCode.invalid_record
    assert refused(old[:20]) is ErrorCode.invalid_record


def test_a_large_batch_is_refused_before_its_bytes_are_read() -> None:
    data = batch()
    data[-1] ^= 1
    assert refused(data, AppendConfig(batch_bytes_max=len(data) - 1)) is ErrorCode.message_too_large
    assert accepted(batch(), AppendConfig(batch_bytes_max=len(data)))


def test_offsets_and_count_must_agree() -> None:
    gap = [*records(2), Record(offset=5, timestamp=NOW_MS, key=None, value=None)]
    assert refused(batch(gap)) is ErrorCode.invalid_record


def test_clients_write_neither_control_records_nor_delete_horizons() -> None:
    assert refused(batch(attributes=CONTROL)) is ErrorCode.invalid_record
    assert refused(batch(attributes=0x40)) is ErrorCode.invalid_record


def test_codecs_that_kafka_does_not_have_are_refused() -> None:
    data = batch()
    struct.pack_into(">h", data, CRC_START, 5)
    assert refused(with_crc(data)) is ErrorCode.unsupported_compression_type


def test_zstd_is_for_those_who_know_it() -> None:
    data = batch(attributes=ZSTD)
    assert refused(data, zstd=False) is ErrorCode.unsupported_compression_type
    assert accepted(data, zstd=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_the_numbers_of_a_producer_must_be_consistent(fields: dict[str, Any]) -> None:
    assert refused(batch(**fields)) is ErrorCode.invalid_record


def test_transactional_batches_need_a_producer_and_a_transaction() -> None:
    assert refused(batch(attributes=TRANSACTIONAL), transactional=True) is ErrorCode.invalid_record
    known = batch(attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    assert refused(known) is ErrorCode.invalid_txn_state
    assert accepted(known, transactional=True)


# -- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_append_time_is_stamped_in_place_and_told_to_the_producer(codec: int) -> None:
    data = batch(attributes=codec)
    old = [record.timestamp for record in iter_records(data)]
    found = accept(data, AppendConfig(log_append_time=True), NOW_MS + 50)
    assert found.append_time_ms == NOW_MS + 50
    assert found.request.data is data
    header = read_header(data)
    assert header == found.request.batches[0][1]
    assert damage(data, 0, len(data)) is None
    assert header.attributes == codec | LOG_APPEND_TIME
    assert {record.timestamp for record in iter_records(data)} == {NOW_MS + 50} != set(old)


def test_producers_do_not_set_the_append_time() -> None:
    assert refused(batch(attributes=LOG_APPEND_TIME)) is ErrorCode.invalid_timestamp


def test_times_too_far_in_the_future_are_refused() -> None:
    data = build_batch([Record(offset=0, timestamp=NOW_MS + 1001, key=b"k", value=b"v")])
    assert refused(data, AppendConfig(timestamp_after_max_ms=1000)) is ErrorCode.invalid_timestamp
    assert accepted(data, AppendConfig(timestamp_after_max_ms=1001))
    stamped = accept(data, AppendConfig(timestamp_after_max_ms=0, log_append_time=True), NOW_MS)
    assert stamped.append_time_ms == NOW_MS


def test_times_too_far_in_the_past_are_refused_record_by_record() -> None:
    found = [
        Record(offset=i, timestamp=NOW_MS - ago, key=b"k", value=b"v")
        for i, ago in enumerate([0, 1001, 5, 2000])
    ]
    with pytest.raises(RefusedBatch) as caught:
        accept(build_batch(found), AppendConfig(timestamp_before_max_ms=1000), NOW_MS)
    assert caught.value.error is ErrorCode.invalid_timestamp
    assert [each.batch_index for each in caught.value.records] == [1, 3]


def test_records_without_a_time_are_not_judged_by_it() -> None:
    data = build_batch([Record(offset=0, timestamp=-1, key=b"k", value=b"v")])
    assert accepted(data, AppendConfig(timestamp_before_max_ms=1000))


# -- inside -------------------------------------------------------------------------------------


def test_a_compacted_topic_needs_keys() -> None:
    config = AppendConfig(compacted=True)
    assert accepted(batch(attributes=GZIP), config)
    with pytest.raises(RefusedBatch) as caught:
        accept(batch(records(key=None), attributes=GZIP), config, NOW_MS)
    assert caught.value.error is ErrorCode.invalid_record
    assert [each.batch_index for each in caught.value.records] == [0, 1, 2]


@pytest.mark.parametrize("before", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("after", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_topic_with_a_codec_keeps_the_same_records_in_it(before: int, after: int) -> None:
    fields = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 4}
    headers = (("trace", b"1"), ("none", None))
    data = batch(records(headers=headers), attributes=before, **fields)
    found = accepted(data, AppendConfig(compression=after))
    header = found.request.batches[0][1]
    assert header.compression == after
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 4)
    assert list(iter_records(found.request.data)) == list(iter_records(data))
    assert (found.request.data is data) == (before == after)


def test_what_grows_too_large_in_another_codec_is_refused() -> None:
    data = batch(records(value=bytes(1000)), attributes=GZIP)
    config = AppendConfig(compression=NONE, batch_bytes_max=1000)
    assert refused(data, config) is ErrorCode.message_too_large


def test_records_that_are_not_what_the_header_says_are_corrupt_where_somebody_looks() -> None:
    data = batch()
    header = read_header(data)
    struct.pack_into(">i", data, CRC_START + 2, header.last_offset_delta + 1)
    struct.pack_into(">i", data, HEADER_BYTES - 4, header.record_count + 1)
    assert refused(with_crc(data), AppendConfig(compacted=True)) is ErrorCode.corrupt_message
