"""Bytes of record batches -> columns, compiled.

Reads what the codec writes: bare values at consecutive offsets, each a msgpack array. Whatever is
unusual (compressed batches, keys, longer encodings, values out of range, Apache Kafka's encoding)
is marked SLOW and left to the decoders that are not compiled. What always holds: no byte outside
the batch is read, whatever the bytes are; a row that is not SLOW equals what the codec gives.
"""

from typing import Any, Final

import numpy as np

from kraftpy.audit.kernel.columns import (
    CHANGED,
    CREATED,
    DEFAULTS,
    DIRECTORIES,
    LAYOUTS,
    NONE,
    RECORD_WIDTH,
    RECOVERY,
    REPLICAS,
    SLOW,
    TOPIC,
    compiled,
    copy_row,
    inlined,
)
from kraftpy.audit.kernel.interning import LIST_MAX, intern_list, intern_uuid
from kraftpy.storage.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
)

_NO_OP: Final = 20
_NIL: Final = 0xC0
_BIN8: Final = 0xC4
_UUID_BYTES: Final = 16
_LISTS_PER_RECORD: Final = 7
_I32_MIN: Final = -(1 << 31)
_I32_MAX: Final = (1 << 31) - 1


@inlined
def _big_endian(data: Any, p: Any, size: Any) -> Any:
    value = np.int64(0)
    for i in range(size):
        value = (value << 8) | np.int64(data[p + i])
    return value


@inlined
def _signed32(data: Any, p: Any) -> Any:
    return np.int64(np.int32(_big_endian(data, p, 4)))


@compiled
def walk(data: Any, p: Any, out: Any) -> Any:
    """Headers of the whole batches from `p` on, into `out`; (how many, where the rest begins)."""
    found = 0
    end = data.shape[0]
    while p + HEADER_BYTES <= end and found < out.at.shape[0]:
        size = LENGTH_END + _signed32(data, p + 8)
        if size < HEADER_BYTES or p + size > end or data[p + 16] != MAGIC:
            break
        out.at[found] = p + HEADER_BYTES
        out.end[found] = p + size
        out.base_offset[found] = _big_endian(data, p, 8)
        out.epoch[found] = _signed32(data, p + 12)
        out.attributes[found] = _big_endian(data, p + CRC_START, 2)
        out.timestamp[found] = _big_endian(data, p + 35, 8)
        out.count[found] = _signed32(data, p + 57)
        found += 1
        p += size
    return found, p


@inlined
def _varint(data: Any, p: Any, end: Any) -> Any:
    """A zigzag varint and what is behind it; -1 there if the bytes end before it does."""
    raw = np.int64(0)
    for shift in range(0, 35, 7):
        if p < 0 or p >= end:
            return np.int64(0), -1
        byte = np.int64(data[p])
        p += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), p
    return np.int64(0), -1


@inlined
def record_at(data: Any, p: Any, end: Any, delta: Any) -> Any:
    """(where the value begins, where it ends, where the next record begins); -1: unusual."""
    length, p = _varint(data, p, end)
    if p < 0 or length < 0 or p + length > end:
        return -1, -1, -1
    record_end = p + length
    _, p = _varint(data, p + 1, record_end)
    found, p = _varint(data, p, record_end)
    if p < 0 or p >= record_end or found != delta or data[p] != 0x01:
        return -1, -1, -1
    size, p = _varint(data, p + 1, record_end)
    if p < 0 or size < 3 or p + size + 1 != record_end or data[p + size] != 0:
        return -1, -1, -1
    return p, p + size, record_end


@inlined
def _int(data: Any, p: Any, end: Any) -> Any:
    """A msgpack integer that fits 32 bits and what is behind it, or -1 there."""
    if p < 0 or p >= end:
        return np.int64(0), -1
    c = np.int64(data[p])
    if c < 0x80:
        return c, p + 1
    if c >= 0xE0:
        return c - 256, p + 1
    if c >= 0xCC and c <= 0xCE:
        size = 1 << (c - 0xCC)
    elif c >= 0xD0 and c <= 0xD2:
        size = 1 << (c - 0xD0)
    else:
        return np.int64(0), -1
    if p + 1 + size > end:
        return np.int64(0), -1
    value = _big_endian(data, p + 1, size)
    if c >= 0xD0:
        shift = 64 - 8 * size
        value = (value << shift) >> shift
    if value < _I32_MIN or value > _I32_MAX:
        return np.int64(0), -1
    return value, p + 1 + size


@inlined
def _uuid(data: Any, p: Any, end: Any) -> Any:
    """(high, low, behind it)."""
    if p < 0 or p + 2 + _UUID_BYTES > end or data[p] != _BIN8 or data[p + 1] != _UUID_BYTES:
        return np.int64(0), np.int64(0), -1
    return _big_endian(data, p + 2, 8), _big_endian(data, p + 10, 8), p + 2 + _UUID_BYTES


