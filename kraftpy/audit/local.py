"""The engine without a JVM: `audit(paths)` -> AuditResult.

Survey all logs, mend one, replay and judge it, hold the snapshots against it. Small logs go through
the rule book record by record ("whole"); large ones through the compiled loops first ("screened"),
if numba is there. What always holds: both ways give the same rows; nothing that is in a directory
makes it raise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kraftpy.audit.assembly import begin_result, finish_result, is_kafka_log
from kraftpy.audit.lanes import Found, Lane, Looked, Place, Task, decoded
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, Defaults, Evidence, Writer
from kraftpy.audit.rules.rule import Violation as Broken
from kraftpy.audit.snapshots import records_in, snapshot_bytes, snapshots_of
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.source.directories import LogDirectory, find_logs
from kraftpy.audit.source.pieces import Plan, plan_replay
from kraftpy.audit.source.splits import SPLIT_BYTES
from kraftpy.audit.source.survey import judge_survey, survey_logs
from kraftpy.audit.violations import AuditResult, Progress, Violation, violation_of
from kraftpy.clock import Clock, SystemClock
from kraftpy.errors import StorageError
from kraftpy.storage.record_batch import read_header

if TYPE_CHECKING:
    from kraftpy.audit.state import Resume, StateDirectory

# What nodes recorded beside the log: the evidence for the step that begins at an offset.
EvidenceAt: TypeAlias = Mapping[int, Evidence]

WHOLE: Final = "whole"
SCREENED: Final = "screened"
SHARDED: Final = "sharded"
CHUNKED: Final = "chunked"
# From here on it pays to compile, or to load what was compiled before.
SCREENED_BYTES_MIN: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to audit; the same for every engine."""

    run: str = "audit"
    defaults: Defaults = KAFKA_DEFAULTS
    evidence: EvidenceAt | None = None
    watermarks: Mapping[int, int] | None = None  # The highest that each node noted.
    rules: frozenset[str] | None = None  # Only these ("A12").
    mode: str | None = None  # WHOLE or SCREENED; chosen by size if None.
    split_bytes: int = SPLIT_BYTES  # On Spark: what one task reads.
    shards: int | None = None  # On Spark: tasks of the replay; as many as run at a time if None.
    replay: str | None = (
        None  # On Spark: SHARDED or CHUNKED; chosen by the number of tasks if None.
    )
    output: str | None = None  # A directory for files.
    progress: Progress = lambda _what, _done, _all: None
    clock: Clock = SystemClock()  # noqa: RUF009 -- it has no state.


def audit(paths: Sequence[str], options: Options | None = None) -> AuditResult:
    """Audit the metadata logs in `paths`: each a `__cluster_metadata-0`, a node's data directory,
    or a directory of such. What could not be done is in the result's `problems`."""
    return audit_resumed(paths, options or Options(), None, None)


def audit_resumed(
    paths: Sequence[str],
    options: Options,
    resume: "Resume | None",
    store: "StateDirectory | None",
) -> AuditResult:
    """The same, from where another run ended, if that fits; `store` is given where this one did."""
    result, logs = begin_result(options.run, "local", find_logs(paths))
    if not logs:
        return finish_result(result)
    clock = options.clock
    began = clock.monotonic_ms()
    survey = survey_logs(logs, partial(options.progress, "survey"))
    result.timings["survey"] = (clock.monotonic_ms() - began) / 1000
    keep = Keeper(result, options, keeps_rows=store is not None)
    keep.found(judge_survey(survey, logs, options.watermarks))
    plan = plan_replay(survey, logs)
    if plan is None:
        return finish_result(result, survey, logs, options.watermarks)
    keep.lost_from = plan.lost[0].offset if plan.lost else None
    began = clock.monotonic_ms()
    options.progress("replay", 0, plan.end_offset)
    looked = Looked()
    try:
        looked = _replay(plan, logs, options, keep, resume, store)
    except (StorageError, OSError) as error:
        result.problems.append(str(error))
    result.timings["replay"] = (clock.monotonic_ms() - began) / 1000
    return finish_result(result, survey, logs, options.watermarks, looked, plan)


