"""The metadata log on a simulated disk: snapshots, retention, and what a crash leaves of them."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kraftpy.clock import ManualClock
from kraftpy.errors import CorruptRecord, DiskFault, ReplayError, StorageError
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.image import EMPTY, ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.records import BeginTransactionRecord, EndTransactionRecord
from kraftpy.metadata_log.snapshot_file import SnapshotId, snapshot_header, write_snapshot
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter
from kraftpy.storage.file_layer import File
from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles
from kraftpy.types import Offset, TopicId, Uuid
from tests.unit.metadata_log.makers import change, config, partition, topic

DIR = "/data/__cluster_metadata-0"
SMALL = MetadataLogConfig(segment_bytes=1500, retention_bytes=None, retention_ms=None)


def open_log(
    files: SimulatedFiles,
    metadata_config: MetadataLogConfig = SMALL,
    clock: ManualClock | None = None,
) -> MetadataLog:
    return MetadataLog(files, DIR, metadata_config, clock or ManualClock())


def add_topics(log: MetadataLog, count: int, epoch: int = 1) -> None:
    """Each in a batch of its own, with a name and id that follow from the offset."""
    for _ in range(count):
        offset = log.log.end_offset
        topic_id = TopicId(Uuid(offset.to_bytes(16, "big")))
        log.append([topic(f"topic-{offset}", topic_id), partition(topic_id=topic_id)], epoch)


def test_what_was_appended_is_replayed_after_a_restart() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    log.append_control(leader_change(1, [1], [1]), 1)
    add_topics(log, 20)
    image = log.load_image()
    assert (len(image.topics), image.end_offset, image.epoch) == (20, 41, 1)
    for disk in (files.process_crash(), next(iter(files.outcomes(1)))):
        assert open_log(disk).load_image() == image


def test_an_append_is_durable_when_it_returns() -> None:
    files = SimulatedFiles()
    add_topics(open_log(files), 1)
    for outcome in files.outcomes(200):
        assert open_log(outcome).log.end_offset == 2


def test_a_snapshot_and_the_tail_give_what_the_whole_log_gives() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 10)
    written = log.write_snapshot(log.load_image())
    assert written == SnapshotId(20, 1)
    assert files.exists(f"{DIR}/00000000000000000020-0000000001.checkpoint")
    add_topics(log, 5, epoch=2)
    assert log.load_image() == log.replay(EMPTY, log.log.end_offset)
    assert log.load_image(20) == log.replay(EMPTY, 20)
    assert log.load_image(14) == log.replay(EMPTY, 14)  # Before the snapshot: from the log.


def test_the_tail_is_replayed_onto_the_snapshot_and_not_onto_nothing() -> None:
    """The test above could not fail if loading passed over snapshots."""
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 3)
    image = log.load_image()
    other = ClusterImage(features=image.features.set("planted", 1), end_offset=image.end_offset)
    write_snapshot(files, DIR, other)
    assert "planted" in log.load_image().features


def test_a_snapshot_is_not_cut_through_a_transaction() -> None:
    log = open_log(SimulatedFiles())
    log.append([BeginTransactionRecord(name=None), topic()], 1)
    image = log.load_image()
    with pytest.raises(ValueError, match="begun at offset 0 is open"):
        log.write_snapshot(image)
    assert log.snapshots == []
    snapshotter = Snapshotter(log, SnapshotPolicy(bytes_between=1), ManualClock())
    assert not snapshotter.offer(image)
    log.append([EndTransactionRecord()], 1)
    assert snapshotter.offer(log.load_image())
    snapshotter.close()
    assert log.snapshots == [SnapshotId(3, 1)]


def test_an_illegal_record_at_rest_names_itself_and_stops_the_load() -> None:
    log = open_log(SimulatedFiles())
    log.append([topic(), partition()], 1)
    log.append([change(leader_epoch=9)], 1)
    with pytest.raises(ReplayError, match="at offset 2: replay arrives at leader epoch 4"):
        log.load_image()


# -- crashes while a snapshot is written ------------------------------------------------------


def test_a_crash_at_any_point_of_a_snapshot_leaves_it_whole_or_absent() -> None:
    base = SimulatedFiles()
    log = open_log(base)
    add_topics(log, 8)
    image = log.load_image()
    counted = base.clone()
    write_snapshot(counted, DIR, image)
    points = range(1, len(counted.boundaries) + 1)
    assert len(points) >= 5
    outcomes = 0
    for point in points:
        files = base.clone()
        files.crash_at = point
        with pytest.raises(PowerLoss):
            write_snapshot(files, DIR, image)
        for disk in (files.process_crash(), *files.outcomes(64)):
            reopened = open_log(disk)
            assert reopened.load_image() == image
            assert all("part" not in name for name in disk.names(DIR))
            outcomes += 1
    assert outcomes > 50


def test_without_the_sync_a_crash_leaves_a_damaged_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug that the test above is there for."""
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 8)
    image = log.load_image()
    monkeypatch.setattr("kraftpy.testing.simulated_files.SimulatedFile.sync", lambda _file: None)
    write_snapshot(files, DIR, image)
    damaged = 0
    for disk in files.outcomes(64):
        for snapshot_id in open_log(disk).snapshots:
            try:
                snapshot_header(disk, DIR, snapshot_id)
            except CorruptRecord:
                damaged += 1
    assert damaged


