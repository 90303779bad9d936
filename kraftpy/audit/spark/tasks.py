"""Work given to Spark's tasks: one row in, pickled results out.

A job is a list of things to do, one per task; a task gets its number and does its thing. Everything
travels by pickle between our own processes, as Spark's own rows and functions do.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")


def spread(
    spark: SparkSession,
    things: Sequence[T],
    work: Callable[[T], Iterable[Any]],
    schema: str,
) -> DataFrame:
    """A table of the Arrow batches that `work` makes of each thing, a task for each."""
    given = list(things)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(given[number])

    count = max(len(given), 1)
    numbers = spark.range(0, len(given), 1, count)
    return numbers.mapInArrow(run, schema)


def results(spark: SparkSession, things: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """What `work` makes of each thing, in their order. Each result must be small."""

    def pickled(numbered: tuple[int, T]) -> Iterator[Any]:
        number, thing = numbered
        yield pa.RecordBatch.from_pydict(
            {"number": [number], "result": [pickle.dumps(work(thing))]},
            schema=pa.schema([("number", pa.int32()), ("result", pa.binary())]),
        )

    table = spread(spark, list(enumerate(things)), pickled, "number int, result binary")
    rows = sorted(table.collect(), key=lambda row: int(row["number"]))
    return [pickle.loads(row["result"]) for row in rows]
