"""The replay in stretches (stretches.py) on Spark: a task for each stretch and each bucket.

What stretches begin with travels by shuffle, never through the driver: facts are gathered by one
task, which sees only records that are no partition's; partitions are composed by a task for each
bucket of topics. Rows have a number (of a stretch, or a bucket), a part, and pickled data.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kraftpy.audit.kernel.packing import unpack
from kraftpy.audit.kernel.replayer import Replayer
from kraftpy.audit.lanes import Task
from kraftpy.audit.spark.replaying import SCREENED, states_of
from kraftpy.audit.spark.tasks import RESULTS, result, spread
from kraftpy.audit.stretches import (
    FIRST,
    Beginning,
    Composer,
    Stretch,
    beginnings,
    others_of,
    replay_stretch,
    summary_of,
)

_ROWS: Final = "number int, part int, data binary"
_ARROW: Final = pa.schema([("number", pa.int32()), ("part", pa.int32()), ("data", pa.binary())])
_FACTS: Final = -1  # The part that is no bucket.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretching:
    """What the tasks must know."""

    task: Task
    stretches: tuple[Stretch, ...]  # FIRST among them, if there is one.
    buckets: int

    @property
    def end(self) -> int:
        """The number behind the last."""
        return self.stretches[-1].number + 1

    def pieces(self, beginning: Beginning) -> list[Any]:
        inside = range(beginning.first, beginning.last + 1)
        return [p for each in self.stretches if each.number in inside for p in each.pieces]


def replay_in_stretches(spark: SparkSession, given: Stretching) -> DataFrame:
    """Rows as replaying.py has them."""
    others = spread(spark, given.stretches, lambda each: _others(given, each), _ROWS)
    facts = (
        others.repartition(1)
        .sortWithinPartitions("number")
        .mapInArrow(lambda batches: _beginnings(given, batches), _ROWS)
        .persist()
    )
    summaries = facts.repartitionById(given.end, "number").mapInArrow(
        lambda batches: _summaries(given, batches), _ROWS
    )
    composed = (
        summaries.repartitionById(given.buckets, "part")
        .sortWithinPartitions("part", "number")
        .mapInArrow(lambda batches: _composed(given, batches), _ROWS)
    )
    return (
        facts.unionAll(composed)
        .repartitionById(given.end + 1, "number")
        .sortWithinPartitions("number", "part")
        .mapInArrow(lambda batches: _replayed(given, batches), RESULTS)
    )


def _row(number: int, part: int, data: Any) -> Any:
    return pa.RecordBatch.from_pydict(
        {"number": [number], "part": [part], "data": [pickle.dumps(data)]}, schema=_ARROW
    )


def _rows(batches: Iterator[Any]) -> Iterator[tuple[int, int, Any]]:
    for batch in batches:
        numbers, parts = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for number, part, data in zip(numbers, parts, batch.column(2), strict=True):
            yield number, part, pickle.loads(data.as_buffer())


def _others(given: Stretching, stretch: Stretch) -> Iterator[Any]:
    yield _row(stretch.number, _FACTS, others_of(given.task, stretch))


def _beginnings(given: Stretching, batches: Iterator[Any]) -> Iterator[Any]:
    others = ((number, values) for number, _, values in _rows(batches))
    for beginning in beginnings(others, given.task.defaults):
        yield _row(beginning.first, _FACTS, beginning)


def _summaries(given: Stretching, batches: Iterator[Any]) -> Iterator[Any]:
    for number, _, beginning in _rows(batches):
        summary = summary_of(given.task, given.pieces(beginning), beginning)
        for bucket, packed in summary.packed(given.buckets):
            yield _row(number, bucket, packed)


def _composed(given: Stretching, batches: Iterator[Any]) -> Iterator[Any]:
    for bucket, rows in groupby(_rows(batches), key=lambda row: row[1]):
        composer = Composer()
        for number, _, packed in rows:
            yield _row(number, bucket, composer.partitions())
            composer.add(packed)
        if given.task.keeps_end:
            yield _row(given.end, bucket, composer.partitions())


def _replayed(given: Stretching, batches: Iterator[Any]) -> Iterator[Any]:
    for number, rows in groupby(_rows(batches), key=lambda row: row[0]):
        if number == given.end:
            for _, _, packed in rows:
                replayer = Replayer()
                replayer.begin_with([], unpack(replayer.interned, packed))
                yield from states_of(number, replayer)
        elif number != FIRST:
            _, _, beginning = next(rows)
            partitions = (packed for _, _, packed in rows)
            pieces: Sequence[Any] = given.pieces(beginning)
            screened = replay_stretch(given.task, pieces, beginning, partitions)
            yield result(number, SCREENED, pickle.dumps(screened))
