"""Who a node is: voters' addresses, a directory's identity, and directories that changed."""

import random

import pytest

from kraftpy.errors import ConfigError, CorruptRecord
from kraftpy.quorum.identity import KnownVoters
from kraftpy.quorum.voters import Voter, default_cluster_id, parse_voters
from kraftpy.storage.identity import check_identity, format_directory, load_identity
from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles
from kraftpy.types import Uuid, parse_uuid, uuid_text

CLUSTER = Uuid(bytes(range(16)))
OTHER = Uuid(bytes(range(1, 17)))


def test_voters_are_read_and_sorted() -> None:
    assert parse_voters("2@b.example:9093, 1@[::1]:9093") == (
        Voter(1, "::1", 9093),
        Voter(2, "b.example", 9093),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected ID@HOST:PORT, not ''"),
        ("1@host", "expected ID@HOST:PORT, not '1@host'"),
        ("1@host:9093,", "not ''"),
        ("x@host:9093", "not 'x@host:9093'"),
        ("1@host:99999", "not '1@host:99999'"),
        ("1@a:1,1@b:1", "node 1 is named twice"),
        ("1@a:1,2@a:1", "two voters have the same address"),
    ],
)
def test_a_mistake_among_the_voters_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_voters(text)
    assert message in str(refused.value)


def test_the_same_voters_give_the_same_cluster_in_any_order() -> None:
    one = default_cluster_id(parse_voters("1@a:1,2@b:1"))
    assert one == default_cluster_id(parse_voters("2@b:1,1@a:1"))
    assert one != default_cluster_id(parse_voters("1@a:1,2@b:2"))
    assert parse_uuid(uuid_text(one)) == one
    assert not uuid_text(one).startswith("-")


def test_a_formatted_directory_knows_itself() -> None:
    files = SimulatedFiles()
    assert load_identity_or_none(files) is None
    identity = format_directory(files, "/data", CLUSTER, 3, random.Random(1))
    assert load_identity(files, "/data") == identity
    check_identity(identity, "/data", CLUSTER, 3)
    check_identity(identity, "/data", None, 3)
    with pytest.raises(ConfigError, match="belongs to node 3, not to node 4"):
        check_identity(identity, "/data", CLUSTER, 4)
    with pytest.raises(ConfigError, match=r"belongs to cluster .* not to cluster"):
        check_identity(identity, "/data", OTHER, 3)
    with pytest.raises(ConfigError, match=r"/data is not empty: it holds meta\.properties"):
        format_directory(files, "/data", CLUSTER, 3, random.Random(1))


def load_identity_or_none(files: SimulatedFiles) -> object:
    files.make_directory("/data")
    return load_identity(files, "/data")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "version is missing"),
        (b"version=2\n", "version is 2, not 1"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n", "base64 UUID"),
        (b"version=1\n", "cluster.id is missing"),
        (b"\xff\xfe", "version is missing"),
    ],
)
def test_a_damaged_identity_is_refused(content: bytes, message: str) -> None:
    files = SimulatedFiles()
    files.make_directory("/data")
    files.replace("/data/meta.properties", content)
    with pytest.raises(ConfigError, match=message):
        load_identity(files, "/data")


def test_a_crash_while_formatting_leaves_an_identity_or_none() -> None:
    counted = SimulatedFiles()
    expected = format_directory(counted, "/data", CLUSTER, 1, random.Random(1))
    for point in range(1, len(counted.boundaries) + 1):
        files = SimulatedFiles(crash_at=point)
        with pytest.raises(PowerLoss):
            format_directory(files, "/data", CLUSTER, 1, random.Random(1))
        for disk in files.outcomes(20):
            disk.make_directory("/data")
            assert load_identity(disk, "/data") in (None, expected)


def test_a_voter_with_another_directory_is_refused_for_ever() -> None:
    files = SimulatedFiles()
    files.make_directory("/data")
    known = KnownVoters(files, "/data")
    assert known.accepts(2, CLUSTER)
    assert known.accepts(2, CLUSTER)
    assert not known.accepts(2, OTHER)
    for disk in files.outcomes(10):
        again = KnownVoters(disk, "/data")
        assert again.accepts(2, CLUSTER)
        assert not again.accepts(2, OTHER)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"1": 5}', b'{"x": "AAAA"}'])
def test_damaged_memory_of_voters_is_refused(content: bytes) -> None:
    files = SimulatedFiles()
    files.make_directory("/data")
    files.replace("/data/known-voters.json", content)
    with pytest.raises(CorruptRecord):
        KnownVoters(files, "/data")
