"""What an audit says: violations, what was looked at, what was not, and how to write it down.

A Violation is one row, the same for every engine and every file. An AuditResult holds a bounded
sample of them (the first `SAMPLE_MAX` of each rule, by offset) beside exact counts, and so do the
files. What follows from a lost range is marked `secondary`: counted apart, and no reason by itself
to call a log broken.

What always holds: equal logs give equal rows, in the order of `sort_key`, whichever engine ran.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.rule import Severity
from kraftpy.audit.rules.rule import Violation as Broken
from kraftpy.types import uuid_text

SAMPLE_MAX: Final = 1000  # Rows that a result keeps per rule.
UNCHECKED_MAX: Final = 1000  # What was not checked, one by one; beyond it only counted.
CLUSTER: Final = -1  # `node` of what the logs of all nodes say together.

_ABSENT: Final = -(1 << 62)
# Told (what is being done, how far it is, how far it goes; 0 if nobody knows yet).
Progress: TypeAlias = Callable[[str, int, int], None]


class ExitCode(IntEnum):
    """How `kraftpy audit` ends."""

    CLEAN = 0
    VIOLATIONS = 1
    COULD_NOT_CHECK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One row of the result. None: the rule does not speak of such a thing."""

    run: str
    rule: str  # "A12"
    severity: str  # A name of rules.Severity.
    node: int  # Whose log shows it; CLUSTER if none in particular.
    offset: int
    epoch: int
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    broker: int | None = None
    expected: str = ""
    actual: str = ""
    secondary: bool = False

    @property
    def number(self) -> int:
        return int(self.rule[1:])

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (
            self.offset,
            self.number,
            self.node,
            self.topic or "",
            _ABSENT if self.partition is None else self.partition,
            _ABSENT if self.broker is None else self.broker,
            self.expected,
            self.actual,
        )

    def __str__(self) -> str:
        where = [f"offset {self.offset}"]
        if self.topic:
            partition = "" if self.partition is None else f"-{self.partition}"
            where.append(f"{self.topic}{partition}")
        if self.broker is not None:
            where.append(f"broker {self.broker}")
        if self.node != CLUSTER:
            where.append(f"node {self.node}")
        name = RULES[self.number].name if self.number in RULES else "?"
        return (
            f"{self.rule} {name} ({', '.join(where)}): "
            f"expected {self.expected}, found {self.actual}"
        )


COLUMNS: Final = tuple(each.name for each in fields(Violation))


def violation_of(broken: Broken, *, run: str = "", secondary: bool = False) -> Violation:
    """The row for what the rule book found."""
    return Violation(
        run=run,
        rule=broken.rule.code,
        severity=broken.rule.severity.name,
        node=CLUSTER if broken.node is None else broken.node,
        offset=broken.offset,
        epoch=broken.epoch,
        topic=broken.topic,
        topic_id=None if broken.topic_id is None else uuid_text(broken.topic_id),
        partition=broken.partition,
        broker=broken.broker_id,
        expected=broken.expected,
        actual=broken.actual,
        secondary=secondary,
    )


def from_row(row: Mapping[str, Any]) -> Violation:
    """A row as the files and Spark have it."""
    return Violation(**{name: row[name] for name in COLUMNS})


class Unchecked(NamedTuple):
    """Something that was there and that no rule looked at, or that should have been there."""

    # lost_range: no node has it whole. damaged: one node's copy of a batch. before_snapshot: what
    # the replay did not begin with. torn_tail: an unfinished batch at the end. unknown_record:
    # a type or version that is not known. undecodable: bytes that are no record. snapshot: one that
    # cannot be read, or that the log does not reach. directory: one that holds no metadata log.
    kind: str
    node: int
    offset: int  # The first one, -1 if it has none.
    end_offset: int  # Exclusive.
    records: int
    reason: str


class NodeSummary(NamedTuple):
    """One directory that was read."""

    node: int
    path: str
    format: str  # "kraftpy", "kafka" or "empty".
    start_offset: int
    end_offset: int
    high_watermark: int  # As far as it is known; -1 if it is not.
    batches: int
    records: int
    bytes: int
    snapshots: int


