"""What bench.broker found, and its tables: figures side by side, ratios within a round, and aims.

A ratio is taken in each round, of two runs that followed each other, and the median of those is
shown: the machine's other work then counts for both. Figures are medians over the rounds.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from bench.table import MEGABYTE, duration_text

OURS, MOCK, APACHE = "kraftpy", "mock", "apache"
TITLES = {OURS: "kraftpy", MOCK: "mock", APACHE: "Apache"}
HEADINGS = {
    "mb_s": "MB/s",
    "records_s": "records/s",
    "cpu_s_gb": "CPU-s/GB",
    "p50": "p50",
    "p99": "p99",
    "first_s": "first message",
    "rss": "resident",
}
START_EMPTY, START_AGAIN = "start, empty directory", "start again"
LOADED = "after the load"
Key = tuple[str, str]  # (what was done, what was measured of it)


@dataclass(slots=True)
class Results:
    """All that was measured, round by round; and for what was not, why."""

    found: dict[str, dict[Key, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, system: str, case: str, **figures: float) -> None:
        place = self.found.setdefault(system, {})
        for figure, value in figures.items():
            place.setdefault((case, figure), []).append(value)

    def median(self, system: str, key: Key) -> float | None:
        values = self.found.get(system, {}).get(key)
        return statistics.median(values) if values else None

    def ratio(self, key: Key, to: str) -> float | None:
        """Ours by theirs."""
        ours, theirs = (self.found.get(name, {}).get(key, []) for name in (OURS, to))
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if b]
        return statistics.median(a / b for a, b in pairs) if pairs else None

    def cases(self, figure: str, prefix: str) -> list[str]:
        """What was done, in the order of doing, that begins like this and has the figure."""
        seen: dict[str, None] = {}
        for figures in self.found.values():
            seen |= {case: None for case, each in figures if each == figure}
        return [case for case in seen if case.startswith(prefix)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A bound for ours: on a figure, or, with `to`, on its ratio to another's."""

    case: str
    figure: str
    bound: float
    at_least: bool
    to: str | None = None

    @property
    def name(self) -> str:
        return f"{self.case}: {self.text}"

    @property
    def text(self) -> str:
        order = "at least" if self.at_least else "at most"
        what = f"x {TITLES[self.to]}'s" if self.to else ""
        return f"{HEADINGS[self.figure]} {order} {self.bound:.3g}{what}"

    def value(self, results: Results) -> float | None:
        """What is bounded; None if it was not measured."""
        key = (self.case, self.figure)
        return results.ratio(key, self.to) if self.to else results.median(OURS, key)

    def reached(self, results: Results) -> bool | None:
        value = self.value(results)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def case_name(action: str, record_bytes: int, batch_bytes: int) -> str:
    size = "1 KB" if record_bytes == 1024 else f"{record_bytes} B"
    batch = "1 MB" if batch_bytes >= MEGABYTE else f"{batch_bytes // 1024} KB"
    return f"{action} {size}, {batch} batches"


def _aims() -> tuple[Aim, ...]:
    aims: list[Aim] = []
    for size in (100, 1024):
        for batch, share in ((16_384, 0.75), (MEGABYTE, 0.85)):
            produce, consume = (case_name(each, size, batch) for each in ("produce", "consume"))
            aims.append(Aim(case=produce, figure="mb_s", bound=share, at_least=True, to=MOCK))
            aims += (
                Aim(case=case, figure="mb_s", bound=1.0, at_least=True, to=APACHE)
                for case in (produce, consume)
            )
            if batch == MEGABYTE:
                aims += (
                    Aim(case=case, figure="cpu_s_gb", bound=bound, at_least=False)
                    for case, bound in ((produce, 0.8), (consume, 0.4))
                )
    aims += (
        Aim(case=case, figure="first_s", bound=0.1, at_least=False, to=APACHE)
        for case in (START_EMPTY, START_AGAIN)
    )
    aims += (
        Aim(case=case, figure="rss", bound=0.2, at_least=False, to=APACHE)
        for case in (START_EMPTY, LOADED)
    )
    return tuple(aims)


