"""The import contracts hold, and an import planted against each makes lint-imports fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(
        command,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kraftpy", tmp_path / "kraftpy", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold_in_a_copy(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("storage/__init__.py", "import kraftpy.cli.main"),
        ("storage/__init__.py", "import kraftpy.testing"),
        ("testing/__init__.py", "import kraftpy.cli.main"),
        ("errors.py", "import kraftpy.config"),
        ("config.py", "import os"),
        ("types.py", "import time"),
        ("limits.py", "import asyncio"),
        ("config.py", "import kraftpy.clock"),
    ],
)
def test_a_planted_import_is_refused(copy: Path, module: str, planted: str) -> None:
    path = copy / "kraftpy" / module
    path.write_text(path.read_text() + f"\n{planted}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout or "2 broken" in done.stdout
