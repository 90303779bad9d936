"""No bytes do more than close a connection: in processes of their own, to see how they end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COUNT = 20_000

KIO_READS_A_HOSTILE_COUNT = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from kio.schema.fetch.v12.request import FetchRequest
from kio.serial import entity_reader
try:
    entity_reader(FetchRequest)(b"\\xff" * 4 + bytes(21) + b"\\xff\\xff\\xff\\xff\\x0f", 0)
except Exception:
    print("an exception")
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_and_mutated_messages_are_read_or_refused(seed: int) -> None:
    done = python("-m", "tests.unit.wire.fuzz", str(seed), str(COUNT))
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["read"] + counts["refused"] == COUNT
    assert counts["read"] > COUNT / 100
    assert counts["types"] > 500


def test_kio_itself_does_not_survive_this() -> None:
    """Should this fail one day, ADR 6 may be looked at again."""
    done = python("-c", KIO_READS_A_HOSTILE_COUNT)
    assert done.returncode < 0, done.stdout
    assert "an exception" not in done.stdout
