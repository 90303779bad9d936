"""Reading a log that another process writes: nothing is changed, locked, invented or missed."""

import pytest

from kraftpy.clock import ManualClock
from kraftpy.errors import CorruptRecord, StorageError
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.reader import LogReader
from kraftpy.storage.record_batch import build_value_batch
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing.simulated_files import SimulatedFiles

DIR = "/data/orders-0"
SMALL = LogConfig(
    segment=SegmentConfig(segment_bytes=600, index_interval_bytes=100), flush_interval_messages=1
)


def open_log(files: SimulatedFiles, config: LogConfig = SMALL) -> Log:
    return Log.open(files, DIR, config, ManualClock())


def append(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        values = [b"v%d" % (log.end_offset + i) for i in range(2)]
        batch = build_value_batch(values, base_offset=0, leader_epoch=-1, timestamp_ms=1)
        log.append(batch, epoch)


def offsets(reader: LogReader) -> list[int]:
    return [found.header.base_offset for found in reader.batches()]


def last_file(files: SimulatedFiles) -> str:
    return f"{DIR}/{[name for name in files.names(DIR) if name.endswith('.log')][-1]}"


def test_a_reader_goes_on_where_it_stopped() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 20)
    reader = LogReader(files, DIR)
    assert offsets(reader) == list(range(0, 40, 2))
    assert offsets(reader) == []
    append(log, 3)
    assert offsets(reader) == [40, 42, 44]
    append(log, 20)  # Over several segments.
    assert offsets(reader) == list(range(46, 86, 2))


@pytest.mark.parametrize("offset", [0, 1, 13, 38, 39, 40, 99])
def test_a_reader_begins_with_the_batch_that_holds_the_offset(offset: int) -> None:
    files = SimulatedFiles()
    append(open_log(files), 20)
    assert offsets(LogReader(files, DIR, offset)) == list(range(offset // 2 * 2, 40, 2))


def test_a_reader_changes_nothing() -> None:
    files = SimulatedFiles()
    append(open_log(files), 20)
    before = len(files.boundaries)
    offsets(LogReader(files, DIR))
    assert len(files.boundaries) == before


def test_a_batch_in_the_making_is_left_for_later() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 2)
    whole = files.read_whole(last_file(files))
    append(log, 1)
    path = last_file(files)
    complete = files.read_whole(path)
    for size in range(len(whole), len(complete)):
        half = files.clone()
        half.open(path).truncate(size)
        reader = LogReader(half, DIR)
        assert offsets(reader) == [0, 2]
        assert reader.incomplete_bytes == size - len(whole)
        half.open(path).write(size, [complete[size:]])
        assert offsets(reader) == [4]
        assert reader.incomplete_bytes == 0


def test_damage_before_a_good_batch_is_named() -> None:
    files = SimulatedFiles()
    append(open_log(files), 20)
    first = f"{DIR}/{0:020d}.log"
    files.corrupt(first, 100, 0x01)
    reader = LogReader(files, DIR)
    with pytest.raises(CorruptRecord, match=rf"{first}: corrupt at position \d+ \(offset \d+\)"):
        offsets(reader)


def test_a_missing_segment_is_a_gap() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 20)
    files.remove(f"{DIR}/{log.segment_bases[1]:020d}.log")
    with pytest.raises(CorruptRecord, match=f"the segment begins at {log.segment_bases[2]}"):
        offsets(LogReader(files, DIR))


def test_segments_that_are_deleted_meanwhile_do_not_stop_a_reader() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 20)
    reader = LogReader(files, DIR)
    assert next(reader.batches()).header.base_offset == 0
    assert len(offsets(reader)) == 19
    log.move_start_offset(log.end_offset)
    log.delete_old_segments()
    append(log, 2)
    assert offsets(reader) == [40, 42]
    assert LogReader(files, DIR).start_offset == 40


@pytest.mark.parametrize("to", [38, 36, 20, 4])
@pytest.mark.parametrize("regrow", [0, 1, 2, 12])
def test_a_tail_that_the_owner_rewrites_is_read_again(to: int, regrow: int) -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 20)
    reader = LogReader(files, DIR)
    offsets(reader)
    log.truncate_to(to)
    append(log, regrow, epoch=1)
    assert offsets(reader) == [to + 2 * i for i in range(regrow)]
    assert reader.end_offset == log.end_offset
    append(log, 1, epoch=1)
    assert offsets(reader) == [log.end_offset - 2]


def test_an_empty_directory_holds_no_log() -> None:
    files = SimulatedFiles()
    files.make_directory(DIR)
    with pytest.raises(StorageError, match="holds no log"):
        LogReader(files, DIR)


def test_a_log_without_records_gives_none() -> None:
    files = SimulatedFiles()
    open_log(files)
    assert offsets(LogReader(files, DIR)) == []


def test_real_files_are_read_while_their_owner_holds_the_lock(tmp_path: object) -> None:
    directory = f"{tmp_path}/orders-0"
    log = Log.open(OsFiles(), directory, SMALL, ManualClock())
    append(log, 20)
    reader = LogReader(OsFiles(), directory)
    assert offsets(reader) == list(range(0, 40, 2))
    append(log, 10)
    assert offsets(reader) == list(range(40, 60, 2))


def test_a_segment_that_is_made_anew_is_opened_anew() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 7)
    reader = LogReader(files, DIR)
    first = list(reader.batches())
    assert len(first) == 7
    append(log, 1)
    assert log.segment_bases == (0, 14)
    half = files.open(f"{DIR}/{14:020d}.log")
    complete = files.read_whole(half.path)
    half.truncate(10)
    assert offsets(reader) == []  # It stands at the beginning of the second segment now.
    half.truncate(len(complete))
    half.write(0, [complete])
    log.truncate_to(14)
    log.truncate_to(12)
    append(log, 1, epoch=1)
    append(log, 1, epoch=1)
    assert offsets(reader) == [12, 14]


def test_epochs_before_the_start_do_not_count() -> None:
    """A log without records takes any epoch, also one before that of the records it has lost."""
    files = SimulatedFiles()
    log = open_log(files)
    append(log, 1, epoch=5)
    log.move_start_offset(log.end_offset)
    append(log, 1, epoch=3)
    assert offsets(LogReader(files, DIR)) == [2]