@inlined
def _list(data: Any, p: Any, end: Any, column: Any, tables: Any, scratch: Any) -> Any:
    """(number of the list, behind it); nil gives NONE."""
    lists, directories, _ = tables
    if p < 0 or p >= end:
        return NONE, -1
    c = np.int64(data[p])
    if c == _NIL:
        return NONE, p + 1
    if c < 0x90 or c > 0x9F:
        return NONE, -1
    p += 1
    count = c & 15
    for i in range(count):
        if column == DIRECTORIES:
            high, low, p = _uuid(data, p, end)
            if p < 0:
                return NONE, -1
            scratch[i] = intern_uuid(directories, high, low)
        else:
            value, p = _int(data, p, end)
            if p < 0:
                return NONE, -1
            scratch[i] = value
    return intern_list(lists, scratch, count), p


@inlined
def _partition(data: Any, p: Any, end: Any, row: Any, tables: Any, scratch: Any) -> Any:
    """Fill the row of a partition record; False if it is left to the other decoder."""
    key = np.int64(data[p + 1])
    version = np.int64(data[p + 2])
    if version > 3 or LAYOUTS[key, version, 0] == NONE:
        return False
    copy_row(row, DEFAULTS[key], RECORD_WIDTH)
    fields = (np.int64(data[p]) & 15) - 2
    p += 3
    for field in range(16):
        column = LAYOUTS[key, version, field]
        if column == NONE:
            return fields == field and p == end
        if column == TOPIC:
            high, low, p = _uuid(data, p, end)
            if p < 0:
                return False
            row[TOPIC] = intern_uuid(tables[2], high, low)
        elif column >= REPLICAS and column <= DIRECTORIES:
            nil = p < end and p >= 0 and data[p] == _NIL
            row[column], p = _list(data, p, end, column, tables, scratch)
            if nil and key == CREATED:
                return False
        else:
            row[column], p = _int(data, p, end)
        if p < 0:
            return False
        if column == RECOVERY and (row[column] < -128 or row[column] > 127):
            return False
    return False


@compiled
def decode(
    data: Any, batches: Any, first: Any, count: Any, out: Any, tables: Any, scratch: Any
) -> Any:
    """Columns for the batches from `first` on; the batch at which the tables need more room.

    A batch that is unusual as a whole gets no records here: its `first` is its neighbour's.
    """
    n = batches.first[first]
    for b in range(first, count):
        batches.first[b] = n
        if _is_short(tables, batches.count[b], batches.end[b] - batches.at[b]):
            return b
        if batches.attributes[b] & (COMPRESSION_MASK | CONTROL):
            batches.first[b + 1] = n
            continue
        n = _decode_batch(data, batches, b, n, out, tables, scratch)
        batches.first[b + 1] = n
    return count


@inlined
def _is_short(tables: Any, records: Any, size: Any) -> Any:
    lists, directories, topics = tables
    uuids = min(records * LIST_MAX, size // _UUID_BYTES)
    return (
        lists.used[0] + records * _LISTS_PER_RECORD >= lists.flags.shape[0]
        or lists.used[1] + size > lists.values.shape[0]
        or directories.used[0] + uuids >= directories.high.shape[0]
        or topics.used[0] + records >= topics.high.shape[0]
    )


@compiled
def _decode_batch(
    data: Any, batches: Any, b: Any, n: Any, out: Any, tables: Any, scratch: Any
) -> Any:
    """The records of one batch; none of them if its shape is unusual."""
    begin = n
    p = batches.at[b]
    end = batches.end[b]
    for delta in range(batches.count[b]):
        at, value_end, p = record_at(data, p, end, delta)
        if p < 0 or n >= out.kind.shape[0]:
            return begin
        out.batch[n] = b
        out.at[n] = at
        out.size[n] = value_end - at
        out.kind[n] = _kind(data, at, value_end, out.rows[n], tables, scratch)
        n += 1
    return n if p == end else begin


@inlined
def _kind(data: Any, at: Any, end: Any, row: Any, tables: Any, scratch: Any) -> Any:
    first = data[at]
    key = data[at + 1]
    if first < 0x92 or first > 0x9F or key >= 0x80:
        return SLOW
    if key == CREATED or key == CHANGED:  # noqa: SIM109 -- numba compares, but does not look up.
        return key if _partition(data, at, end, row, tables, scratch) else SLOW
    if key == _NO_OP:
        plain = end - at == 3 and first == 0x92 and data[at + 2] == 0
        return key if plain else SLOW
    return key
