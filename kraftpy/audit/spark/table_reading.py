"""What one task of the data source reads."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import EXISTS, SUSPECT
from kraftpy.audit.kernel.interning import Interned
from kraftpy.audit.kernel.reading import read_batches
from kraftpy.audit.kernel.replayer import Replayer
from kraftpy.audit.snapshots import snapshot_bytes
from kraftpy.audit.source import tables
from kraftpy.audit.source.batches import Found, found_batches
from kraftpy.audit.source.directories import LogDirectory, Segment
from kraftpy.audit.source.splits import Split
from kraftpy.audit.source.stores import store_of
from kraftpy.audit.source.survey import SurveyRow, controls_of, survey_row
from kraftpy.metadata_log.control_records import LeaderChange, Voters

# Rows that one Arrow batch hands to the JVM: each costs a fixed price there.
ROWS: Final = 1 << 17
_BYTES: Final = 4 * 1024 * 1024


def rows_of_split(split: Split) -> Iterator[tuple[SurveyRow, Found]]:
    """The batches of a range, damaged ones included."""
    segment, due = Segment(split.due, split.path, split.end), split.due
    for found in found_batches(store_of(split.path), split.path, split.start, split.end):
        row = survey_row(split.node, segment, found, due)
        due = max(due, row.end_offset)
        yield row, found


def good_bytes(split: Split) -> Iterator[bytes]:
    """Whole batches, in portions."""
    parts: list[memoryview] = []
    size = 0
    for row, found in rows_of_split(split):
        if row.damage is None:
            parts.append(found.data)
            size += row.size
        if size >= _BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def of_split(table: str, split: Split, schema: Any) -> Iterator[Any]:
    if table == "batches":
        rows = (row for row, _ in rows_of_split(split))
        while portion := list(islice(rows, ROWS)):
            yield tables.batches_table(portion, schema)
    elif table == "control":
        controls = list(_controls(split))
        if controls:
            yield pa.RecordBatch.from_pylist(controls, schema=schema)
    else:
        for data in good_bytes(split):
            interned = Interned()
            read = read_batches(data, interned)
            if len(read.columns.kind):
                batch = tables.records_table(read, interned, split.node, schema)
                yield from tables.slices(batch, ROWS)


def _controls(split: Split) -> Iterator[dict[str, Any]]:
    for row, found in rows_of_split(split):
        if row.damage is not None or not row.is_control:
            continue
        for offset, control in enumerate(controls_of(found), row.base_offset):
            told: dict[str, Any] = {"leader": None, "voters": None, "granting": None}
            if isinstance(control, LeaderChange):
                told["leader"] = control.leader_id
                told["voters"] = tables.voters_of(control.voters)
                told["granting"] = tables.voters_of(control.granting_voters)
            elif isinstance(control, Voters):
                told["voters"] = tables.voters_of(control.voters)
            yield {
                "node": row.node,
                "offset": offset,
                "epoch": row.epoch,
                "timestamp_ms": row.timestamp_ms,
                "kind": type(control).__name__,
                **told,
            }


def of_snapshot(log: LogDirectory, number: int, schema: Any) -> Iterator[Any]:
    snapshot = log.snapshots[number]
    interned = Interned()
    read = read_batches(snapshot_bytes(snapshot), interned)
    batch = tables.records_table(read, interned, log.node, schema, snapshot.end_offset)
    yield from tables.slices(batch, ROWS)


def of_shard(log: LogDirectory, shard: int, shards: int, schema: Any) -> Iterator[Any]:
    """Every partition of a shard, as the log leaves it."""
    replayer = Replayer(shard=shard, shards=shards)
    for segment in log.segments:
        split = Split(log.node, segment.path, 0, segment.size, segment.base_offset, False)
        for data in good_bytes(split):
            replayer.feed(data)
    rows = replayer.world.partitions.rows[: int(replayer.world.now[w.ROWS])]
    rows = rows[rows[:, EXISTS] != 0]
    made = tables.partition_columns(rows, rows[:, EXISTS] != 0, replayer.interned, schema)
    made["shard"] = pa.array([shard] * len(rows), pa.int32())
    made["suspect"] = pa.array(rows[:, SUSPECT] != 0)
    if len(rows):
        batch = pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
        yield from tables.slices(batch, ROWS)
