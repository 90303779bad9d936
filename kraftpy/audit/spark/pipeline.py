"""The audit on Spark: `audit(spark, paths)` -> AuditResult, row for row as the local engine.

Survey (one task per range), matching (one groupBy over batches), replay (one task per shard of
topics, each reading the log in order, or one per chunk of it), judging (suspects, in shards). The
driver sees summaries, suspects and a bounded sample of violations, never records.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from kraftpy.audit.assembly import begin_result, finish_result
from kraftpy.audit.lanes import Looked, Task
from kraftpy.audit.local import CHUNKED, SHARDED, Keeper, Options, begin_task
from kraftpy.audit.registering import register
from kraftpy.audit.screening import Screened
from kraftpy.audit.source.directories import LogDirectory, find_logs
from kraftpy.audit.source.pieces import Piece, Plan, plan_replay
from kraftpy.audit.source.splits import cut_pieces, splits_of
from kraftpy.audit.source.stores import from_anywhere
from kraftpy.audit.source.survey import judge_survey
from kraftpy.audit.spark.judging import LOOKED, Judging, ended_of, judge, shards_for
from kraftpy.audit.spark.replaying import partitions_of, replay_in_shards, screened_of
from kraftpy.audit.spark.stretching import Stretching, replay_in_stretches
from kraftpy.audit.spark.surveying import survey_logs
from kraftpy.audit.spark.watching import Stages
from kraftpy.audit.state import StateDirectory
from kraftpy.audit.stretches import first_stretch, pieces_behind, stretches_of
from kraftpy.audit.violations import SAMPLE_MAX, AuditResult, Unchecked, Violation, from_row

# From this many tasks on, each decoding all records costs more than reading the log twice.
CHUNKED_TASKS_MIN: Final = 8
_STRETCHES_PER_TASK: Final = 1
_COLLECT_MAX: Final = 50_000


def audit(
    spark: SparkSession,
    paths: Sequence[str],
    options: Options | None = None,
    state: str | None = None,
) -> AuditResult:
    """As kraftpy.audit.local.audit, with Spark's tasks for the work; `state` is a directory that
    the driver and all tasks can read, as kraftpy.audit.state has it."""
    options = options or Options()
    register(spark)
    result, logs = begin_result(options.run, "spark", find_logs([*map(from_anywhere, paths)]))
    if not logs:
        return finish_result(result)
    state = None if state is None else from_anywhere(state)
    return _Pipeline(spark, options, result, logs, state).run()


class _Pipeline:
    """One audit, stage by stage."""

    def __init__(
        self,
        spark: SparkSession,
        options: Options,
        result: AuditResult,
        logs: Sequence[LogDirectory],
        state: str | None,
    ) -> None:
        self._spark, self._options = spark, options
        self._result, self._logs = result, logs
        self._store = None if state is None else StateDirectory(state, options)
        self._keep = Keeper(result, options, keeps_rows=state is not None)
        self._stage = Stages(spark, result, options)
        self._tasks = options.shards or spark.sparkContext.defaultParallelism

    def run(self) -> AuditResult:
        try:
            return self._run()
        finally:
            self._stage.end()

    def _run(self) -> AuditResult:
        options, keep = self._options, self._keep
        self._stage.begin("survey")
        survey = survey_logs(self._spark, self._logs, splits_of(self._logs, options.split_bytes))
        keep.found(judge_survey(survey, self._logs, options.watermarks))
        plan = plan_replay(survey, self._logs)
        looked = None
        if plan is not None:
            keep.lost_from = plan.lost[0].offset if plan.lost else None
            looked = self._replay_and_judge(plan)
        self._stage.end()
        return finish_result(self._result, survey, self._logs, options.watermarks, looked, plan)

    def _replay_and_judge(self, plan: Plan) -> Looked:
        known = None if self._store is None else self._store.load()
        task, resume = begin_task(plan, self._logs, self._options, known, self._store)
        if resume is not None:
            self._keep.add_rows(resume.found)
        self._stage.begin("replay")
        replayed = self._replay(task).persist()
        screened = screened_of(replayed)
        self._stage.begin("judge")
        self._keep.replayed(screened.violations)
        looked = screened.looked
        found = self._judge(task, screened).persist()
        rows = _add_violations(self._result, found, looked)
        if self._options.output is not None:
            _write(found, self._options.output, self._result)
        if resume is not None:
            resume.add_to(looked)
        if self._store is not None and rows is not None:
            self._stage.begin("state")
            known_rows = [*(self._keep.rows or ()), *rows]
            snapshots = [each.path for each in task.snapshots]
            self._store.save(plan, looked, known_rows, snapshots, partitions_of(replayed))
        found.unpersist()
        replayed.unpersist()
        return looked

    def _replay(self, task: Task) -> DataFrame:
        mode = self._options.replay or (CHUNKED if self._tasks >= CHUNKED_TASKS_MIN else SHARDED)
        self._result.mode = mode
        if mode == SHARDED:
            return replay_in_shards(self._spark, task, self._tasks)
        pieces = pieces_behind(task, self._pieces(task))
        count = self._tasks * _STRETCHES_PER_TASK
        cut = [*first_stretch(task), *stretches_of(pieces, count)]
        return replay_in_stretches(
            self._spark, Stretching(task=task, stretches=tuple(cut), buckets=self._tasks)
        )

    def _pieces(self, task: Task) -> list[Piece]:
        """Of a size that every task gets some."""
        share = task.plan.bytes // (self._tasks * 4) + 1
        return cut_pieces(task.plan.pieces, min(self._options.split_bytes, share))

    def _judge(self, task: Task, screened: Screened) -> DataFrame:
        judging = Judging(
            task=task,
            suspects=screened.suspects,
            shards=shards_for(screened.suspects, self._tasks),
            run=self._options.run,
            lost_from=self._keep.lost_from,
            rules=self._options.rules,
        )
        return judge(self._spark, judging, pieces_behind(task, self._pieces(task)))


def _add_violations(
    result: AuditResult, found: DataFrame, looked: Looked
) -> list[Violation] | None:
    """Exact counts, and the first rows of each rule; all rows, if they are few enough."""
    rows = found.limit(_COLLECT_MAX + 1).collect()
    are_all = len(rows) <= _COLLECT_MAX
    if not are_all:
        order = Window.partitionBy("rule").orderBy("offset", "node", "topic", "partition")
        numbered = found.withColumn("nth", f.row_number().over(order))
        rows = numbered.where(f.col("nth") <= SAMPLE_MAX).collect()
        counted = found.groupBy("rule", "secondary").count().collect()
        counts = Counter({(each["rule"], each["secondary"]): each["count"] for each in counted})
    else:
        counts = Counter((each["rule"], each["secondary"]) for each in rows)
    for row in (each for each in rows if each["rule"] == LOOKED):
        told = json.loads(row["actual"])
        looked.entities += told["entities"]
        looked.unchecked += [Unchecked(*each) for each in told["unchecked"]]
        looked.ended = ended_of(told)
    sample = [from_row(each.asDict()) for each in rows if each["rule"] != LOOKED]
    before = Counter(result.counts), Counter(result.secondary)
    result.add(sorted(sample, key=lambda each: each.sort_key))
    result.counts, result.secondary = before
    for (rule, is_secondary), count in counts.items():
        if rule != LOOKED:
            (result.secondary if is_secondary else result.counts)[rule] += count
    return sample if are_all else None


def _write(found: DataFrame, output: str, result: AuditResult) -> None:
    path = f"{output.rstrip('/')}/violations.parquet"
    found.where(f.col("rule") != LOOKED).write.mode("overwrite").parquet(path)
    result.files.append(path)
