"""Kafka's record batch, format v2, as bytes in memory. Pure: no file is touched here.

The 61-byte header, big endian:
  base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 | crc u32 | attributes i16 |
  last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 |
  producer_epoch i16 | base_sequence i32 | record_count i32
`batch_length` counts what follows it. The CRC32C covers everything from `attributes` on, so that
base offset and leader epoch can be stamped without touching it. The records behind the header are
opaque to the log, and compressed as one block if the attributes say so.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from kraftpy.errors import InvalidBatch
from kraftpy.limits import LOG_BATCH_BYTES_MAX
from kraftpy.storage.compression import compress, decompress

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12  # `batch_length` counts from here.
CRC_START: Final = 21  # The CRC covers from here.
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_STAMP: Final = struct.Struct(">qii")


class BatchHeader(NamedTuple):
    """What the log knows of a batch without looking at its records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


class Record(NamedTuple):
    """One record as a producer wrote it. `offset` and `timestamp` are absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked; the caller has made sure that 61 bytes are there."""
    return BatchHeader._make(_HEADER.unpack_from(data, position))


def damage(data: bytes | bytearray | memoryview, position: int, end: int) -> str | None:
    """Say what is wrong with the batch that begins at `position`, or None if it is whole."""
    found = read_whole(data, position, end)
    return found if isinstance(found, str) else None


def read_whole(data: bytes | bytearray | memoryview, position: int, end: int) -> BatchHeader | str:
    """The header of the batch that begins at `position`, or what is wrong with the batch."""
    if end - position < HEADER_BYTES:
        return f"{end - position} bytes are too few for a batch header"
    header = read_header(data, position)
    return damage_of(header, data, position, end) or header


def damage_of(
    header: BatchHeader, data: bytes | bytearray | memoryview, position: int, end: int
) -> str | None:
    """What is wrong with the batch that begins at `position` with this header, or None."""
    wrong = header_damage(header)
    if wrong is not None:
        return wrong
    batch_end = position + LENGTH_END + header.batch_length
    if batch_end > end:
        return f"the batch needs {header.size} bytes, {end - position} are there"
    if crc32c(memoryview(data)[position + CRC_START : batch_end]) != header.crc:
        return "the CRC does not match"
    return None


def header_damage(header: BatchHeader) -> str | None:
    """Say what is wrong with a header by itself, or None."""
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if not HEADER_BYTES - LENGTH_END <= header.batch_length <= LOG_BATCH_BYTES_MAX:
        return f"batch length {header.batch_length} is impossible"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return f"offsets {header.base_offset}+{header.last_offset_delta} are negative"
    return None


def validate(data: bytearray | memoryview) -> list[tuple[int, BatchHeader]]:
    """Every batch of a request with its position; InvalidBatch unless each of them is whole."""
    batches = []
    position = 0
    end = len(data)
    while position < end:
        header = read_whole(data, position, end)
        if isinstance(header, str):
            raise InvalidBatch(f"batch at byte {position} of the request: {header}")
        batches.append((position, header))
        position += header.size
    if not batches:
        raise InvalidBatch("the request holds no batch")
    return batches


def stamp(
    data: bytearray | memoryview, position: int, header: BatchHeader, offset: int, epoch: int
) -> BatchHeader:
    """Give a batch its place in the log. The CRC does not cover what is written here."""
    _STAMP.pack_into(data, position, offset, header.batch_length, epoch)
    # As _replace(base_offset=offset, leader_epoch=epoch) would, in less than half the time.
    return BatchHeader._make((offset, header[1], epoch, *header[3:]))