AIMS = _aims()


def as_json(results: Results) -> dict[str, Any]:
    medians: dict[str, Any] = {}
    for system, figures in results.found.items():
        for case, figure in figures:
            place = medians.setdefault(system, {}).setdefault(case, {})
            place[figure] = results.median(system, (case, figure))
    ratios: dict[str, Any] = {}
    for key in results.found.get(OURS, {}):
        for other in (MOCK, APACHE):
            if (ratio := results.ratio(key, other)) is not None:
                ratios.setdefault(other, {}).setdefault(key[0], {})[key[1]] = ratio
    reached = {aim.name: aim.reached(results) for aim in AIMS}
    rounds = {
        system: {" | ".join(key): values for key, values in figures.items()}
        for system, figures in results.found.items()
    }
    return {
        "medians": medians,
        "ratios_of_ours": ratios,
        "reached": reached,
        "missing": results.missing,
        "rounds": rounds,
    }


# -- tables -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One figure, for each system that has it; with the ratio to the others if `ratio`."""

    figure: str
    text: Callable[[float], str]
    ratio: bool = False


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _megabytes(value: float) -> str:
    return f"{value / MEGABYTE:,.0f} MB"


SPEED = (
    Column("mb_s", _number, ratio=True),
    Column("records_s", _number),
    Column("cpu_s_gb", "{:.2f}".format),
)
LATENCY = (Column("p50", duration_text, ratio=True), Column("p99", duration_text, ratio=True))
LIFE = (Column("first_s", duration_text, ratio=True), Column("rss", _megabytes, ratio=True))
PLAN = (
    ("Produce, one broker, acks=all", "mb_s", "produce", SPEED),
    ("Consume, one broker", "mb_s", "consume", SPEED),
    ("Three replicas on three brokers, acks=all", "mb_s", "RF 3", SPEED),
    ("From produce() to its acknowledgement, at low load", "p50", "latency", LATENCY),
    ("From start to the first message; resident memory of a broker", "rss", "", LIFE),
)


def as_tables(results: Results) -> list[Table]:
    tables = []
    for title, figure, prefix, columns in PLAN:
        if cases := results.cases(figure, prefix):
            tables.append(_table(results, title, cases, columns))
    return [*tables, _aims_table(results)]


def _table(results: Results, title: str, cases: list[str], columns: tuple[Column, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    systems = [name for name in TITLES if name in results.found or name in results.missing]
    for name in systems:
        for column in columns:
            heading = f"{TITLES[name]} {HEADINGS[column.figure]}"
            table.add_column(heading, justify="right")
            if column.ratio and name != OURS:
                table.add_column("ratio", justify="right")
    for case in cases:
        cells = [cell for name in systems for cell in _cells(results, name, case, columns)]
        table.add_row(case, *cells)
    table.columns = [each for each in table.columns if any(each.cells)]
    return table


def _cells(results: Results, system: str, case: str, columns: tuple[Column, ...]) -> list[str]:
    cells = []
    for column in columns:
        value = results.median(system, (case, column.figure))
        gone = "[yellow]missing" if system in results.missing else ""
        cells.append(gone if value is None else column.text(value))
        if column.ratio and system != OURS:
            ratio = results.ratio((case, column.figure), system)
            cells.append("" if ratio is None else f"{ratio:.2f}x")
    return cells


def _aims_table(results: Results) -> Table:
    missing = [f"{TITLES[name]} is missing: {why}" for name, why in results.missing.items()]
    caption = "\n".join([*missing, "A ratio is ours to theirs, within a round."])
    table = Table(title="Aims", title_justify="left", caption=caption, caption_justify="left")
    for heading in ("what", "aim", "found", ""):
        table.add_column(heading)
    words = {True: "[green]reached", False: "[red]missed", None: "[yellow]not judged"}
    for aim in AIMS:
        value = aim.value(results)
        found = "" if value is None else f"{value:.2f}"
        table.add_row(aim.case, aim.text, found, words[aim.reached(results)])
    return table
