"""The part of a history that shows one anomaly: few enough lines for a person to read.

A window holds the operations that the anomaly names, and of those around them what helps: on the
same key, within two seconds of a named operation and, where offsets are known, within five
offsets of the anomaly's. Faults that were in force are part of it. Polls are cut down to the
records near by.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jepsen_like.checkers.log_index import logs_of
from jepsen_like.checkers.trace import Call, Fault, Trace
from jepsen_like.report.curves import SECOND, seconds
from jepsen_like.verdict import Anomaly

AROUND_NS: Final = 2 * SECOND
AROUND_OFFSETS: Final = 5
FOCUS_NS_MAX: Final = 15 * SECOND
ROWS_MAX: Final = 60
TEXT_MAX: Final = 160


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a window. `named` says that the anomaly speaks of it."""

    line: int
    t_s: float
    took_ms: float | None
    who: str
    what: str
    answer: str
    outcome: str
    named: bool


@dataclass(frozen=True, slots=True)
class Window:
    rows: tuple[Row, ...]
    left_out: int
    from_s: float
    to_s: float


class Cutter:
    """Cuts windows out of one history."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._by_number = {call.number: call for call in trace.calls}
        self._by_key: dict[str | None, list[Call]] = {}
        for call in trace.calls:
            self._by_key.setdefault(call.k, []).append(call)

    def cut(self, anomaly: Anomaly) -> Window:
        named = [self._by_number[n] for n in anomaly.ops if n in self._by_number]
        times = self._times(anomaly, named)
        offsets = _widened(anomaly.offsets)
        around = [
            call
            for call in self._near(anomaly, named, times)
            if _touches(call, offsets) or self._was_read_there(call, offsets)
        ]
        kept = named + around[: max(0, ROWS_MAX - len(named))]
        rows = [_row(call, offsets, named=call in named) for call in kept]
        rows += [_fault_row(f) for f in self._trace.faults if _during(f, times, self._trace.end_t)]
        rows += self._run_rows(anomaly)
        rows.sort(key=lambda row: row.line)
        first, last = _focus(times)
        left_out = len(around) - (len(kept) - len(named))
        return Window(tuple(rows), left_out, seconds(max(0, first)), seconds(last))

    def _times(self, anomaly: Anomaly, named: Sequence[Call]) -> list[tuple[int, int]]:
        """The stretches of time that matter: around each named operation."""
        spans = [(call.invoke.t, (call.end or call.invoke).t) for call in named]
        if anomaly.times_ns is not None:
            spans.append(anomaly.times_ns)
        if not spans:
            spans.append((0, self._trace.end_t))
        return [(first - AROUND_NS, last + AROUND_NS) for first, last in spans]

    def _near(
        self, anomaly: Anomaly, named: Sequence[Call], times: Sequence[tuple[int, int]]
    ) -> list[Call]:
        if anomaly.key is None or not named:
            return []
        known = {call.number for call in named}
        found = []
        for call in self._by_key.get(anomaly.key, ()):
            last = (call.end or call.invoke).t
            near = any(a <= last and call.invoke.t <= b for a, b in times)
            if near and call.number not in known:
                found.append(call)
        return found

    def _was_read_there(self, call: Call, offsets: tuple[int, int] | None) -> bool:
        """A send of unknown or failed outcome whose value stands in the window."""
        if offsets is None or call.f != "send" or call.ok:
            return False
        found = logs_of(self._trace)[call.k or ""].offsets_of.get(call.invoke.v, ())
        return any(offsets[0] <= offset <= offsets[1] for offset in found)

    def _run_rows(self, anomaly: Anomaly) -> list[Row]:
        """Named lines that are no operations of clients: exits of processes."""
        ops = self._trace.ops
        lines = [ops[n] for n in anomaly.ops if n not in self._by_number and n < len(ops)]
        return [
            Row(
                op.i,
                seconds(op.t),
                None,
                str(op.p),
                f"{op.f} {op.node or ''}",
                text(op.v),
                op.type,
                True,
            )
            for op in lines
        ]


def _focus(times: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """What to look at: all of it, or where it began if it took long to be noticed."""
    first, last = min(t for t, _ in times), max(t for _, t in times)
    return (first, last) if last - first <= FOCUS_NS_MAX else min(times)


def _widened(offsets: tuple[int, int] | None) -> tuple[int, int] | None:
    if offsets is None:
        return None
    return min(offsets) - AROUND_OFFSETS, max(offsets) + AROUND_OFFSETS


def _touches(call: Call, offsets: tuple[int, int] | None) -> bool:
    """Whether a call speaks of offsets in the window; one that speaks of none, of a log, does
    not.
    """
    if offsets is None:
        return True
    first, last = offsets
    if not call.ok:
        return False
    if call.f == "poll":
        return any(first <= offset <= last for offset, _ in call.answer.v or ())
    return call.answer.off is not None and first <= call.answer.off <= last


def _during(fault: Fault, times: Iterable[tuple[int, int]], end_t: int) -> bool:
    last = end_t if fault.end is None else fault.end.t
    return any(a <= last and fault.begin.t <= b for a, b in times)


def _row(call: Call, offsets: tuple[int, int] | None, *, named: bool) -> Row:
    end = call.end
    took = None if end is None else round((end.t - call.invoke.t) / 1e6, 2)
    outcome = "info" if end is None else end.type
    what = " ".join(text(x) for x in (call.f, call.k, _asked(call)) if x is not None)
    return Row(
        call.number,
        seconds(call.invoke.t),
        took,
        str(call.p),
        what,
        _answer(call, offsets),
        outcome,
        named,
    )


def _asked(call: Call) -> Any:
    if call.f in ("poll", "assign", "follow"):
        return f"from {call.invoke.off}"
    return call.invoke.v


def _answer(call: Call, offsets: tuple[int, int] | None) -> str:
    end = call.end
    if end is None:
        return "no answer"
    where = f" ({call.node})" if call.node else ""
    if end.type != "ok":
        return f"{end.err or ''}{where}".strip()
    if call.f == "poll":
        return f"{_records(end.v or [], offsets)} next {end.off}{where}"
    if call.f in ("send", "end"):
        return f"offset {end.off}{where}"
    if call.f == "follow":
        return f"{len(end.v or ())} batches, next {end.off}{where}"
    if call.f in ("write", "add", "remove", "commit", "assign"):
        return f"done{where}"
    return f"{text(end.v)}{where}"


def _records(records: Sequence[Sequence[Any]], offsets: tuple[int, int] | None) -> str:
    """Offset:value of those near by; dots where others were left out."""
    if offsets is None:
        near = list(records)
    else:
        near = [record for record in records if offsets[0] <= record[0] <= offsets[1]]
    shown = " ".join(f"{offset}:{value}" for offset, value in near[:14])
    if not records:
        return "nothing,"
    before = "… " if near and near[0] is not records[0] else ""
    after = " …" if not near or near[-1] is not records[-1] or len(near) > 14 else ""
    return f"{before}{shown}{after},"


def _fault_row(fault: Fault) -> Row:
    last = "" if fault.end is None else f"until {seconds(fault.end.t):.2f} s"
    what = f"{fault.name} {' '.join(fault.targets)}".strip()
    return Row(fault.begin.i, seconds(fault.begin.t), None, "nemesis", what, last, "fault", False)


def text(value: Any) -> str:
    shown = "nothing" if value is None else str(value)
    return shown if len(shown) <= TEXT_MAX else shown[: TEXT_MAX - 1] + "…"
