"""Side-by-side tables, for people and, with --json, for machines.

A Row holds what was measured and, from the same run, the same work done plainly. The ratio of the
two travels from machine to machine much better than either figure does.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.measure import Measured

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: ours, the plain way, and the aim in words, with whether it was reached."""

    name: str
    ours: Measured
    plain: Measured | None = None
    aim: str = ""
    reached: bool | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the plain way's processor time ours took, for one thing."""
        return None if self.plain is None else self.plain.per_cpu_s / self.ours.per_cpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table. `unit` is what is counted, such as "records"; per_operation shows time for one."""

    title: str
    unit: str
    rows: tuple[Row, ...]
    note: str = ""
    per_operation: bool = False


def as_table(section: Section) -> Table:
    table = Table(title=section.title, caption=section.note, title_justify="left")
    table.caption_justify = "left"
    table.add_column("what")
    rate = "time for one" if section.per_operation else f"{section.unit}/s"
    for side in ("kraftpy", "plain"):
        table.add_column(f"{side}: {rate}", justify="right")
        table.add_column("CPU", justify="right")
        table.add_column("peak RSS", justify="right")
    table.add_column("CPU ratio", justify="right")
    table.add_column("aim")
    for row in section.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
        cells = [*_cells(row.ours, section), *_cells(row.plain, section)]
        table.add_row(row.name, *cells, ratio, _aim(row))
    _drop_empty_columns(table)
    return table


def as_json(sections: Iterable[Section]) -> str:
    return json.dumps([_plain(section) for section in sections], indent=2)


def show(sections: Iterable[Section], console: Console) -> None:
    for section in sections:
        console.print(as_table(section))
        console.print()


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Bars on the console while measuring: call it with a name, get what moves that bar."""
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
    )

    def begin(name: str) -> Callable[[float], None]:
        task = bars.add_task(name, total=1.0)
        return lambda done: bars.update(task, completed=done)

    with bars:
        yield begin


def duration_text(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def _cells(measured: Measured | None, section: Section) -> tuple[str, str, str]:
    if measured is None:
        return "", "", ""
    memory = measured.rss_bytes_max
    rss = "" if memory is None else f"{memory / MEGABYTE:,.0f} MB"
    if section.per_operation:
        wall = duration_text(measured.wall_s / measured.count)
        return wall, duration_text(measured.cpu_s / measured.count), rss
    return f"{measured.per_wall_s:,.0f}", duration_text(measured.cpu_s), rss


def _aim(row: Row) -> str:
    if row.reached is None:
        return row.aim
    return f"{row.aim}: {'[green]reached' if row.reached else '[red]missed'}[/]"


def _drop_empty_columns(table: Table) -> None:
    table.columns = [column for column in table.columns if any(column.cells)]


def _plain(section: Section) -> dict[str, Any]:
    rows = [
        {**asdict(row), "cpu_ratio": row.ratio, "per_cpu_s": row.ours.per_cpu_s}
        for row in section.rows
    ]
    return {"title": section.title, "unit": section.unit, "note": section.note, "rows": rows}
