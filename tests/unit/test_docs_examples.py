"""What the README and docs/library.md show is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300


def blocks(name: str, section: str) -> list[str]:
    """The Python of a section."""
    text = (ROOT / name).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```python\n(.*?)^```", body, flags=re.MULTILINE | re.DOTALL)
    assert found, f"{name} shows nothing under {section}"
    return found


def ran(program: str, directory: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def voters() -> str:
    from bench.quorum_processes import free_ports

    return f"1@127.0.0.1:{free_ports(1)[0]}"


def test_the_readme_s_tests_pass(tmp_path: Path) -> None:
    (program,) = blocks("README.md", "In your tests")
    (tmp_path / "test_readme.py").write_text(program)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "kraftpy.pytest_plugin"),
            *("-p", "no:cacheprovider", "--strict-markers", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_an_embedded_quorum_commits_and_its_directory_can_be_read(tmp_path: Path) -> None:
    (program,) = blocks("docs/library.md", "Embed a quorum")
    given = f"VOTERS, DIRECTORY = {voters()!r}, {str(tmp_path)!r}\n"
    told = [line for line in ran(given + program, tmp_path) if "[info" not in line]
    assert told == ["leader 1", "committed True", "team-a"]

    (program,) = blocks("docs/library.md", "Read a log's directory")
    given = f"METADATA_DIRECTORY = {str(tmp_path / '__cluster_metadata-0')!r}\n"
    told = ran(given + program, tmp_path)
    assert told[0].startswith("0 1 LeaderChange")
    assert "1 1 ConfigRecord" in told
    assert told[-1] == "1 True"


def test_every_image_is_seen(tmp_path: Path) -> None:
    (program,) = blocks("docs/library.md", "Watch the image")
    given = f"VOTERS, DIRECTORY = {voters()!r}, {str(tmp_path)!r}\n"
    told = [line for line in ran(given + program, tmp_path) if line.startswith("at ")]
    assert told[-1].endswith("{'step': '2'}")


def test_records_are_replayed_by_hand(tmp_path: Path) -> None:
    (program,) = blocks("docs/library.md", "Replay by hand")
    assert ran(program, tmp_path)[0] == "0 1 1"
