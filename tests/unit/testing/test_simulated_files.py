"""The simulated disk loses what a disk may lose and keeps what it must.

Every crash test of the project trusts this module, so each rule is tested in both directions: an
outcome that must be possible is among the outcomes, one that must not be is not.
"""

import errno
import io
import random

import pytest

from kraftpy.errors import DirectoryInUse
from kraftpy.storage.file_layer import FileLayer
from kraftpy.testing import PowerLoss, SimulatedFiles

SECTOR = 512


def disk_with(content: bytes, *, hard: bool = True) -> SimulatedFiles:
    """A disk whose file /d/f is durable with this content."""
    files = SimulatedFiles(hard=hard)
    files.make_directory("/d")
    file = files.open("/d/f")
    if content:
        file.write(0, [content])
    file.sync()
    files.sync_directory("/d")
    return files


def contents_after(files: SimulatedFiles, path: str = "/d/f", limit: int = 1000) -> set[bytes]:
    return {each.contents().get(path, b"absent") for each in files.outcomes(limit)}


def test_it_is_a_file_layer() -> None:
    layer: FileLayer = SimulatedFiles()
    layer.make_directory("/a/b")
    layer.replace("/a/b/c", b"text")
    assert layer.read_whole("/a/b/c") == b"text"
    assert layer.names("/a/b") == ["c"]
    assert layer.exists("/a/b")
    assert not layer.exists("/a/b/c.tmp")
    layer.rename("/a/b/c", "/a/b/d")
    assert layer.names("/a/b") == ["d"]
    layer.remove("/a/b/d")
    assert layer.names("/a/b") == []


