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
    ("module", "planted", "contract"),
    [
        ("storage/__init__.py", "import kraftpy.cli.main", "Upper layers"),
        ("storage/__init__.py", "import kraftpy.testing", "Upper layers"),
        ("storage/log.py", "import kraftpy.metadata_log.image", "Upper layers"),
        ("metadata_log/__init__.py", "import kraftpy.testing", "Upper layers"),
        ("network/server.py", "import kraftpy.quorum.consensus", "Upper layers"),
        ("network/client.py", "import kraftpy.storage.log", "Upper layers"),
        ("wire/codec.py", "import kraftpy.network.client", "Upper layers"),
        ("testing/__init__.py", "import kraftpy.cli.main", "Upper layers"),
        ("errors.py", "import kraftpy.config", "Upper layers"),
        ("config.py", "import kraftpy.config_files", "Upper layers"),
        ("config_files.py", "import kraftpy.logs", "Upper layers"),
        ("topic_configs.py", "import kraftpy.dynamic_configs", "Upper layers"),
        ("config_kinds.py", "import kraftpy.config", "Upper layers"),
        ("config.py", "import os", "Pure modules"),
        ("topic_configs.py", "import random", "Pure modules"),
        ("config.py", "import kraftpy.clock", "Pure modules"),
        ("types.py", "import time", "Pure modules"),
        ("limits.py", "import asyncio", "Pure modules"),
        ("metadata_log/delta.py", "import kraftpy.logs", "Pure modules"),
        ("metadata_log/records.py", "import random", "Pure modules"),
        ("storage/record_batch.py", "import os", "Pure modules"),
        ("wire/apis.py", "import socket", "Pure modules"),
        ("audit/rules/engine.py", "import time", "Pure modules"),
    ],
)
def test_a_planted_import_is_refused(copy: Path, module: str, planted: str, contract: str) -> None:
    path = copy / "kraftpy" / module
    path.write_text(path.read_text() + f"\n{planted}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert [line for line in broken if line.startswith(contract)], done.stdout
