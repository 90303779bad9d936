"""A disk that loses its power keeps what was synced, and nothing that it should not."""

import errno
import random
from pathlib import Path

import pytest

from kraftpy.testing.fault_control import FaultControl
from kraftpy.testing.faulty_files import FaultyFiles, Loss


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    (tmp_path / "data").mkdir()
    return FaultyFiles(str(tmp_path / "graveyard"))


def place(tmp_path: Path, name: str = "a") -> str:
    return str(tmp_path / "data" / name)


def written(files: FaultyFiles, path: str, *pieces: bytes) -> None:
    """Synced after the first piece, not after the others."""
    file = files.open(path)
    position = 0
    for index, piece in enumerate(pieces):
        file.write(position, [piece])
        position += len(piece)
        if index == 0:
            file.sync()
    files.sync_directory(str(Path(path).parent))
    file.close()


def test_what_was_synced_stays_and_the_rest_is_lost(tmp_path: Path, files: FaultyFiles) -> None:
    path = place(tmp_path)
    written(files, path, b"synced", b"lost", b"lost too")
    assert Path(path).read_bytes() == b"syncedlostlost too", "others see it at once"
    files.undo_unsynced(Loss.LOST, random.Random(1))
    assert Path(path).read_bytes() == b"synced"


def test_bytes_that_were_written_over_come_back(tmp_path: Path, files: FaultyFiles) -> None:
    path = place(tmp_path)
    written(files, path, b"0123456789")
    file = files.open(path)
    file.write(2, [b"xx", b"yy"])
    file.truncate(4)
    file.write(8, [b"zz"])
    file.close()
    files.undo_unsynced(Loss.LOST, random.Random(1))
    assert Path(path).read_bytes() == b"0123456789"


def test_a_prefix_of_the_operations_survives(tmp_path: Path, files: FaultyFiles) -> None:
    found = set()
    for seed in range(30):
        path = place(tmp_path, str(seed))
        written(files, path, b"a", b"b", b"c")
        files.undo_unsynced(Loss.PREFIX, random.Random(seed))
        found.add(Path(path).read_bytes())
    assert found == {b"a", b"ab", b"abc"}


def test_a_torn_write_ends_at_a_sector(tmp_path: Path, files: FaultyFiles) -> None:
    sizes = set()
    for seed in range(40):
        path = place(tmp_path, str(seed))
        written(files, path, b"a" * 100, b"b" * 2000)
        files.undo_unsynced(Loss.TORN, random.Random(seed))
        content = Path(path).read_bytes()
        assert content == (b"a" * 100 + b"b" * 2000)[: len(content)]
        sizes.add(len(content))
    assert {512, 1024, 1536, 2048} <= sizes <= {100, 512, 1024, 1536, 2048, 2100}


def test_names_that_were_not_synced_are_undone(tmp_path: Path, files: FaultyFiles) -> None:
    for name in ("kept", "renamed", "target", "removed"):
        written(files, place(tmp_path, name), name.encode())
    files.open(place(tmp_path, "new")).close()
    files.rename(place(tmp_path, "renamed"), place(tmp_path, "target"))
    files.remove(place(tmp_path, "removed"))
    files.undo_unsynced(Loss.LOST, random.Random(1))
    left = {path.name: path.read_text() for path in (tmp_path / "data").iterdir()}
    assert left == {name: name for name in ("kept", "renamed", "target", "removed")}


def test_a_replaced_file_is_durable(tmp_path: Path, files: FaultyFiles) -> None:
    path = place(tmp_path)
    files.replace(path, b"old")
    files.replace(path, b"new")
    files.undo_unsynced(Loss.LOST, random.Random(1))
    assert Path(path).read_bytes() == b"new"


def test_a_failed_sync_never_becomes_durable(tmp_path: Path, files: FaultyFiles) -> None:
    path = place(tmp_path)
    written(files, path, b"synced")
    file = files.open(path)
    file.write(6, [b"lost"])
    files.faults.syncs_to_fail = 1
    with pytest.raises(OSError) as failed:
        file.sync()
    assert failed.value.errno == errno.EIO
    file.sync()  # As a kernel does that has called the pages clean.
    files.undo_unsynced(Loss.PREFIX, random.Random(3))
    assert Path(path).read_bytes() == b"synced"


def test_a_boot_id_changes_with_the_power_only(tmp_path: Path, files: FaultyFiles) -> None:
    before = files.boot_id()
    assert before == FaultyFiles(str(tmp_path / "graveyard")).boot_id()
    files.undo_unsynced(Loss.LOST, random.Random(1))
    after = files.boot_id()
    assert before != after == FaultyFiles(str(tmp_path / "graveyard")).boot_id()


def test_a_full_disk_takes_nothing_and_an_error_is_told(tmp_path: Path, files: FaultyFiles) -> None:
    path = place(tmp_path)
    file = files.open(path)
    files.faults.full = True
    with pytest.raises(OSError) as full:
        file.write(0, [b"x"])
    assert full.value.errno == errno.ENOSPC
    files.faults.full, files.faults.io_error = False, True
    with pytest.raises(OSError) as broken:
        file.read(0, 1)
    assert broken.value.errno == errno.EIO
    files.faults.io_error = False
    file.write(0, [b"x"])
    assert file.read(0, 1) == b"x"


def test_faults_are_asked_for_in_lines(tmp_path: Path, files: FaultyFiles) -> None:
    control = FaultControl(str(tmp_path / "s"), files)
    assert control.answer(b'{"do": "disk", "full": true, "sync_delay_ms": 2}')["ok"]
    assert files.faults.full
    assert files.faults.sync_delay_ms == 2
    assert control.answer(b'{"do": "disk"}')["full"] is False


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"do": "explode"}',
        b'{"do": "disk", "full": 3}',
        b'{"do": "disk", "x": 1}',
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    tmp_path: Path, files: FaultyFiles, line: bytes
) -> None:
    control = FaultControl(str(tmp_path / "s"), files)
    assert control.answer(line)["ok"] is False
