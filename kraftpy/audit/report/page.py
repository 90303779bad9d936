"""The report: one HTML file that needs nothing but a browser. Pure: text in, text out.

Order: the verdict; what it rests on; each broken rule with its first cases; the partitions that
broke them, over time; the cluster over time; what was not checked; every rule and how much it saw.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

from kraftpy.audit.report import sections
from kraftpy.audit.report.chronicle import Chronicle, Name
from kraftpy.audit.report.style import STYLE
from kraftpy.audit.violations import AuditResult, ExitCode, Violation

_VERDICTS: Final = {
    ExitCode.CLEAN: ("clean", "Clean: every rule that could be checked holds"),
    ExitCode.VIOLATIONS: ("violations", "Violations"),
    ExitCode.COULD_NOT_CHECK: ("unknown", "Could not be checked"),
}


def offending(violations: Iterable[Violation], most: int) -> list[Name]:
    """The partitions that broke rules, those that broke most first."""
    counts: dict[Name, int] = {}
    for each in violations:
        if each.topic and each.partition is not None and not each.secondary:
            name = each.topic, each.partition
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))[:most]


def report_page(
    result: AuditResult, chronicle: Chronicle | None, why_no_chronicle: str = ""
) -> str:
    """The whole page. Without a chronicle there are no charts, and the page says why."""
    parts = [
        _verdict(result),
        sections.facts(result),
        sections.broken_rules(result),
        _charts(result, chronicle, why_no_chronicle),
        sections.not_checked(result),
        sections.nodes(result),
        sections.every_rule(result),
    ]
    title = f"kraftpy audit: {_VERDICTS[result.exit_code][0]}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(part for part in parts if part)
        + "</main></body></html>\n"
    )


def _verdict(result: AuditResult) -> str:
    style, words = _VERDICTS[result.exit_code]
    count = sum(result.counts.values())
    if result.exit_code is ExitCode.VIOLATIONS:
        rules = len(result.counts)
        words = f"{count:,} violation{'s' * (count != 1)} of {rules} rule{'s' * (rules != 1)}"
    return (
        f"<h1>Audit of a metadata log</h1><div class='sub'>{escape(sections.period(result))}</div>"
        f'<div class="verdict {style}"><b>{escape(words)}</b><span>{_grounds(result)}</span></div>'
    )


def _grounds(result: AuditResult) -> str:
    """What the verdict rests on, and what it does not."""
    saw = sum(1 for count in result.looked_at.values() if count)
    nodes = len(result.nodes)
    words = [f"{result.records:,} records of {nodes} node{'s' * (nodes != 1)} were replayed."]
    words.append(f"{saw} of 60 rules had something to look at.")
    if result.unchecked:
        left = len(result.unchecked)
        words.append(f"Not checked: {left} thing{'s' * (left != 1)}, see below.")
    if result.secondary:
        words.append(
            f"{sum(result.secondary.values()):,} further findings follow from what is missing."
        )
    words += [escape(problem) for problem in result.problems[:5]]
    return " ".join(words)


def _charts(result: AuditResult, chronicle: Chronicle | None, why: str) -> str:
    if chronicle is None or not chronicle.buckets:
        reason = escape(why or "the log holds no records to draw")
        return f"<h2>Over time</h2><p class='soft'>Not drawn: {reason}.</p>"
    return sections.offenders(result, chronicle) + sections.cluster(chronicle)