def build_batch(
    records: Sequence[Record],
    *,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of these records; offsets must grow, and the first one is the base offset."""
    assert records
    base_offset = records[0].offset
    base_timestamp = records[0].timestamp
    body = bytearray()
    for record in records:
        _append_record(body, record, record.offset - base_offset, record.timestamp - base_timestamp)
    payload = compress(attributes & COMPRESSION_MASK, body)
    after_crc = _AFTER_CRC.pack(
        attributes,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _with_header(base_offset, leader_epoch, after_crc, payload)


def build_value_batch(
    values: Sequence[bytes],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    attributes: int = 0,
    keys: Sequence[bytes] | None = None,
) -> bytearray:
    """A batch of bare values at consecutive offsets: what a metadata log is made of.

    Only control records have keys there.
    """
    assert values
    body = bytearray()
    for delta, value in enumerate(values):
        head = bytearray(b"\x00\x00")  # Attributes; the timestamp's delta.
        _append_varint(head, delta)
        if keys is None:
            head.append(0x01)
        else:
            _append_bytes(head, keys[delta])
        _append_varint(head, len(value))
        _append_varint(body, len(head) + len(value) + 1)
        body += head
        body += value
        body.append(0)
    after_crc = _AFTER_CRC.pack(
        attributes, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    )
    return _with_header(base_offset, leader_epoch, after_crc, body)


def _with_header(
    base_offset: int, leader_epoch: int, after_crc: bytes, payload: bytes | bytearray
) -> bytearray:
    crc = crc32c(payload, crc32c(after_crc))
    length = HEADER_BYTES - LENGTH_END + len(payload)
    head = struct.pack(">qiibI", base_offset, length, leader_epoch, MAGIC, crc)
    return bytearray().join((head, after_crc, payload))


def iter_records(data: bytes | bytearray | memoryview, position: int = 0) -> Iterator[Record]:
    """The records of one batch, decompressed; InvalidBatch if they are not what they claim."""
    header = read_header(data, position)
    body = bytes(memoryview(data)[position + HEADER_BYTES : position + header.size])
    try:
        if header.compression:
            body = decompress(header.compression, body)
        at = 0
        for _ in range(header.record_count):
            record, at = _read_record(body, at, header)
            yield record
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise InvalidBatch(f"batch at offset {header.base_offset}: {error}") from error
    if at != len(body):
        raise InvalidBatch(f"batch at offset {header.base_offset}: bytes after the last record")


def iter_values(  # noqa: C901 -- one loop on purpose: a call per field would double its cost.
    data: bytes | memoryview, header: BatchHeader
) -> Iterator[bytes]:
    """The values of an uncompressed batch without keys, by offset: the metadata log's fast path.

    `data` is the batch alone. Anything but null keys, no headers and consecutive offsets is
    refused with InvalidBatch.
    """
    body = bytes(data)
    at = HEADER_BYTES
    end = len(body)
    delta = 0
    try:
        while at < end:
            # Lengths below 64 and 8192 take one and two bytes: nearly every record.
            length = body[at]
            at += 1
            if length >= 0x80:
                low = body[at]
                at += 1
                if low < 0x80:
                    length = (length & 0x7F) | low << 7
                else:
                    length, at = _read_raw_varint(body, at - 2)
            record_end = at + (length >> 1)
            at += 2  # Attributes and a timestamp delta of one byte: checked below.
            if body[at - 1] or delta > 63:
                at = _skip_varint(body, at - 1)
                at = _expect_delta(body, at, delta)
            elif body[at] == delta << 1:
                at += 1
            else:
                raise ValueError(f"offset delta {body[at]} where {delta} was due")
            if body[at] != 0x01:
                raise ValueError("a key where none was expected")
            size = body[at + 1]
            if size < 0x80:
                at += 2
            else:
                size, at = _read_raw_varint(body, at + 1)
            value_end = at + (size >> 1)
            if size & 1 or value_end + 1 != record_end or record_end > end or body[value_end]:
                raise ValueError(f"record {delta} has a bad length or headers")
            yield body[at:value_end]
            at = record_end
            delta += 1
        if delta != header.record_count:
            raise ValueError(f"{delta} records where the header says {header.record_count}")
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"batch at offset {header.base_offset}: {error}") from error


def _expect_delta(body: bytes, at: int, delta: int) -> int:
    raw, at = _read_raw_varint(body, at)
    if raw != delta << 1:
        raise ValueError(f"offset delta {raw >> 1} where {delta} was due")
    return at


def _skip_varint(body: bytes, at: int) -> int:
    while body[at] >= 0x80:
        at += 1
    return at + 1


def _read_record(body: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    # A raw varint below 0x80 is all of it: nearly every one. An odd one is a negative number.
    raw = body[at]
    at += 1
    if raw > 0x7F:
        raw, at = _read_raw_varint(body, at - 1)
    end = at + (raw >> 1)
    if raw & 1 or end > len(body):
        raise ValueError("a record is longer than its batch")
    raw = body[at + 1]
    at += 2
    if raw > 0x7F:
        raw, at = _read_raw_varint(body, at - 1)
    timestamp_delta = (raw >> 1) ^ -(raw & 1)
    raw = body[at]
    at += 1
    if raw > 0x7F:
        raw, at = _read_raw_varint(body, at - 1)
    offset_delta = (raw >> 1) ^ -(raw & 1)
    key, at = _read_bytes(body, at)
    value, at = _read_bytes(body, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if body[at]:
        headers, at = _read_headers(body, at)
    else:
        at += 1
    if at != end:
        raise ValueError("a record does not end where it says")
    timestamp = (
        header.max_timestamp
        if header.attributes & LOG_APPEND_TIME
        else header.base_timestamp + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), at


def _read_headers(body: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at)
        value, at = _read_bytes(body, at)
        if name is None:
            raise ValueError("a header without a name")
        headers.append((name.decode(), value))
    return tuple(headers), at


def _append_record(
    body: bytearray, record: Record, offset_delta: int, timestamp_delta: int
) -> None:
    assert offset_delta >= 0
    inner = bytearray(1)
    _append_varint(inner, timestamp_delta)
    _append_varint(inner, offset_delta)
    _append_bytes(inner, record.key)
    _append_bytes(inner, record.value)
    _append_varint(inner, len(record.headers))
    for name, value in record.headers:
        _append_bytes(inner, name.encode())
        _append_bytes(inner, value)
    _append_varint(body, len(inner))
    body += inner


def _append_bytes(body: bytearray, value: bytes | None) -> None:
    if value is None:
        body.append(0x01)
        return
    _append_varint(body, len(value))
    body += value


def _read_bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    raw = body[at]
    at += 1
    if raw > 0x7F:
        raw, at = _read_raw_varint(body, at - 1)
    if raw & 1:
        return None, at
    end = at + (raw >> 1)
    if end > len(body):
        raise ValueError("a field is longer than its batch")
    return body[at:end], end


def _append_varint(body: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        body.append(raw & 0x7F | 0x80)
        raw >>= 7
    body.append(raw)


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    raw, at = _read_raw_varint(body, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_raw_varint(body: bytes, at: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 70, 7):
        byte = body[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
    raise ValueError("a varint of more than ten bytes")
