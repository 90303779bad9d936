"""The rule book on Spark: records of suspects, and all that are no partition's, judged in shards.

Each shard is a lane (lanes.py) of its own and sees all records that are no partition's; what they
alone break is told by shard 0. Rows are sorted within their shard, never over all of them.
"""

import json
import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kraftpy.audit.judge import COUNTING
from kraftpy.audit.kafka.decoding import known_record
from kraftpy.audit.kernel.replayer import Suspects
from kraftpy.audit.lanes import Ended, Lane, Place, Task
from kraftpy.audit.rules.rule import Violation as Broken
from kraftpy.audit.snapshots import snapshot_bytes
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.source.pieces import Piece
from kraftpy.audit.spark.tasks import spread
from kraftpy.audit.violations import arrow_schema, violation_of

EXTRACTED: Final = (
    "shard int, offset long, base_offset long, last_offset long, epoch int, value binary"
)
VIOLATIONS: Final = (
    "run string, rule string, severity string, node int, offset long, epoch int, topic string, "
    "topic_id string, partition int, broker int, expected string, actual string, secondary boolean"
)
SUSPECTS_PER_SHARD: Final = 5000
_FOUND_AT_ONCE: Final = 10_000
LOOKED: Final = "#"  # The rule of a row that is none: what a lane looked at.


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What the tasks must know."""

    task: Task
    suspects: Suspects
    shards: int
    run: str
    lost_from: int | None
    rules: frozenset[str] | None

    def shard_of(self, topic_id: bytes) -> int:
        return zlib.crc32(topic_id) % self.shards

    def of_shard(self, shard: int) -> Suspects:
        return Suspects(
            frozenset(key for key in self.suspects.keys if self.shard_of(key[0]) == shard),
            frozenset(each for each in self.suspects.topics if self.shard_of(each) == shard),
        )


def shards_for(suspects: Suspects, parallelism: int) -> int:
    many = len(suspects.keys) + 100 * len(suspects.topics)
    return max(1, min(parallelism, 1 + many // SUSPECTS_PER_SHARD))


def extract_piece(judging: Judging, piece: Piece) -> Iterator[Any]:
    """In a task: the rows of a piece."""
    from kraftpy.audit.screening import raw_extract

    task = judging.task
    plan = task.plan._replace(pieces=(piece,))
    schema = pa.schema(
        [
            ("shard", pa.int32()),
            ("offset", pa.int64()),
            ("base_offset", pa.int64()),
            ("last_offset", pa.int64()),
            ("epoch", pa.int32()),
            ("value", pa.binary()),
        ]
    )
    for chunk in chunks(plan, start_offset=task.start_offset):
        rows = []
        for each in raw_extract(chunk.data, judging.suspects):
            everybody = range(judging.shards)
            to = everybody if each.topic_id is None else (judging.shard_of(each.topic_id),)
            rows += [(shard, each.offset, *each.place, each.value) for shard in to]
        if rows:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*rows, strict=True), schema, strict=True)
                ],
                schema=schema,
            )


def judge(spark: SparkSession, judging: Judging, pieces: Sequence[Piece]) -> DataFrame:
    """All violations of the replay, as rows."""
    given = [(judging, piece) for piece in pieces]
    extracted = spread(spark, given, lambda pair: extract_piece(*pair), EXTRACTED)
    sorted_rows = extracted.repartition(judging.shards, "shard").sortWithinPartitions(
        "shard", "offset"
    )
    return sorted_rows.mapInArrow(lambda batches: judge_rows(judging, batches), VIOLATIONS)


def judge_rows(judging: Judging, batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: lane by lane, violations as Arrow."""
    for shard, rows in groupby(_rows(batches), key=lambda row: row[0]):
        found: list[Broken] = []
        lane = _lane(judging, shard, found)
        for place, records in groupby(rows, key=lambda row: row[2:5]):
            decoded = [(row[1], known_record(row[5], row[1])) for row in records]
            lane.batch(Place(*place), [(at, each) for at, each in decoded if each is not None])
            if len(found) >= _FOUND_AT_ONCE:
                yield _told(judging, shard, found)
                found.clear()
        lane.finish()
        yield _told(judging, shard, found)
        if shard == 0:
            yield _looked(lane, judging.task)


def _rows(batches: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _lane(judging: Judging, shard: int, found: list[Broken]) -> Lane:
    from kraftpy.audit.screening import extract

    task, suspects = judging.task, judging.of_shard(shard)
    lane = Lane(task, found.extend, whole_topics=suspects.topics, compares=shard == 0)
    if task.plan.snapshot is not None:
        data = snapshot_bytes(task.plan.snapshot)
        lane.seed(record for each in extract(data, suspects) for _, record in each.records)
    return lane


def _told(judging: Judging, shard: int, found: Sequence[Broken]) -> Any:
    """Rows of what this shard has to tell."""
    lost = judging.lost_from
    rows = [
        asdict(
            violation_of(each, run=judging.run, secondary=lost is not None and each.offset >= lost)
        )
        for each in found
        if (shard == 0 or each.partition is not None or each.rule.number in COUNTING)
        and (judging.rules is None or each.rule.code in judging.rules)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema())


def _looked(lane: Lane, task: Task) -> Any:
    told: dict[str, Any] = {"entities": lane.looked.entities, "unchecked": lane.looked.unchecked}
    if task.keeps_end:
        told["ended"] = b64encode(pickle.dumps(lane.ended(None))).decode()
    row: dict[str, Any] = dict.fromkeys(arrow_schema().names)
    row |= {"rule": LOOKED, "actual": json.dumps(told)}
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema())


def ended_of(told: Mapping[str, Any]) -> Ended | None:
    """Where the lane of shard 0 ended, but for partitions."""
    ended = told.get("ended")
    found: Ended | None = None if ended is None else pickle.loads(b64decode(ended))
    return found