def test_a_full_disk_costs_the_snapshot_and_nothing_else() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 50)
    image = log.load_image()
    files.capacity_bytes = sum(len(files.read_whole(f"{DIR}/{n}")) for n in files.names(DIR)) + 100
    with pytest.raises(DiskFault, match="cannot write a snapshot of the metadata log in"):
        log.write_snapshot(image)
    assert log.snapshots == []
    files.capacity_bytes = None
    assert log.write_snapshot(image) == SnapshotId(100, 1)


# -- damaged snapshots ------------------------------------------------------------------------


def test_a_damaged_snapshot_is_passed_over_while_the_log_tells_the_same() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 4)
    image = log.load_image()
    written = log.write_snapshot(image)
    files.corrupt(f"{DIR}/{written.file_name}", 130, 0x10)
    assert log.load_image() == image


@pytest.mark.parametrize("cut", [0, 30, 90, -1, -70])
def test_a_damaged_snapshot_without_its_log_is_refused(cut: int) -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 4)
    written = log.write_snapshot(log.load_image())
    log.log.move_start_offset(8)
    path = f"{DIR}/{written.file_name}"
    file = files.open(path)
    file.truncate(cut if cut >= 0 else file.size() + cut)
    with pytest.raises(CorruptRecord, match=written.file_name):
        log.load_image()


def test_a_log_whose_beginning_nobody_remembers_is_refused() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 4)
    log.log.move_start_offset(4)
    with pytest.raises(StorageError, match="no snapshot leads there"):
        log.load_image()
    log.close()
    with pytest.raises(StorageError, match="there is no snapshot of what was before it"):
        open_log(files)


def test_a_snapshot_ahead_of_the_log_begins_it_anew() -> None:
    """As after a crash between storing another node's snapshot and following it."""
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 4)
    image = log.load_image()
    log.close()
    ahead = replace(image, end_offset=Offset(100))
    write_snapshot(files, DIR, ahead)
    reopened = open_log(files)
    assert (reopened.log.start_offset, reopened.log.end_offset) == (100, 100)
    add_topics(reopened, 1, epoch=3)
    assert len(reopened.load_image().topics) == 5


# -- retention --------------------------------------------------------------------------------


def history_is_complete(log: MetadataLog) -> bool:
    """For each snapshot that is kept, the log from its end on is there."""
    ends = [snapshot.end_offset for snapshot in log.snapshots] or [0]
    return log.log.start_offset <= ends[0]


@pytest.mark.parametrize("by", ["bytes", "time"])
def test_retention_keeps_the_newest_snapshot_and_the_log_behind_the_oldest(by: str) -> None:
    clock = ManualClock()
    metadata_config = MetadataLogConfig(
        segment_bytes=1500,
        retention_bytes=3000 if by == "bytes" else None,
        retention_ms=10_000 if by == "time" else None,
    )
    log = open_log(SimulatedFiles(), metadata_config, clock)
    removed = 0
    for _ in range(8):
        add_topics(log, 5)
        clock.advance(4_000)
        expected = log.load_image()
        log.write_snapshot(expected)
        removed += len(log.delete_old())
        assert log.load_image() == expected
        assert history_is_complete(log)
        assert log.snapshots
    assert removed >= 3
    assert log.log.start_offset > 0
    assert log.log.segment_bases[0] > 0


def test_log_that_no_snapshot_covers_is_never_removed() -> None:
    clock = ManualClock()
    metadata_config = MetadataLogConfig(segment_bytes=500, retention_bytes=1, retention_ms=1)
    log = open_log(SimulatedFiles(), metadata_config, clock)
    add_topics(log, 20)
    clock.advance(1_000_000)
    assert log.delete_old() == []
    log.write_snapshot(log.load_image(10))
    add_topics(log, 5)
    assert log.delete_old() == []
    assert log.log.start_offset == 0
    log.write_snapshot(log.load_image(20))
    assert log.delete_old() == [SnapshotId(10, 1)]
    assert log.log.start_offset == 20


