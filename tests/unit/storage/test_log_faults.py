"""What a log does when the disk refuses, and what its readers and its second thread may rely on.

A fault ends a log: it publishes nothing more and syncs nothing again. Everything it acknowledged
before is found when it is opened anew.
"""

import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraftpy.errors import DiskFault
from kraftpy.storage.file_layer import Buffer, OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.log_state import LogStateFile
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import SimulatedFiles
from kraftpy.testing.simulated_files import SimulatedFile
from tests.unit.storage.log_driver import ALWAYS, LAZY, Driver, check_after_crash, open_log
from tests.unit.storage.log_model import BASE_MS, State, batch_of, check_equal

BATCH = batch_of([BASE_MS], bytes(100))


def opened(files: SimulatedFiles, config: LogConfig = LAZY, batches: int = 2) -> Driver:
    """A log with a few batches in it."""
    run = Driver(files, config)
    run.open()
    for _ in range(batches):
        run.append([BATCH], epoch=1)
    return run


def on_real_disk(tmp_path: Path, config: LogConfig = LAZY) -> Driver:
    run = Driver(OsFiles(), config, directory=str(tmp_path / "topic-0"))
    run.open()
    return run


def refuses_everything(log: Log) -> None:
    changes: list[Callable[[], object]] = [
        lambda: log.append(BATCH, 9),
        lambda: log.append_replicated(BATCH),
        log.flush,
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        lambda: log.move_start_offset(1),
        log.delete_old_segments,
    ]
    for change in changes:
        with pytest.raises(DiskFault, match="failed"):
            change()


# -- a full disk ----------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2], ids=["same epoch", "new epoch"])
@pytest.mark.parametrize(
    ("batches", "room"),
    [(1, 0), (1, 1), (1, 60), (1, 170), (3, 0), (3, 200), (3, 400), (12, 700), (12, 1_500)],
)
def test_a_full_disk_ends_the_log_and_costs_nothing_acknowledged(
    batches: int, room: int, epoch: int
) -> None:
    files = SimulatedFiles()
    run = opened(files)
    before = run.ledger.state
    files.capacity_bytes = sum(map(len, files.contents().values())) + room
    request = run.log.check(BATCH * batches)
    with pytest.raises(DiskFault, match="No space left"):
        run.log.append_all([request], epoch)
    assert (run.log.end_offset, run.log.flushed_end_offset) == (2, 0)
    assert run.log.read(0, 1 << 20).read() == b"".join(e.data for e in before.entries)
    refuses_everything(run.log)
    run.log.close()
    left = files.process_crash()
    left.capacity_bytes = None
    found = check_after_crash(left, run.ledger, run.config)
    assert found == before, "the bytes of the failed append were not taken back"


def test_a_full_disk_under_an_append_that_is_flushed() -> None:
    files = SimulatedFiles()
    run = opened(files, ALWAYS)
    files.capacity_bytes = sum(map(len, files.contents().values())) + 10
    with pytest.raises(DiskFault, match="No space left"):
        run.log.append(BATCH, 1)
    for disk in files.outcomes(100):
        disk.capacity_bytes = None
        check_after_crash(disk, run.ledger, run.config)


# -- short writes ---------------------------------------------------------------------------


