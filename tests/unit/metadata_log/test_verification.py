"""`verify_log`: each kind of damage is found and named, and a sound log is called sound."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftpy.clock import ManualClock
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.snapshot_file import write_snapshot
from kraftpy.metadata_log.verification import Verdict, verify_log
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import build_value_batch
from kraftpy.testing.simulated_files import SimulatedFiles
from kraftpy.types import Offset, TopicId, Uuid
from tests.unit.metadata_log.makers import change, partition, topic

DIR = "/data/__cluster_metadata-0"
CONFIG = MetadataLogConfig(segment_bytes=1024, retention_bytes=None, retention_ms=None)


def metadata_log(files: SimulatedFiles, topics: int = 12) -> MetadataLog:
    """A log with a leader change, topics, two epochs and a snapshot in the middle."""
    log = MetadataLog(files, DIR, CONFIG, ManualClock())
    log.append_control(leader_change(1, [1], [1]), 1)
    for number in range(topics):
        topic_id = TopicId(Uuid(number.to_bytes(16, "big")))
        log.append([topic(f"t{number}", topic_id), partition(topic_id=topic_id)], 1 + number // 8)
        if number == topics // 2:
            log.write_snapshot(log.load_image())
    return log


def verify(files: SimulatedFiles) -> Verdict:
    before = len(files.boundaries)
    verdict = verify_log(files, DIR)
    assert len(files.boundaries) == before, "verify changes nothing"
    return verdict


def test_a_sound_log_is_called_sound() -> None:
    files = SimulatedFiles()
    log = metadata_log(files)
    assert len(log.log.segment_bases) > 1
    verdict = verify(files)
    assert verdict.problems == []
    assert (verdict.kind, verdict.batches, verdict.records) == ("metadata", 13, 25)
    assert (verdict.start_offset, verdict.end_offset, verdict.snapshots) == (0, 25, 1)
    assert verdict.epochs == [(1, 0), (2, 17)]
    assert verdict.bytes == log.log.size_bytes


def test_a_log_that_begins_at_a_snapshot_is_replayed_from_there() -> None:
    files = SimulatedFiles()
    log = metadata_log(files)
    log.log.move_start_offset(15)
    log.log.delete_old_segments(upto=15)
    verdict = verify(files)
    assert (verdict.problems, verdict.start_offset) == ([], 15)
    log.append([change(leader_epoch=77)], 3)  # The topic is unknown: replay must notice.
    assert "cannot replay" in verify(files).problems[0]


def append_illegal(_files: SimulatedFiles, log: MetadataLog) -> None:
    log.append([topic("t3", TopicId(Uuid(b"Z" * 16)))], 2)


def flip_in_the_middle(files: SimulatedFiles, _log: MetadataLog) -> None:
    files.corrupt(f"{DIR}/{0:020d}.log", 300, 0x40)


def lose_a_segment(files: SimulatedFiles, log: MetadataLog) -> None:
    for number in range(20, 40):
        log.append([topic(f"t{number}", TopicId(Uuid(number.to_bytes(16, "big"))))], 2)
    files.remove(f"{DIR}/{log.log.segment_bases[1]:020d}.log")


def lose_the_last_segment(files: SimulatedFiles, log: MetadataLog) -> None:
    for snapshot_id in log.snapshots:
        files.remove(f"{DIR}/{snapshot_id.file_name}")
    files.remove(f"{DIR}/{log.log.segment_bases[-1]:020d}.log")


def wrong_snapshot(files: SimulatedFiles, log: MetadataLog) -> None:
    image = log.load_image(15)
    write_snapshot(files, DIR, replace(image, next_producer_id=1000))


def damaged_snapshot(files: SimulatedFiles, log: MetadataLog) -> None:
    files.corrupt(f"{DIR}/{log.snapshots[0].file_name}", 200, 0x01)


def snapshot_of_no_batch(files: SimulatedFiles, log: MetadataLog) -> None:
    write_snapshot(files, DIR, replace(log.load_image(15), end_offset=Offset(16)))


def wrong_epochs(files: SimulatedFiles, _log: MetadataLog) -> None:
    files.replace(f"{DIR}/leader-epoch-checkpoint", b"0\n1\n1 0\n")


def not_a_record(_files: SimulatedFiles, log: MetadataLog) -> None:
    batch = build_value_batch([b"\x93\x7f\x00\x00"], base_offset=0, leader_epoch=2, timestamp_ms=1)
    log.log.append(batch, 2)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (append_illegal, "at offset 25: topic t3 exists"),
        (flip_in_the_middle, "corrupt at position"),
        (lose_a_segment, "the segment begins at"),
        (lose_the_last_segment, "but was synced up to offset 25"),
        (wrong_snapshot, "is not the log's: next producer id: 0 -> 1000"),
        (damaged_snapshot, "the CRC does not match"),
        (snapshot_of_no_batch, "no batch of the log ends at offset 16"),
        (wrong_epochs, "leader-epoch-checkpoint: says [(1, 0)], the batches say [(1, 0), (2, 17)]"),
        (not_a_record, "unknown record type 127"),
    ],
)
def test_what_is_wrong_is_named(
    plant: Callable[[SimulatedFiles, MetadataLog], None], expected: str
) -> None:
    files = SimulatedFiles()
    log = metadata_log(files)
    plant(files, log)
    problems = verify(files).problems
    assert len(problems) == 1
    assert expected in problems[0]


def test_an_unfinished_batch_at_the_end_is_no_fault() -> None:
    files = SimulatedFiles()
    log = metadata_log(files)
    file = files.open(f"{DIR}/{log.log.segment_bases[-1]:020d}.log")
    batch = build_value_batch([b"\x92\x14\x00"], base_offset=25, leader_epoch=2, timestamp_ms=1)
    file.write(file.size(), [batch[:-5]])
    verdict = verify(files)
    assert (verdict.problems, verdict.end_offset) == ([], 25)
    assert verdict.incomplete_bytes == len(batch) - 5


def test_a_synced_batch_that_is_cut_off_is_a_loss() -> None:
    files = SimulatedFiles()
    log = metadata_log(files)
    file = files.open(f"{DIR}/{log.log.segment_bases[-1]:020d}.log")
    file.truncate(file.size() - 5)
    assert verify(files).problems == ["the log ends at 23, but was synced up to offset 25"]


def test_a_log_of_data_is_checked_too() -> None:
    files = SimulatedFiles()
    log = Log.open(files, DIR, LogConfig(), ManualClock())
    for _ in range(5):
        batch = build_value_batch([b"x", b"y"], base_offset=0, leader_epoch=0, timestamp_ms=1)
        log.append(batch, 3)
    verdict = verify(files)
    assert (verdict.kind, verdict.records, verdict.problems) == ("data", 10, [])
    files.corrupt(f"{DIR}/{0:020d}.log", 70, 0x01)
    assert "corrupt at position 0 (offset 0)" in verify(files).problems[0]


def test_only_control_batches_make_a_metadata_log() -> None:
    files = SimulatedFiles()
    log = MetadataLog(files, DIR, CONFIG, ManualClock())
    log.append_control(leader_change(1, [1], [1]), 1)
    verdict = verify(files)
    assert (verdict.kind, verdict.batches, verdict.problems) == ("metadata", 1, [])


def test_an_empty_log_is_empty_and_sound() -> None:
    files = SimulatedFiles()
    MetadataLog(files, DIR, CONFIG, ManualClock())
    verdict = verify(files)
    assert (verdict.kind, verdict.batches, verdict.problems) == ("empty", 0, [])
