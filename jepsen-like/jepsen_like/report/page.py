"""The report of one run: one HTML file that explains itself.

From top to bottom: the verdict and why, figures, what each check said, the anomalies with the
operations that show each, and the timeline. Everything but the timeline is plain HTML.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from jepsen_like.checkers.judge import Judgement
from jepsen_like.checkers.trace import Trace
from jepsen_like.report import curves, timeline
from jepsen_like.report.markup import badge, escaped, page, spaced, table, times
from jepsen_like.report.windows import Cutter, Row, Window
from jepsen_like.report.words import meaning, severity
from jepsen_like.verdict import Anomaly, CheckResult, Verdict

WINDOWS_PER_KIND_MAX: Final = 20
MARKS_MAX: Final = 200


def render(judgement: Judgement, trace: Trace | None = None) -> str:
    """The whole page."""
    trace = trace or Trace(judgement.history)
    title = _title(trace)
    numbered = _numbered(judgement.results)
    cutter = Cutter(trace)
    windows = {name: cutter.cut(anomaly) for name, anomaly in numbered.items()}
    bars, left_out = timeline.bars(trace, judgement.results)
    body = "".join(
        (
            _header(judgement, trace, title),
            "<main>",
            _cards(judgement, trace),
            _timeline(trace, left_out),
            _anomalies(judgement.results, numbered, windows),
            _checks(judgement.results),
            _faults(trace),
            "</main>",
            _footer(trace),
        )
    )
    return page(f"{judgement.verdict.value}: {title}", body, _data(trace, bars, numbered, windows))


def _title(trace: Trace) -> str:
    faults = ", ".join(trace.header.nemesis) or "no faults"
    faults = "no faults" if faults == "none" else faults
    return f"{trace.header.workload} under {faults}"


def _header(judgement: Judgement, trace: Trace, title: str) -> str:
    header = trace.header
    nodes = sorted(header.nodes)
    facts = [
        header.started_at,
        f"{curves.seconds(trace.end_t):.0f} s",
        f"{header.clients} clients",
        f"{len(nodes)} nodes ({', '.join(nodes)})" if nodes else "",
        f"seed {header.seed}",
        ", ".join(f"{name} {value}" for name, value in sorted(header.options.items())),
    ]
    shown = " · ".join(escaped(fact) for fact in facts if fact)
    command = f'<div class="command mono">{escaped(header.command)}</div>' if header.command else ""
    return (
        f'<header><div class="title">{badge(judgement.verdict)}<h1>{escaped(title)}</h1></div>'
        f'<div class="say">{_sentence(judgement)}</div>'
        f'<div class="faint">{shown}</div>{command}</header>'
    )


def _sentence(judgement: Judgement) -> str:
    """The verdict in words."""
    if judgement.verdict is Verdict.VALID:
        cell = _figures(judgement, "cell")
        fired = sum(cell.get("faults", {}).values())
        return (
            f"Every promise that {len(judgement.results)} checks looked at was kept, in"
            f" {spaced(cell.get('operations', 0))} operations under {fired} faults."
        )
    if judgement.verdict is Verdict.UNKNOWN:
        reasons = [
            f"{result.name}: {reason}" for result in judgement.results for reason in result.reasons
        ]
        return "Nothing was seen to break, but this run decides nothing. " + "; ".join(
            escaped(reason) for reason in reasons[:4]
        )
    fatal: dict[str, int] = {}
    for result in judgement.results:
        if result.verdict is Verdict.INVALID:
            for kind in {a.kind for a in result.anomalies if a.fatal}:
                fatal[kind] = fatal.get(kind, 0) + result.counts[kind]
    said = [
        f"<li><b>{times(_link(kind), count)}</b>: {escaped(meaning(kind))}</li>"
        for kind, count in sorted(fatal.items(), key=lambda item: severity(item[0]))
    ]
    return f"Promises were broken.<ul>{''.join(said)}</ul>"


def _link(kind: str) -> str:
    return f'<a href="#kind-{escaped(kind)}">{escaped(kind)}</a>'


def _figures(judgement: Judgement, name: str) -> dict[str, Any]:
    return next((dict(r.figures) for r in judgement.results if r.name == name), {})


def _cards(judgement: Judgement, trace: Trace) -> str:
    cell = _figures(judgement, "cell")
    service = _figures(judgement, "availability")
    total = cell.get("operations", 0)
    took = sorted(call.answer.t - call.invoke.t for call in trace.calls if call.ok)
    cards = [_share_card(cell, total)]
    if trace.end_t and total:
        rate = len(took) / (trace.end_t / curves.SECOND)
        cards.append(_card(f"{spaced(rate)}/s", "successes, over the whole run"))
    fired = cell.get("faults", {})
    kinds = ", ".join(f"{name} {count}" for name, count in fired.items())
    cards.append(_card(str(sum(fired.values())), f"faults fired{': ' + kinds if kinds else ''}"))
    if took:
        p50 = curves.milliseconds(curves.quantile(took, 0.5))
        p99 = curves.milliseconds(curves.quantile(took, 0.99))
        cards.append(_card(f"{p50:.1f} / {p99:.1f} ms", "latency p50 / p99"))
    for figure, words in (
        ("longest_gap_s", "longest time without a success"),
        ("first_ok_s", "from heal to the first success"),
        ("full_rate_s", "from heal to 90 % of the fault-free rate"),
    ):
        if service.get(figure) is not None:
            cards.append(_card(f"{service[figure]:.2f} s", words))
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(figure: str, words: str) -> str:
    return f'<div class="card"><b>{escaped(figure)}</b><span>{escaped(words)}</span></div>'


def _share_card(cell: dict[str, Any], total: int) -> str:
    parts = []
    for kind in timeline.OUTCOMES:
        share = 100 * cell.get(kind, 0) / total if total else 0
        parts.append(f'<i style="width:{share:.2f}%;background:var(--{kind})"></i>')
    words = ", ".join(f"{spaced(cell.get(kind, 0))} {kind}" for kind in timeline.OUTCOMES)
    return (
        f'<div class="card"><b>{spaced(total)}</b><span>operations: {words}</span>'
        f'<div class="share">{"".join(parts)}</div></div>'
    )


def _checks(results: Sequence[CheckResult]) -> str:
    rows = [
        (
            f"<b>{escaped(result.name)}</b>",
            badge(result.verdict, small=True),
            spaced(result.examined),
            _said(result),
        )
        for result in results
    ]
    return "<h2>Checks</h2>" + table(("check", "verdict", "looked at", "said"), rows, (2,))


def _said(result: CheckResult) -> str:
    parts = [escaped(reason) for reason in result.reasons]
    parts += [times(_link(kind), count) for kind, count in sorted(result.counts.items())]
    plain = {k: v for k, v in result.figures.items() if isinstance(v, int | float | str)}
    said = "; ".join(parts) or "nothing to complain of"
    figures = ", ".join(f"{escaped(k)} {escaped(v)}" for k, v in plain.items())
    return said + (f'<br><span class="faint">{figures}</span>' if figures else "")


def _numbered(results: Iterable[CheckResult]) -> dict[str, Anomaly]:
    """The anomalies that are shown with a window, by the name of their place in the page."""
    found: dict[str, Anomaly] = {}
    counts: dict[str, int] = {}
    for result in results:
        for anomaly in result.anomalies:
            n = counts.get(anomaly.kind, 0)
            counts[anomaly.kind] = n + 1
            if n < WINDOWS_PER_KIND_MAX:
                found[f"{anomaly.kind}-{n + 1}"] = anomaly
    return found


def _anomalies(
    results: Sequence[CheckResult], numbered: dict[str, Anomaly], windows: dict[str, Window]
) -> str:
    counts: dict[str, int] = {}
    for result in results:
        for kind, count in result.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    if not counts:
        return ""
    fatal = {anomaly.kind for anomaly in numbered.values() if anomaly.fatal}
    parts = ["<h2>Anomalies</h2>"]
    for kind in sorted(counts, key=lambda kind: (kind not in fatal, severity(kind))):
        shown = [(name, a) for name, a in numbered.items() if a.kind == kind]
        note = "" if kind in fatal else ' <span class="faint">allowed, counted only</span>'
        parts.append(
            f'<h3 id="kind-{escaped(kind)}">{times(escaped(kind), counts[kind])}{note}</h3>'
            f'<div class="faint">{escaped(meaning(kind))}</div>'
        )
        opened = len(parts) == 2  # The first of all; the others wait for a click.
        for name, anomaly in shown:
            parts.append(_anomaly(name, anomaly, windows[name], opened=opened))
            opened = False
        rest = counts[kind] - len(shown)
        if rest > 0:
            parts.append(
                f'<div class="faint">{spaced(rest)} more: see result.json and the history</div>'
            )
    return "".join(parts)


def _anomaly(name: str, anomaly: Anomaly, window: Window, *, opened: bool) -> str:
    attribute = " open" if opened else ""
    rows = "".join(_window_row(row) for row in window.rows)
    more = (
        f'<div class="faint">{window.left_out} more operations near by are left out</div>'
        if window.left_out > 0
        else ""
    )
    head = "".join(f"<th>{name}</th>" for name in ("time", "took", "who", "asked", "", "answer"))
    head = f"<tr>{head}<th class=num>line</th></tr>"
    zoom = f"{window.from_s} {window.to_s}"
    return (
        f'<details id="{escaped(name)}"{attribute}>'
        f"<summary>{escaped(anomaly.message)}</summary><div>"
        f'<button data-far="1" data-zoom="{zoom}">show in the timeline</button>'
        f'<div class="wide"><table class="window">{head}{rows}</table></div>{more}</div></details>'
    )


def _window_row(row: Row) -> str:
    marks = " ".join(
        m for m in ("named" if row.named else "", "fault" if row.outcome == "fault" else "") if m
    )
    took = "" if row.took_ms is None else f"{row.took_ms:.1f} ms"
    return (
        f'<tr class="{marks}"><td>{row.t_s:.3f} s</td><td>{took}</td><td>{escaped(row.who)}</td>'
        f'<td>{escaped(row.what)}</td><td class="o-{row.outcome}">{row.outcome}</td>'
        f"<td>{escaped(row.answer)}</td><td class=num>{row.line}</td></tr>"
    )


def _timeline(trace: Trace, left_out: int) -> str:
    legend = "".join(
        f'<i style="background:var(--{kind})"></i>{words}'
        for kind, words in (
            ("ok", "ok"),
            ("fail", "fail: it did not happen"),
            ("info", "info: nobody knows"),
            ("band", "a fault is in force"),
        )
    )
    capped = (
        f'<span class="faint">{spaced(len(trace.calls) - left_out)} of {spaced(len(trace.calls))}'
        " operations are drawn; all are in history.jsonl</span>"
        if left_out
        else ""
    )
    end = curves.seconds(trace.end_t)
    return (
        f'<h2>Timeline</h2><div class="tools"><button data-zoom="0 {end}">whole run</button>'
        f'<span class="faint">drag to zoom, double-click for all, hover for details</span>'
        f'<span class="key">{legend}</span>{capped}</div>'
        '<canvas id="timeline" role="img" aria-label="operations, faults, leaders and curves over'
        ' time"></canvas><div id="tip"></div>'
    )


def _faults(trace: Trace) -> str:
    if not trace.faults:
        return ""
    rows = [
        (
            f"{curves.seconds(fault.begin.t):.2f} s",
            escaped(fault.name),
            escaped(", ".join(fault.targets)),
            "" if fault.end is None else f"{(fault.end.t - fault.begin.t) / curves.SECOND:.2f} s",
        )
        for fault in trace.faults
    ]
    inner = table(("at", "fault", "targets", "lasted"), rows, (0, 3))
    return (
        f"<h2>Faults</h2><details><summary>{len(rows)} faults</summary><div>{inner}</div></details>"
    )


def _footer(trace: Trace) -> str:
    return (
        f"<footer>{spaced(len(trace.ops))} lines of history. ok: it happened. fail: it certainly"
        " did not. info: it may have happened, or may yet. Verdicts: invalid beats unknown beats"
        " valid.</footer>"
    )


def _data(
    trace: Trace,
    bars: list[list[Any]],
    numbered: dict[str, Anomaly],
    windows: dict[str, Window],
) -> dict[str, Any]:
    """What the script draws."""
    marks = [
        [_middle(window), name, numbered[name].message]
        for name, window in windows.items()
        if numbered[name].fatal and numbered[name].ops
    ]
    return {
        "end": curves.seconds(trace.end_t),
        "clients": max(1, trace.header.clients) if trace.calls else 0,
        "bars": bars,
        "faults": timeline.bands(trace),
        "phases": timeline.phases(trace),
        "leaders": timeline.leader_lanes(trace),
        "marks": marks[:MARKS_MAX],
        "charts": _charts(curves.all_curves(trace)),
    }


def _middle(window: Window) -> float:
    named = [row.t_s for row in window.rows if row.named]
    return named[-1] if named else window.from_s


def _charts(found: dict[str, Any]) -> list[dict[str, Any]]:
    charts = [
        _chart("operations / s", "/s", found["rate"], {"ok": "ok", "fail": "fail", "info": "info"}),
        _chart(
            "latency, ms",
            "ms",
            found["latency"],
            {"max": "faint", "p99": "info", "p50": "ok"},
            log=True,
        ),
    ]
    if found.get("unseen"):
        curve = {"not read yet": found["unseen"]}
        charts.append(_chart("unseen records", "records", curve, {"not read yet": "ok"}))
    if found.get("lag"):
        curve = {"worst reader": found["lag"]}
        charts.append(_chart("realtime lag, s", "s", curve, {"worst reader": "info"}))
    return charts


def _chart(
    name: str, unit: str, found: dict[str, Any], colours: dict[str, str], *, log: bool = False
) -> dict[str, Any]:
    drawn = [
        {"name": curve, "colour": colour, "points": found[curve]}
        for curve, colour in colours.items()
    ]
    return {"name": name, "unit": unit, "log": log, "curves": drawn}
