"""The benchmark of the controller runs, and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

from bench.controller import Figure, as_table


def test_the_benchmark_of_the_controller_runs(tmp_path: Path) -> None:
    """A few topics, a blink of time, one kill."""
    size = ("--topics", "20", "--seconds", "0.3", "--fenced", "300", "--failover", "300")
    done = subprocess.run(
        [sys.executable, "-m", "bench.controller", "--json", *size],
        capture_output=True,
        text=True,
        check=True,
        env={"TMPDIR": str(tmp_path)},
    )
    figures = {each["what"]: each for each in json.loads(done.stdout)["figures"]}
    assert figures.keys() == {
        "create 20 topics, 200 partitions",
        "records committed while creating",
        "AlterPartition, 64 leaders at once",
        "fence the leader of 100 of 300 partitions",
        "failover with 300 partitions",
    }
    assert all(each["value"] > 0 for each in figures.values())
    assert list(tmp_path.iterdir()) == []


def test_a_missed_aim_is_in_the_table() -> None:
    missed = Figure("failover", 4.0, "s", "3 s", False)
    table = as_table([missed])
    assert [list(column.cells) for column in table.columns] == [
        ["failover"],
        ["4.00 s"],
        ["3 s [red]missed"],
    ]
