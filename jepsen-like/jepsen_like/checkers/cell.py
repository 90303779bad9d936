"""Did this run show anything at all? A run that was hardly served, or not hurt, proves nothing.

A cell of the matrix is one workload under one set of faults. It counts only if

- operations were begun, and at least half of them succeeded: a cluster that refuses everything
  breaks no promise, and keeps none worth having;
- every fault that it is named after fired at least once (its nemesis answered ok): else a clean
  result speaks of a run without that fault.

Otherwise the cell is unknown. It is never invalid: nothing is wrong with the cluster.
"""

from typing import Final

from jepsen_like.checkers.trace import Trace
from jepsen_like.verdict import CheckResult, Findings

NAME: Final = "cell"
OK_SHARE_MIN: Final = 0.5
NO_FAULT: Final = frozenset({"", "none"})


def check(trace: Trace) -> CheckResult:
    findings = Findings(NAME)
    total = len(trace.calls)
    ok = sum(1 for call in trace.calls if call.ok)
    failed = sum(1 for call in trace.calls if call.failed)
    findings.examined = total
    if total and ok < OK_SHARE_MIN * total:
        findings.doubt(f"only {ok} of {total} operations succeeded")
    fired: dict[str, int] = {}
    for fault in trace.faults:
        fired[fault.name] = fired.get(fault.name, 0) + 1
    for name in trace.header.nemesis:
        if name not in NO_FAULT and not _fired(trace, name, fired):
            findings.doubt(f"the fault {name} never fired")
    findings.figures = {
        "operations": total,
        "ok": ok,
        "fail": failed,
        "info": total - ok - failed,
        "faults": dict(sorted(fired.items())),
    }
    return findings.result()


def _fired(trace: Trace, name: str, fired: dict[str, int]) -> bool:
    """Under its own name, or as a part of it: a composed fault says of which in v["nemesis"]."""
    if name in fired:
        return True
    return any(
        isinstance(fault.begin.v, dict) and fault.begin.v.get("nemesis") == name
        for fault in trace.faults
    )
