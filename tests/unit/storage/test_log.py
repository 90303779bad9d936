"""What a log does while nothing goes wrong: rolling, retention, cuts, lookups, and what it refuses.

The disk is in memory; every state is compared with the model by every way of reading.
"""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from kraftpy.clock import ManualClock
from kraftpy.errors import DiskFault, InvalidBatch, OffsetOutOfRange, StorageError
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import NO_TIMESTAMP, build_value_batch, read_header
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import SimulatedFiles
from tests.unit.storage.log_driver import DIRECTORY, Driver
from tests.unit.storage.log_model import BASE_MS, State, batch_of, check_equal, place_all

HOUR_MS = 3_600_000
BATCH = batch_of([BASE_MS], bytes(100))  # One record.


def opened(
    config: LogConfig | None = None, *, files: SimulatedFiles | None = None, **segment: int
) -> Driver:
    """A new log; what is not named is as Kafka has it."""
    config = config or LogConfig(segment=SegmentConfig(**segment))
    run = Driver(files or SimulatedFiles(), config)
    run.open()
    return run


def reopened(run: Driver) -> Driver:
    run.close()
    run.open()
    check_equal(run.log, run.ledger.state)
    return run


# -- rolling --------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_the_batch_that_is_too_much_for_it() -> None:
    run = opened(segment_bytes=3 * len(BATCH))
    for _ in range(7):
        run.append([BATCH], epoch=0)
    assert run.log.segment_bases == (0, 3, 6)
    check_equal(run.log, run.ledger.state)
    reopened(run).append([BATCH] * 3, epoch=0)
    assert list(run.log.segment_bases) == [0, 3, 6, 9]


def test_one_request_may_fill_several_segments() -> None:
    run = opened(segment_bytes=2 * len(BATCH))
    run.append([BATCH] * 3, [BATCH] * 2, epoch=0)
    assert run.log.segment_bases == (0, 2, 4)
    check_equal(run.log, run.ledger.state)


def test_a_batch_larger_than_a_segment_has_one_to_itself() -> None:
    large = batch_of([BASE_MS, BASE_MS], bytes(5_000))
    run = opened(segment_bytes=1_000)
    run.append([large, BATCH, large], epoch=0)
    assert run.log.segment_bases == (0, 2, 3)
    reopened(run)


@pytest.mark.parametrize("in_one_request", [True, False])
def test_a_segment_is_rolled_by_the_time_since_its_first_batch(in_one_request: bool) -> None:
    run = opened(segment_ms=1_000)
    ages = [0, 500, 1_000, 1_001, 0, 2_001, 2_002]
    batches = [batch_of([BASE_MS + age]) for age in ages]
    for request in [batches] if in_one_request else [[each] for each in batches]:
        run.append(request, epoch=0)
    assert run.log.segment_bases == (0, 3, 6)


def test_the_age_of_a_segment_outlives_a_restart() -> None:
    run = opened(segment_ms=1_000)
    run.append([batch_of([BASE_MS])], epoch=0)
    reopened(run).append([batch_of([BASE_MS + 1_000])], epoch=0)
    assert run.log.segment_bases == (0,)
    reopened(run).append([batch_of([BASE_MS + 1_001])], epoch=0)
    assert list(run.log.segment_bases) == [0, 2]


@pytest.mark.parametrize("in_one_request", [True, False])
def test_a_segment_is_rolled_before_its_index_is_too_large(in_one_request: bool) -> None:
    run = opened(index_interval_bytes=50, index_bytes_max=60)
    # Ever younger, so that the time index grows as fast: 12 bytes an entry, 5 of them at most.
    batches = [batch_of([BASE_MS + i]) for i in range(30)]
    for request in [batches] if in_one_request else [[each] for each in batches]:
        run.append(request, epoch=0)
    run.close()
    sizes = {
        path: len(data) for path, data in run.files_in_directory().items() if path.endswith("index")
    }
    assert len(run.log.segment_bases) > 3
    assert all(0 < size <= 60 for size in sizes.values()), sizes


# -- retention ------------------------------------------------------------------------------