def test_a_crash_at_any_point_of_retention_loses_no_history() -> None:
    clock = ManualClock()
    metadata_config = MetadataLogConfig(segment_bytes=500, retention_bytes=1, retention_ms=None)
    base = SimulatedFiles()
    log = open_log(base, metadata_config, clock)
    for _ in range(3):
        add_topics(log, 6)
        log.write_snapshot(log.load_image())
    add_topics(log, 1)
    expected = log.load_image()
    log.close()
    counted = base.clone()
    open_log(counted, metadata_config, clock).delete_old()
    points = range(1, len(counted.boundaries) + 1)
    assert len(points) > 10
    for point in points:
        files = base.clone()
        files.crash_at = point
        with pytest.raises(PowerLoss):
            open_log(files, metadata_config, clock).delete_old()
        for disk in (files.process_crash(), *files.outcomes(12)):
            reopened = open_log(disk, metadata_config, clock)
            assert reopened.load_image() == expected
            assert history_is_complete(reopened)


# -- snapshots in the background --------------------------------------------------------------


class HeldFiles(SimulatedFiles):
    """A disk on which a snapshot waits, before its rename, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".checkpoint"):
            assert self.let_go.wait(60)
        super().rename(source, target)


@pytest.fixture
def held() -> Iterator[HeldFiles]:
    files = HeldFiles()
    yield files
    files.let_go.set()


def test_replay_goes_on_while_a_snapshot_is_written(held: HeldFiles) -> None:
    log = open_log(held)
    add_topics(log, 5)
    image = log.load_image()
    snapshotter = Snapshotter(log, SnapshotPolicy(bytes_between=100), ManualClock())
    assert snapshotter.offer(image)
    assert snapshotter.is_writing
    add_topics(log, 5)
    later = log.replay(image, log.log.end_offset)
    assert len(later.topics) == 10
    assert not snapshotter.offer(later)  # One at a time.
    held.let_go.set()
    snapshotter.close()
    assert log.snapshots == [SnapshotId(10, 1)]
    assert log.load_image() == later


def test_a_snapshot_is_due_by_bytes_or_by_time_but_never_without_news() -> None:
    clock = ManualClock()
    log = open_log(SimulatedFiles(), SMALL, clock)
    snapshotter = Snapshotter(log, SnapshotPolicy(bytes_between=10_000, interval_ms=5_000), clock)
    clock.advance(6_000)
    assert not snapshotter.offer(log.load_image())  # Nothing new.
    add_topics(log, 1)
    assert snapshotter.offer(log.load_image())  # By time.
    snapshotter.close()
    add_topics(log, 1)
    assert not snapshotter.offer(log.load_image())
    add_topics(log, 100)
    assert log.bytes_since_snapshot() > 10_000
    assert snapshotter.offer(log.load_image())  # By bytes.
    snapshotter.close()
    assert [each.end_offset for each in log.snapshots] == [2, 204]


def test_a_snapshot_that_fails_is_a_warning() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 1)
    files.fail_sync(path=lambda path: path.endswith(".part"))
    snapshotter = Snapshotter(log, SnapshotPolicy(bytes_between=1), ManualClock())
    with capture_logs() as events:
        assert snapshotter.offer(log.load_image())
        snapshotter.close()
    assert [(e["event"], e["log_level"]) for e in events] == [("snapshot_failed", "warning")]
    add_topics(log, 1)
    assert snapshotter.offer(log.load_image())
    snapshotter.close()
    assert log.snapshots == [SnapshotId(4, 1)]


def test_records_that_are_too_many_for_one_batch_are_refused_whole() -> None:
    log = open_log(SimulatedFiles())
    with pytest.raises(ValueError, match="1 to 10000 records, not 10001"):
        log.append([config("a", "b")] * 10_001, 1)
    assert log.log.end_offset == 0


def test_a_file_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    log = open_log(files)
    add_topics(log, 2)
    opened: list[File] = []
    original = SimulatedFiles.open_for_read

    def noted(self: SimulatedFiles, path: str) -> File:
        file = original(self, path)
        opened.append(file)
        return file

    written = log.write_snapshot(log.load_image())
    monkeypatch.setattr(SimulatedFiles, "open_for_read", noted)
    log.load_image()
    snapshot_header(files, DIR, written)
    assert opened
    for file in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size()
