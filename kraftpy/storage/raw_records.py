"""The records of a batch as the bytes they are, for those who keep some of them. Pure.

A record's bytes speak of its batch's base offset and base timestamp only, so that records can move
into a smaller batch of the same base as they are: what is kept is kept byte for byte, record
attributes and headers included. `rebuild` makes that batch; it keeps the offsets that the old one
covers, its epoch and its producer's numbers, so that nobody who counts by them notices.

Delete horizon (KIP-534): attribute bit 6 says that the base timestamp is the time from which on a
batch's tombstones may go. Timestamps of records are counted from it all the same.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from kraftpy.errors import InvalidBatch
from kraftpy.storage.compression import NONE, compress, decompress
from kraftpy.storage.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    read_varint,
)

DELETE_HORIZON: Final = 0x40

_UPTO_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_RECORD_BYTES_MIN: Final = 7  # A length, attributes and five fields of a byte each.


class RawRecord(NamedTuple):
    """One record: what decisions look at, and its bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    raw: bytes  # With its length in front.


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """When the tombstones of a batch may go; None if nobody has said so yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def read_raw_records(data: bytes | bytearray | memoryview, header: BatchHeader) -> list[RawRecord]:
    """The records of a batch; InvalidBatch if they are not what the header says."""
    body = bytes(memoryview(data)[HEADER_BYTES : header.size])
    try:
        if header.compression:
            body = decompress(header.compression, body)
        if header.record_count * _RECORD_BYTES_MIN > len(body):
            raise ValueError(f"{header.record_count} records in {len(body)} bytes")
        return _read_all(body, header)
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"batch at offset {header.base_offset}: {error}") from error


def _read_all(body: bytes, header: BatchHeader) -> list[RawRecord]:
    """One loop on purpose: a call for each field would double its cost."""
    base_offset, offset_delta_max = header.base_offset, header.last_offset_delta
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    records = []
    at = 0
    for _ in range(header.record_count):
        start = at
        byte = body[at]
        if byte < 0x80:
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            length, at = read_varint(body, at)
        end = at + length
        if length < 0 or end > len(body):
            raise ValueError("a record is longer than its batch")
        at += 1  # Attributes, which nobody uses.
        byte = body[at]
        if byte < 0x80:
            timestamp_delta, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            timestamp_delta, at = read_varint(body, at)
        byte = body[at]
        if byte < 0x80:
            offset_delta, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            offset_delta, at = read_varint(body, at)
        byte = body[at]
        if byte < 0x80:
            key_bytes, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            key_bytes, at = read_varint(body, at)
        key = body[at : at + key_bytes] if key_bytes >= 0 else None
        at += max(key_bytes, 0)
        byte = body[at]
        if byte < 0x80:
            value_bytes, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            value_bytes, at = read_varint(body, at)
        if at + max(value_bytes, 0) >= end or not 0 <= offset_delta <= offset_delta_max:
            raise ValueError("a record's fields do not fit into it")
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        records.append(
            RawRecord(base_offset + offset_delta, timestamp, key, value_bytes >= 0, body[start:end])
        )
        at = end
    if at != len(body):
        raise ValueError("bytes after the last record")
    return records


def rebuild(
    header: BatchHeader,
    records: Sequence[RawRecord],
    *,
    compression: int | None = None,
    horizon_ms: int | None = None,
) -> bytes:
    """The batch with these of its records only, which may be none at all.

    `compression` is another codec than the batch had; `horizon_ms` its delete horizon, if it had
    none before.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    parts = [record.raw for record in records]
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON
        parts = [_moved(raw, base_timestamp - horizon_ms) for raw in parts]
        base_timestamp = horizon_ms
    if compression is not None or not records:
        codec = compression if records and compression is not None else NONE
        attributes = attributes & ~COMPRESSION_MASK | codec
    payload = compress(attributes & COMPRESSION_MASK, b"".join(parts))
    max_timestamp = header.max_timestamp
    if records and not attributes & LOG_APPEND_TIME:
        max_timestamp = max(record.timestamp for record in records)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return _encode(changed, payload)


def _moved(raw: bytes, by_ms: int) -> bytes:
    """A record whose timestamp is counted from a base that lies `by_ms` earlier."""
    _, at = read_varint(raw, 0)
    delta, after = read_varint(raw, at + 1)
    body = raw[at : at + 1] + _varint(delta + by_ms) + raw[after:]
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _encode(header: BatchHeader, payload: bytes | bytearray) -> bytes:
    after_crc = _AFTER_CRC.pack(*header[5:])
    crc = crc32c(payload, crc32c(after_crc))
    length = HEADER_BYTES - LENGTH_END + len(payload)
    head = _UPTO_CRC.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc)
    return b"".join((head, after_crc, payload))


def stamp_append_time(
    data: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int
) -> BatchHeader:
    """Give a batch the time of its append, in place, and a CRC that covers it."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    start = position + CRC_START
    _AFTER_CRC.pack_into(data, start, *stamped[5:])
    crc = crc32c(memoryview(data)[start : position + header.size])
    struct.pack_into(">I", data, start - 4, crc)
    return stamped._replace(crc=crc)
