"""Processes end only by our hand, and their logs do not say what should never be said.

unexpected-exit  a node ended and nobody had killed it, and it had no reason to refuse to run (the
                 runner marks both as expected). A crash that a supervisor would repair is still a
                 bug.
bad-line         a node's log holds a line that no fault may cause: a traceback, a failed
                 assertion, a task whose error nobody looked at, a fault of the interpreter. A
                 node that stops because its disk lies says so in one line of its own; it does not
                 show a traceback.

Log files are read line by line and bounded; lines are matched by the patterns below, whatever
their level.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from jepsen_like.checkers.trace import Trace
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME_EXITS: Final = "process-exits"
NAME_LINES: Final = "log-lines"
LINE_BYTES_MAX: Final = 4_096

# What must not be there, and what it means.
PATTERNS: Final[Mapping[str, str]] = {
    r"Traceback \(most recent call last\)": "an error that nobody expected",
    r"\bAssertionError\b": "a promise that the code made to itself was broken",
    r"was never (?:retrieved|awaited)": "an error or a result that nobody looked at",
    r"Fatal Python error|Segmentation fault|core dumped": "the interpreter itself broke",
    r"Task was destroyed but it is pending": "work was dropped without an end",
    r"\bRuntimeWarning\b|\bResourceWarning\b": "a warning that tests treat as an error",
}


def check_exits(trace: Trace) -> CheckResult:
    findings = Findings(NAME_EXITS)
    lives = [op for op in trace.run_ops if op.f in ("start", "exit")]
    findings.examined = len(lives)
    for op in lives:
        told = op.v if isinstance(op.v, dict) else {}
        if op.f == "exit" and not told.get("expected", False):
            findings.add(
                Anomaly(
                    kind="unexpected-exit",
                    message=f"{op.node} ended with code {told.get('code')} on its own",
                    key=op.node,
                    ops=(op.i,),
                    times_ns=(op.t, op.t),
                )
            )
    findings.figures = {"lives": sum(1 for op in lives if op.f == "start")}
    return findings.result()


def check_lines(files: Mapping[str, str], allowed: Iterable[str] = ()) -> CheckResult:
    """`files` is node to log file; a line that matches one of `allowed` is let pass."""
    findings = Findings(NAME_LINES)
    bad = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS).encode())
    good = [re.compile(pattern.encode()) for pattern in allowed]
    for node, path in sorted(files.items()):
        try:
            _one_file(findings, node, path, bad, good)
        except OSError as error:
            findings.doubt(f"{node}: {error.strerror}: {os.path.basename(path)}")
    return findings.result()


def _one_file(
    findings: Findings,
    node: str,
    path: str,
    bad: re.Pattern[bytes],
    good: list[re.Pattern[bytes]],
) -> None:
    findings.examined += 1
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if bad.search(line) is None or any(pattern.search(line) for pattern in good):
                continue
            text = line.decode("utf-8", "replace").strip()
            findings.add(
                Anomaly(
                    kind="bad-line",
                    message=f"{node}, line {number}: {text[:300]} ({_meaning(text)})",
                    key=node,
                )
            )


def _meaning(text: str) -> str:
    found = (why for pattern, why in PATTERNS.items() if re.search(pattern, text))
    return next(found, "it should never be said")
