"""How long nobody was served, and whether the cluster came back when the faults were gone.

Faults may cost service: a gap is a figure, not an anomaly, unless a limit was set for it. What is
an anomaly is a cluster that does not come back: after everything was healed, operations were
begun and not one of them succeeded.

Figures, in seconds:

longest_gap_s  the longest time in the load phase in which no operation succeeded, with the gaps
               next to it and the faults that were in force.
first_ok_s     from the beginning of the phase "heal" to the first success.
full_rate_s    from there to the first whole second with at least 90 % of the fault-free rate,
               which is the median over the seconds of load without a fault; absent if there were
               none, or if nobody put load on the cluster afterwards.

never-recovered   see above.
slow-recovery     a limit for first_ok_s or longest_gap_s was set and passed.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from jepsen_like.checkers.trace import Trace, numbers
from jepsen_like.verdict import Anomaly, CheckResult, Findings

NAME: Final = "availability"
SECOND: Final = 1_000_000_000
GAPS_SHOWN_MAX: Final = 5
FULL_RATE: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """In seconds; None: any time will do."""

    longest_gap_s: float | None = None
    first_ok_s: float | None = None


def check(trace: Trace, limits: Limits | None = None) -> CheckResult:
    findings = Findings(NAME)
    limits = limits or Limits()
    findings.examined = len(trace.calls)
    times = sorted(call.answer.t for call in trace.calls if call.ok)
    begin, end = _load(trace)
    gaps = _gaps(trace, times, begin, end)
    findings.figures = {
        "ok": len(times),
        "longest_gap_s": gaps[0]["seconds"] if gaps else None,
        "gaps": gaps,
        "first_ok_s": None,
        "fault_free_rate": fault_free_rate(trace, times),
        "full_rate_s": None,
    }
    if trace.calls and not times:
        findings.doubt("no operation succeeded")
    if gaps and limits.longest_gap_s is not None and gaps[0]["seconds"] > limits.longest_gap_s:
        window = (gaps[0]["from_ns"], gaps[0]["to_ns"])
        findings.add(_slow("the longest gap", gaps[0]["seconds"], limits.longest_gap_s, window))
    if "heal" in trace.phases:
        _recovery(findings, trace, times, limits)
    return findings.result()


def _load(trace: Trace) -> tuple[int, int]:
    load = trace.phases.get("load")
    heal = trace.phases.get("heal") or trace.phases.get("stop")
    begin = load.t if load else (trace.calls[0].invoke.t if trace.calls else 0)
    return begin, heal.t if heal else trace.end_t


def _gaps(trace: Trace, times: list[int], begin: int, end: int) -> list[dict[str, Any]]:
    """The longest times without a success, with the faults that were in force."""
    inside = times[bisect_left(times, begin) : bisect_left(times, end)]
    spans = sorted(pairwise([begin, *inside, end]), key=lambda span: span[0] - span[1])
    return [
        {
            "seconds": round((to - start) / SECOND, 3),
            "from_ns": start,
            "to_ns": to,
            "faults": sorted(
                {
                    f"{fault.name} {','.join(fault.targets)}".strip()
                    for fault in trace.faults
                    if fault.begin.t < to and (fault.end is None or fault.end.t > start)
                }
            ),
        }
        for start, to in spans[:GAPS_SHOWN_MAX]
        if to > start
    ]


def fault_free_rate(trace: Trace, times: list[int]) -> float | None:
    """The median of successes in whole seconds of load without a fault."""
    begin, end = _load(trace)
    spans = [
        (fault.begin.t, trace.end_t if fault.end is None else fault.end.t) for fault in trace.faults
    ]
    rates = []
    for start in range(begin, end - SECOND + 1, SECOND):
        stop = start + SECOND
        if not any(a < stop and b > start for a, b in spans):
            rates.append(bisect_left(times, stop) - bisect_left(times, start))
    return float(median(rates)) if rates else None


def _recovery(findings: Findings, trace: Trace, times: list[int], limits: Limits) -> None:
    heal = trace.phases["heal"]
    later = [call for call in trace.calls if call.invoke.i > heal.i]
    place = bisect_left(times, heal.t)
    if not later:
        findings.doubt("no operation was begun after the faults")
    elif not any(call.ok for call in later):
        message = f"{len(later)} operations were begun after all was healed; none succeeded"
        window = (heal.t, trace.end_t)
        ops = numbers(later[:5])
        findings.add(Anomaly(kind="never-recovered", message=message, times_ns=window, ops=ops))
    if place == len(times):
        return
    first = times[place]
    seconds = (first - heal.t) / SECOND
    findings.figures["first_ok_s"] = round(seconds, 3)
    if limits.first_ok_s is not None and seconds > limits.first_ok_s:
        findings.add(_slow("the first success", seconds, limits.first_ok_s, (heal.t, first)))
    rate = findings.figures["fault_free_rate"]
    if rate:
        findings.figures["full_rate_s"] = _full_rate(times, heal.t, trace.end_t, rate)


def _full_rate(times: list[int], start: int, end: int, rate: float) -> float | None:
    for second in range(start, end - SECOND + 1, SECOND // 4):
        served = bisect_left(times, second + SECOND) - bisect_left(times, second)
        if served >= FULL_RATE * rate:
            return round((second - start) / SECOND, 3)
    return None


def _slow(what: str, seconds: float, limit: float, window: tuple[int, int]) -> Anomaly:
    message = f"{what} took {seconds:.1f} s, at most {limit:.1f} s are allowed"
    return Anomaly(kind="slow-recovery", message=message, times_ns=window)
