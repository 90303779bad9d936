"""The data directories of a broker: whose they are, which are usable, how they were left."""

import random

import pytest

from kraftpy.broker.log_dirs import LogDirs
from kraftpy.errors import ConfigError, DirectoryInUse
from kraftpy.storage.identity import format_directory
from kraftpy.testing.simulated_files import SimulatedFiles
from kraftpy.types import Uuid

CLUSTER, OTHER = Uuid(b"c" * 16), Uuid(b"o" * 16)


def opened(files: SimulatedFiles, *paths: str, node_id: int = 7) -> LogDirs:
    dirs = LogDirs.open(files, paths, node_id)
    dirs.format_new(dirs.cluster_id or CLUSTER, random.Random(1))
    return dirs


def test_new_directories_are_formatted_each_with_its_own_id() -> None:
    files = SimulatedFiles()
    dirs = LogDirs.open(files, ["/a", "/b"], 7)
    assert dirs.cluster_id is None
    dirs.format_new(CLUSTER, random.Random(1))
    ids = dirs.directory_ids
    assert len(set(ids)) == 2
    assert dirs.cluster_id == CLUSTER
    dirs.close(clean=True, broker_epoch=12)
    again = opened(files, "/a", "/b", "/c")
    assert again.directory_ids[:2] == ids
    assert again.cluster_id == CLUSTER
    again.close(clean=False)


def test_the_last_epoch_counts_only_if_every_directory_was_closed_in_order() -> None:
    files = SimulatedFiles()
    dirs = opened(files, "/a", "/b")
    assert dirs.previous_broker_epoch == -1
    dirs.close(clean=True, broker_epoch=12)
    dirs = opened(files, "/a", "/b")
    assert dirs.previous_broker_epoch == 12
    dirs.close(clean=False)
    dirs = opened(files, "/a", "/b")
    assert dirs.previous_broker_epoch == -1
    dirs.close(clean=True, broker_epoch=13)
    dirs = opened(files, "/a")
    dirs.close(clean=False)
    dirs = opened(files, "/a", "/b")
    assert dirs.previous_broker_epoch == -1, "one of them was opened and not closed in order"
    dirs.close(clean=True, broker_epoch=14)
    dirs = opened(files, "/a", "/b", "/new")
    assert dirs.previous_broker_epoch == -1, "a new directory may replace one that is lost"
    dirs.close(clean=False)


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "message"),
    [(8, CLUSTER, "/b belongs to node 8"), (7, OTHER, "/b belongs to cluster")],
)
def test_somebody_elses_directory_stops_the_broker(
    node_id: int, cluster_id: Uuid, message: str
) -> None:
    files = SimulatedFiles()
    opened(files, "/a").close(clean=True, broker_epoch=3)
    format_directory(files, "/b", cluster_id, node_id, random.Random(2))
    with pytest.raises(ConfigError, match=message):
        LogDirs.open(files, ["/a", "/b"], 7)
    dirs = opened(files, "/a")
    assert dirs.previous_broker_epoch == 3, "it was let go of as it had been left"
    dirs.close(clean=False)


def test_a_directory_in_use_stops_the_broker() -> None:
    files = SimulatedFiles()
    first = opened(files, "/a")
    with pytest.raises(DirectoryInUse):
        LogDirs.open(files, ["/a"], 7)
    first.close(clean=False)


def test_a_directory_that_cannot_be_used_fails_alone() -> None:
    files = SimulatedFiles()
    files.make_directory("/x")
    files.open("/x/file").close()
    dirs = opened(files, "/a", "/x/file/below")
    assert [each.path for each in dirs.dirs] == ["/a"]
    assert list(dirs.failed) == ["/x/file/below"]
    dirs.close(clean=True, broker_epoch=4)
    dirs = opened(files, "/a", "/x/file/below")
    assert dirs.previous_broker_epoch == -1, "what the failed one held is not known"
    dirs.close(clean=False)
    with pytest.raises(ConfigError, match="cannot use the data directory"):
        LogDirs.open(files, ["/x/file/below"], 7)


def test_a_directory_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="named twice"):
        LogDirs.open(SimulatedFiles(), ["/a", "/a"], 7)


def test_a_broker_of_another_cluster_is_refused_when_it_formats() -> None:
    files = SimulatedFiles()
    opened(files, "/a").close(clean=False)
    dirs = LogDirs.open(files, ["/a"], 7)
    with pytest.raises(ConfigError, match="belongs to cluster"):
        dirs.format_new(OTHER, random.Random(1))
    dirs.close(clean=False)
