"""Curves over the time of a run: rate, latency, what is not read yet, how late readers are.

Pure: a trace goes in, lists of points come out, few enough to draw. All times are seconds since the
run began.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from jepsen_like.checkers.log_index import KeyLog, logs_of
from jepsen_like.checkers.trace import Trace

SECOND: Final = 1_000_000_000
BINS_MAX: Final = 240

Curve = list[list[float]]


def seconds(t_ns: int) -> float:
    return round(t_ns / SECOND, 4)


def bin_ns(end_ns: int) -> int:
    """The width of a bin: whole seconds, or tenths in a run that was over at once."""
    if end_ns < 10 * SECOND:
        return SECOND // 10
    return SECOND * max(1, -(-end_ns // (BINS_MAX * SECOND)))


def rates(trace: Trace) -> dict[str, Curve]:
    """Operations a second that ended ok, fail and info."""
    width = bin_ns(trace.end_t)
    count = trace.end_t // width + 1
    bins = {kind: [0] * count for kind in ("ok", "fail", "info")}
    for call in trace.calls:
        if call.end is not None:
            bins[call.end.type][call.end.t // width] += 1
    per_second = SECOND / width
    return {
        kind: [[seconds(n * width), round(c * per_second, 2)] for n, c in enumerate(values)]
        for kind, values in bins.items()
    }


def latencies(trace: Trace) -> dict[str, Curve]:
    """Milliseconds that successes took: median, 99th percentile and the slowest, bin by bin."""
    width = bin_ns(trace.end_t)
    bins: dict[int, list[int]] = {}
    for call in trace.calls:
        if call.ok:
            bins.setdefault(call.answer.t // width, []).append(call.answer.t - call.invoke.t)
    curves: dict[str, Curve] = {"p50": [], "p99": [], "max": []}
    for n, took in sorted(bins.items()):
        took.sort()
        at = seconds(n * width)
        curves["p50"].append([at, milliseconds(quantile(took, 0.5))])
        curves["p99"].append([at, milliseconds(quantile(took, 0.99))])
        curves["max"].append([at, milliseconds(took[-1])])
    return curves


def quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least this share is not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def milliseconds(ns: int) -> float:
    return round(ns / 1_000_000, 3)


def unseen(trace: Trace) -> Curve:
    """How many acknowledged values nobody had read yet."""
    steps: list[tuple[int, int]] = []
    for log in logs_of(trace).values():
        for value, _, call in log.acknowledged():
            read = log.first_read.get(value)
            acknowledged = call.answer.t
            if read is None:
                steps.append((acknowledged, 1))
            elif read.answer.t > acknowledged:
                steps.append((acknowledged, 1))
                steps.append((read.answer.t, -1))
    steps.sort()
    return _sampled(trace, steps)


def _sampled(trace: Trace, steps: Sequence[tuple[int, int]]) -> Curve:
    """The highest value in each bin."""
    width = bin_ns(trace.end_t)
    curve: Curve = []
    level, place = 0, 0
    for n in range(trace.end_t // width + 1):
        highest = level
        while place < len(steps) and steps[place][0] < (n + 1) * width:
            level += steps[place][1]
            highest = max(highest, level)
            place += 1
        curve.append([seconds(n * width), highest])
    return curve if steps else []


def realtime_lag(trace: Trace) -> Curve:
    """How old, in seconds, what a consumer had still to read was when it polled; the worst by bin.

    After a poll a consumer stands at its next position. If a record there had been acknowledged
    before the poll was asked, the consumer is late by the time since then.
    """
    width = bin_ns(trace.end_t)
    worst: dict[int, int] = {}
    for log in logs_of(trace).values():
        offsets, times = _acknowledged_times(log)
        for poll in log.polls:
            place = bisect_left(offsets, poll.next_position)
            asked = poll.call.invoke.t
            late = asked - times[place] if place < len(offsets) else 0
            n = poll.call.answer.t // width
            worst[n] = max(worst.get(n, 0), late)
    return [
        [seconds(n * width), round(max(0, late) / SECOND, 3)] for n, late in sorted(worst.items())
    ]


def _acknowledged_times(log: KeyLog) -> tuple[list[int], list[int]]:
    known = sorted((offset, call.answer.t) for _, offset, call in log.acknowledged() if offset >= 0)
    return [offset for offset, _ in known], [t for _, t in known]


def all_curves(trace: Trace) -> dict[str, Any]:
    """Everything that a page draws; what the workload does not have is left out."""
    curves: dict[str, Any] = {"rate": rates(trace), "latency": latencies(trace)}
    if trace.of("send"):
        curves["unseen"] = unseen(trace)
        curves["lag"] = realtime_lag(trace)
    return curves
