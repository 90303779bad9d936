"""The parts of the report's page, each as a piece of HTML. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Final

from kraftpy.audit.report.charts import (
    SERIES,
    Bar,
    Lane,
    Series,
    Span,
    TimeScale,
    clock_time,
    lanes,
    mirrored_bars,
    stacked_areas,
)
from kraftpy.audit.report.chronicle import Chronicle
from kraftpy.audit.report.partition_chart import broker_lanes, event_table, partition_chart
from kraftpy.audit.rules.book import RULES
from kraftpy.audit.violations import CLUSTER, SAMPLE_MAX, AuditResult, Violation

_CASES_MAX: Final = 20
_UNCHECKED_MAX: Final = 50


def period(result: AuditResult) -> str:
    """When and how it was written, in one line."""
    words = [f"run {result.run}", f"engine {result.engine}"]
    if result.first_timestamp_ms >= 0:
        first = clock_time(result.first_timestamp_ms, date=True)
        last = clock_time(result.last_timestamp_ms, date=True)
        words.append(f"{first} to {last} UTC")
    return " · ".join(words)


def facts(result: AuditResult) -> str:
    by_severity = {each.name: n for each, n in result.count_by_severity().items()}
    shown = {
        "records replayed": f"{result.records:,}",
        "nodes": f"{len(result.nodes)}",
        "batches": f"{sum(node.batches for node in result.nodes):,}",
        "snapshots": f"{sum(node.snapshots for node in result.nodes):,}",
        "controller epochs": f"{len(result.controllers):,}",
        "critical": f"{by_severity.get('CRITICAL', 0):,}",
        "errors": f"{by_severity.get('ERROR', 0):,}",
        "warnings": f"{by_severity.get('WARNING', 0):,}",
    }
    cards = "".join(
        f'<div class="fact"><b>{value}</b><span>{name}</span></div>'
        for name, value in shown.items()
    )
    return f'<div class="facts">{cards}</div>'


# -- rules -----------------------------------------------------------------------------------------


def broken_rules(result: AuditResult) -> str:
    if not result.counts and not result.secondary:
        return ""
    cases: dict[str, list[Violation]] = defaultdict(list)
    for each in result.violations:
        cases[each.rule].append(each)
    codes = sorted({*result.counts, *result.secondary}, key=lambda code: int(code[1:]))
    return "<h2>Broken rules</h2>" + "".join(_broken(result, code, cases[code]) for code in codes)


def _broken(result: AuditResult, code: str, found: Sequence[Violation]) -> str:
    rule = RULES[int(code[1:])]
    more = result.secondary.get(code, 0)
    secondary = f", and {more:,} that follow from what is missing" if more else ""
    rows = "".join(_case(each) for each in found[:_CASES_MAX])
    left = result.counts[code] + more - min(len(found), _CASES_MAX)
    rest = ""
    if left > 0:
        rest = f'<p class="soft">and {left:,} more; the files have {SAMPLE_MAX:,} at most.</p>'
    return (
        f'<h3><span class="severity {rule.severity.name}">{rule.severity.name.lower()}</span> '
        f"{code} {escape(rule.name.replace('_', ' '))}: "
        f"{result.counts[code]:,} time{'s' * (result.counts[code] != 1)}{secondary}</h3>"
        f"<p>{escape(rule.sentence)}</p>"
        f"<details{' open' if len(found) <= _CASES_MAX else ''}><summary>where</summary>"
        '<table><tr><th class="n">offset</th><th class="n">epoch</th><th>what</th>'
        f"<th>expected</th><th>found</th></tr>{rows}</table>{rest}</details>"
    )


def _case(each: Violation) -> str:
    what = []
    if each.topic:
        what.append(each.topic if each.partition is None else f"{each.topic}-{each.partition}")
    if each.broker is not None:
        what.append(f"broker {each.broker}")
    if each.node != CLUSTER:
        what.append(f"log of node {each.node}")
    if each.secondary:
        what.append("follows from what is missing")
    return (
        f'<tr><td class="n">{each.offset}</td><td class="n">{each.epoch}</td>'
        f"<td>{escape(', '.join(what))}</td><td>{escape(each.expected)}</td>"
        f"<td>{escape(each.actual)}</td></tr>"
    )


def every_rule(result: AuditResult) -> str:
    rows = []
    for number, rule in RULES.items():
        code = rule.code
        seen, count = result.looked_at.get(code, 0), result.counts.get(code, 0)
        looked = f'<td class="n">{seen:,}</td>'
        if not seen:
            looked = f'<td class="soft">nothing; needs {escape(rule.needs)}</td>'
        rows.append(
            f'<tr class="{"hit" if count else ""}"><td>{code}</td>'
            f"<td>{escape(rule.sentence)}</td><td>{rule.severity.name.lower()}</td>"
            f'{looked}<td class="n">{count or ""}</td></tr>'
        )
        assert number == rule.number
    head = (
        '<tr><th></th><th>what must hold</th><th>severity</th><th class="n">looked at</th>'
        '<th class="n">broken</th></tr>'
    )
    return (
        "<h2>Every rule, and how much it looked at</h2>"
        "<p>A rule that looked at nothing says nothing: beside it is what it would need.</p>"
        f"<table>{head}{''.join(rows)}</table>"
    )


def not_checked(result: AuditResult) -> str:
    if not result.unchecked and not result.problems:
        return (
            "<h2>What was not checked</h2><p>Everything that was there was read and understood.</p>"
        )
    rows = "".join(
        f"<tr><td>{escape(each.kind.replace('_', ' '))}</td>"
        f'<td class="n">{each.node if each.node != CLUSTER else ""}</td>'
        f'<td class="n">{each.offset if each.offset >= 0 else ""}</td>'
        f'<td class="n">{each.records or ""}</td><td>{escape(each.reason)}</td></tr>'
        for each in result.unchecked[:_UNCHECKED_MAX]
    )
    left = len(result.unchecked) - _UNCHECKED_MAX
    rest = f'<p class="soft">and {left:,} more.</p>' if left > 0 else ""
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in result.problems)
    table = (
        '<table><tr><th>what</th><th class="n">node</th><th class="n">offset</th>'
        f'<th class="n">records</th><th>why</th></tr>{rows}</table>{rest}'
    )
    return (
        "<h2>What was not checked</h2>"
        + (f"<ul>{problems}</ul>" if problems else "")
        + (table if rows else "")
    )


def nodes(result: AuditResult) -> str:
    rows = "".join(
        f'<tr><td class="n">{node.node}</td><td>{escape(node.format)}</td>'
        f'<td class="n">{node.start_offset:,} to {node.end_offset:,}</td>'
        f'<td class="n">{node.high_watermark if node.high_watermark >= 0 else ""}</td>'
        f'<td class="n">{node.records:,}</td><td class="n">{node.bytes:,}</td>'
        f'<td class="n">{node.snapshots}</td><td class="code">{escape(node.path)}</td></tr>'
        for node in result.nodes
    )
    head = (
        '<tr><th class="n">node</th><th>format</th><th class="n">offsets</th>'
        '<th class="n">high watermark</th><th class="n">records</th><th class="n">bytes</th>'
        '<th class="n">snapshots</th><th>directory</th></tr>'
    )
    return f"<h2>Logs that were read</h2><table>{head}{rows}</table>"


# -- over time -------------------------------------------------------------------------------------

_STATES: Final = (
    ("lead", "leads"),
    ("insync", "in sync"),
    ("eligible", "eligible (ELR)"),
    ("replica", "out of sync"),
    ("bad", "a rule was broken"),
)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    shown = "".join(
        f'<span><i style="background: var(--{colour})"></i>{escape(name)}</span>'
        for colour, name in entries
    )
    return f'<div class="legend">{shown}</div>'


def offenders(result: AuditResult, chronicle: Chronicle) -> str:
    """A timeline for each partition that broke a rule."""
    if not chronicle.partitions:
        return ""
    parts = ["<h2>Partitions that broke rules</h2>", _legend(_STATES)]
    for (topic, partition), events in chronicle.partitions.items():
        own = [v for v in result.violations if (v.topic, v.partition) == (topic, partition)]
        end = max(events[-1].timestamp_ms, chronicle.last_ms if events[-1].state else 0)
        scale = TimeScale(events[0].timestamp_ms, end)
        name = f"{topic}-{partition}"
        codes = ", ".join(sorted({v.rule for v in own}, key=lambda code: int(code[1:])))
        parts.append(
            f'<h3>{escape(name)}</h3><div class="card"><div class="sub">{len(events)} records, '
            f"broke {codes}</div>{partition_chart(events, own, scale, name)}"
            f"<details open><summary>records around it</summary>{event_table(events, own)}"
            "</details></div>"
        )
    return "".join(parts)


def cluster(chronicle: Chronicle) -> str:
    """Controllers, brokers, ISR churn and leaders, on one axis of time."""
    scale = TimeScale(chronicle.first_ms, chronicle.last_ms)
    parts = ["<h2>The cluster over time</h2>"]
    if chronicle.problem:
        parts.append(f"<p class='soft'>Drawn up to where {escape(chronicle.problem)}.</p>")
    parts += [_controllers(chronicle, scale), _brokers(chronicle, scale)]
    parts += [_isr_churn(chronicle, scale), _leaders(chronicle, scale)]
    return "".join(parts)


def _controllers(chronicle: Chronicle, scale: TimeScale) -> str:
    spans: dict[int, list[Span]] = defaultdict(list)
    events = chronicle.controllers
    leaders = sorted({event.leader for event in events})
    for number, event in enumerate(events):
        end = events[number + 1].timestamp_ms if number + 1 < len(events) else scale.last_ms
        title = f"node {event.leader} leads epoch {event.epoch} from offset {event.offset}"
        style = f"s{leaders.index(event.leader) % SERIES}"
        spans[event.leader].append(Span(event.timestamp_ms, end, style, title))
    rows = [Lane(f"node {leader}", spans[leader]) for leader in leaders]
    count = len(events)
    return (
        f"<h3>Active controller</h3><p class='sub'>{count} epoch{'s' * (count != 1)}; point at one "
        f'for its number.</p><div class="card">{lanes(scale, rows, "active controller")}</div>'
    )


def _brokers(chronicle: Chronicle, scale: TimeScale) -> str:
    legend = _legend((("good", "active"), ("bad", "fenced"), ("warn", "shutting down")))
    rows = broker_lanes(chronicle.brokers, scale)
    if not rows:
        return ""
    return f'<h3>Brokers</h3>{legend}<div class="card">{lanes(scale, rows, "brokers")}</div>'


def _isr_churn(chronicle: Chronicle, scale: TimeScale) -> str:
    bars = [
        Bar(
            bucket.start_ms,
            bucket.isr_expands,
            bucket.isr_shrinks,
            f"{clock_time(bucket.start_ms)}: {bucket.isr_expands} grew, {bucket.isr_shrinks} "
            f"shrank, {bucket.elections} elections, {bucket.records} records",
        )
        for bucket in chronicle.buckets
    ]
    grew, shrank = sum(bar.up for bar in bars), sum(bar.down for bar in bars)
    elections = sum(bucket.elections for bucket in chronicle.buckets)
    chart = mirrored_bars(scale, bars, chronicle.bucket_ms, "ISR changes")
    return (
        f"<h3>ISR churn</h3><p class='sub'>{grew:,} times an ISR grew, {shrank:,} times one "
        f"shrank, {elections:,} elections; a bar is {chronicle.bucket_ms / 1000:g} s.</p>"
        f'<div class="card">{chart}</div>'
    )


def _leaders(chronicle: Chronicle, scale: TimeScale) -> str:
    buckets = chronicle.buckets
    brokers = sorted({broker for bucket in buckets for broker in bucket.leaders})
    series = [
        Series(f"broker {b}", f"s{n % SERIES}", [bucket.leaders.get(b, 0) for bucket in buckets])
        for n, b in enumerate(brokers)
    ]
    series.append(Series("without a leader", "none", [bucket.leaderless for bucket in buckets]))
    legend = _legend(
        [*((f"s{n % SERIES}", f"broker {b}") for n, b in enumerate(brokers)), ("bad", "no leader")]
    )
    short = max((bucket.under_replicated for bucket in buckets), default=0)
    lost = max((bucket.leaderless for bucket in buckets), default=0)
    chart = stacked_areas(scale, [b.start_ms for b in buckets], series, "leaders by broker")
    return (
        f"<h3>Leaders by broker</h3><p class='sub'>Partitions that each broker leads. At the worst "
        f"{lost:,} had no leader and {short:,} were short of replicas in sync.</p>{legend}"
        f'<div class="card">{chart}</div>'
    )
