"""The survey on Spark: each task sums up a range; nodes are matched by one groupBy over batches.

What reaches the driver: a summary per range, in the order of the log, and the batches at offsets
where nodes differ, up to a bound.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from kraftpy.audit.source.directories import LogDirectory
from kraftpy.audit.source.splits import Split
from kraftpy.audit.source.survey import ODD_MAX, NodeSurvey, NodeWalk, Survey, SurveyRow
from kraftpy.audit.spark.tasks import results


def survey_range(split: Split) -> NodeSurvey:
    """In a task."""
    from kraftpy.audit.spark.table_reading import rows_of_split

    last_path = split.path if split.is_last else None
    walk = NodeWalk(split.node, split.due, rows_of_split(split), last_path)
    for _ in walk.rows():
        pass
    return walk.out


def survey_logs(
    spark: SparkSession, logs: Sequence[LogDirectory], splits: Sequence[Split]
) -> Survey:
    survey = Survey()
    survey.nodes = {
        log.node: NodeSurvey(log.node, log.start_offset, log.start_offset) for log in logs
    }
    for found in results(spark, splits, survey_range):
        survey.nodes[found.node].add(found)
    if len(logs) > 1:
        _match(spark, logs, survey)
    return survey


def _match(spark: SparkSession, logs: Sequence[LogDirectory], survey: Survey) -> None:
    """Rows at offsets where not all nodes that should have the same good batch there have it."""
    paths = json.dumps([log.path for log in logs])
    reader = spark.read.format("kraft_log").option("table", "batches").option("paths", paths)
    batches = reader.load()
    due: Column = f.lit(0)
    for node in survey.nodes.values():
        inside = (f.col("base_offset") >= node.start_offset) & (
            f.col("base_offset") < node.end_offset
        )
        due = due + inside.cast("int")
    row = f.struct(*SurveyRow._fields)
    sight = f.struct("epoch", "crc", "size", "end_offset", "damage")
    odd = (
        batches.groupBy("base_offset")
        .agg(
            f.count("*").alias("n"),
            f.count("damage").alias("damaged"),
            f.size(f.collect_set(sight)).alias("sights"),
            f.collect_list(row).alias("rows"),
        )
        .where((f.col("sights") > 1) | (f.col("damaged") > 0) | (f.col("n") != due))
        .select(f.explode("rows").alias("row"))
        .select("row.*")
    )
    rows = odd.limit(ODD_MAX + 1).collect()
    survey.odd = sorted(
        SurveyRow(**{name: each[name] for name in SurveyRow._fields}) for each in rows[:ODD_MAX]
    )
    survey.odd_left_out = max(0, len(rows) - ODD_MAX)
