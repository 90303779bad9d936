"""The audit on Spark: `audit(spark, paths)` -> AuditResult, row for row as the local engine.

Survey (one task per range), matching (one groupBy over batches), replay (one task per shard of
topics, each reading the log in order, or one per chunk of it), judging (suspects, in shards). The
driver sees summaries, suspects and a bounded sample of violations, never records.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from kraftpy.audit.assembly import begin_result, finish_result, is_kafka_log
from kraftpy.audit.kernel.replayer import Suspects
from kraftpy.audit.lanes import Looked, Task
from kraftpy.audit.local import Keeper, Options
from kraftpy.audit.registering import register
from kraftpy.audit.rules.rule import Writer
from kraftpy.audit.screening import Screened, screen
from kraftpy.audit.snapshots import snapshots_of
from kraftpy.audit.source.directories import LogDirectory, find_logs
from kraftpy.audit.source.pieces import Plan, plan_replay
from kraftpy.audit.source.splits import cut_pieces, splits_of
from kraftpy.audit.source.survey import judge_survey
from kraftpy.audit.spark.judging import LOOKED, Judging, judge, shards_for
from kraftpy.audit.spark.surveying import survey_logs
from kraftpy.audit.spark.tasks import results
from kraftpy.audit.violations import SAMPLE_MAX, AuditResult, Unchecked, from_row

SHARDED: Final = "sharded"
_COLLECT_MAX: Final = 50_000


def audit(spark: SparkSession, paths: Sequence[str], options: Options | None = None) -> AuditResult:
    """As kraftpy.audit.local.audit, with Spark's tasks for the work."""
    options = options or Options()
    register(spark)
    result, logs = begin_result(options.run, "spark", find_logs(paths))
    if not logs:
        return finish_result(result)
    stage = _Stages(result, options)
    stage.begin("survey")
    survey = survey_logs(spark, logs, splits_of(logs, options.split_bytes))
    keep = Keeper(result, options)
    keep.found(judge_survey(survey, logs, options.watermarks))
    plan = plan_replay(survey, logs)
    if plan is None:
        return finish_result(result, survey, logs, options.watermarks)
    task = _task(plan, logs, options)
    stage.begin("replay")
    shards = options.shards or spark.sparkContext.defaultParallelism
    result.mode = SHARDED
    screened = results(spark, [(task, n, shards) for n in range(shards)], screen_shard)
    stage.begin("judge")
    keep.lost_from = plan.lost[0].offset if plan.lost else None
    for each in screened:
        keep.replayed(each.violations)
    suspects = _all_suspects(screened)
    judging = Judging(
        task=task,
        suspects=suspects,
        shards=shards_for(suspects, shards),
        run=options.run,
        lost_from=keep.lost_from,
        rules=options.rules,
    )
    looked = _looked(screened)
    found = judge(spark, judging, cut_pieces(plan.pieces, options.split_bytes)).persist()
    _add_violations(result, found, looked)
    if options.output is not None:
        _write(found, options.output, result)
    found.unpersist()
    stage.end()
    return finish_result(result, survey, logs, options.watermarks, looked, plan)


def _task(plan: Plan, logs: Sequence[LogDirectory], options: Options) -> Task:
    defaults = options.defaults
    if is_kafka_log(plan):
        defaults = replace(defaults, writer=Writer.KAFKA)
    return Task(
        plan=plan,
        defaults=defaults,
        evidence=options.evidence or {},
        snapshots=snapshots_of(logs),
    )


def screen_shard(given: tuple[Task, int, int]) -> Screened:
    """In a task."""
    task, shard, shards = given
    return screen(task, shard=shard, shards=shards)


def _all_suspects(screened: Sequence[Screened]) -> Suspects:
    return Suspects(
        frozenset().union(*(each.suspects.keys for each in screened)),
        frozenset().union(*(each.suspects.topics for each in screened)),
    )


def _looked(screened: Sequence[Screened]) -> Looked:
    """Every shard reads all records, and compares its own entities."""
    looked = screened[0].looked
    looked.entities = sum(each.looked.entities for each in screened)
    return looked


def _add_violations(result: AuditResult, found: DataFrame, looked: Looked) -> None:
    """Exact counts, and the first rows of each rule."""
    rows = found.limit(_COLLECT_MAX + 1).collect()
    if len(rows) > _COLLECT_MAX:
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
    sample = [from_row(each.asDict()) for each in rows if each["rule"] != LOOKED]
    before = Counter(result.counts), Counter(result.secondary)
    result.add(sorted(sample, key=lambda each: each.sort_key))
    result.counts, result.secondary = before
    for (rule, is_secondary), count in counts.items():
        if rule != LOOKED:
            (result.secondary if is_secondary else result.counts)[rule] += count


def _write(found: DataFrame, output: str, result: AuditResult) -> None:
    path = f"{output.rstrip('/')}/violations.parquet"
    found.where(f.col("rule") != LOOKED).write.mode("overwrite").parquet(path)
    result.files.append(path)


class _Stages:
    """Times what is done, and tells whoever watches."""

    def __init__(self, result: AuditResult, options: Options) -> None:
        self._result, self._options = result, options
        self._began = 0
        self._name: str | None = None

    def begin(self, name: str) -> None:
        self.end()
        self._name, self._began = name, self._options.clock.monotonic_ms()
        self._options.progress(name, 0, 0)

    def end(self) -> None:
        if self._name is not None:
            took = self._options.clock.monotonic_ms() - self._began
            self._result.timings[self._name] = took / 1000
            self._name = None