def test_reads_and_writes_name_their_position() -> None:
    files = disk_with(b"0123456789")
    file = files.open("/d/f")
    file.write(8, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    assert file.size() == 14
    assert file.read(6, 4) == b"67ab"
    assert file.read(12, 100) == b"ef"
    file.write(16, [b"x"])
    assert file.read(13, 4) == b"f\0\0x"
    file.truncate(3)
    assert files.read_whole("/d/f") == b"012"


def test_errors_are_those_of_the_operating_system() -> None:
    files = disk_with(b"x")
    for attempt in (files.open_for_read, files.read_whole, files.remove, files.names):
        with pytest.raises(FileNotFoundError):
            attempt("/d/none")
    with pytest.raises(FileNotFoundError):
        files.open("/none/f")
    with pytest.raises(FileNotFoundError):
        files.rename("/d/none", "/d/f")
    with pytest.raises(IsADirectoryError):
        files.open("/d")
    with pytest.raises(NotADirectoryError):
        files.names("/d/f")
    with pytest.raises(FileExistsError):
        files.make_directory("/d/f")
    with pytest.raises(io.UnsupportedOperation):
        files.open("/d/f").fileno()
    with pytest.raises(OSError, match="Bad file"):
        files.open_for_read("/d/f").write(0, [b"x"])


def test_a_closed_file_refuses() -> None:
    file = disk_with(b"x").open("/d/f")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        file.read(0, 1)


def test_an_open_file_outlives_its_removal() -> None:
    files = disk_with(b"x")
    file = files.open_for_read("/d/f")
    files.remove("/d/f")
    assert file.read(0, 1) == b"x"


def test_a_lock_is_exclusive_until_it_is_closed_or_its_process_dies() -> None:
    files = disk_with(b"")
    lock = files.lock("/d/f")
    with pytest.raises(DirectoryInUse):
        files.lock("/d/f")
    files.process_crash().lock("/d/f")
    lock.close()
    files.lock("/d/f")


def test_synced_bytes_survive_every_power_loss() -> None:
    files = disk_with(b"synced")
    assert contents_after(files) == {b"synced"}
    rng = random.Random(1)
    assert {files.random_outcome(rng).read_whole("/d/f") for _ in range(50)} == {b"synced"}


def test_an_unsynced_write_is_lost_whole_or_only_its_length() -> None:
    files = disk_with(b"old")
    files.open("/d/f").write(3, [b"new"])
    assert contents_after(files) == {b"old", b"oldnew", b"old\0\0\0"}


def test_an_unsynced_overwrite_leaves_no_zeros() -> None:
    files = disk_with(b"old")
    files.open("/d/f").write(0, [b"new"])
    assert contents_after(files) == {b"old", b"new"}


def test_a_write_is_torn_at_sectors_of_the_file_and_in_any_subset() -> None:
    base = b"x" * 500
    files = disk_with(base)
    files.open("/d/f").write(500, [b"a" * 12 + b"b" * SECTOR + b"c"])
    parts = (b"a" * 12, b"b" * SECTOR, b"c")
    expected = {base, base + bytes(12 + SECTOR + 1)}
    for mask in range(1, 8):
        last = mask.bit_length()
        kept = [part if mask >> i & 1 else bytes(len(part)) for i, part in enumerate(parts)]
        expected.add(base + b"".join(kept[:last]))
        expected.add(base + b"".join(kept))  # The length came, the last sectors did not.
    assert contents_after(files) == expected


def test_without_hard_mode_a_torn_write_is_a_prefix() -> None:
    files = disk_with(b"", hard=False)
    files.open("/d/f").write(0, [b"a" * SECTOR + b"b" * SECTOR])
    assert contents_after(files) == {b"", b"a" * SECTOR, b"a" * SECTOR + b"b" * SECTOR}


def test_a_later_write_may_survive_an_earlier_one() -> None:
    files = disk_with(b"")
    file = files.open("/d/f")
    file.write(0, [b"aa"])
    file.write(2, [b"bb"])
    found = contents_after(files)
    assert {b"", b"aa", b"aabb", b"\0\0bb", b"\0\0\0\0", b"aa\0\0", b"\0\0"} == found


def test_sync_covers_what_came_before_it_and_nothing_after() -> None:
    files = disk_with(b"")
    file = files.open("/d/f")
    file.write(0, [b"aa"])
    file.sync()
    file.write(2, [b"bb"])
    assert contents_after(files) == {b"aa", b"aabb", b"aa\0\0"}


def test_an_unsynced_truncation_may_be_undone() -> None:
    files = disk_with(b"abcdef")
    file = files.open("/d/f")
    file.truncate(2)
    assert contents_after(files) == {b"ab", b"abcdef"}
    file.write(2, [b"X"])
    assert {b"abXdef", b"abX", b"ab", b"abcdef"} == contents_after(files)
    file.sync()
    assert contents_after(files) == {b"abX"}


def test_a_new_name_is_durable_only_after_its_directory() -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    file = files.open("/d/f")
    file.write(0, [b"x"])
    file.sync()
    assert contents_after(files) == {b"absent", b"x"}
    files.sync_directory("/d")
    assert contents_after(files) == {b"x"}


def test_a_durable_name_may_show_content_that_was_never_synced() -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    files.open("/d/f").write(0, [b"x"])
    files.sync_directory("/d")
    assert contents_after(files) == {b"", b"x", b"\0"}


def test_a_removal_may_be_undone_until_its_directory_is_synced() -> None:
    files = disk_with(b"x")
    files.remove("/d/f")
    assert contents_after(files) == {b"absent", b"x"}
    files.sync_directory("/d")
    assert contents_after(files) == {b"absent"}


def test_a_rename_is_atomic() -> None:
    files = disk_with(b"old")
    other = files.open("/d/g")
    other.write(0, [b"new"])
    other.sync()
    files.sync_directory("/d")
    files.rename("/d/g", "/d/f")
    found = {tuple(sorted(each.contents().items())) for each in files.outcomes()}
    assert found == {(("/d/f", b"new"),), (("/d/f", b"old"), ("/d/g", b"new"))}


def test_operations_of_one_directory_survive_as_a_prefix() -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    for name in "abc":
        files.open(f"/d/{name}")
    found = {"".join(each.names("/d")) for each in files.outcomes()}
    assert found == {"", "a", "ab", "abc"}


def test_directories_lose_names_independently() -> None:
    files = SimulatedFiles()
    for directory in ("/a", "/b"):
        files.make_directory(directory)
        files.open(f"{directory}/f")
    found = {tuple(each.contents()) for each in files.outcomes()}
    assert found == {(), ("/a/f",), ("/b/f",), ("/a/f", "/b/f")}


def test_make_directory_is_durable() -> None:
    files = SimulatedFiles()
    files.make_directory("/a/b")
    assert all(each.exists("/a/b") for each in files.outcomes())


def test_replace_leaves_the_old_or_the_new_content_at_every_boundary() -> None:
    counted = disk_with(b"old")
    before = len(counted.boundaries)
    counted.replace("/d/f", b"new")
    steps = counted.boundaries[before:]
    assert [kind for kind, _ in steps] == ["create", "write", "sync", "rename", "sync_directory"]
    assert contents_after(counted) == {b"new"}
    for n in range(before + 1, before + len(steps) + 1):
        files = disk_with(b"old")
        files.crash_at = n
        with pytest.raises(PowerLoss):
            files.replace("/d/f", b"new")
        allowed = {b"old"} if n < before + 5 else {b"old", b"new"}
        assert contents_after(files) == allowed


def test_replace_without_sync_would_be_caught() -> None:
    files = disk_with(b"old")
    file = files.open("/d/f.tmp")
    file.write(0, [b"new"])
    files.rename("/d/f.tmp", "/d/f")
    files.sync_directory("/d")
    assert contents_after(files) == {b"", b"\0\0\0", b"new"}


def test_replace_starts_from_an_empty_temporary_file() -> None:
    files = disk_with(b"old")
    files.open("/d/f.tmp").write(0, [b"left over from a crash"])
    files.replace("/d/f", b"new")
    assert contents_after(files) == {b"new"}


def test_after_a_crash_every_operation_raises() -> None:
    files = disk_with(b"x")
    file = files.open("/d/f")
    files.crash_at = len(files.boundaries) + 1
    with pytest.raises(PowerLoss, match="sync /d/f"):
        file.sync()
    for attempt in (file.sync, file.size, lambda: file.read(0, 1), lambda: file.write(0, [b"y"])):
        with pytest.raises(PowerLoss):
            attempt()
    for on_path in (files.open, files.exists, files.names, files.remove, files.sync_directory):
        with pytest.raises(PowerLoss):
            on_path("/d")
    file.close()


def test_a_crash_comes_before_the_effect() -> None:
    for kind in ("truncate", "remove"):
        files = disk_with(b"xyz")
        file = files.open("/d/f")
        files.crash_at = len(files.boundaries) + 1
        with pytest.raises(PowerLoss):
            file.truncate(0) if kind == "truncate" else files.remove("/d/f")
        assert files.process_crash().contents() == {"/d/f": b"xyz"}


def test_power_loss_is_no_exception_that_a_handler_swallows() -> None:
    assert not issubclass(PowerLoss, Exception)


@pytest.mark.parametrize("torn_bytes", [0, 1, 5, 6, 100])
def test_a_write_that_crashes_leaves_any_part(torn_bytes: int) -> None:
    files = disk_with(b"x")
    file = files.open("/d/f")
    files.crash_at = len(files.boundaries) + 1
    files.torn_bytes = torn_bytes
    with pytest.raises(PowerLoss):
        file.write(1, [b"abc", b"def"])
    assert files.process_crash().read_whole("/d/f") == b"x" + b"abcdef"[:torn_bytes]


def test_the_torn_part_comes_from_the_rng() -> None:
    found = set()
    for seed in range(100):
        files = SimulatedFiles(random.Random(seed), crash_at=2)
        file = files.open("/f")
        with pytest.raises(PowerLoss):
            file.write(0, [b"abc"])
        found.add(files.process_crash().read_whole("/f"))
    assert found == {b"", b"a", b"ab", b"abc"}


def test_a_killed_process_loses_nothing_but_power_loss_after_it_does() -> None:
    files = disk_with(b"old")
    files.open("/d/f").write(3, [b"new"])
    files.open("/d/g")
    survivor = files.process_crash()
    assert survivor.contents() == {"/d/f": b"oldnew", "/d/g": b""}
    assert survivor.boot_id() == files.boot_id()
    assert contents_after(survivor) == {b"old", b"oldnew", b"old\0\0\0"}


def test_power_loss_changes_the_boot_and_leaves_all_durable() -> None:
    files = disk_with(b"old")
    files.open("/d/f").write(3, [b"new"])
    whole = files.power_loss([1] * len(files.choices()))
    lost = files.power_loss()
    assert whole.read_whole("/d/f") == b"oldnew"
    assert lost.read_whole("/d/f") == b"old"
    assert lost.boot_id() != files.boot_id()
    assert contents_after(whole) == {b"oldnew"}
    assert contents_after(files) >= {b"old", b"oldnew"}


def test_outcomes_do_not_share_state() -> None:
    files = disk_with(b"old")
    clone = files.clone()
    files.open("/d/f").write(0, [b"new"])
    outcome = files.power_loss([1])
    outcome.open("/d/f").write(0, [b"xyz"])
    assert clone.read_whole("/d/f") == b"old"
    assert files.read_whole("/d/f") == b"new"


def test_a_failed_sync_raises_once_and_its_data_is_lost() -> None:
    files = disk_with(b"old")
    file = files.open("/d/f")
    files.fail_sync()
    file.write(0, [b"bad"])
    with pytest.raises(OSError, match="error") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    assert file.read(0, 3) == b"bad"
    file.sync()
    assert contents_after(files) == {b"old"}


def test_after_a_failed_sync_later_writes_are_durable_around_the_hole() -> None:
    files = disk_with(b"")
    file = files.open("/d/f")
    files.fail_sync()
    file.write(0, [b"bad"])
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.write(3, [b"good"])
    file.sync()
    assert contents_after(files) == {b"\0\0\0good"}
    survivor = files.process_crash()
    assert survivor.read_whole("/d/f") == b"badgood"
    assert contents_after(survivor) == {b"\0\0\0good"}


def test_the_nth_sync_of_the_named_files_fails() -> None:
    files = disk_with(b"")
    file, other = files.open("/d/f"), files.open("/d/g")
    files.fail_sync(2, lambda path: path.endswith("f"))
    file.sync()
    other.sync()
    other.sync()
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.sync()


def test_a_failed_directory_sync_loses_its_names() -> None:
    files = disk_with(b"")
    files.open("/d/g").sync()
    files.fail_sync(1, lambda path: path == "/d")
    with pytest.raises(OSError, match="error"):
        files.sync_directory("/d")
    files.sync_directory("/d")
    assert files.exists("/d/g")
    assert not files.power_loss().exists("/d/g")


def test_a_full_disk_takes_what_fits_and_raises() -> None:
    files = disk_with(b"12345")
    files.capacity_bytes = 8
    file = files.open("/d/f")
    with pytest.raises(OSError, match="space") as caught:
        file.write(4, [b"abcdefgh"])
    assert caught.value.errno == errno.ENOSPC
    assert files.read_whole("/d/f") == b"1234abcd"
    file.write(0, [b"overwrite"[:8]])
    file.truncate(2)
    file.write(2, [b"fits"])


def test_corruption_shows_at_once_and_after_power_loss() -> None:
    files = disk_with(b"abc")
    files.corrupt("/d/f", 1, 0x01)
    assert files.read_whole("/d/f") == b"acc"
    assert contents_after(files) == {b"acc"}


def test_every_effect_is_a_boundary_and_reads_are_none() -> None:
    files = disk_with(b"abc")
    kinds = [kind for kind, _ in files.boundaries]
    assert kinds == ["create", "sync_directory", "create", "write", "sync", "sync_directory"]
    file = files.open("/d/f")
    file.read(0, 1)
    file.size()
    files.names("/d")
    files.read_whole("/d/f")
    assert len(files.boundaries) == len(kinds)
    assert (files.writes, files.syncs, files.directory_syncs) == (1, 1, 2)


def test_outcomes_are_bounded_different_and_the_same_in_every_run() -> None:
    def run() -> list[dict[str, bytes]]:
        files = disk_with(b"")
        file = files.open("/d/f")
        for position in range(0, 8000, 1000):
            file.write(position, [b"x" * 1000])
        return [each.contents() for each in files.outcomes(limit=200)]

    found = run()
    assert len(found) == 200
    assert len({each["/d/f"] for each in found}) == 200
    assert found[0]["/d/f"] == b""
    assert found[1]["/d/f"] == b"x" * 8000
    assert found == run()


def test_a_random_outcome_is_one_of_the_enumerated() -> None:
    files = disk_with(b"abc")
    file = files.open("/d/f")
    file.write(3, [b"x" * 600])
    file.truncate(100)
    files.open("/d/g").write(0, [b"g"])
    files.rename("/d/g", "/d/h")
    legal = {each.digest() for each in files.outcomes(100_000)}
    rng = random.Random(7)
    found = {files.random_outcome(rng).digest() for _ in range(500)}
    assert found <= legal
    assert len(found) > len(legal) // 2
