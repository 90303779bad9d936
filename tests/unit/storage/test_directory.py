"""The data directory: one owner at a time, and a marker that never lies."""

import pytest

from kraftpy.errors import ConfigError, DirectoryInUse
from kraftpy.storage.directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from kraftpy.storage.file_layer import OsFiles
from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles


def test_a_directory_has_one_owner(tmp_path: object) -> None:
    owner = DataDirectory(OsFiles(), f"{tmp_path}/data")
    with pytest.raises(DirectoryInUse):
        DataDirectory(OsFiles(), f"{tmp_path}/data")
    owner.close(clean=True)
    DataDirectory(OsFiles(), f"{tmp_path}/data").close(clean=False)


def test_an_orderly_end_is_remembered_once() -> None:
    files = SimulatedFiles()
    first = DataDirectory(files, "/data")
    assert not first.was_clean
    first.close(clean=True, broker_epoch=17)
    second = DataDirectory(files, "/data")
    assert (second.was_clean, second.clean_broker_epoch) == (True, 17)
    second.close(clean=False)
    assert not DataDirectory(files, "/data").was_clean


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":0,"brokerEpoch":"x"}'])
def test_a_marker_of_another_version_still_counts(content: bytes) -> None:
    files = SimulatedFiles()
    files.make_directory("/data")
    files.replace(f"/data/{CLEAN_SHUTDOWN_FILE}", content)
    opened = DataDirectory(files, "/data")
    assert (opened.was_clean, opened.clean_broker_epoch) == (True, -1)


def test_after_a_crash_the_end_is_never_taken_for_an_orderly_one() -> None:
    files = SimulatedFiles()
    DataDirectory(files, "/data").close(clean=True)
    DataDirectory(files, "/data")  # And the power goes.
    for disk in (files.process_crash(), *files.outcomes(100)):
        assert not DataDirectory(disk, "/data").was_clean


def test_a_crash_while_the_marker_is_written_leaves_it_or_not() -> None:
    seen = set()
    for point in range(1, 40):
        files = SimulatedFiles(crash_at=point)
        try:
            DataDirectory(files, "/data").close(clean=True, broker_epoch=3)
        except PowerLoss:
            pass
        else:
            break
        for disk in files.outcomes(50):
            again = DataDirectory(disk, "/data")
            seen.add((again.was_clean, again.clean_broker_epoch))
    assert seen == {(False, -1), (True, 3)}


def test_a_path_that_cannot_be_a_directory_is_the_users_to_change(tmp_path: object) -> None:
    with open(f"{tmp_path}/file", "w") as file:
        file.write("in the way")
    with pytest.raises(ConfigError, match=r"cannot use the data directory .*: Not a directory"):
        DataDirectory(OsFiles(), f"{tmp_path}/file/data")
