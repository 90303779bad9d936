"""One audit from paths to result: what nodes noted, the logs by one of the engines, the rest beside
them.

Notes come first, since they are evidence for the rules that judge the log. What lies beside the
logs is small and is judged here, whichever engine ran.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kraftpy.audit.local import Options
from kraftpy.audit.local import audit as audit_locally
from kraftpy.audit.recorded.data import check_data
from kraftpy.audit.recorded.evidence import NotedEvidence
from kraftpy.audit.recorded.notes import NodeNotes, Recorded, check_notes, read_node_notes
from kraftpy.audit.recorded.places import Place, find_places
from kraftpy.audit.recorded.reading import log_format, unclean_epochs
from kraftpy.audit.report.chronicle import (
    CHRONICLE_BYTES_MAX,
    PARTITIONS_MAX,
    Chronicle,
    chronicle_of,
)
from kraftpy.audit.report.page import offending, report_page
from kraftpy.audit.rules.rule import PartitionKey
from kraftpy.audit.violations import AuditResult, NodeSummary, violation_of
from kraftpy.errors import ConfigError, StorageError
from kraftpy.storage.epochs import FILE_NAME as EPOCHS_FILE
from kraftpy.storage.epochs import parse_checkpoint
from kraftpy.storage.file_layer import FileLayer

LOCAL: Final = "local"
SPARK: Final = "spark"
CATALYST: Final = "catalyst"
_LOST_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants."""

    paths: Sequence[str]
    run: str
    engine: str = LOCAL
    with_data: bool = False
    history: str | None = None
    rules: frozenset[str] | None = None
    state: str | None = None
    replay: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None


def run_audit(files: FileLayer, asked: Asked) -> AuditResult:
    """Everything that can be checked in the paths."""
    places = find_places(asked.paths)
    notes = _notes(files, places)
    options = Options(
        run=asked.run,
        evidence=NotedEvidence(notes, _epoch_starts(files, places)) if notes else None,
        watermarks=_watermarks(notes) or None,
        rules=asked.rules,
        replay=asked.replay,
        progress=asked.progress,
    )
    engine = _oracle(asked) if asked.engine == CATALYST else _engine(asked)
    result = engine(list(asked.paths), options)
    result.problems += lost_ranges(result)
    result.nodes = [
        node if node.format else node._replace(format=log_format(files, node.path))
        for node in result.nodes
    ]
    ends = [(node.node, node.end_offset) for node in result.nodes]
    if asked.engine != CATALYST:  # It has judged them by itself.
        _add(result, check_notes(notes, ends, _unclean(files, result, notes)), asked)
    if (asked.with_data or asked.history is not None) and result.records:
        asked.progress("data", 0, 0)
        acks = [ack for each in notes for ack in each.acks]
        data = check_data(files, places, asked.history, acks)
        result.problems += data.problems
        _add(result, data.recorded, asked)
    result.sort()
    return result


def lost_ranges(result: AuditResult) -> list[str]:
    """A log with a hole in it may be without fault, but nobody can say so."""
    lost = [each for each in result.unchecked if each.kind == "lost_range"]
    lines = [
        f"offsets {each.offset} to {each.end_offset} are lost: {each.reason}"
        for each in lost[:_LOST_SHOWN_MAX]
    ]
    left = len(lost) - len(lines)
    return [*lines, f"and {left} more ranges are lost"] if left else lines


def _engine(asked: Asked) -> Callable[[list[str], Options], AuditResult]:
    if asked.engine == LOCAL:
        return audit_locally if asked.state is None else _incremental(asked.state)
    try:
        engine: Any = importlib.import_module("kraftpy.audit.spark.engine")
    except ImportError as error:
        raise ConfigError(
            f"--engine spark needs {error.name}: install kraftpy[audit], or use --engine local"
        ) from None

    def run(paths: list[str], options: Options) -> AuditResult:
        asked.progress("starting Spark", 0, 0)
        found: AuditResult = engine.audit(
            paths, options, master=asked.master, conf=asked.conf, state=asked.state
        )
        return found

    return run