class ControllerChange(NamedTuple):
    """An epoch, who led it, and where the log says so."""

    epoch: int
    leader: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True, kw_only=True)
class AuditResult:
    """All that a report needs. `problems` are reasons why the audit could not do its work."""

    run: str
    engine: str  # "local", "spark" or "catalyst".
    mode: str = ""  # How the replay was cut: "whole", "sharded" or "chunked".
    violations: list[Violation] = field(default_factory=list)  # A sample, in order.
    counts: Counter[str] = field(default_factory=Counter)  # By rule; secondary ones excluded.
    secondary: Counter[str] = field(default_factory=Counter)
    looked_at: dict[str, int] = field(default_factory=dict)  # Records (or batches), by rule.
    record_types: Counter[int] = field(default_factory=Counter)  # Replayed, by API key.
    unchecked: list[Unchecked] = field(default_factory=list)
    nodes: list[NodeSummary] = field(default_factory=list)
    controllers: list[ControllerChange] = field(default_factory=list)
    records: int = 0  # That were replayed.
    first_timestamp_ms: int = -1
    last_timestamp_ms: int = -1
    timings: dict[str, float] = field(default_factory=dict)  # Seconds, by stage.
    problems: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # What was written.

    @property
    def exit_code(self) -> ExitCode:
        """An audit that looked at nothing, or could not look, never says that all is well."""
        if self.counts:
            return ExitCode.VIOLATIONS
        if self.problems or not self.records:
            return ExitCode.COULD_NOT_CHECK
        return ExitCode.CLEAN

    def count_by_severity(self) -> dict[Severity, int]:
        found = dict.fromkeys(Severity, 0)
        for code, count in self.counts.items():
            found[RULES[int(code[1:])].severity] += count
        return found

    def add(self, found: Iterable[Violation]) -> None:
        """Count rows and keep the first of each rule; call `sort` when all are in."""
        kept = Counter(each.rule for each in self.violations)
        for each in found:
            (self.secondary if each.secondary else self.counts)[each.rule] += 1
            if kept[each.rule] < SAMPLE_MAX:
                kept[each.rule] += 1
                self.violations.append(each)

    def sort(self) -> None:
        self.violations.sort(key=lambda each: each.sort_key)

    def skip(self, unchecked: Unchecked) -> None:
        if len(self.unchecked) < UNCHECKED_MAX:
            self.unchecked.append(unchecked)


# -- files -----------------------------------------------------------------------------------------


def json_lines(violations: Iterable[Violation]) -> Iterator[str]:
    """One object per line, with the columns in their order."""
    for each in violations:
        yield json.dumps(asdict(each), ensure_ascii=False)


def result_json(result: AuditResult) -> str:
    """Everything but the time it took, as one object."""
    return json.dumps(
        {
            "run": result.run,
            "engine": result.engine,
            "mode": result.mode,
            "exit_code": int(result.exit_code),
            "records": result.records,
            "violations": sum(result.counts.values()),
            "secondary": sum(result.secondary.values()),
            "counts": dict(sorted(result.counts.items())),
            "looked_at": result.looked_at,
            "nodes": [each._asdict() for each in result.nodes],
            "controllers": [each._asdict() for each in result.controllers],
            "unchecked": [each._asdict() for each in result.unchecked],
            "problems": result.problems,
            "timings": result.timings,
        },
        indent=2,
        ensure_ascii=False,
    )


def arrow_schema() -> Any:
    """The schema of `violations.parquet`, and of every table of violations."""
    import pyarrow as pa

    kinds = {
        "node": pa.int32(),
        "offset": pa.int64(),
        "epoch": pa.int32(),
        "partition": pa.int32(),
        "broker": pa.int32(),
        "secondary": pa.bool_(),
    }
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in COLUMNS])


def arrow_table(violations: Iterable[Violation]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(each) for each in violations], schema=arrow_schema())


def write_parquet(violations: Iterable[Violation], path: str) -> None:
    """A file that Spark, DuckDB and pandas read."""
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(violations), path, compression="zstd")
