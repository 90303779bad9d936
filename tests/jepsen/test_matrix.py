"""A matrix goes on where it was stopped, says why, and its worst cell is its verdict."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from jepsen_like import matrix, mutants
from jepsen_like.__main__ import arguments, run_options

ROW: dict[str, Any] = {
    "verdict": "valid",
    "operations": 10,
    "ok": 9,
    "info": 1,
    "faults": {"kill": 2},
    "longest_gap_s": 0.5,
    "anomalies": {},
    "audit": "valid",
    "reasons": [],
}


def given(tmp_path: Path, **more: object) -> argparse.Namespace:
    words = ["matrix", "--out", str(tmp_path), "--time", "1"]
    found = arguments(words)
    for name, value in more.items():
        setattr(found, name, value)
    return found


def test_a_cell_that_has_a_result_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run_process(words: list[str], _timeout_s: float) -> dict[str, Any]:
        ran.append(words)
        return dict(ROW)

    monkeypatch.setattr(matrix, "run_process", run_process)
    cells = [matrix.Cell("log", ("kill",)), matrix.Cell("ids")]
    assert matrix.run_cells(cells, given(tmp_path)) == 0
    assert matrix.run_cells(cells, given(tmp_path)) == 0
    assert len(ran) == 2
    assert matrix.run_cells(cells, given(tmp_path, fresh=True)) == 0
    assert len(ran) == 4
    rows = json.loads((tmp_path / "index.json").read_text())
    assert [row["cell"] for row in rows] == ["log__kill", "ids__none"]
    table = (tmp_path / "table.md").read_text()
    assert "| log | kill | valid | 10 | 9 | kill 2 | 0.5 s | valid |  |" in table


@pytest.mark.parametrize(("worst", "code"), [("invalid", 1), ("unknown", 2)])
def test_the_worst_cell_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worst: str, code: int
) -> None:
    verdicts = iter(["valid", worst])
    monkeypatch.setattr(matrix, "run_process", lambda *_: {**ROW, "verdict": next(verdicts)})
    cells = [matrix.Cell("log"), matrix.Cell("ids")]
    assert matrix.run_cells(cells, given(tmp_path)) == code


def test_a_cell_without_an_end_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"verdict": "unknown", "reasons": ["no end within 3 s"]}
    monkeypatch.setattr(matrix, "run_process", lambda *_: found)
    assert matrix.run_cells([matrix.Cell("log")], given(tmp_path)) == 2
    assert "no end within 3 s" in (tmp_path / "table.md").read_text()


def test_no_cell_of_that_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no cell has 'x'"):
        matrix.run_cells([matrix.Cell("log")], given(tmp_path, only="x"))


def test_a_bug_is_hunted_seed_after_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter(
        [
            {"verdict": "valid", "anomalies": {}, "reasons": []},
            {"verdict": "invalid", "anomalies": {"lost-write": 3}, "reasons": []},
        ]
    )
    monkeypatch.setattr(mutants, "run_process", lambda *_: next(found))
    row = mutants.hunt(mutants.RECIPES[0], str(tmp_path))
    assert row["caught"]["seed"] == 2
    assert "seed 2: lost-write 3" in mutants.as_table([row])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nemesis", "earthquake"], "no such nemesis"),
        (["--against", "here"], "expected HOST:PORT"),
        (["--against", "h:1", "--nemesis", "kill"], "cluster of one's own"),
        (["-o", "x"], "expected key=value"),
    ],
)
def test_what_cannot_be_run_is_said(words: list[str], complaint: str) -> None:
    all_words = ["run", "--workload", "log", *words]
    with pytest.raises(ValueError, match=complaint):
        run_options(arguments(all_words), all_words)
