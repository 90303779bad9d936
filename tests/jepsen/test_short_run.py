"""The whole harness against a real cluster, shortly: one run with faults is valid, and a planted
bug makes one invalid. `make jepsen` is the longer one, `make jepsen-matrix` all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jepsen_like.history import read_history

from kraftpy.testing import kraftpy_cluster

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
EXIT = {"valid": 0, "invalid": 1, "unknown": 2}


def run(out: Path, *words: str) -> dict[str, Any]:
    short = ("--warmup", "1", "--settle", "2", "--interval", "1", "--clients", "4", "--seed", "1")
    done = subprocess.run(
        [sys.executable, "-m", "jepsen_like", "run", *words, *short, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'jepsen-like'}{os.pathsep}{ROOT}"},
    )
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == EXIT[result["verdict"]]
    return result


def broken_promises(result: dict[str, Any]) -> dict[str, int]:
    """What was seen to be wrong. Whether a loaded machine served enough in so short a time is
    another question, and leaves the verdict unknown."""
    anomalies: dict[str, int] = result["anomalies"]
    return anomalies


def test_a_cluster_that_is_killed_and_cut_keeps_its_promises(tmp_path: Path) -> None:
    nemesis = "leader,partition"
    result = run(tmp_path / "run", "--workload", "log", "--nemesis", nemesis, "--time", "6")
    assert broken_promises(result) == {}, result["checks"]
    assert result["verdict"] in ("valid", "unknown")
    history = read_history(str(tmp_path / "run" / "history.jsonl"))
    assert [op.v for op in history.ops if op.f == "phase"] == [
        "warmup",
        "load",
        "heal",
        "settle",
        "final",
        "stop",
    ]
    assert any(op.f == "send" and op.type == "ok" for op in history.ops)
    assert (tmp_path / "run" / "report.html").stat().st_size > 0


def test_a_planted_bug_is_seen(tmp_path: Path) -> None:
    result = run(
        tmp_path / "run",
        *("--workload", "ids", "--nemesis", "none", "--time", "2"),
        *("--controllers", "1", "--brokers", "2", "--mutant", "duplicate_producer_id_block"),
    )
    assert result["verdict"] == "invalid"
    assert result["anomalies"]["duplicate-id"] > 0


def test_a_cluster_of_somebody_elses_is_judged_again_and_again(tmp_path: Path) -> None:
    """What an earlier run has left there is not taken for an answer, although both say the same."""
    with kraftpy_cluster(brokers=1) as cluster:
        for workload in ("linger", "log", "set"):
            against = ("--against", cluster.bootstrap_servers, "--time", "1")
            result = run(tmp_path / workload, "--workload", workload, *against)
            assert broken_promises(result) == {}, result["checks"]
            assert any(each["name"] == "cell" for each in result["checks"])
            history = read_history(str(tmp_path / workload / "history.jsonl"))
            assert any(op.type == "ok" and op.p == 0 for op in history.ops)


def test_nobody_at_the_address_is_one_line(tmp_path: Path) -> None:
    words = ("--workload", "log", "--against", "127.0.0.1:1", "--out", str(tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-m", "jepsen_like", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT / "jepsen-like")},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("jepsen_like: 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1
