"""Work given to Spark's tasks: one row in, pickled results out.

A job is a list of things to do, one per task; a task gets its number and does its thing. Everything
travels by pickle between our own processes, as Spark's own rows and functions do.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

RESULTS: Final = "number int, kind string, data binary"
_SCHEMA: Final = pa.schema([("number", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])


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


def result(number: int, kind: str, data: bytes) -> Any:
    """One row of RESULTS."""
    return pa.RecordBatch.from_pydict(
        {"number": [number], "kind": [kind], "data": [data]}, schema=_SCHEMA
    )


def results(spark: SparkSession, things: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """What `work` makes of each thing, in their order. Each result must be small."""

    def pickled(numbered: tuple[int, T]) -> Iterator[Any]:
        number, thing = numbered
        yield result(number, "", pickle.dumps(work(thing)))

    table = spread(spark, list(enumerate(things)), pickled, RESULTS)
    rows = sorted(table.collect(), key=lambda row: int(row["number"]))
    return [pickle.loads(row["data"]) for row in rows]