def three_segments(config: LogConfig) -> Driver:
    """Two batches in each of three segments: offsets 0 to 5, an hour between segments."""
    segment = SegmentConfig(segment_bytes=2 * len(BATCH))
    run = opened(replace(config, segment=segment))
    for i in range(6):
        run.append([batch_of([BASE_MS + i // 2 * HOUR_MS], bytes(100))], epoch=i // 2)
    assert run.log.segment_bases == (0, 2, 4)
    return run


KEEP_ALL = LogConfig(retention_bytes=None, retention_ms=None)


def test_without_limits_nothing_is_deleted() -> None:
    run = three_segments(KEEP_ALL)
    run.clock.advance(10**12)
    assert run.delete_old_segments() == 0


@pytest.mark.parametrize(
    ("batches", "deleted"), [(7, 0), (6, 0), (5, 0), (4, 1), (3, 1), (2, 2), (1, 2), (0, 3)]
)
def test_retention_by_size_keeps_at_least_that_much(batches: int, deleted: int) -> None:
    run = three_segments(replace(KEEP_ALL, retention_bytes=batches * len(BATCH)))
    assert run.delete_old_segments() == deleted
    assert run.log.start_offset == 2 * deleted
    check_equal(run.log, run.ledger.state)
    reopened(run)


@pytest.mark.parametrize("hours", [1, 2, 3])
def test_retention_by_time_counts_from_the_youngest_record(hours: int) -> None:
    run = three_segments(replace(KEEP_ALL, retention_ms=HOUR_MS))
    run.clock.advance(hours * HOUR_MS)
    assert run.delete_old_segments() == hours - 1
    check_equal(run.log, run.ledger.state)
    run.clock.advance(1)  # At the limit is not over it.
    assert run.delete_old_segments() == 1
    assert run.log.start_offset == 2 * hours
    check_equal(run.log, run.ledger.state)
    reopened(run)


def test_when_all_is_expired_the_active_segment_is_rolled() -> None:
    run = three_segments(replace(KEEP_ALL, retention_ms=HOUR_MS))
    run.clock.advance(10 * HOUR_MS)
    assert run.delete_old_segments() == 3
    assert run.log.segment_bases == (6,)
    assert (run.log.start_offset, run.log.end_offset, run.log.size_bytes) == (6, 6, 0)
    assert run.delete_old_segments() == 0, "an empty segment stays"
    run.append([BATCH], epoch=9)
    check_equal(reopened(run).log, run.ledger.state)
    assert run.log.epochs.entries == ((9, 6),)


def test_records_without_a_timestamp_do_not_expire() -> None:
    run = opened(replace(KEEP_ALL, retention_ms=1))
    run.append([batch_of([NO_TIMESTAMP])], epoch=0)
    run.clock.advance(10**12)
    assert run.delete_old_segments() == 0


def test_segments_before_the_start_are_deleted() -> None:
    run = three_segments(KEEP_ALL)
    run.move_start_offset(3)
    assert run.log.size_bytes == 6 * len(BATCH)
    assert run.delete_old_segments() == 1
    assert (run.log.start_offset, run.log.segment_bases) == (3, (2, 4))
    assert run.log.epochs.entries == ((1, 3), (2, 4))
    reopened(run)


@pytest.mark.parametrize(("upto", "deleted"), [(0, 0), (1, 0), (2, 1), (3, 1), (5, 2), (6, 3)])
def test_nothing_goes_that_holds_a_record_at_or_behind_the_bound(upto: int, deleted: int) -> None:
    run = three_segments(replace(KEEP_ALL, retention_ms=HOUR_MS))
    run.clock.advance(10 * HOUR_MS)
    assert run.delete_old_segments(upto) == deleted
    check_equal(run.log, run.ledger.state)


def test_the_start_never_goes_back_nor_past_the_end() -> None:
    run = three_segments(KEEP_ALL)
    run.move_start_offset(3)
    run.log.move_start_offset(1)
    assert run.log.start_offset == 3
    with pytest.raises(OffsetOutOfRange):
        run.log.move_start_offset(7)
    run.move_start_offset(6)
    check_equal(run.log, run.ledger.state)


# -- cutting --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(14))
@pytest.mark.parametrize("restart", [True, False])
def test_truncation_to_every_offset(offset: int, restart: bool) -> None:
    run = opened(segment_bytes=700, index_interval_bytes=100)
    for i in range(6):
        run.append([batch_of([BASE_MS - i, BASE_MS + i], bytes(60))], epoch=i // 2)
    if restart:
        reopened(run)
    run.truncate_to(offset)
    check_equal(run.log, run.ledger.state)
    run.append([BATCH] * 4, epoch=7)
    check_equal(run.log, run.ledger.state)
    reopened(run)


def test_truncation_before_the_start_is_refused() -> None:
    run = three_segments(KEEP_ALL)
    run.move_start_offset(3)
    with pytest.raises(OffsetOutOfRange):
        run.log.truncate_to(2)
    check_equal(run.log, run.ledger.state)


def test_truncation_by_epoch_finds_where_two_logs_part() -> None:
    """The walk of KIP-279: the follower asks about its latest epoch until both know it."""
    follower, leader = opened(), opened()
    for run in (follower, leader):
        run.append([BATCH] * 3, epoch=1)
    follower.append([BATCH] * 4, epoch=2)  # Never reached anyone else.
    leader.append([BATCH] * 2, epoch=1)
    leader.append([BATCH] * 5, epoch=3)
    for _ in range(2):
        epoch = follower.log.epochs.latest
        known, end = leader.log.epochs.end_offset_for(epoch, leader.log.end_offset)
        follower.log.truncate_to(
            follower.log.epochs.divergence(known, end, follower.log.end_offset)
        )
    assert follower.log.end_offset == 3
    assert follower.log.epochs.entries == ((1, 0),)
    rest = leader.log.read(3, 1 << 20).read()
    follower.log.append_replicated(rest)
    assert follower.log.read(0, 1 << 20).read() == leader.log.read(0, 1 << 20).read()


@pytest.mark.parametrize("offset", [0, 3, 6, 100])
def test_a_log_starts_anew_anywhere(offset: int) -> None:
    run = three_segments(KEEP_ALL)
    run.start_anew_at(offset)
    assert run.log.segment_bases == (offset,)
    check_equal(run.log, State(offset))
    run.append([BATCH], epoch=0)
    reopened(run)


# -- lookups --------------------------------------------------------------------------------


def test_the_first_record_that_is_young_enough_is_found_among_unordered_ones() -> None:
    run = opened(segment_bytes=400, index_interval_bytes=50)
    for times in ([50, 10], [40, 45], [5], [70, 60], [55], [90], [20, 80]):
        run.append([batch_of([BASE_MS + each for each in times])], epoch=0)
    assert len(run.log.segment_bases) > 1
    for timestamp in range(100):
        due = run.ledger.state.offset_for_timestamp(BASE_MS + timestamp)
        assert run.log.offset_for_timestamp(BASE_MS + timestamp) == due
    run.move_start_offset(1)  # Inside the first batch.
    assert run.log.offset_for_timestamp(BASE_MS + 46) == (5, BASE_MS + 70)
    check_equal(reopened(run).log, run.ledger.state)


def test_timestamps_inside_compressed_batches_are_found() -> None:
    run = opened()
    run.append([batch_of([BASE_MS + i * 10 for i in range(5)], attributes=4)], epoch=0)
    assert run.log.offset_for_timestamp(BASE_MS + 11) == (2, BASE_MS + 20)


def test_the_bytes_from_an_offset_on_are_counted() -> None:
    run = three_segments(KEEP_ALL)
    found = [run.log.bytes_from(offset) for offset in range(7)]
    assert found == [count * len(BATCH) for count in (6, 5, 4, 3, 2, 1, 0)]


def test_reads_stay_inside_what_was_asked_for() -> None:
    run = opened(segment_bytes=2_000, index_interval_bytes=300)
    for i in range(20):
        run.append([batch_of([BASE_MS + i], bytes(50))], epoch=0)
    size = len(run.ledger.state.entries[0].data)
    log = run.log
    assert log.read(3, 4 * size).count == 4 * size
    assert log.read(3, 4 * size - 1).count == 3 * size
    assert log.read(3, size - 1).count == size
    assert log.read(3, size - 1, first_batch_whole=False).count == 0
    assert log.read(3, 1 << 20, end_offset=5).count == 2 * size
    assert log.read(3, 1 << 20, end_offset=3).count == 0
    assert log.read(3, 1 << 20, end_offset=99).count == (log.segment_bases[1] - 3) * size
    assert log.read(20, 1 << 20).read() == b""


# -- what is refused --------------------------------------------------------------------------


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def patched(at: int, value: bytes, *, crc: bool = True) -> bytearray:
    batch = bytearray(BATCH)
    batch[at : at + len(value)] = value
    return with_crc(batch) if crc else batch


BAD_REQUESTS: dict[str, bytes | bytearray] = {
    "nothing": b"",
    "a flipped bit": patched(len(BATCH) - 1, b"\x01", crc=False),
    "a flipped crc": patched(17, b"\xff\xff\xff\xff", crc=False),
    "an older format": patched(16, b"\x01"),
    "a byte too few": BATCH[:-1],
    "half a header": BATCH[:30],
    "bytes behind": BATCH + b"\x00",
    "an impossible length": patched(8, b"\x7f\xff\xff\xff", crc=False),
    "a negative length": patched(8, b"\xff\xff\xff\xff", crc=False),
    "more records than offsets": patched(57, struct.pack(">i", 2)),
    "fewer records than offsets": patched(23, struct.pack(">i", 3)),
    "no record": patched(57, struct.pack(">i", 0)),
    "too large": batch_of([BASE_MS], bytes(2_000)),
}


@pytest.mark.parametrize("bad", BAD_REQUESTS)
@pytest.mark.parametrize("before", [0, 3])
def test_nothing_of_a_bad_request_is_written(bad: str, before: int) -> None:
    run = opened(replace(KEEP_ALL, batch_bytes_max=1_000))
    run.append([BATCH], epoch=0)
    contents = run.files_in_directory()
    with pytest.raises(InvalidBatch):
        run.log.append(BATCH * before + BAD_REQUESTS[bad] if bad != "nothing" else b"", epoch=1)
    assert run.files_in_directory() == contents
    check_equal(run.log, run.ledger.state)
    run.append([BATCH], epoch=0)


def test_an_older_epoch_is_refused() -> None:
    run = opened()
    run.append([BATCH], epoch=5)
    with pytest.raises(StorageError, match="older"):
        run.log.append(BATCH, 4)
    check_equal(run.log, run.ledger.state)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 5), (2, 5), (1, 4)])
def test_a_replica_takes_only_what_continues_its_log(offset: int, epoch: int) -> None:
    run = opened()
    run.append([BATCH], epoch=5)
    with pytest.raises(InvalidBatch):
        run.log.append_replicated(place_all([BATCH], offset, epoch)[0].data)
    check_equal(run.log, run.ledger.state)
    run.append_replicated(place_all([BATCH, BATCH], 1, 6))
    check_equal(run.log, run.ledger.state)


def test_read_only_bytes_are_copied_and_others_stamped_in_place() -> None:
    run = opened()
    run.append([BATCH], epoch=5)
    frozen, own = bytes(BATCH), bytearray(BATCH)
    run.log.append(frozen, 5)
    run.log.append(memoryview(frozen), 5)
    run.log.append(own, 5)
    assert frozen == bytes(BATCH)
    assert (read_header(own).base_offset, read_header(own).leader_epoch) == (3, 5)
    assert run.log.read(3, 1).read() == own


def test_a_closed_log_refuses_changes() -> None:
    run = opened()
    run.append([BATCH], epoch=0)
    run.close()
    run.log.close()  # Twice is fine.
    with pytest.raises(DiskFault, match="closed"):
        run.log.append(BATCH, 0)


# -- flushing -------------------------------------------------------------------------------


def test_the_log_is_flushed_after_so_many_messages() -> None:
    run = opened(replace(KEEP_ALL, flush_interval_messages=3))
    flushed = []
    for _ in range(7):
        run.append([BATCH], epoch=0)
        flushed.append(run.log.flushed_end_offset)
    assert flushed == [0, 0, 3, 3, 3, 6, 6]


def test_the_log_is_flushed_after_so_much_time() -> None:
    run = opened(replace(KEEP_ALL, flush_interval_ms=1_000))
    run.append([BATCH], epoch=0)
    assert not run.log.flush_if_due()
    run.clock.skew(10_000)  # The wall clock does not count.
    assert not run.log.flush_if_due()
    run.clock.advance(1_000)
    assert run.log.flush_if_due()
    assert run.log.flushed_end_offset == 1
    assert not run.log.flush_if_due()


def test_one_fsync_makes_a_whole_request_durable() -> None:
    files = SimulatedFiles()
    run = opened(replace(KEEP_ALL, flush_interval_messages=1), files=files)
    run.append([BATCH], epoch=0)  # The first one also makes the segment's name durable.
    before = files.syncs
    run.append([BATCH] * 5, [BATCH] * 5, epoch=0)
    assert files.syncs - before == 1


def test_a_new_log_begins_where_it_is_told_to_and_an_old_one_where_it_was() -> None:
    files = SimulatedFiles()
    log = Log.open(files, DIRECTORY, KEEP_ALL, ManualClock(), start_offset=40)
    values = build_value_batch([b"v"], base_offset=0, leader_epoch=-1, timestamp_ms=1)
    assert log.append(values, 0) == (40, 41)
    log.close()
    log = Log.open(files, DIRECTORY, KEEP_ALL, ManualClock(), start_offset=7)
    assert (log.start_offset, log.end_offset) == (40, 41)
