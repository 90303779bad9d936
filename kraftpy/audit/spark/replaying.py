"""The replay on Spark: what each task found, and the partitions that it leaves, as rows.

A row is SCREENED (a Screened, pickled) or STATES (a batch of PartitionRecords at offset 0), under
the number of its task. Shards (`replay_in_shards`) each read the whole log in order and replay
their own topics; stretching.py cuts the log instead, and gives the same kinds of rows. What always
holds: nothing that grows with the records is in a row, but for what is suspect.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kraftpy.audit.kernel.replayer import Replayer
from kraftpy.audit.lanes import Looked, Task
from kraftpy.audit.screening import Screened, screen
from kraftpy.audit.spark.tasks import RESULTS, result, spread
from kraftpy.audit.state import encoded
from kraftpy.audit.stretches import joined

SCREENED: Final = "screened"
STATES: Final = "states"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One task of many."""

    task: Task
    number: int
    count: int


def replay_in_shards(spark: SparkSession, task: Task, count: int) -> DataFrame:
    """A task for each shard of topics."""
    shards = [Shard(task=task, number=number, count=count) for number in range(count)]
    return spread(spark, shards, screen_shard, RESULTS)


def screen_shard(shard: Shard) -> Iterator[Any]:
    """In a task."""
    kept: list[Replayer] = []
    screened = screen(shard.task, shard=shard.number, shards=shard.count, on_end=kept.append)
    if shard.number > 0:  # All read the same records; one tells of them.
        looked = replace(Looked(), entities=screened.looked.entities)
        screened = screened._replace(looked=looked, records=0)
    yield result(shard.number, SCREENED, pickle.dumps(screened))
    if shard.task.keeps_end:
        yield from states_of(shard.number, kept[0])


def states_of(number: int, replayer: Replayer) -> Iterator[Any]:
    """The rows of all partitions that a replayer knows."""
    for batch in encoded(replayer.states()):
        yield result(number, STATES, batch)


def screened_of(replayed: DataFrame) -> Screened:
    """What all tasks found, in the order of their numbers."""
    rows = replayed.where(f.col("kind") == SCREENED).collect()
    return joined(
        [pickle.loads(row["data"]) for row in sorted(rows, key=lambda row: int(row["number"]))]
    )


def partitions_of(replayed: DataFrame) -> Iterable[bytes]:
    """Batches of all partitions, task by task, so that the driver never has all rows at once."""
    rows = replayed.where(f.col("kind") == STATES).select("data").toLocalIterator()
    return (bytes(row["data"]) for row in rows)
