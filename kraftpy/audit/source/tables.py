"""The tables of a log, as Arrow: what `spark.read.format("kraft_log")` gives, column by column.

`records` and `snapshots` have one row per record, with the columns that partitions, brokers, topics
and configs need; everything that a record says is in `json`, for all but partitions. None: the
record does not speak of it, or leaves it unchanged.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraftpy.audit.kafka.decoding import UnknownRecord
from kraftpy.audit.kernel.columns import (
    ADDING,
    CHANGED,
    CREATED,
    DIRECTORIES,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    TOPIC,
    Array,
)
from kraftpy.audit.kernel.interning import Interned
from kraftpy.audit.kernel.reading import Read
from kraftpy.audit.source.survey import SurveyRow
from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.record_json import record_to_json
from kraftpy.types import uuid_text

BATCHES: Final = (
    "node int, base_offset long, end_offset long, epoch int, crc long, size int, records int, "
    "is_control boolean, timestamp_ms long, path string, position long, damage string"
)
CONTROL: Final = (
    "node int, offset long, epoch int, timestamp_ms long, kind string, leader int, "
    "voters array<int>, granting array<int>"
)
_PARTITION: Final = (
    "topic_id string, partition int, replicas array<int>, isr array<int>, removing array<int>, "
    "adding array<int>, elr array<int>, last_known_elr array<int>, leader int, recovery int, "
    "leader_epoch int, partition_epoch int, directories array<string>"
)
RECORDS: Final = (
    "node int, offset long, epoch int, base_offset long, timestamp_ms long, type int, "
    f"type_name string, {_PARTITION}, broker int, broker_epoch long, name string, key string, "
    "value string, json string"
)
SNAPSHOTS: Final = f"end_offset long, {RECORDS}"
SHARDED: Final = f"shard int, {_PARTITION}, suspect boolean"
SCHEMAS: Final = {
    "batches": BATCHES,
    "control": CONTROL,
    "records": RECORDS,
    "snapshots": SNAPSHOTS,
    "sharded": SHARDED,
}
LISTS: Final = (
    ("replicas", REPLICAS),
    ("isr", ISR),
    ("removing", REMOVING),
    ("adding", ADDING),
    ("elr", ELR),
    ("last_known_elr", LAST_KNOWN_ELR),
)
_TYPE_NAMES: Final = {key: cls.__name__ for key, cls in r.RECORD_TYPES.items()}


def batches_table(rows: Iterable[SurveyRow], schema: Any) -> Any:
    return pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=schema)


def records_table(
    read: Read, interned: Interned, node: int, schema: Any, end_offset: int | None = None
) -> Any:
    """Every record of some batches."""
    columns, batches = read.columns, read.batches
    count = len(columns.kind)
    first = batches.first[columns.batch]
    offsets = batches.base_offset[columns.batch] + np.arange(count) - first
    are_partitions = (columns.kind == CREATED) | (columns.kind == CHANGED)
    kinds, texts = _others(read, count)
    kinds = np.where(are_partitions | (kinds < 0), columns.kind.astype(np.int32), kinds)
    made: dict[str, Any] = {
        "node": pa.array(np.full(count, node, np.int32)),
        "offset": pa.array(offsets),
        "epoch": pa.array(batches.epoch[columns.batch]),
        "base_offset": pa.array(batches.base_offset[columns.batch]),
        "timestamp_ms": pa.array(batches.timestamp[columns.batch]),
        "type": pa.array(kinds),
        "type_name": pa.array([_TYPE_NAMES.get(kind) for kind in kinds.tolist()], pa.string()),
        **partition_columns(columns.rows, are_partitions, interned, schema),
        **texts,
    }
    if end_offset is not None:
        made["end_offset"] = pa.array(np.full(count, end_offset, np.int64))
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def partition_columns(rows: Array, valid: Array, interned: Interned, schema: Any) -> dict[str, Any]:
    """The columns of partitions; null where `valid` is not."""
    nothing = ~valid
    topics = np.where(valid, rows[:, TOPIC], 0)
    used = np.unique(topics)
    names = pa.array([uuid_text(interned.topic_id(int(topic))) for topic in used] or [""])
    found = {
        "topic_id": names.take(pa.array(np.searchsorted(used, topics), mask=nothing)),
        "partition": pa.array(rows[:, PARTITION], mask=nothing),
        "leader": pa.array(rows[:, LEADER], mask=nothing | (rows[:, LEADER] == -2)),
        "recovery": pa.array(rows[:, RECOVERY], mask=nothing | (rows[:, RECOVERY] < 0)),
        "leader_epoch": pa.array(rows[:, LEADER_EPOCH], mask=nothing),
        "partition_epoch": pa.array(rows[:, PARTITION_EPOCH], mask=nothing),
    }
    lists = interned.lists
    known = int(lists.used[0])
    pool = pa.ListArray.from_arrays(
        pa.array(lists.starts[: known + 1]), pa.array(lists.values[: int(lists.used[1])])
    )
    for name, column in LISTS:
        numbers = pa.array(rows[:, column], mask=nothing | (rows[:, column] < 0))
        found[name] = pool.take(numbers).cast(schema.field(name).type)
    found["directories"] = _directories(rows[:, DIRECTORIES], nothing, interned, schema)
    return found


def _directories(numbers: Array, nothing: Array, interned: Interned, schema: Any) -> Any:
    """Few lists stand for all rows: each is put into words once."""
    missing = nothing | (numbers < 0)
    used, at = np.unique(np.where(missing, 0, numbers), return_inverse=True)
    names = [[uuid_text(each) for each in interned.directory_ids(int(n))] for n in used]
    kind = schema.field("directories").type
    return pa.array(names, kind).take(pa.array(at.reshape(-1), mask=missing))


def _others(read: Read, count: int) -> tuple[Array, dict[str, Any]]:
    """The types of records that are no partition's (-1: not here), and the columns they fill."""
    kinds = np.full(count, -1, np.int32)
    names = ("broker", "broker_epoch", "name", "key", "value", "json")
    values: dict[str, list[Any]] = {name: [None] * count for name in names}
    for index, record in read.others:
        if isinstance(record, RecordDecodeError):
            values["json"][index] = json.dumps({"error": record.reason})
        elif isinstance(record, UnknownRecord):
            kinds[index] = record.api_key
            values["json"][index] = json.dumps(record._asdict())
        else:
            kinds[index] = record.API_KEY
            for name, value in zip(names, _told(record), strict=True):
                values[name][index] = value
    kinds_of = {"broker": pa.int32(), "broker_epoch": pa.int64()}
    return kinds, {n: pa.array(values[n], kinds_of.get(n, pa.string())) for n in names}


def _told(record: r.MetadataRecord) -> tuple[Any, ...]:
    """(broker, broker epoch, name, key, value, json)."""
    text = json.dumps(record_to_json(record))
    match record:
        case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
            return record.id, record.epoch, None, None, None, text
        case r.RegisterBrokerRecord() | r.UnregisterBrokerRecord():
            return record.broker_id, record.broker_epoch, None, None, None, text
        case r.BrokerRegistrationChangeRecord() | r.ProducerIdsRecord():
            return record.broker_id, record.broker_epoch, None, None, None, text
        case r.TopicRecord():
            return None, None, record.name, uuid_text(record.topic_id), None, text
        case r.RemoveTopicRecord():
            return None, None, None, uuid_text(record.topic_id), None, text
        case r.ConfigRecord():
            return None, None, record.resource_name, record.name, record.value, text
        case r.FeatureLevelRecord():
            return None, None, record.name, None, str(record.feature_level), text
    return None, None, None, None, None, text


def slices(batch: Any, rows: int) -> Iterator[Any]:
    """Portions that the JVM takes in one go."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def voters_of(voters: Sequence[Any]) -> list[int]:
    return [voter[0] if isinstance(voter, tuple) else voter.voter_id for voter in voters]
