"""What a series of runs amounts to: a table for people, one object for machines."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from tests.sim.plan import HOOKS
from tests.sim.runner import Result

_SHOWN = (
    ("faults", "faults struck"),
    ("power", "power losses"),
    ("kill", "process kills"),
    ("stop", "orderly stops"),
    ("disk_stop", "stops by a bad disk"),
    ("elections", "elections"),
    ("truncations", "truncations"),
    ("installs", "snapshots installed"),
    ("messages", "messages"),
    ("lost", "lost"),
    ("late", "from a broken connection"),
    ("twice", "delivered twice"),
    ("acked", "writes acknowledged"),
    ("refused", "refused"),
    ("unknown", "of unknown outcome"),
    ("reads", "read barriers"),
)
# Of runs with controllers only.
_SHOWN_OF_CONTROLLERS = (
    ("tenures", "times that a controller became active"),
    ("decisions", "decisions committed"),
    ("committed BeginTransactionRecord", "metadata transactions begun"),
    ("committed AbortTransactionRecord", "and aborted by the next controller"),
    ("requests", "requests of brokers and admins"),
    ("requests lost", "requests or answers lost"),
    ("requests twice", "requests delivered twice"),
    ("answers", "answers checked"),
    ("broker deaths", "broker deaths"),
    ("broker stops", "controlled shutdowns"),
    ("fences", "sessions that ended"),
)


@dataclass(slots=True)
class Summary:
    """Sums over runs."""

    seeds: int = 0
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_s += result.simulated_s
        self.counts.update(result.counts)
        if result.violation is not None:
            found = {"rule": result.violation.rule, "text": result.violation.text}
            self.failed.append({"seed": result.plan.seed, **found})

    @property
    def crashes(self) -> int:
        return self.counts["power"] + self.counts["kill"]

    def to_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "simulated_s": round(self.simulated_s),
            "crashes": self.crashes,
            "violations": self.failed,
            **dict(sorted(self.counts.items())),
        }

    def table(self) -> Table:
        table = Table(show_header=False, box=None)
        table.add_column(justify="right")
        table.add_column()
        table.add_row(f"{self.seeds:,}", "seeds")
        table.add_row(f"{self.simulated_s:,.0f}", "simulated seconds")
        shown = _SHOWN + (_SHOWN_OF_CONTROLLERS if self.counts["tenures"] else ())
        for name, words in shown:
            table.add_row(f"{self.counts[name]:,}", words)
        for hook in HOOKS:
            table.add_row(f"{self.counts[f'hook {hook}']:,}", f"times: {hook.replace('_', ' ')}")
        table.add_row(f"{self.counts['hooked']:,}", "faults triggered by these")
        table.add_row(f"{len(self.failed):,}", "violations")
        return table
