"""Many runs: every workload under every set of faults, each in its own process, one index page.

A cell that has a result is not run again, so that a matrix that was stopped goes on where it was.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jepsen_like import report as reports
from jepsen_like.verdict import Verdict, merge

SUMMARY: Final = "cell.json"
INDEX: Final = "index.html"
_MORE_S: Final = 400.0  # Beyond the load itself, before a cell is given up.

FAULT_SETS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("kill",),
    ("kill-all",),
    ("pause",),
    ("partition",),
    ("one-way", "ring"),
    ("slow-links", "throttle", "cut", "reset"),
    ("lost-fsync", "torn-fsync"),
    ("power-off",),
    ("disk-full", "fsync-error", "slow-disk"),
    ("clock", "drift"),
    ("bit-rot", "wipe"),
    ("admin", "membership"),
    ("swizzle",),
    ("leader",),
    ("kill", "pause", "partition", "clock", "lost-fsync", "admin"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a matrix."""

    workload: str
    nemesis: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [self.workload, *(each.replace("=", "-") for each in self.options)]
        return "_".join(words) + "__" + ("+".join(self.nemesis) or "none")


def _cells() -> Iterable[Cell]:
    for nemesis in FAULT_SETS:
        yield Cell("log", nemesis)
        for workload in ("register", "set", "ids", "group", "watch"):
            yield Cell(workload, nemesis)
    for nemesis in (("kill",), ("partition",), ("lost-fsync", "torn-fsync")):
        yield Cell("log", nemesis, ("idempotent=false",))
    yield Cell("linger")


MATRIX: Final = tuple(_cells())
SMOKE: Final = tuple(
    Cell(workload, nemesis)
    for nemesis in ((), ("kill",), ("pause",), ("partition",), ("lost-fsync",))
    for workload in ("log", "register")
)


def command(cell: Cell, directory: str, given: argparse.Namespace) -> list[str]:
    words = ["run", "--workload", cell.workload, "--nemesis", ",".join(cell.nemesis) or "none"]
    words += ["--time", f"{given.time:g}", "--seed", str(given.seed), "--out", directory, "--json"]
    words += ["--interval", f"{given.interval:g}", "--settle", f"{given.settle:g}", "--warmup", "2"]
    for option in cell.options:
        words += ["-o", option]
    return words


def run_cells(cells: Sequence[Cell], given: argparse.Namespace) -> int:
    """All that have no result yet; the exit code of the worst."""
    chosen = [cell for cell in cells if given.only in cell.name]
    if not chosen:
        raise ValueError(f"no cell has {given.only!r} in its name")
    rows = []
    for number, cell in enumerate(chosen, 1):
        directory = os.path.abspath(os.path.join(given.out, cell.name))
        row = None if given.fresh else _read(directory)
        if row is None:
            row = run_one(cell, directory, given)
        rows.append(row)
        _say(f"[{number}/{len(chosen)}] {line(row)}")
        write_index(given.out, rows)
    verdict = merge(Verdict(row["verdict"]) for row in rows)
    _say(f"{verdict.value}: {os.path.join(given.out, INDEX)}")
    return verdict.exit_code


def run_one(cell: Cell, directory: str, given: argparse.Namespace) -> dict[str, Any]:
    shutil.rmtree(directory, ignore_errors=True)
    words = command(cell, directory, given)
    began = time.monotonic()
    shown = "python -m jepsen_like " + " ".join(words[:-1])
    row: dict[str, Any] = {
        "cell": cell.name,
        "workload": cell.workload,
        "nemesis": list(cell.nemesis),
        "command": shown.replace(directory, os.path.join(given.out, cell.name)),
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    row |= run_process(words, given.time + _MORE_S)
    row["seconds"] = round(time.monotonic() - began, 1)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, SUMMARY), "w", encoding="utf-8") as file:
        json.dump(row, file, indent=1)
    return row


def run_process(words: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """A run in a process of its own: what it leaves behind ends with it."""
    program = [sys.executable, "-m", "jepsen_like", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
        )
        result = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"verdict": "unknown", "reasons": [f"no end within {timeout_s:.0f} s"]}
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no result"])[-1]
        return {"verdict": "unknown", "reasons": [last[:300]]}
    return digest(result)


def digest(result: dict[str, Any]) -> dict[str, Any]:
    """What a table says of a result."""
    checks = {each["name"]: each for each in result["checks"]}
    cell = checks.get("cell", {}).get("figures", {})
    availability = checks.get("availability", {}).get("figures", {})
    return {
        "verdict": result["verdict"],
        "operations": cell.get("operations", 0),
        "ok": cell.get("ok", 0),
        "info": cell.get("info", 0),
        "faults": cell.get("faults", {}),
        "longest_gap_s": availability.get("longest_gap_s"),
        "first_ok_s": availability.get("first_ok_s"),
        "rate": availability.get("fault_free_rate"),
        "anomalies": result["anomalies"],
        "audit": checks.get("audit", {}).get("verdict", "unknown"),
        "reasons": [reason for each in result["checks"] for reason in each["reasons"]],
    }


def line(row: dict[str, Any]) -> str:
    """One row, for people."""
    if "operations" not in row:
        return f"{row['verdict']:8} {row['cell']}: {'; '.join(row['reasons'])}"
    faults = sum(row["faults"].values())
    anomalies = ", ".join(f"{name} {count}" for name, count in row["anomalies"].items())
    why = "; ".join(filter(None, [anomalies, *row["reasons"]]))
    return (
        f"{row['verdict']:8} {row['cell']:42} {row['operations']:7} ops {row['ok']:7} ok "
        f"{faults:4} faults  gap {row['longest_gap_s']} s  {why}"
    )


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as docs/jepsen.md has them."""
    lines = [
        "| workload | faults | verdict | operations | ok | fired | longest gap | audit | why |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        fired = ", ".join(f"{name} {count}" for name, count in row.get("faults", {}).items())
        seen = [f"{name} {count}" for name, count in row.get("anomalies", {}).items()]
        gap = row.get("longest_gap_s")
        cells = (
            row["cell"].partition("__")[0],
            ", ".join(row["nemesis"]) or "none",
            row["verdict"],
            row.get("operations", ""),
            row.get("ok", ""),
            fired,
            "" if gap is None else f"{gap:.1f} s",
            row.get("audit", ""),
            "; ".join([*seen, *row.get("reasons", [])]),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def write_index(directory: str, rows: Sequence[dict[str, Any]]) -> None:
    """The page that leads to every report, and the same as JSON and as a table."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "index.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(directory, "table.md"), "w", encoding="utf-8") as file:
        file.write(as_table(rows))
    if any(os.path.exists(os.path.join(directory, row["cell"], "result.json")) for row in rows):
        reports.write_index(directory)


def _read(directory: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, SUMMARY), encoding="utf-8") as file:
            row: dict[str, Any] = json.load(file)
            return row
    except (OSError, ValueError):
        return None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
