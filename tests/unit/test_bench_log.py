"""The benchmark of the log runs, and compares what it says it compares."""

import json
import subprocess
import sys


def test_the_benchmark_of_the_log_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.log", "--megabytes", "2", "--rounds", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)
    assert len(results) == 7
    assert {each["aim"] for each in results} == {0.5, 0.25, None}
    for each in results:
        assert each["ratio"] > 0
        assert each["ours_cpu_s_per_gb"] > 0
