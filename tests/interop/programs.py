"""Clients that are not Python: where their packages are kept, and how their programs are run.

Packages come from wherever the user's tools get them, into the user's cache; nothing is put into
the project. A tool or a package that cannot be had skips the test, with the reason. Every program
takes the address of a cluster, runs its scenarios and prints one line for each: `ok NAME` or
`FAIL NAME: why`.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FETCH_S = 300
RUN_S = 180


def cache_dir(name: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(root) / "kraftpy-interop" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def need(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def fetch(command: list[str], cwd: Path, what: str) -> None:
    """Run what brings packages; without a registry there is nothing to test with."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} did not arrive within {FETCH_S} s")
    if done.returncode != 0:
        pytest.skip(f"{what} cannot be fetched: {(done.stdout + done.stderr).strip()[-300:]}")


def built(sources: list[Path]) -> str:
    """A name for what is built of these sources, as they are now."""
    text = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(text).hexdigest()[:16]


def run(command: list[str], cwd: Path = HERE, environment: dict[str, str] | None = None) -> None:
    """Run a program of scenarios; every one must have succeeded."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAIL ")]
    assert not failed, "\n".join(failed)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert lines, "the program ran no scenario"
    assert lines[-1] == "done", (done.stdout + done.stderr)[-4000:]
