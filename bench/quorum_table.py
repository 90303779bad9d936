"""What bench.quorum found, and its tables: figures side by side, ratios, and aims."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.table import Table

from bench.table import duration_text

COLUMNS = ("kraftpy", "etcd", "zookeeper", "fdatasync")
RECORDS_PER_S_AIM = 100_000
FAIL_OVER_S_AIM = 0.5

Medians = dict[str, dict[str, float]]


@dataclass(slots=True)
class Results:
    """All that was measured, round by round; and for what was not, why."""

    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, system: str, figure: str, value: float) -> None:
        self.found.setdefault(system, {}).setdefault(figure, []).append(value)

    def medians(self) -> Medians:
        medians = {
            system: {figure: statistics.median(values) for figure, values in figures.items()}
            for system, figures in self.found.items()
        }
        for system, figures in self.found.items():
            if "fail_over" in figures:
                medians[system]["fail_over_max"] = max(figures["fail_over"])
        return medians

    def fail_overs(self) -> dict[str, list[float]]:
        return {name: figures.get("fail_over", []) for name, figures in self.found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table. The aim is judged only if all systems in `against` were measured."""

    key: str
    label: str
    text: Callable[[float], str]
    aim: str = ""
    against: tuple[str, ...] = ()
    reached: Callable[[float, list[float]], bool] | None = None


def _rate(value: float) -> str:
    return f"{value:,.0f}"


FIGURES = (
    Figure(
        key="p50",
        label="commit, one writer: p50",
        text=duration_text,
        aim="at most etcd's",
        against=("etcd",),
        reached=lambda ours, theirs: ours <= theirs[0],
    ),
    Figure(
        key="p99",
        label="commit, one writer: p99",
        text=duration_text,
        aim="at most etcd's",
        against=("etcd",),
        reached=lambda ours, theirs: ours <= theirs[0],
    ),
    Figure(
        key="commits",
        label="commits/s, many writers",
        text=_rate,
        aim="more than both",
        against=("etcd", "zookeeper"),
        reached=lambda ours, theirs: ours > max(theirs),
    ),
    Figure(
        key="records",
        label="records/s, batches of 100",
        text=_rate,
        aim=f"{RECORDS_PER_S_AIM:,} and more",
        reached=lambda ours, _: ours >= RECORDS_PER_S_AIM,
    ),
    Figure(
        key="fail_over",
        label="kill -9 of the leader to next commit: median",
        text=duration_text,
        aim=f"under {FAIL_OVER_S_AIM} s",
        reached=lambda ours, _: ours < FAIL_OVER_S_AIM,
    ),
    Figure(key="fail_over_max", label="  longest", text=duration_text),
)
CPU_LINES = (("one", "one writer"), ("many", "many writers"), ("batches", "batches of 100"))


def verdict(figure: Figure, medians: Medians) -> bool | None:
    """Whether the aim was reached; None if there is none, or nothing to judge it by."""
    ours = medians.get("kraftpy", {}).get(figure.key)
    theirs = [medians.get(name, {}).get(figure.key) for name in figure.against]
    if figure.reached is None or ours is None or None in theirs:
        return None
    return figure.reached(ours, [value for value in theirs if value is not None])


def verdicts(medians: Medians) -> dict[str, bool | None]:
    return {figure.key: verdict(figure, medians) for figure in FIGURES if figure.aim}


def as_tables(results: Results) -> list[Table]:
    return [_figures_table(results), _cpu_table(results)]


def _figures_table(results: Results) -> Table:
    medians = results.medians()
    missing = [f"{name} is missing: {how}" for name, how in results.missing.items()]
    caption = "\n".join([*missing, "A ratio is theirs to ours, of the figure on the left."])
    table = Table(title="Three servers on one machine", caption=caption, title_justify="left")
    table.caption_justify = "left"
    table.add_column("what")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for name in COLUMNS[1:]:
        table.add_column(f"{name} ratio", justify="right")
    table.add_column("aim")
    for figure in FIGURES:
        cells = [_cell(figure, name, results, medians) for name in COLUMNS]
        ratios = [_ratio(figure, name, medians) for name in COLUMNS[1:]]
        table.add_row(figure.label, *cells, *ratios, _aim(figure, medians))
    return table


def _cell(figure: Figure, name: str, results: Results, medians: Medians) -> str:
    if name in results.missing:
        return "[yellow]missing"
    value = medians.get(name, {}).get(figure.key)
    return "" if value is None else figure.text(value)


def _ratio(figure: Figure, name: str, medians: Medians) -> str:
    ours = medians.get("kraftpy", {}).get(figure.key)
    theirs = medians.get(name, {}).get(figure.key)
    return "" if ours is None or theirs is None else f"{theirs / ours:.2f}"


def _aim(figure: Figure, medians: Medians) -> str:
    if not figure.aim:
        return ""
    match verdict(figure, medians):
        case None:
            return f"{figure.aim}: [yellow]not judged"
        case True:
            return f"{figure.aim}: [green]reached"
        case False:
            return f"{figure.aim}: [red]missed"


def _cpu_table(results: Results) -> Table:
    medians = results.medians()
    table = Table(title="Processor time per commit", title_justify="left")
    table.add_column("what")
    names = [name for name in COLUMNS[:3] if name in medians]
    for name in names:
        table.add_column(f"{name}: clients", justify="right")
        table.add_column("its three servers", justify="right")
    for key, label in CPU_LINES:
        keys = [f"{key}_{side}_cpu_s" for side in ("client", "server")]
        cells = [duration_text(medians[name].get(each, 0.0)) for name in names for each in keys]
        table.add_row(label, *cells)
    return table
