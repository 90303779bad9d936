"""One verdict for a run: every check that its workload calls for, each on its own, then merged.

A check that crashes is unknown and does not keep the others from speaking. The cell check takes
part in every run, so that a run of nothing is never valid. Which checks belong to which workload
is written down once, here; a workload that nobody knows is judged by the general checks and is
unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from jepsen_like.checkers import (
    audit,
    availability,
    cell,
    groups,
    ids,
    log_linearizable,
    log_order,
    log_values,
    metadata_watch,
    processes,
    registers,
    sets,
)
from jepsen_like.checkers.trace import Trace
from jepsen_like.history import History
from jepsen_like.verdict import CheckResult, Verdict, guarded, merge

Check = Callable[[Trace], CheckResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was collected beside the history: log files by node, directories for the audit."""

    log_files: Mapping[str, str] | None = None
    allowed_lines: tuple[str, ...] = ()
    audit_paths: tuple[str, ...] = ()
    audit_command: tuple[str, ...] = audit.COMMAND
    limits: availability.Limits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of a run, and what each check said."""

    verdict: Verdict
    results: tuple[CheckResult, ...]
    history: History

    def to_json(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for result in self.results:
            for kind, count in result.counts.items():
                counts[kind] = counts.get(kind, 0) + count
        return {
            "verdict": self.verdict.value,
            "anomalies": dict(sorted(counts.items())),
            "run": self.history.header.as_json(),
            "checks": [result.to_json() for result in self.results],
        }


_LOG: Final[Sequence[tuple[str, Check]]] = (
    (log_values.NAME, log_values.check),
    (log_order.NAME, log_order.check),
    (log_linearizable.NAME, log_linearizable.check),
)
WORKLOADS: Final[Mapping[str, Sequence[tuple[str, Check]]]] = {
    "log": _LOG,
    "linger": _LOG,
    "register": ((registers.NAME, registers.check),),
    "set": ((sets.NAME, sets.check),),
    "ids": ((ids.NAME, ids.check),),
    "group": ((groups.NAME, groups.check),),
    "watch": ((metadata_watch.NAME, metadata_watch.check),),
}


def judge(history: History, evidence: Evidence | None = None) -> Judgement:
    """Every check of the workload, then those of the run as a whole."""
    evidence = evidence or Evidence()
    trace = Trace(history)
    checks = [(name, partial(check, trace)) for name, check in _checks(history.header.workload)]
    checks.append((cell.NAME, partial(cell.check, trace)))
    checks.append((availability.NAME, partial(availability.check, trace, evidence.limits)))
    if any(op.f in ("start", "exit") for op in trace.run_ops):
        checks.append((processes.NAME_EXITS, partial(processes.check_exits, trace)))
    if evidence.log_files is not None:
        lines = partial(processes.check_lines, evidence.log_files, evidence.allowed_lines)
        checks.append((processes.NAME_LINES, lines))
    if evidence.audit_paths:
        audited = partial(audit.check, evidence.audit_paths, evidence.audit_command)
        checks.append((audit.NAME, audited))
    results = [guarded(name, check) for name, check in checks]
    verdict = merge(result.verdict for result in results)
    return Judgement(verdict=verdict, results=tuple(results), history=history)


def _checks(workload: str) -> Sequence[tuple[str, Check]]:
    return WORKLOADS.get(workload, (("workload", _unknown_workload),))


def _unknown_workload(trace: Trace) -> CheckResult:
    known = ", ".join(sorted(WORKLOADS))
    reason = f"no checks are known for the workload {trace.header.workload!r} (known: {known})"
    return CheckResult(name="workload", verdict=Verdict.UNKNOWN, reasons=(reason,))
