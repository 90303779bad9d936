"""Bytes -> batches and columns: the compiled decoder, and the plain one for what it leaves over.

A batch that is compressed or has an unusual shape is made plain first and decoded again. What no
decoder understands stays in the columns as BAD, with its reason beside it.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kraftpy.audit.kafka.decoding import UnknownRecord, decode_value
from kraftpy.audit.kernel.columns import (
    ADDING,
    BAD,
    CHANGED,
    CREATED,
    DEFAULTS,
    DIRECTORIES,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    NONE,
    PARTITION,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    SLOW,
    TOPIC,
    Array,
    Batches,
    Columns,
    new_columns,
)
from kraftpy.audit.kernel.decoding import decode, walk
from kraftpy.audit.kernel.interning import LIST_MAX, Interned
from kraftpy.errors import InvalidBatch, RecordDecodeError
from kraftpy.metadata_log import records as r
from kraftpy.storage.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    build_value_batch,
    iter_records,
)

Unreadable: TypeAlias = UnknownRecord | RecordDecodeError
_RECORD_BYTES_MIN: Final = 7
NO_OP: Final = r.NoOpRecord.API_KEY
_PARTITION_KINDS: Final = (CREATED, CHANGED)
_SCRATCH: Final = np.zeros(1 << 16, np.int32)


class Read(NamedTuple):
    """Some batches, decoded; and those records that are no partition's, with their index."""

    data: Array  # u8
    batch_count: int
    batches: Batches
    columns: Columns
    others: list[tuple[int, r.MetadataRecord | Unreadable]]
    broken: list[tuple[int, str]]  # Batches without readable records: base offset, reason.
    rest: int  # Bytes at the end that are no whole batch.

    def offset_of(self, index: int) -> int:
        batch = self.columns.batch[index]
        return int(self.batches.base_offset[batch] + index - self.batches.first[batch])

    def place_of(self, batch: int) -> tuple[int, int, int]:
        return place_of(self.batches, batch)

    def value(self, index: int) -> bytes:
        at = int(self.columns.at[index])
        return bytes(self.data[at : at + int(self.columns.size[index])])


def place_of(batches: Batches, batch: int) -> tuple[int, int, int]:
    """(base offset, last offset, epoch) of a batch."""
    base = int(batches.base_offset[batch])
    return base, base + int(batches.count[batch]) - 1, int(batches.epoch[batch])


def read_batches(data: bytes | bytearray | memoryview, interned: Interned) -> Read:
    """All whole batches at the beginning of the bytes."""
    buffer = np.frombuffer(data, np.uint8)
    count, batches, end = walk_batches(buffer)
    broken: list[tuple[int, str]] = []
    is_control = (batches.attributes[:count] & CONTROL) != 0
    unusual = ((batches.attributes[:count] & COMPRESSION_MASK) != 0) & ~is_control
    if unusual.any():
        buffer = _made_plain(buffer, batches, np.flatnonzero(unusual), broken)
    columns = _decode(buffer, batches, count, interned)
    counts = batches.first[1 : count + 1] - batches.first[:count]
    unusual = ~is_control & (counts == 0) & (batches.count[:count] > 0)
    if unusual.any():
        buffer = _made_plain(buffer, batches, np.flatnonzero(unusual), broken)
        columns = _decode(buffer, batches, count, interned)
    read = Read(buffer, count, batches, columns, [], broken, len(data) - end)
    _decode_others(read, interned)
    return read


