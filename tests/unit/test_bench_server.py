"""The benchmark of the broker's server runs, and compares what it says it compares."""

import json
import subprocess
import sys


def test_the_benchmark_of_the_server_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.server", "--megabytes", "1", "--rounds", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)
    assert len(results) == 11
    assert {each["server"] for each in results} == {"log", "nothing", "bare"}
    for each in results:
        assert each["requests_per_s"] > 0
        assert each["cpu_s_per_gb"] > 0
