"""Segments that are replaced, gaps that this leaves, and records taken out of batches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.errors import CorruptRecord, InvalidBatch, OffsetOutOfRange, StorageError
from kraftpy.storage.log import Log
from kraftpy.storage.raw_records import read_raw_records, rebuild
from kraftpy.storage.reader import LogReader
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    iter_records,
    read_header,
)
from kraftpy.storage.replacement import CleanedSegment
from kraftpy.testing import SimulatedFiles
from tests.unit.storage.log_driver import DIRECTORY, LAZY, Driver
from tests.unit.storage.log_model import BASE_MS, batch_of, place_all

TOPIC = replace(LAZY, of_topic=True)


def opened(count: int = 12) -> Driver:
    """Segments of three batches with two records each."""
    run = Driver(SimulatedFiles(), TOPIC)
    run.open()
    run.append([batch_of([BASE_MS + i, BASE_MS + i], bytes(60)) for i in range(count)], epoch=1)
    run.flush()
    return run


def kept_offsets(log: Log) -> list[int]:
    batches = log.batches(log.start_offset)
    return [record.offset for _, data in batches for record in iter_records(data)]


def test_reading_in_a_gap_gives_what_follows_it() -> None:
    run = opened()
    run.compact(0, 2, lambda header, data: None if header.base_offset in (2, 4, 6) else data)
    for offset in range(2, 8):
        data = run.log.read(offset, bytes_max=1).read()
        assert read_header(data).end_offset > offset
    assert read_header(run.log.read(3, 1).read()).base_offset >= 4
    with pytest.raises(OffsetOutOfRange):
        run.log.read(run.log.end_offset + 1, 1)


def test_truncating_in_a_gap_ends_before_it() -> None:
    run = opened()
    run.compact(0, 1, lambda header, data: None if header.base_offset == 2 else data)
    assert run.log.truncate_to(3) == 2
    run.log.append(batch_of([BASE_MS]), epoch=2)
    assert kept_offsets(run.log) == [0, 1, 2]


def test_a_replica_takes_gaps_only_for_a_topic() -> None:
    run = opened(1)
    far = place_all([batch_of([BASE_MS])], 10, 1)[0].data
    run.log.append_replicated(far)
    assert (run.log.end_offset, kept_offsets(run.log)) == (11, [0, 1, 10])
    with pytest.raises(InvalidBatch, match="was due"):
        run.log.append_replicated(far)
    strict = Driver(SimulatedFiles(), LAZY)
    strict.open()
    with pytest.raises(InvalidBatch, match="was due"):
        strict.log.append_replicated(far)


def test_a_replica_takes_larger_batches_than_clients_may_send() -> None:
    run = Driver(SimulatedFiles(), replace(TOPIC, batch_bytes_max=100))
    run.open()
    large = batch_of([BASE_MS], bytes(200))
    with pytest.raises(InvalidBatch, match="allowed"):
        run.log.append(large, epoch=1)
    run.log.append_replicated(place_all([large], 0, 1)[0].data)


def test_a_segment_behind_a_gap_begins_where_the_log_ended() -> None:
    """A lost tail would be noticed: no gap hides between two segments."""
    run = opened(3)
    run.append_replicated(place_all([batch_of([BASE_MS], bytes(600))], 100, 1))
    assert run.log.segment_bases == (0, 6)
    run.close()
    run.open()
    assert (run.log.segment_bases, run.log.end_offset) == ((0, 6), 101)


def test_gaps_between_segments_are_fine_in_a_log_that_another_kafka_compacted() -> None:
    run = opened()
    run.close()
    run.files.remove(f"{DIRECTORY}/{6:020d}.log")
    with pytest.raises(CorruptRecord):
        Log.open(run.files, DIRECTORY, LAZY, run.clock)
    run.files.remove(f"{DIRECTORY}/log-state")
    for _ in range(2):
        log = Log.open(run.files, DIRECTORY, TOPIC, run.clock)
        assert kept_offsets(log) == [*range(6), *range(12, 24)]
        assert read_header(log.read(8, 1).read()).base_offset == 12
        log.close()
    assert log.end_offset == 24


def test_a_missing_segment_is_missed_where_it_may_not_have_been_synced() -> None:
    run = Driver(SimulatedFiles(), TOPIC)
    run.open()
    run.append([batch_of([BASE_MS, BASE_MS], bytes(60)) for _ in range(9)], epoch=1)
    files = run.files
    assert isinstance(files, SimulatedFiles)
    files.remove(f"{DIRECTORY}/{6:020d}.log")
    with pytest.raises(CorruptRecord):
        Log.open(files.process_crash(), DIRECTORY, TOPIC, run.clock)


def cleaned(run: Driver, first: int, count: int, *, whole: bool = True) -> CleanedSegment:
    sources = run.log.sealed_segments()[first : first + count]
    made = CleanedSegment(run.files, DIRECTORY, sources, TOPIC.segment)
    for source in sources:
        for header, data in run.log.batches(source.segment.base_offset):
            is_last = header.end_offset == source.end_offset
            if header.end_offset <= source.end_offset and (whole or not is_last):
                made.append(bytes(data))
    made.finish()
    return made


def test_only_what_was_cleaned_is_replaced() -> None:
    run = opened()
    short = cleaned(run, 0, 1, whole=False)
    with pytest.raises(StorageError, match="gap"):
        run.log.replace_segments(short)
    short.discard()
    late = cleaned(run, 1, 1)
    run.truncate_to(8)
    run.append([batch_of([BASE_MS, BASE_MS], bytes(60)) for _ in range(9)], epoch=2)
    with pytest.raises(StorageError, match="other segments"):
        run.log.replace_segments(late)
    assert late.segment.base_offset == 6


def test_what_is_not_synced_is_not_replaced() -> None:
    run = opened(3)
    run.append([batch_of([BASE_MS, BASE_MS], bytes(60)) for _ in range(6)], epoch=1)
    made = cleaned(run, 1, 1)
    with pytest.raises(StorageError, match="unsynced"):
        run.log.replace_segments(made)
    run.log.flush()
    run.log.replace_segments(made)


def test_a_slice_outlives_the_segment_that_it_was_read_from() -> None:
    run = opened()
    held = run.log.read(0, 1 << 20)
    before = held.read()
    run.compact(0, 2, lambda header, data: None if header.base_offset == 2 else data)
    assert held.read() == before


# -- records of a batch -------------------------------------------------------------------------

BATCH = bytes(
    build_batch(
        [
            Record(
                offset=i, timestamp=BASE_MS - i, key=b"k%d" % i, value=None, headers=(("h", b"v"),)
            )
            for i in range(5)
        ]
    )
)


@given(st.integers(HEADER_BYTES, len(BATCH) - 1), st.integers(1, 255), st.integers(0, 9))
def test_damaged_records_are_refused_or_read_but_never_crash(
    at: int, mask: int, count: int
) -> None:
    data = bytearray(BATCH)
    data[at] ^= mask
    header = read_header(data)._replace(record_count=count)
    try:
        found = read_raw_records(data, header)
    except InvalidBatch:
        return
    assert b"".join(record.raw for record in found) == bytes(data[HEADER_BYTES:])


@given(st.sets(st.integers(0, 4)), st.none() | st.integers(-(1 << 40), 1 << 50))
def test_what_is_kept_is_kept_as_it_was(kept: set[int], horizon_ms: int | None) -> None:
    header = read_header(BATCH)
    raw = read_raw_records(BATCH, header)
    thinner = rebuild(header, [raw[i] for i in sorted(kept)], horizon_ms=horizon_ms)
    records = list(iter_records(BATCH))
    assert list(iter_records(thinner)) == [records[i] for i in sorted(kept)]
    assert read_header(thinner).end_offset == header.end_offset


def test_a_reader_of_a_topics_log_goes_over_gaps() -> None:
    run = opened()
    run.compact(0, 2, lambda header, data: None if header.base_offset in (2, 4, 6) else data)
    run.close()
    found = LogReader(run.files, DIRECTORY, of_topic=True).batches()
    assert [each.header.base_offset for each in found][:4] == [0, 8, 10, 12]
    with pytest.raises(CorruptRecord):
        list(LogReader(run.files, DIRECTORY).batches())
