"""Judging a run's directory: the history, the nodes' own words, the audit of their logs, a report.

What is written: result.json (the verdict and every check) and report.html.
"""

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Final

from jepsen_like.checkers.judge import Evidence, Judgement, judge
from jepsen_like.history import read_history
from jepsen_like.report import write_report
from jepsen_like.runner import HISTORY

RESULT: Final = "result.json"
REPORT: Final = "report.html"
_METADATA_LOG: Final = "__cluster_metadata-0"
# Said by nodes whose disk was made to fail, or that were ended in the middle of a word.
_ALLOWED_LINES: Final = ()


def collected(directory: str) -> dict[str, str]:
    """Node to its directory."""
    nodes = os.path.join(directory, "nodes")
    if not os.path.isdir(nodes):
        return {}
    return {name: os.path.join(nodes, name) for name in sorted(os.listdir(nodes))}


def audit_command(given: tuple[str, ...]) -> tuple[str, ...]:
    """The command that audits logs: as given, or the kraftpy beside this Python."""
    if given:
        return given
    beside = os.path.join(os.path.dirname(sys.executable), "kraftpy")
    program = beside if os.path.exists(beside) else shutil.which("kraftpy") or "kraftpy"
    return (program, "audit", "--engine", "local", "--json")


def can_audit(command: tuple[str, ...]) -> bool:
    """Whether there is such a command; without one the logs are not judged, and that is said."""
    try:
        done = subprocess.run(
            [*command[:2], "--help"], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def judge_directory(directory: str, audit: tuple[str, ...] = ()) -> Judgement:
    """The verdict, with its two files."""
    nodes = collected(directory)
    logs = {name: os.path.join(path, "stderr.log") for name, path in nodes.items()}
    audited = [os.path.join(path, "data", _METADATA_LOG) for path in nodes.values()]
    if not can_audit(audit_command(audit)):
        audited = []
    evidence = Evidence(
        log_files={name: path for name, path in logs.items() if os.path.exists(path)} or None,
        allowed_lines=_ALLOWED_LINES,
        audit_paths=tuple(path for path in audited if os.path.isdir(path)),
        audit_command=audit_command(audit),
    )
    found = judge(read_history(os.path.join(directory, HISTORY)), evidence)
    with open(os.path.join(directory, RESULT), "w", encoding="utf-8") as file:
        json.dump(found.to_json(), file, indent=1)
    write_report(found, os.path.join(directory, REPORT))
    return found


def summary(found: Judgement) -> dict[str, Any]:
    """What a line of a table says of a run."""
    figures = {result.name: result.figures for result in found.results}
    cell, availability = figures.get("cell", {}), figures.get("availability", {})
    bad = [result.name for result in found.results if result.verdict.value != "valid"]
    faults = cell.get("faults", {})
    return {
        "verdict": found.verdict.value,
        "operations": cell.get("operations", 0),
        "ok": cell.get("ok", 0),
        "info": cell.get("info", 0),
        "faults": sum(faults.values()),
        "longest_gap_s": availability.get("longest_gap_s"),
        "first_ok_s": availability.get("first_ok_s"),
        "fault_free_rate": availability.get("fault_free_rate"),
        "not_valid": bad,
        "anomalies": found.to_json()["anomalies"],
        "audit": next((r.verdict.value for r in found.results if r.name == "audit"), "unknown"),
        "reasons": [reason for result in found.results for reason in result.reasons],
    }
