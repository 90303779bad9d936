"""The audit of the nodes' own logs, run as a command: clients see only half of the evidence.

The harness knows nothing of the system's inside, so the audit is another program. It is given the
directories that were collected after the run, and answers with its exit code: 0 valid, 1 invalid,
2 unknown. Anything else (it cannot be started, takes too long, was killed) is unknown, never valid.
Its JSON, if there is any, is kept among the figures, and its violations are shown as anomalies.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "audit"
COMMAND: Final = ("kraftpy", "audit", "--json")
TIMEOUT_S_MAX: Final = 600.0


def check(
    paths: Sequence[str],
    command: Sequence[str] = COMMAND,
    timeout_s: float = TIMEOUT_S_MAX,
) -> CheckResult:
    """Run `command` with the directories behind it."""
    findings = Findings(NAME)
    findings.examined = len(paths)
    if not paths:
        return findings.result()
    try:
        done = subprocess.run(
            [*command, *paths], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except OSError as error:
        findings.doubt(f"{command[0]} cannot be run: {error.strerror}")
        return findings.result()
    except subprocess.TimeoutExpired:
        findings.doubt(f"no answer within {timeout_s:.0f} s")
        return findings.result()
    report = _parse(done.stdout)
    findings.figures = {"exit_code": done.returncode, "report": report}
    violations = _violations(report)
    if done.returncode == 1:
        for anomaly in violations or [_unnamed(done.stderr)]:
            findings.add(anomaly)
    elif done.returncode != 0:
        findings.doubt(_last_line(done.stderr) or f"exit code {done.returncode}")
    return findings.result()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _violations(report: Any) -> list[Anomaly]:
    """One anomaly per rule that was broken; the audit's own report has each place."""
    counts = report.get("counts") if isinstance(report, dict) else None
    if not isinstance(counts, dict):
        return []
    return [
        Anomaly(kind=str(rule), message=f"{rule}: broken {count} times")
        for rule, count in sorted(counts.items())
        if count
    ]


def _unnamed(stderr: str) -> Anomaly:
    return Anomaly(kind="violation", message=_last_line(stderr) or "the audit says invalid")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""
