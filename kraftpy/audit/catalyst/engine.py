"""The oracle: `audit(spark, paths)` -> AuditResult, by SQL over the tables of `kraft_log`.

It shares with the other engines the numbers, sentences and severities of the rules, the reading of
bytes, and the result's shape; how a rule is decided is written here once more, as windows and
joins, and nothing of the rule book's or the kernel's judgement is used. It is for small logs, to be
read and to be compared with: it computes every partition at every offset.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kraftpy.audit.assembly import begin_result, is_kafka_log
from kraftpy.audit.catalyst import (
    brokers,
    changes,
    node_logs,
    notes,
    partitions,
    settled,
    snapshots,
    steps,
    topics,
)
from kraftpy.audit.catalyst.reading import SNAPSHOT_LOG, Given, Reader, keep
from kraftpy.audit.catalyst.summary import summarize
from kraftpy.audit.catalyst.undecided import UNDECIDED, UNDECIDED_OF_KAFKA
from kraftpy.audit.catalyst.words import define_words, violations
from kraftpy.audit.local import Options
from kraftpy.audit.registering import register
from kraftpy.audit.rules.book import RULES
from kraftpy.audit.source.directories import LogDirectory, find_logs
from kraftpy.audit.source.pieces import plan_replay
from kraftpy.audit.source.stores import from_anywhere
from kraftpy.audit.source.survey import survey_logs
from kraftpy.audit.violations import CLUSTER, AuditResult, Unchecked, Violation

NAME: Final = "catalyst"
# Beyond this the other engines are the ones to use.
BYTES_MAX: Final = 8 * 1024 * 1024
_FAMILIES: Final = (
    steps.VIEWS,
    topics.VIEWS,
    brokers.VIEWS,
    partitions.VIEWS,
    changes.VIEWS,
    settled.VIEWS,
    node_logs.VIEWS,
    snapshots.VIEWS,
    notes.VIEWS,
)
# Views that many others begin with are computed once.
_KEPT: Final = frozenset(
    {
        "batch_steps",
        "steps",
        "told",
        "topic_lives",
        "name_lives",
        "config_lives",
        "feature_lives",
        "placements",
        "broker_records",
        "broker_states",
        "broker_changes",
        "broker_lives",
        "touched_brokers",
        "batch_brokers",
        "partition_states",
        "partition_steps",
        "partition_lives",
        "touched_partitions",
        "partition_settings",
        "partition_changes",
        "settling",
        "settled",
        "good_batches",
        "log_ends",
        "entities",
    }
)
# Logs are small and queries are large: compiling them would take longer than running them.
_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
_PARTITION: Final = "topic_id, partition"
_NO_PARTITION: Final = "cast(null as string) as topic_id, cast(null as int) as partition"


def audit(
    spark: SparkSession,
    paths: Sequence[str],
    options: Options | None = None,
) -> AuditResult:
    """Audit the metadata logs in `paths` as the other engines do, if they are small."""
    options = options or Options()
    paths = [*map(from_anywhere, paths)]
    result, logs = begin_result(options.run, NAME, find_logs(paths))
    result.mode = "whole"
    size = sum(log.size for log in logs)
    if size > BYTES_MAX:
        result.problems.append(
            f"the logs have {size:,} bytes, and --engine catalyst is for {BYTES_MAX:,} at most: "
            "use --engine spark"
        )
        return result
    if not logs:
        return result
    given = Given(
        paths=[path for path in paths if not find_logs([path]).problems],
        logs=logs,
        evidence={} if options.evidence is None else {0: options.evidence},
        watermarks=options.watermarks or {},
        defaults=options.defaults,
    )
    clock = options.clock
    began = clock.monotonic_ms()
    options.progress("judge", 0, 0)
    reader = judge(spark, given)
    for each in reader.unchecked:
        result.skip(each)
    undecided = UNDECIDED | (UNDECIDED_OF_KAFKA if _is_kafka(logs) else {})
    lost = summarize(spark, result, logs, undecided)
    rows = [_row(row.asDict(), options.run, lost) for row in found(spark).collect()]
    wanted = [
        row
        for row in rows
        if row.number not in undecided and (options.rules is None or row.rule in options.rules)
    ]
    result.add(sorted(wanted, key=lambda each: each.sort_key))
    for number, reason in undecided.items():
        result.skip(Unchecked("rule", CLUSTER, -1, -1, 0, f"A{number} is not decided: {reason}"))
    result.sort()
    result.timings["judge"] = result.timings["all"] = (clock.monotonic_ms() - began) / 1000
    return result


def _is_kafka(logs: Sequence[LogDirectory]) -> bool:
    plan = plan_replay(survey_logs(logs), logs)
    return plan is not None and is_kafka_log(plan)


def judge(session: SparkSession, given: Given) -> Reader:
    """Fill the session with temporary views; `found` then has the violations."""
    register(session)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    define_words(session.sql)
    reader = Reader(session, given)
    reader.load()
    for family in _FAMILIES:
        for name, sql in family.items():
            if name in _KEPT:
                keep(session, name, sql)
            else:
                session.sql(f"create or replace temporary view {name} as {sql}")
    return reader


def found(session: SparkSession) -> DataFrame:
    """Every violation of every cluster: log, rule, offset, epoch, node, topic_id, topic, partition,
    broker, actual."""
    queries = [
        violations("judged_brokers", brokers.CHECKS, "to_json(new)", _NO_PARTITION),
        violations("partition_changes", changes.CHECKS, "to_json(new)", _PARTITION),
        violations("stale_joiners", changes.JOINER_CHECKS, "to_json(new)", _PARTITION),
        violations("settled", settled.CHECKS, "to_json(new)", _PARTITION),
    ]
    for rules in (steps, topics, brokers, node_logs, snapshots, notes):
        queries += _sql_of(rules.RULES)
    every: DataFrame | None = None
    for query in queries:
        rows = session.sql(query)
        every = rows if every is None else every.unionByName(rows, allowMissingColumns=True)
    assert every is not None
    every.createOrReplaceTempView("every")
    return session.sql(_NAMED)


def _sql_of(rules: Mapping[int, str]) -> list[str]:
    return [rules[number] for number in sorted(rules)]


# With the names that topics had; without what snapshots and what came before the log tell.
_NAMED: Final = f"""
select distinct e.log, e.rule, e.offset, e.epoch, coalesce(e.node, {CLUSTER}) as node, e.topic_id,
  coalesce(e.topic, t.name, if(e.topic_id is null, null, '')) as topic, e.partition, e.broker,
  e.actual
from every e
left join topic_lives t on t.log = e.log and t.topic_id = e.topic_id
  and t.from_offset <= e.offset and e.offset < t.until_offset
where e.log < {SNAPSHOT_LOG} and e.offset >= 0"""


def _row(row: Mapping[str, Any], run: str, lost_from: int | None) -> Violation:
    rule = RULES[row["rule"]]
    return Violation(
        run=run,
        rule=rule.code,
        severity=rule.severity.name,
        node=row["node"],
        offset=row["offset"],
        epoch=row["epoch"],
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition"],
        broker=row["broker"],
        expected=rule.sentence,
        actual=row["actual"] or "",
        secondary=lost_from is not None and row["node"] == CLUSTER and row["offset"] >= lost_from,
    )
