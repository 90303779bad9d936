"""A short `make audit`: processes under faults, and what they recorded breaks no rule."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e import audit_run


def test_what_a_cluster_under_faults_records_breaks_no_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = asyncio.run(audit_run.run_cluster(str(tmp_path), seconds=8, seed=3))
    assert sum(kinds.values()) > 5
    assert audit_run.audit(str(tmp_path), str(tmp_path / "out")) == 0, capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    noted = ("A40", "A41", "A46", "A47", "A52")
    assert all(result["looked_at"][code] for code in noted)
    assert len(result["nodes"]) == 6
