"""The benchmark of the quorum runs, judges what it can, and says what is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers_etcd, peers_zookeeper
from bench.quorum import on_disk, percentile
from bench.quorum_table import Results, as_tables, verdicts


def results(**figures: float) -> Results:
    found = Results()
    for name in ("kraftpy", "etcd", "zookeeper"):
        for figure, value in figures.items():
            found.add(name, figure, value)
    return found


def test_the_benchmark_of_the_quorum_runs(tmp_path: Path) -> None:
    """Two writers, a blink of time, one kill."""
    length = ("--rounds", "1", "--seconds", "0.2", "--kills", "1", "--writers", "2")
    done = subprocess.run(
        [sys.executable, "-m", "bench.quorum", "--only", "kraftpy", "--json", *length],
        capture_output=True,
        text=True,
        check=True,
        env={"TMPDIR": str(tmp_path)},
    )
    found = json.loads(done.stdout)
    assert found["medians"].keys() == {"kraftpy", "fdatasync"}
    ours = found["medians"]["kraftpy"]
    assert 0 < ours["p50"] <= ours["p99"]
    for figure in ("commits", "records", "fail_over", "many_server_cpu_s"):
        assert ours[figure] > 0
    assert found["reached"]["p50"] is None, "without etcd there is nothing to judge by"
    assert found["reached"]["fail_over"] is not None
    assert list(tmp_path.iterdir()) == []


def test_aims_are_judged_against_the_others() -> None:
    equal = results(p50=0.001, commits=100.0)
    assert verdicts(equal.medians())["p50"] is True
    assert verdicts(equal.medians())["commits"] is False, "more means more"


def test_what_is_missing_is_in_the_table() -> None:
    found = Results()
    found.add("kraftpy", "p50", 0.001)
    found.missing["etcd"] = "install it"
    table = as_tables(found)[0]
    assert "etcd is missing: install it" in str(table.caption)
    column = next(each for each in table.columns if each.header == "etcd")
    assert set(column.cells) == {"[yellow]missing"}


def test_a_peer_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "etcd-server" in str(peers_etcd.Etcd.missing())
    assert "zookeeper" in str(peers_zookeeper.ZooKeeper.missing())


def test_the_median_of_rounds_and_the_longest_fail_over_count() -> None:
    found = Results()
    for value in (0.2, 0.9, 0.4):
        found.add("kraftpy", "fail_over", value)
    assert found.medians()["kraftpy"] == {"fail_over": 0.4, "fail_over_max": 0.9}


def test_percentiles_need_values() -> None:
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    with pytest.raises(SystemExit):
        percentile([1.0], 50)


def test_memory_is_no_disk(tmp_path: Path) -> None:
    assert isinstance(on_disk(str(tmp_path)), bool)
    assert not on_disk("/dev/shm")


def test_protobuf_and_http2_by_hand() -> None:
    put = peers_etcd.put_request(3, 7)
    assert peers_etcd.fields(put) == {1: b"writer-3/key-7", 2: b"x" * 64}
    request = peers_etcd.GrpcRequest("/a.B/C", put)
    frames = request.on_stream(5)
    size = int.from_bytes(frames[:3], "big")
    assert frames[3:9] == b"\x01\x04\0\0\0\x05", "HEADERS, the last of them, on stream 5"
    data = frames[9 + size :]
    assert data[3:9] == b"\0\x01\0\0\0\x05", "DATA, the end of the stream"
    assert data[9:] == b"\0" + len(put).to_bytes(4, "big") + put