def _oracle(asked: Asked) -> Callable[[list[str], Options], AuditResult]:
    """The rules as SQL, for small logs."""
    if asked.state is not None:
        raise ConfigError("--state does not go with --engine catalyst: it reads everything")
    try:
        engine: Any = importlib.import_module("kraftpy.audit.catalyst.engine")
        session: Any = importlib.import_module("kraftpy.audit.spark.session")
    except ImportError as error:
        raise ConfigError(f"--engine catalyst needs {error.name}: install kraftpy[audit]") from None

    def run(paths: list[str], options: Options) -> AuditResult:
        asked.progress("starting Spark", 0, 0)
        spark = session.new_session(asked.master, dict(asked.conf))
        try:
            found: AuditResult = engine.audit(spark, paths, options)
        finally:
            spark.stop()
        return found

    return run


def _incremental(directory: str) -> Callable[[list[str], Options], AuditResult]:
    """Reads only what is new since the last run that kept its state there."""
    state: Any = importlib.import_module("kraftpy.audit.state")

    def run(paths: list[str], options: Options) -> AuditResult:
        found: AuditResult = state.audit(paths, options, directory)
        return found

    return run


def _notes(files: FileLayer, places: Sequence[Place]) -> list[NodeNotes]:
    found = []
    for directory in sorted({place.data for place in places}):
        try:
            notes = read_node_notes(files, directory)
        except OSError:
            continue  # The engine tells of directories that cannot be read.
        if notes:
            found.append(notes)
    return found


def _unclean(
    files: FileLayer, result: AuditResult, notes: Sequence[NodeNotes]
) -> dict[PartitionKey, set[int]] | None:
    """None if nobody needs them, or the log is too long to be read for it once more."""
    best = _best(result)
    if best is None or best.start_offset or best.bytes > CHRONICLE_BYTES_MAX:
        return None
    return unclean_epochs(files, best.path) if any(each.replicas for each in notes) else None


def _best(result: AuditResult) -> NodeSummary | None:
    """The log that tells most."""
    readable = [node for node in result.nodes if node.records]
    return min(
        readable,
        key=lambda node: (node.start_offset, -node.end_offset, node.node),
        default=None,
    )


def _watermarks(notes: Sequence[NodeNotes]) -> dict[int, int]:
    marks: dict[int, int] = {}
    for each in notes:
        for row in each.watermarks:
            marks[row.node] = max(marks.get(row.node, 0), row.high_watermark)
        for applied in each.applied:  # What was applied was committed.
            marks[applied.node] = max(marks.get(applied.node, 0), applied.offset)
    return marks


def _epoch_starts(files: FileLayer, places: Sequence[Place]) -> list[tuple[int, int]]:
    """Where each epoch begins, by whichever log goes back furthest."""
    starts: dict[int, int] = {}
    for place in places:
        path = os.path.join(place.log, EPOCHS_FILE)
        try:
            entries = parse_checkpoint(files.read_whole(path)) if files.exists(path) else []
        except (StorageError, OSError, ValueError):
            continue
        for epoch, offset in entries:
            starts[epoch] = min(starts.get(epoch, offset), offset)
    return sorted((offset, epoch) for epoch, offset in starts.items())


def _add(result: AuditResult, recorded: Recorded, asked: Asked) -> None:
    for code, count in recorded.looked_at.items():
        result.looked_at[code] = result.looked_at.get(code, 0) + count
    result.add(
        violation_of(each, run=result.run)
        for each in recorded.violations
        if asked.rules is None or each.rule.code in asked.rules
    )


# -- the report ------------------------------------------------------------------------------------


def make_report(files: FileLayer, result: AuditResult) -> str:
    """The page, with what the longest log tells of the time."""
    chronicle: Chronicle | None = None
    why = "no log could be read"
    best = _best(result)
    if best is not None:
        if best.bytes > CHRONICLE_BYTES_MAX:
            why = f"the log has {best.bytes:,} bytes, and at most {CHRONICLE_BYTES_MAX:,} are drawn"
        else:
            chronicle = chronicle_of(files, best.path, offending(result.violations, PARTITIONS_MAX))
    return report_page(result, chronicle, why)