def write_a_little(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call writes at most so many bytes, as a kernel may."""
    real = os.pwrite

    def pwritev(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return real(fd, b"".join(buffers)[:most], position)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:most], at))


@pytest.mark.parametrize("most", [1, 7, 100, 150, 10_000])
def test_a_short_write_is_continued(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = on_real_disk(tmp_path)
    write_a_little(most, monkeypatch)
    run.append([BATCH] * 3, [BATCH], epoch=1)
    check_equal(run.log, run.ledger.state)
    run.close()
    run.open()
    check_equal(run.log, run.ledger.state)
    run.close()


def test_an_error_behind_a_short_write_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = on_real_disk(tmp_path)
    run.append([BATCH], epoch=1)

    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        write_a_little(50, patch)
        patch.setattr(os, "pwrite", no_space)
        with pytest.raises(DiskFault, match="No space left"):
            run.log.append(BATCH, 1)
    check_equal(run.log, run.ledger.state)
    run.log.close()
    run.open()
    check_equal(run.log, run.ledger.state)
    run.close()


# -- a failed fsync -------------------------------------------------------------------------


def is_log(path: str) -> bool:
    return path.endswith(".log")


def is_state(path: str) -> bool:
    return path.endswith("log-state")


def test_a_failed_fsync_is_never_tried_again() -> None:
    files = SimulatedFiles()
    run = opened(files)
    files.fail_sync(path=is_log)
    with pytest.raises(DiskFault, match="cannot flush"):
        run.log.flush()
    syncs = files.syncs, files.directory_syncs
    refuses_everything(run.log)
    run.log.close()
    assert (files.syncs, files.directory_syncs) == syncs
    assert run.log.flushed_end_offset == 0


@pytest.mark.parametrize("batches", [1, 6], ids=["one segment", "several"])
@pytest.mark.parametrize("nth", [1, 2])
def test_bytes_that_the_kernel_only_seems_to_have_synced_are_written_again(
    batches: int, nth: int
) -> None:
    """After the failed fsync the pages count as clean: the next process sees them, and its fsync
    succeeds without writing them. Then the power goes."""
    files = SimulatedFiles()
    run = opened(files, batches=batches)
    files.fail_sync(nth, path=lambda path: is_log(path) or path.endswith("index"))
    if batches == 1 and nth == 2:
        run.flush()
        run.append([BATCH], epoch=1)
    with pytest.raises(DiskFault):
        run.log.flush()
    assert check_after_crash(files.process_crash(), run.ledger, run.config) == run.ledger.state
    for disk in files.outcomes(50):
        check_after_crash(disk, run.ledger, run.config)


def test_a_process_that_is_killed_before_it_notes_a_failed_fsync_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. An fsync fails. 2. The process is killed before it can note that. 3. The next one finds
    the bytes in the page cache, where they count as clean, and promises them. 4. The power goes."""
    files = SimulatedFiles()
    run = opened(files)
    run.flush()
    run.append([BATCH], epoch=1)
    files.fail_sync(path=is_log)
    monkeypatch.setattr(LogStateFile, "write_failed", lambda *_: None)
    with pytest.raises(DiskFault):
        run.log.flush()
    assert check_after_crash(files.process_crash(), run.ledger, run.config) == run.ledger.state


def test_an_fsync_that_fails_in_recovery_is_remembered_too() -> None:
    files = SimulatedFiles()
    run = opened(files)
    left = files.process_crash()
    left.fail_sync(path=is_log)
    with pytest.raises(DiskFault, match="cannot open"):
        run.log = Log.open(left, run.directory, run.config, run.clock)
    assert check_after_crash(left.process_crash(), run.ledger, run.config) == run.ledger.state


@pytest.mark.parametrize("config", [ALWAYS, LAZY], ids=["always", "lazy"])
def test_every_fsync_may_fail(config: LogConfig) -> None:
    """Whichever it is, the log ends, and what it had promised is there."""

    def live(run: Driver) -> None:
        run.open()
        run.append([BATCH] * 4, epoch=1)
        run.flush()
        run.append([BATCH], epoch=2)
        run.truncate_to(3)
        run.move_start_offset(2)
        run.delete_old_segments()
        run.start_anew_at(9)
        run.append([BATCH], epoch=3)
        run.close()

    trial = SimulatedFiles()
    live(Driver(trial, config))
    for nth in range(1, trial.syncs + trial.directory_syncs + 1):
        files = SimulatedFiles()
        files.fail_sync(nth)
        run = Driver(files, config)
        with pytest.raises(DiskFault):
            live(run)
        kind, _ = files.boundaries[-1 if files.boundaries[-1][0] != "write" else -2]
        if kind == "sync":
            check_after_crash(files.process_crash(), run.ledger, config)
        else:
            # Names that never reached the disk cannot be written again: no file system goes on
            # after that, so there is no second power cut to ask about.
            run.ledger.check(open_log(files.process_crash(), config, run.clock))
        for disk in files.outcomes(10):
            check_after_crash(disk, run.ledger, config)


# -- beside the log: readers, and a thread that flushes --------------------------------------


def test_a_slice_is_sent_by_the_kernel(tmp_path: Path) -> None:
    run = on_real_disk(tmp_path)
    run.append([BATCH] * 3, epoch=1)
    slice_ = run.log.read(1, 1 << 20)
    assert slice_.file is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = 0
        while sent < slice_.count:
            sent += os.sendfile(
                ours.fileno(), slice_.file.fileno(), slice_.position + sent, slice_.count - sent
            )
        ours.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: theirs.recv(1 << 16), b""))
    assert received == b"".join(entry.data for entry in run.ledger.state.entries[1:])
    run.close()


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    run = on_real_disk(tmp_path)
    run.append([BATCH] * 12, epoch=1)
    assert len(run.log.segment_bases) > 2
    held = [run.log.read(base, 1 << 20) for base in run.log.segment_bases]
    expected = [each.read() for each in held]
    run.move_start_offset(run.end_offset)
    assert run.delete_old_segments() > 2
    run.start_anew_at(50)
    assert run.files_in_directory().keys() == {
        "00000000000000000050.log",
        "leader-epoch-checkpoint",
        "log-state",
    }
    assert [each.read() for each in held] == expected
    run.close()


def test_a_flush_beside_an_append_leaves_its_bytes_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. an append begins; 2. a flush in another thread syncs what was there; 3. the bytes are
    written; 4. the next flush must see that they are new."""
    files = SimulatedFiles()
    run = opened(files)
    real = SimulatedFile.write

    def write(file: SimulatedFile, position: int, buffers: Sequence[Buffer]) -> None:
        if is_log(file.path):
            run.flush()
        real(file, position, buffers)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "write", write)
        run.append([BATCH], epoch=1)
    run.flush()
    assert check_after_crash(files.power_loss(), run.ledger, run.config) == run.ledger.state


def test_flushes_in_one_thread_and_appends_in_another(tmp_path: Path) -> None:
    segment = SegmentConfig(segment_bytes=40_000, index_interval_bytes=0)
    run = on_real_disk(tmp_path, LogConfig(segment=segment))
    errors: list[BaseException] = []
    done = threading.Event()

    def flush() -> None:
        try:
            for _ in range(10_000):
                run.log.flush()
                if done.is_set():
                    return
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    batches = [batch_of([BASE_MS + i], bytes(i % 200)) for i in range(1_500)]
    entries = []
    for batch in batches:
        appended = run.log.append(batch, 1)
        entries.append((appended.base_offset, bytes(batch)))
    done.set()
    thread.join()
    assert errors == []
    run.log.flush()
    assert run.log.flushed_end_offset == run.log.end_offset == len(batches)
    found = [(header.base_offset, bytes(data)) for header, data in run.log.batches(0)]
    assert found == entries
    run.log.close()
    run.open()
    assert [bytes(data) for _, data in run.log.batches(0)] == [data for _, data in entries]
    assert run.log.offset_for_timestamp(BASE_MS + 777) == (777, BASE_MS + 777)
    run.log.close()


def test_an_empty_state_is_no_surprise() -> None:
    """The oracle itself: a log that was never written to is the empty state."""
    run = opened(SimulatedFiles(), batches=0)
    check_equal(run.log, State())
