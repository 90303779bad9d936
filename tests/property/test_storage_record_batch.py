"""Record batches come back as they went in, and damaged ones are refused with a typed error.

Method: any records, any codec; then any single bit of the batch flipped, any cut, any bytes in
place of the records. Base offset, leader epoch and magic lie outside the CRC, so a flip there may
go unseen by `damage`: the log checks the first two against its own state.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.errors import InvalidBatch
from kraftpy.storage.record_batch import (
    CRC_START,
    Record,
    build_batch,
    build_value_batch,
    damage,
    iter_records,
    iter_values,
    read_header,
    read_varint,
    stamp,
    validate,
)

BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3).map(tuple)
CODECS = st.sampled_from([0, 1, 2, 3, 4])


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 2**20), min_size=1, max_size=8))
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap in gaps:
        records.append(
            Record(
                offset=offset,
                timestamp=draw(st.integers(-1, 2**42)),
                key=draw(BYTES),
                value=draw(BYTES),
                headers=draw(HEADERS),
            )
        )
        offset += gap
    return records


@given(records=record_lists(), codec=CODECS)
@settings(deadline=None, max_examples=200)
def test_records_come_back_as_they_went_in(records: list[Record], codec: int) -> None:
    data = build_batch(records, leader_epoch=3, attributes=codec)
    assert damage(data, 0, len(data)) is None
    assert list(iter_records(data)) == records
    header = read_header(data)
    assert header.size == len(data)
    assert header.base_offset == records[0].offset
    assert header.last_offset == records[-1].offset
    assert header.end_offset == header.last_offset + 1
    assert header.max_timestamp == max(each.timestamp for each in records)
    assert header.record_count == len(records)
    assert (header.leader_epoch, header.compression) == (3, codec)


@given(
    values=st.lists(st.binary(max_size=100) | st.integers(0, 20_000).map(bytes), min_size=1),
    base_offset=st.integers(0, 2**50),
)
@settings(deadline=None, max_examples=200)
def test_values_come_back_by_both_readers(values: list[bytes], base_offset: int) -> None:
    data = build_value_batch(values, base_offset=base_offset, leader_epoch=1, timestamp_ms=5)
    assert damage(data, 0, len(data)) is None
    assert list(iter_values(memoryview(data), read_header(data))) == values
    slow = list(iter_records(data))
    assert [each.value for each in slow] == values
    assert [each.offset for each in slow] == [base_offset + i for i in range(len(values))]


@pytest.mark.parametrize("count", [63, 64, 65, 8192, 10_000])
def test_values_are_read_across_the_lengths_of_a_varint(count: int) -> None:
    values = [bytes(i % 150) for i in range(count)]
    data = build_value_batch(values, base_offset=0, leader_epoch=1, timestamp_ms=5)
    assert list(iter_values(memoryview(data), read_header(data))) == values


@given(records=record_lists(), codec=CODECS, place=st.integers(0), bit=st.integers(0, 7))
@settings(deadline=None, max_examples=300)
def test_a_flipped_bit_under_the_crc_is_seen(
    records: list[Record], codec: int, place: int, bit: int
) -> None:
    data = build_batch(records, attributes=codec)
    at = 17 + place % (len(data) - 17)  # The CRC itself and all that it covers.
    data[at] ^= 1 << bit
    assert damage(data, 0, len(data)) is not None
    with pytest.raises(InvalidBatch):
        validate(data)


@given(records=record_lists(), cut=st.integers(0))
@settings(deadline=None, max_examples=100)
def test_a_cut_batch_is_refused(records: list[Record], cut: int) -> None:
    data = build_batch(records)
    del data[cut % len(data) :]
    with pytest.raises(InvalidBatch):
        validate(data)


@given(records=record_lists(), offset=st.integers(0, 2**60), epoch=st.integers(0, 2**30))
@settings(deadline=None, max_examples=100)
def test_a_stamp_moves_the_batch_and_leaves_the_crc(
    records: list[Record], offset: int, epoch: int
) -> None:
    data = build_batch(records)
    before = bytes(data[CRC_START:])
    header = stamp(data, 0, read_header(data), offset, epoch)
    assert damage(data, 0, len(data)) is None
    assert header == read_header(data)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    assert bytes(data[CRC_START:]) == before
    moved = [each.offset - offset for each in iter_records(data)]
    assert moved == [each.offset - records[0].offset for each in records]


@given(records=record_lists(), codec=CODECS, place=st.integers(0), noise=st.binary(min_size=1))
@settings(deadline=None, max_examples=300)
def test_nonsense_behind_a_good_header_gives_only_the_typed_error(
    records: list[Record], codec: int, place: int, noise: bytes
) -> None:
    data = build_batch(records, attributes=codec)
    at = 61 + place % max(1, len(data) - 61)
    data[at : at + len(noise)] = noise[: max(0, len(data) - at)]
    header = read_header(data)
    for read in (lambda: list(iter_records(data)), lambda: list(iter_values(bytes(data), header))):
        try:
            read()
        except InvalidBatch:
            continue


def plainly_read(data: bytearray) -> list[Record]:
    """The records of an uncompressed batch, one varint after the other, without a short cut."""
    header, body, at = read_header(data), bytes(data[61:]), 0
    found = []

    def field() -> bytes | None:
        nonlocal at
        length, at = read_varint(body, at)
        if length < 0:
            return None
        if at + length > len(body):
            raise ValueError
        at += length
        return body[at - length : at]

    def named() -> tuple[str, bytes | None]:
        name, value = field(), field()
        if name is None:
            raise ValueError
        return name.decode(), value

    for _ in range(header.record_count):
        length, at = read_varint(body, at)
        end = at + length
        timestamp, at = read_varint(body, at + 1)
        delta, at = read_varint(body, at)
        key, value = field(), field()
        count, at = read_varint(body, at)
        headers = tuple(named() for _ in range(count))
        if length < 0 or at != end:
            raise ValueError
        offset = header.base_offset + delta
        found.append(Record(offset, header.base_timestamp + timestamp, key, value, headers))
    if at != len(body):
        raise ValueError
    return found


@given(records=record_lists(), place=st.integers(0), noise=st.binary(max_size=3))
@settings(deadline=None, max_examples=300)
def test_short_numbers_are_read_as_long_ones_are(
    records: list[Record], place: int, noise: bytes
) -> None:
    data = build_batch(records)
    at = 61 + place % (len(data) - 61)
    data[at : at + len(noise)] = noise[: len(data) - at]
    try:
        expected = plainly_read(data)
    except (IndexError, ValueError):
        with pytest.raises(InvalidBatch):
            list(iter_records(data))
    else:
        assert list(iter_records(data)) == expected


def test_a_record_ends_where_it_says() -> None:
    data = build_batch([Record(offset=0, timestamp=0, key=None, value=b"v")])
    data[61] += 2  # One byte more, and there is one.
    data.append(0)
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(InvalidBatch, match="a record does not end where it says"):
        list(iter_records(data))


@given(data=st.binary(max_size=300))
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_whole_batches_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        validate(memoryview(data))
