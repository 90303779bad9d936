"""Small charts as SVG text: lanes, mirrored bars, stacked areas, over one axis of time. Pure.

Everything is drawn once, by us: no scripts, no fonts, nothing from the network. Whoever points at a
shape is told what it is, by its <title>. Colours are classes, so that the page's style decides.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 1080
LEFT: Final = 128  # Room for names.
RIGHT: Final = 12
AXIS_HEIGHT: Final = 24
SERIES: Final = 8  # Colours that there are; after that they begin again.
_TICKS: Final = 7
_TICK_WIDTH: Final = 60
_STEPS_MS: Final = tuple(
    seconds * 1000
    for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
)
_DAY_MS: Final = 86_400_000


class Span(NamedTuple):
    """A stretch of time that a lane is in one state."""

    start_ms: int
    end_ms: int
    style: str
    title: str


class Mark(NamedTuple):
    """A moment worth a line."""

    at_ms: int
    style: str
    title: str


class Lane(NamedTuple):
    name: str
    spans: Sequence[Span]
    marks: Sequence[Mark] = ()


class TimeScale:
    """Milliseconds to pixels."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self.first_ms = first_ms
        self.last_ms = max(last_ms, first_ms + 1)

    def x(self, at_ms: int) -> float:
        share = (at_ms - self.first_ms) / (self.last_ms - self.first_ms)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[int]:
        wanted = (self.last_ms - self.first_ms) / _TICKS
        step = next((s for s in _STEPS_MS if s >= wanted), None)
        if step is None:
            step = _DAY_MS * max(1, round(wanted / _DAY_MS))
        first = -(-self.first_ms // step) * step
        return list(range(first, self.last_ms + 1, step))


def clock_time(at_ms: int, *, date: bool = False) -> str:
    """Of a log's timestamp, in UTC; a log may hold any number."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def svg(height: float, parts: Iterable[str], label: str) -> str:
    """A whole chart."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def axis(scale: TimeScale, top: float, bottom: float) -> list[str]:
    """Lines down the chart, and times under it."""
    parts = []
    for tick in scale.ticks():
        x = scale.x(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        near_end = x > WIDTH - RIGHT - _TICK_WIDTH / 2
        x, anchor = (WIDTH - RIGHT, "end") if near_end else (x, "middle")
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">'
            f"{clock_time(tick)}</text>"
        )
    return parts


def lanes(scale: TimeScale, rows: Sequence[Lane], label: str, *, height: int = 22) -> str:
    """A row per lane: who was in which state, when."""
    gap = 6
    bottom = len(rows) * (height + gap)
    parts = axis(scale, 0, bottom)
    for number, row in enumerate(rows):
        y = number * (height + gap) + gap / 2
        parts.append(
            f'<text class="name" x="{LEFT - 10}" y="{y + height / 2 + 4}" text-anchor="end">'
            f"{escape(row.name)}</text>"
        )
        for span in row.spans:
            parts.append(_span(scale, span, y, height))
        for mark in row.marks:
            x = scale.x(mark.at_ms)
            parts.append(
                f'<line class="{mark.style}" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 2}" '
                f'y2="{y + height + 2}"><title>{escape(mark.title)}</title></line>'
            )
    return svg(bottom + AXIS_HEIGHT, parts, label)


def _span(scale: TimeScale, span: Span, y: float, height: int) -> str:
    x, end = scale.x(span.start_ms), scale.x(span.end_ms)
    return (
        f'<rect class="{span.style}" x="{x:.1f}" y="{y}" width="{max(end - x, 1.2):.1f}" '
        f'height="{height}" rx="2"><title>{escape(span.title)}</title></rect>'
    )


class Bar(NamedTuple):
    start_ms: int
    up: int
    down: int
    title: str


def mirrored_bars(
    scale: TimeScale, bars: Sequence[Bar], bucket_ms: int, label: str, *, height: int = 120
) -> str:
    """What grew above the line, what shrank below it."""
    highest = max((max(bar.up, bar.down) for bar in bars), default=0) or 1
    middle, reach = height / 2, height / 2 - 8
    parts = axis(scale, 0, height)
    for sign, y in (("+", middle - reach), ("−", middle + reach)):  # noqa: RUF001
        parts.append(
            f'<text class="tick" x="{LEFT - 10}" y="{y + 4:.0f}" text-anchor="end">'
            f"{sign}{highest}</text>"
        )
    width = max(scale.x(scale.first_ms + bucket_ms) - LEFT - 1, 1.5)
    for bar in bars:
        x = scale.x(bar.start_ms)
        up, down = reach * bar.up / highest, reach * bar.down / highest
        title = f"<title>{escape(bar.title)}</title>"
        if bar.up:
            parts.append(
                f'<rect class="grew" x="{x:.1f}" y="{middle - up:.1f}" width="{width:.1f}" '
                f'height="{up:.1f}">{title}</rect>'
            )
        if bar.down:
            parts.append(
                f'<rect class="shrank" x="{x:.1f}" y="{middle:.1f}" width="{width:.1f}" '
                f'height="{down:.1f}">{title}</rect>'
            )
    parts.append(
        f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}"/>'
    )
    return svg(height + AXIS_HEIGHT, parts, label)


class Series(NamedTuple):
    name: str
    style: str
    values: Sequence[int]


def stacked_areas(
    scale: TimeScale,
    times: Sequence[int],
    series: Sequence[Series],
    label: str,
    *,
    height: int = 150,
) -> str:
    """Steps on top of each other; each value holds until the next time."""
    totals = [sum(each.values[n] for each in series) for n in range(len(times))]
    highest = max(totals, default=0) or 1
    parts = axis(scale, 0, height)
    parts.append(
        f'<text class="tick" x="{LEFT - 10}" y="12" text-anchor="end">{highest}</text>'
        f'<text class="tick" x="{LEFT - 10}" y="{height}" text-anchor="end">0</text>'
    )
    base = [0] * len(times)
    for each in series:
        top = [b + v for b, v in zip(base, each.values, strict=True)]
        parts.append(_area(scale, times, base, top, highest, height, each))
        base = top
    return svg(height + AXIS_HEIGHT, parts, label)


def _area(
    scale: TimeScale,
    times: Sequence[int],
    base: Sequence[int],
    top: Sequence[int],
    highest: int,
    height: int,
    series: Series,
) -> str:
    def points(values: Sequence[int]) -> list[str]:
        found = []
        for number, value in enumerate(values):
            end = times[number + 1] if number + 1 < len(times) else scale.last_ms
            y = height - (height - 8) * value / highest
            found += [f"{scale.x(times[number]):.1f},{y:.1f}", f"{scale.x(end):.1f},{y:.1f}"]
        return found

    outline = " ".join([*points(top), *reversed(points(base))])
    most = max(series.values, default=0)
    return (
        f'<polygon class="{series.style}" points="{outline}">'
        f"<title>{escape(series.name)}: up to {most}</title></polygon>"
    )