def walk_batches(buffer: Array) -> tuple[int, Batches, int]:
    most = len(buffer) // HEADER_BYTES + 1
    size = min(most, len(buffer) // 512 + 64)
    while True:
        batches = Batches(
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.zeros(size, np.int16),
            np.zeros(size, np.int64),
            np.zeros(size + 1, np.int64),
        )
        count, end = walk(buffer, 0, batches)
        if count < size or size == most:
            return int(count), batches, int(end)
        size = min(most, size * 4)


def _made_plain(
    buffer: Array, batches: Batches, which: Array, broken: list[tuple[int, str]]
) -> Array:
    """The bytes with these batches' records once more at their end, in the usual shape."""
    parts, at = [buffer.tobytes()], len(buffer)
    for batch in which.tolist():
        start, end = int(batches.at[batch]), int(batches.end[batch])
        try:
            records = list(iter_records(buffer[start - HEADER_BYTES : end].tobytes()))
            base = int(batches.base_offset[batch])
            if [each.offset - base for each in records] != list(range(len(records))):
                raise InvalidBatch(f"batch at offset {base}: offsets with gaps")
            values = [each.value or b"\xc0\xc0\xc0" for each in records]
            plain = build_value_batch(values, base_offset=0, leader_epoch=0, timestamp_ms=0)
            payload = bytes(plain[HEADER_BYTES:])
        except InvalidBatch as error:
            broken.append((int(batches.base_offset[batch]), str(error)))
            payload, batches.count[batch] = b"", 0
        batches.at[batch], batches.end[batch] = at, at + len(payload)
        batches.attributes[batch] &= ~COMPRESSION_MASK
        parts.append(payload)
        at += len(payload)
    return np.frombuffer(b"".join(parts), np.uint8)


def _decode(buffer: Array, batches: Batches, count: int, interned: Interned) -> Columns:
    room = np.minimum(
        batches.count[:count], (batches.end[:count] - batches.at[:count]) // _RECORD_BYTES_MIN
    )
    columns = new_columns(int(np.maximum(room, 0).sum()))
    batches.first[0] = 0
    done = 0
    while done < count:
        tables = (interned.lists, interned.directories, interned.topics)
        done = int(decode(buffer, batches, done, count, columns, tables, _SCRATCH))
        if done < count:
            records, size = int(batches.count[done]), int(batches.end[done] - batches.at[done])
            uuids = max(records, min(records * LIST_MAX, size // 16))
            interned.make_room(8 * records + 1024, size + 4096, uuids + 1024)
    used = int(batches.first[count])
    return Columns(*(column[:used] for column in columns))


def _decode_others(read: Read, interned: Interned) -> None:
    kinds = read.columns.kind
    wanted = np.flatnonzero(~np.isin(kinds, (CREATED, CHANGED, NO_OP)))
    for index in wanted.tolist():
        found = _decode_one(read, index)
        if isinstance(found, r.PartitionRecord | r.PartitionChangeRecord):
            kinds[index] = found.API_KEY
            _fill(read.columns.rows[index], found, interned)
            continue
        if isinstance(found, UnknownRecord | RecordDecodeError):
            kinds[index] = BAD
        elif kinds[index] == SLOW:
            kinds[index] = found.API_KEY
            if found.API_KEY == NO_OP:
                continue
        read.others.append((index, found))


def _decode_one(read: Read, index: int) -> r.MetadataRecord | Unreadable:
    offset = read.offset_of(index)
    try:
        return decode_value(read.value(index), offset)
    except RecordDecodeError as error:
        return error


def _fill(
    row: Array, record: r.PartitionRecord | r.PartitionChangeRecord, interned: Interned
) -> None:
    row[:] = DEFAULTS[record.API_KEY]
    row[PARTITION] = record.partition_id
    row[TOPIC] = interned.topic(record.topic_id)
    for column, values in (
        (REPLICAS, record.replicas),
        (ISR, record.isr),
        (REMOVING, record.removing_replicas),
        (ADDING, record.adding_replicas),
        (ELR, record.eligible_leader_replicas),
        (LAST_KNOWN_ELR, record.last_known_elr),
    ):
        row[column] = NONE if values is None else interned.number(tuple(values))
    if record.directories is not None:
        row[DIRECTORIES] = interned.directory_list(record.directories)
    row[LEADER] = record.leader
    row[RECOVERY] = record.leader_recovery_state
    row[LEADER_EPOCH] = record.leader_epoch
    row[PARTITION_EPOCH] = record.partition_epoch
