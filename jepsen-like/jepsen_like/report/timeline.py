"""What the timeline of a page draws: bars for operations, bands for faults, lanes for leaders.

A page must open at once, so the number of bars is capped. What is kept first is what matters: the
operations that anomalies name, then those that did not succeed, then successes, evenly over the
run. The page says how many were left out; all of them are in the history beside it.
"""

from collections.abc import Iterable
from typing import Any, Final

from jepsen_like.checkers.trace import Call, Trace
from jepsen_like.history import Op
from jepsen_like.report.curves import seconds
from jepsen_like.report.windows import text
from jepsen_like.verdict import CheckResult

BARS_MAX: Final = 12_000
PARTITION_LANES_MAX: Final = 12
OUTCOMES: Final = ("ok", "fail", "info")


def bars(trace: Trace, results: Iterable[CheckResult]) -> tuple[list[list[Any]], int]:
    """[lane, from, to, outcome, label, line, named] for each drawn call; how many were left out."""
    named = {n for result in results for a in result.anomalies for n in a.ops}
    important = [call for call in trace.calls if call.number in named]
    troubled = [call for call in trace.calls if not call.ok and call.number not in named]
    smooth = [call for call in trace.calls if call.ok and call.number not in named]
    kept = (important + _evenly(troubled, BARS_MAX // 2))[:BARS_MAX]
    kept += _evenly(smooth, BARS_MAX - len(kept))
    kept.sort(key=lambda call: call.number)
    drawn = [_bar(trace, call, named=call.number in named) for call in kept]
    return drawn, len(trace.calls) - len(drawn)


def _evenly(calls: list[Call], count: int) -> list[Call]:
    if len(calls) <= count:
        return calls
    if count <= 0:
        return []
    return [calls[n * len(calls) // count] for n in range(count)]


def _bar(trace: Trace, call: Call, *, named: bool) -> list[Any]:
    end = call.end
    outcome = "info" if end is None else end.type
    until = trace.end_t if end is None else end.t
    lane = int(call.p) % max(1, trace.header.clients)
    return [
        lane,
        seconds(call.invoke.t),
        seconds(until),
        OUTCOMES.index(outcome),
        _label(call),
        call.number,
        int(named),
    ]


def _label(call: Call) -> str:
    end = call.end
    parts = [call.f]
    if call.k is not None:
        parts.append(call.k)
    if call.f == "poll":
        if call.ok:
            parts.append(
                f"{call.invoke.off}→{call.answer.off} ({len(call.answer.v or ())} records)"
            )
    else:
        value = call.invoke.v if end is None or call.invoke.v is not None else end.v
        if value is not None:
            parts.append(text(value)[:40])
        if end is not None and end.off is not None:
            parts.append(f"@{end.off}")
    if call.node:
        parts.append(call.node)
    if end is not None and end.err:
        parts.append(end.err)
    return " ".join(parts)


def bands(trace: Trace) -> list[list[Any]]:
    """[name, targets, from, to] for every fault that fired."""
    return [
        [
            fault.name,
            ", ".join(fault.targets),
            seconds(fault.begin.t),
            seconds(trace.end_t if fault.end is None else fault.end.t),
        ]
        for fault in trace.faults
    ]


def phases(trace: Trace) -> list[list[Any]]:
    """[name, from, to] in order."""
    begun = sorted(trace.phases.items(), key=lambda item: item[1].i)
    ends = [op.t for _, op in begun[1:]] + [trace.end_t] * bool(begun)
    return [
        [name, seconds(op.t), seconds(end)] for (name, op), end in zip(begun, ends, strict=True)
    ]


def leader_lanes(trace: Trace) -> list[dict[str, Any]]:
    """Who led the quorum and each partition, as an onlooker saw it."""
    seen: dict[str, list[Op]] = {}
    for op in trace.ops:
        if op.p == "observer" and isinstance(op.v, dict):
            name = "quorum" if op.f == "quorum" else str(op.k)
            seen.setdefault(name, []).append(op)
    names = sorted(seen, key=lambda name: (name != "quorum", -len(seen[name]), name))
    chosen = sorted(names[: PARTITION_LANES_MAX + 1], key=lambda name: (name != "quorum", name))
    return [
        {"name": name, "spans": _spans(seen[name], trace.end_t)} for name in chosen
    ] + _life_lanes(trace)


def _spans(ops: list[Op], end_t: int) -> list[list[Any]]:
    """The last of each span says whether the ISR was smaller than it had been at its best."""
    full = max(len(op.v.get("isr") or ()) for op in ops)
    spans: list[list[Any]] = []
    for op in ops:
        if spans:
            spans[-1][1] = seconds(op.t)
        isr = op.v.get("isr") or ()
        if op.f == "quorum":
            note = f"epoch {op.v.get('epoch')}"
        else:
            note = f"epoch {op.lepoch}, ISR {' '.join(str(member) for member in isr)}"
        leader = op.v.get("leader") or "none"
        spans.append([seconds(op.t), seconds(end_t), leader, note, int(len(isr) < full)])
    return spans


def _life_lanes(trace: Trace) -> list[dict[str, Any]]:
    """One lane for each node: when its process ran."""
    lives: dict[str, list[list[Any]]] = {}
    for op in trace.run_ops:
        if op.node is None or op.f not in ("start", "exit"):
            continue
        spans = lives.setdefault(op.node, [])
        if op.f == "start":
            spans.append([seconds(op.t), seconds(trace.end_t), op.node, "runs", 0])
        elif spans and spans[-1][3] == "runs":
            code = op.v.get("code") if isinstance(op.v, dict) else None
            spans[-1][1] = seconds(op.t)
            spans[-1][3] = f"ended with code {code}"
    return [{"name": f"{node} runs", "spans": spans} for node, spans in sorted(lives.items())]
