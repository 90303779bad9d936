"""The fixtures, as pytest finds them in somebody's project."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest
from confluent_kafka import Producer

def produce(servers, topic):
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    found = []
    producer.produce(topic, b"x", callback=lambda error, message: found.append(message.offset()))
    assert producer.flush(60) == 0
    return found

@pytest.mark.parametrize("_", [1, 2])
def test_each_test_has_topics_of_its_own(kraftpy, _):
    assert produce(kraftpy.bootstrap_servers, kraftpy.topic("orders")) == [0]

def test_faults_do_not_outlast_their_test(kraftpy):
    kraftpy.cluster.kill(101)

def test_after_it_the_cluster_is_whole(kraftpy, kraftpy_cluster):
    assert kraftpy_cluster is kraftpy.cluster
    assert produce(kraftpy.bootstrap_servers, kraftpy.topic()) == [0]

@pytest.mark.kraftpy(brokers=2, settings={"num.partitions": 3})
def test_a_fresh_cluster_is_what_the_mark_says(fresh_kraftpy_cluster):
    assert fresh_kraftpy_cluster.brokers == (101, 102)
"""


def test_the_fixtures_work_in_a_project(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--strict-markers", "-W", "error"),
            *("-p", "kraftpy.pytest_plugin", "-p", "no:cacheprovider", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kraftpy": "kraftpy.pytest_plugin"}


def test_a_project_that_does_not_use_it_imports_nothing_of_it() -> None:
    program = "import sys, kraftpy.pytest_plugin; print([m for m in sys.modules if 'kraftpy' in m])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "['kraftpy', 'kraftpy.pytest_plugin']\n"