def _replay(
    plan: Plan,
    logs: Sequence[LogDirectory],
    options: Options,
    keep: "Keeper",
    resume: "Resume | None",
    store: "StateDirectory | None",
) -> Looked:
    task, resume = begin_task(plan, logs, options, resume, store)
    if resume is not None:
        keep.add_rows(resume.found)
    keep.result.mode = options.mode or _mode(plan.bytes)
    if keep.result.mode == SCREENED:
        from kraftpy.audit.screened import replay_screened

        looked = replay_screened(task, keep.replayed, options.progress)
    else:
        looked = replay_whole(task, keep.replayed, options.progress)
    if resume is not None:
        resume.add_to(looked)
    if store is not None and keep.rows is not None:
        store.save(plan, looked, keep.rows, [each.path for each in task.snapshots])
    return looked


def begin_task(
    plan: Plan,
    logs: Sequence[LogDirectory],
    options: Options,
    resume: "Resume | None",
    store: "StateDirectory | None",
) -> tuple[Task, "Resume | None"]:
    """What to replay; and from where, if it may go on from there."""
    snapshots = snapshots_of(logs)
    defaults = options.defaults
    if is_kafka_log(plan):
        defaults = replace(defaults, writer=Writer.KAFKA)
    task = Task(
        plan=plan,
        defaults=defaults,
        evidence=options.evidence or {},
        snapshots=snapshots,
        keeps_end=store is not None,
    )
    if resume is None or store is None or not resume.fits(plan, snapshots, store.settings):
        return task, None
    return replace(task, plan=resume.seeded(plan), history=resume.history), resume


def _mode(size: int) -> str:
    if size < SCREENED_BYTES_MIN:
        return WHOLE
    try:
        import numba  # noqa: F401 -- whether it is there.
    except ImportError:
        return WHOLE
    return SCREENED


class Keeper:
    """Turns what the rule book finds into rows of the result."""

    def __init__(self, result: AuditResult, options: Options, *, keeps_rows: bool = False) -> None:
        self.result = result
        self.rows: list[Violation] | None = [] if keeps_rows else None  # Of the replay.
        self._options = options
        self.lost_from: int | None = None

    def found(self, broken: Iterable[Broken]) -> None:
        """About logs and nodes."""
        self.result.add(self._rows(broken, None))

    def replayed(self, broken: Iterable[Broken]) -> None:
        """In a replay: what comes behind a lost range may follow from it."""
        self.add_rows(self._rows(broken, self.lost_from))

    def _rows(self, broken: Iterable[Broken], lost_from: int | None) -> list[Violation]:
        rules = self._options.rules
        return [
            violation_of(
                each,
                run=self.result.run,
                secondary=lost_from is not None and each.offset >= lost_from,
            )
            for each in broken
            if rules is None or each.rule.code in rules
        ]

    def add_rows(self, rows: Iterable[Violation]) -> None:
        """Of a replay, this one or the one that it goes on from."""
        told = [replace(row, run=self.result.run) for row in rows]
        self.result.add(told)
        if self.rows is not None:
            self.rows += told


def replay_whole(task: Task, found: Found, progress: Progress) -> Looked:
    """Every record through the rule book."""
    lane = Lane(task, found)
    if task.plan.snapshot is not None:
        lane.seed(records_in(snapshot_bytes(task.plan.snapshot)))
    for chunk in chunks(task.plan, start_offset=task.start_offset):
        at = 0
        while at < len(chunk.data):
            header = read_header(chunk.data, at)
            data = chunk.data[at : at + header.size]
            at += header.size
            records = decoded(header, data, lane.looked, task.plan.node)
            if records:
                place = Place(header.base_offset, header.last_offset, header.leader_epoch)
                lane.batch(place, records)
        progress("replay", chunk.end_offset, task.plan.end_offset)
    lane.finish()
    if task.keeps_end:
        lane.looked.ended = lane.ended(lane.judge.partitions)
    return lane.looked
