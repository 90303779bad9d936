"""The benchmark of the broker runs, judges what it can, and says what is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import broker_load
from bench.broker_load import Load, LoadFailed, check, generator
from bench.broker_table import (
    AIMS,
    APACHE,
    LOADED,
    MOCK,
    OURS,
    START_AGAIN,
    START_EMPTY,
    Results,
    as_json,
    as_tables,
    case_name,
)
from bench.table import MEGABYTE

PRODUCE = case_name("produce", 1024, MEGABYTE)


def load(records: int = 10, errors: int = 0, gaps: int = 0) -> Load:
    return Load(records, errors, gaps, 1000, 1.0, 0.1, 0.0, 0.0)


def test_the_benchmark_of_the_broker_runs(tmp_path: Path) -> None:
    """A megabyte of each kind, through real processes; without the JVM."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.broker", "--smallest", "--json"),
            *("--only", OURS, "--only", MOCK),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ours = found["medians"][OURS]
    for action in ("produce", "consume", "RF 3 produce"):
        figures = ours[case_name(action, 1024, 16_384)]
        assert all(figures[each] > 0 for each in ("mb_s", "records_s", "cpu_s_gb"))
    for case in ("latency, RF 1", "latency, RF 3"):
        assert 0 < ours[case]["p50"] <= ours[case]["p99"]
    for start in (START_EMPTY, START_AGAIN):
        assert ours[start]["first_s"] > 0
        assert ours[start]["rss"] > 0
    assert ours[LOADED]["rss"] > 0
    small = case_name("produce", 1024, 16_384)
    assert found["ratios_of_ours"][MOCK][small]["mb_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_taken_within_a_round() -> None:
    """Twice as fast in each round, whatever the machine did meanwhile."""
    results = Results()
    for speed in (100.0, 10.0, 1000.0):
        results.add(OURS, PRODUCE, mb_s=2 * speed)
        results.add(MOCK, PRODUCE, mb_s=speed)
    results.add(OURS, PRODUCE, mb_s=1.0)  # Its round was not finished.
    assert results.ratio((PRODUCE, "mb_s"), MOCK) == 2.0
    assert results.median(MOCK, (PRODUCE, "mb_s")) == 100.0
    assert results.ratio((PRODUCE, "mb_s"), APACHE) is None


def test_aims_are_judged_by_what_was_measured() -> None:
    results = Results()
    results.add(OURS, PRODUCE, mb_s=86.0, cpu_s_gb=0.81)
    results.add(MOCK, PRODUCE, mb_s=100.0)
    results.missing[APACHE] = "no Java"
    reached = {(aim.figure, aim.to): aim.reached(results) for aim in AIMS if aim.case == PRODUCE}
    assert reached == {("mb_s", MOCK): True, ("mb_s", APACHE): None, ("cpu_s_gb", None): False}
    tables = as_tables(results)
    assert "Apache is missing: no Java" in str(tables[-1].caption)
    assert as_json(results)["missing"] == {APACHE: "no Java"}


@pytest.mark.parametrize("wrong", [load(records=9), load(errors=1), load(gaps=1)])
def test_a_run_that_is_not_whole_is_no_figure(wrong: Load) -> None:
    check(load(), "produce", 10, "")
    with pytest.raises(LoadFailed):
        check(wrong, "produce", 10, "")


def test_without_a_compiler_the_load_comes_through_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    found = generator(str(tmp_path))
    assert "no C compiler" in found.name
    ran = found.produce("-", "t", 100, 200, broker_load.MOCK)
    assert (ran.records, ran.bytes) == (200, 20_000)
    ran = found.latency("-", "t", 5, 1000, broker_load.MOCK)
    assert 0 < ran.p50_s <= ran.p99_s
