"""A partition's life as lanes, one per broker: who leads, who is in sync, who is eligible. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

from kraftpy.audit.report.charts import Lane, Mark, Span, TimeScale, clock_time, lanes
from kraftpy.audit.report.chronicle import BrokerEvent, PartitionEvent
from kraftpy.audit.violations import Violation
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import RECOVERING

_BROKERS_MAX = 12
_ROWS_AROUND = 4
_ROWS_MAX = 40


def partition_chart(
    events: Sequence[PartitionEvent], violations: Sequence[Violation], scale: TimeScale, label: str
) -> str:
    """Lanes for every broker that was ever a replica; a line where a rule was broken."""
    states = [event.state for event in events if event.state is not None]
    brokers = sorted({broker for state in states for broker in state.replicas})[:_BROKERS_MAX]
    marks = _marks(events, violations)
    rows = [
        Lane(f"broker {broker}", list(_spans(events, broker, scale)), marks) for broker in brokers
    ]
    return lanes(scale, rows, label)


def _marks(events: Sequence[PartitionEvent], violations: Sequence[Violation]) -> list[Mark]:
    found = []
    for each in violations:
        at_ms = time_of(events, each.offset)
        if at_ms is not None:
            what = f"expected {each.expected}, found {each.actual}"
            title = f"{each.rule} at offset {each.offset}: {what}"
            found.append(Mark(at_ms, "violation", title))
    return found


def time_of(events: Sequence[PartitionEvent], offset: int) -> int | None:
    """When an offset was written, as near as these events tell."""
    before = [event.timestamp_ms for event in events if event.offset <= offset]
    if before:
        return before[-1]
    return events[0].timestamp_ms if events else None


def _spans(events: Sequence[PartitionEvent], broker: int, scale: TimeScale) -> Iterable[Span]:
    for number, event in enumerate(events):
        state = event.state
        if state is None or broker not in state.replicas:
            continue
        end = events[number + 1].timestamp_ms if number + 1 < len(events) else scale.last_ms
        style, words = _role(state, broker)
        title = (
            f"broker {broker} {words} from offset {event.offset}, {clock_time(event.timestamp_ms)};"
            f" leader epoch {state.leader_epoch}, partition epoch {state.partition_epoch}"
        )
        yield Span(event.timestamp_ms, end, style, title)


def _role(state: Partition, broker: int) -> tuple[str, str]:
    if state.leader == broker:
        recovering = state.leader_recovery_state == RECOVERING
        return ("recovering", "leads, recovering") if recovering else ("lead", "leads")
    if broker in state.isr:
        return "insync", "is in sync"
    if broker in state.elr:
        return "eligible", "is eligible"
    return "replica", "is a replica out of sync"


def event_table(events: Sequence[PartitionEvent], violations: Sequence[Violation]) -> str:
    """The records around those that broke a rule, one row each."""
    broken: dict[int, list[str]] = {}
    for each in violations:
        broken.setdefault(each.offset, []).append(each.rule)
    near = _near(events, broken)
    rows = []
    for number in near[:_ROWS_MAX]:
        event = events[number]
        until = events[number + 1].offset if number + 1 < len(events) else None
        codes = [
            code
            for offset, found in sorted(broken.items())
            if event.offset <= offset and (until is None or offset < until)
            for code in found
        ]
        rows.append(_row(event, sorted(set(codes))))
    head = "".join(
        f"<th{style}>{escape(name)}</th>"
        for name, style in (
            ("offset", ' class="n"'),
            ("time", ""),
            ("leader", ' class="n"'),
            ("epochs", ' class="n"'),
            ("replicas", ""),
            ("ISR", ""),
            ("ELR", ""),
            ("moving", ""),
            ("", ""),
        )
    )
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _near(events: Sequence[PartitionEvent], broken: Iterable[int]) -> list[int]:
    wanted: set[int] = set()
    for offset in broken:
        at = max((n for n, event in enumerate(events) if event.offset <= offset), default=0)
        wanted.update(range(max(0, at - _ROWS_AROUND), min(len(events), at + 3)))
    return sorted(wanted)


def _row(event: PartitionEvent, codes: Sequence[str]) -> str:
    state = event.state
    head = f'<td class="n">{event.offset}</td><td>{clock_time(event.timestamp_ms)}</td>'
    if state is None:
        return f'<tr>{head}<td colspan="7">deleted</td></tr>'
    moving = ""
    if state.adding_replicas or state.removing_replicas:
        moving = f"+{_ids(state.adding_replicas)} &minus;{_ids(state.removing_replicas)}"
    leader = "none" if state.leader < 0 else str(state.leader)
    elr = _ids(state.elr) + (f" last {_ids(state.last_known_elr)}" if state.last_known_elr else "")
    cells = (
        f'<td class="n">{leader}</td>'
        f'<td class="n">{state.leader_epoch} / {state.partition_epoch}</td>'
        f"<td>{_ids(state.replicas)}</td><td>{_ids(state.isr)}</td><td>{elr}</td><td>{moving}</td>"
    )
    marks = " ".join(f'<span class="severity CRITICAL">{code}</span>' for code in codes)
    return f'<tr class="{"hit" if codes else ""}">{head}{cells}<td>{marks}</td></tr>'


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "&ndash;"


def broker_lanes(brokers: dict[int, list[BrokerEvent]], scale: TimeScale) -> list[Lane]:
    """Active, fenced, shutting down: every broker of the cluster."""
    styles = {"active": "active", "fenced": "fenced", "shutting down": "shutting", "gone": "gone"}
    rows = []
    for broker in sorted(brokers)[: 4 * _BROKERS_MAX]:
        events = brokers[broker]
        spans = []
        for number, event in enumerate(events):
            end = events[number + 1].timestamp_ms if number + 1 < len(events) else scale.last_ms
            title = f"broker {broker} {event.state} from offset {event.offset}"
            spans.append(Span(event.timestamp_ms, end, styles[event.state], title))
        rows.append(Lane(f"broker {broker}", spans))
    return rows
