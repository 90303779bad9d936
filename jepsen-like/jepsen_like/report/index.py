"""The index of many runs: one cell for each workload under each set of faults, with its verdict.

The rows of results come from result.json of each run (see `files`), so an index can be made again
at any time, from some runs or all. Several runs of one cell are shown together; the worst verdict
counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jepsen_like.report.markup import badge, escaped, page, spaced, table, times
from jepsen_like.report.words import severity
from jepsen_like.verdict import Verdict, merge


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run: its result.json, and where its report is, seen from the index."""

    result: dict[str, Any]
    link: str

    @property
    def workload(self) -> str:
        return str(self.result["run"]["workload"])

    @property
    def faults(self) -> str:
        return ", ".join(self.result["run"].get("nemesis") or ()) or "none"

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.result["verdict"])

    def figure(self, check: str, name: str) -> Any:
        for each in self.result["checks"]:
            if each["name"] == check:
                return each["figures"].get(name)
        return None


def render(runs: Sequence[RunResult], title: str = "All runs") -> str:
    verdict = merge(run.verdict for run in runs)
    counts = {v: sum(1 for run in runs if run.verdict is v) for v in Verdict}
    operations = sum(run.figure("cell", "operations") or 0 for run in runs)
    faults = sum(sum((run.figure("cell", "faults") or {}).values()) for run in runs)
    cards = "".join(
        f'<div class="card"><b>{spaced(number)}</b><span>{words}</span></div>'
        for number, words in (
            (len(runs), "runs"),
            (counts[Verdict.VALID], "valid"),
            (counts[Verdict.INVALID], "invalid"),
            (counts[Verdict.UNKNOWN], "unknown"),
            (operations, "operations"),
            (faults, "faults fired"),
        )
    )
    heading = f'<div class="title">{badge(verdict)}<h1>{escaped(title)}</h1></div>'
    body = (
        f"<header>{heading}</header>"
        f'<main><div class="cards">{cards}</div>{_matrix(runs)}{_list(runs)}</main>'
        "<footer>Invalid: a promise was broken. Unknown: the run decides nothing, because too"
        " little succeeded, a fault never fired or a check could not finish.</footer>"
    )
    return page(f"{verdict.value}: {title}", body)


def _matrix(runs: Sequence[RunResult]) -> str:
    workloads = sorted({run.workload for run in runs})
    faults = sorted({run.faults for run in runs}, key=lambda name: (name != "none", name))
    head = "".join(f"<th>{escaped(name)}</th>" for name in workloads)
    rows = []
    for fault in faults:
        cells = "".join(
            _cell([run for run in runs if (run.workload, run.faults) == (workload, fault)])
            for workload in workloads
        )
        rows.append(f"<tr><th>{escaped(fault)}</th>{cells}</tr>")
    return (
        '<h2>Matrix</h2><div class="wide"><table class="matrix"><tr><th>faults \\ workload</th>'
        f"{head}</tr>{''.join(rows)}</table></div>"
    )


def _cell(runs: Sequence[RunResult]) -> str:
    if not runs:
        return '<td class="cell"></td>'
    worst = merge(run.verdict for run in runs)
    parts = []
    for run in runs:
        parts.append(f'<a href="{escaped(run.link)}">{badge(run.verdict, small=True)}</a>')
        operations = run.figure("cell", "operations") or 0
        fired = sum((run.figure("cell", "faults") or {}).values())
        parts.append(f"<small>{spaced(operations)} ops, {fired} faults{_gap(run)}</small>")
        parts += [
            f"<small><b>{times(escaped(kind), count)}</b></small>"
            for kind, count in _worst_first(run)[:4]
        ]
        if run.verdict is Verdict.UNKNOWN:
            parts.append(f"<small>{escaped(_reason(run))}</small>")
    return f'<td class="cell {worst.value}">{"".join(parts)}</td>'


def _worst_first(run: RunResult) -> list[tuple[str, int]]:
    return sorted(run.result["anomalies"].items(), key=lambda item: severity(item[0]))


def _gap(run: RunResult) -> str:
    gap = run.figure("availability", "longest_gap_s")
    return "" if gap is None else f", gap {gap:.1f} s"


def _reason(run: RunResult) -> str:
    reasons = [reason for check in run.result["checks"] for reason in check["reasons"]]
    return reasons[0] if reasons else ""


def _list(runs: Sequence[RunResult]) -> str:
    rows = []
    worst_first = (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID)
    for run in sorted(runs, key=lambda run: worst_first.index(run.verdict)):
        first = run.figure("availability", "first_ok_s")
        anomalies = ", ".join(times(escaped(k), n) for k, n in _worst_first(run))
        name = escaped(f"{run.workload} under {run.faults}")
        rows.append(
            (
                badge(run.verdict, small=True),
                f'<a href="{escaped(run.link)}">{name}</a>',
                escaped(run.result["run"].get("started_at", "")).replace("T", " "),
                escaped(run.result["run"].get("seed", "")),
                spaced(run.figure("cell", "operations") or 0),
                spaced(sum((run.figure("cell", "faults") or {}).values())),
                _gap(run).removeprefix(", gap "),
                "" if first is None else f"{first:.2f} s",
                anomalies or escaped(_reason(run)),
            )
        )
    head = (
        "verdict",
        "run",
        "started",
        "seed",
        "ops",
        "faults",
        "longest gap",
        "heal to ok",
        "said",
    )
    return "<h2>Runs</h2>" + table(head, rows, (3, 4, 5, 6, 7))
