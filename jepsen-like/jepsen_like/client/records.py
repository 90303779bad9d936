"""Record batches of version 2: one record per batch written, any number read."""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from jepsen_like.client.codec import BadAnswer, Reader, Writer

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = _HEAD.size
_CRC_AT: Final = 21
_LENGTH_FROM: Final = 12
_CONTROL: Final = 0x20
_COMPRESSION: Final = 0x07
_OWN_START: Final = b"\x00\x00\x00\x01"  # Attributes and deltas 0; no key.


class Batch(NamedTuple):
    """What the head of a batch says, and its records as (offset, value)."""

    base_offset: int
    leader_epoch: int
    crc: int
    last_offset: int
    records: list[tuple[int, bytes]]


def one_record(
    value: bytes,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch with one record without a key."""
    body = Writer().pack("b", 0).uvarint(0).uvarint(0).raw(b"\x01")  # Deltas 0; key null.
    body.uvarint(len(value) << 1).raw(value).uvarint(0)
    record = body.done()
    records = Writer().uvarint(len(record) << 1).raw(record).done()
    fields = (0, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, sequence, 1)
    after_crc = struct.pack(">hiqqqhii", *fields) + records
    head = struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, crc32c(after_crc))
    return head + after_crc


def read_batches(data: bytes) -> list[Batch]:
    """All whole batches; the last one may be cut off, as in any answer to a Fetch."""
    found: list[Batch] = []
    at = 0
    while at + HEAD_BYTES <= len(data):
        (base, length, epoch, magic, crc, attributes, delta, *_, count) = _HEAD.unpack_from(
            data, at
        )
        end = at + _LENGTH_FROM + length
        if end > len(data):
            break
        if magic != 2 or length < HEAD_BYTES - _LENGTH_FROM:
            raise BadAnswer(f"a batch of version {magic} and length {length} at offset {base}")
        if crc32c(data[at + _CRC_AT : end]) != crc:
            raise BadAnswer(f"the checksum of the batch at offset {base} is wrong")
        records: list[tuple[int, bytes]] = []
        if not attributes & _CONTROL:
            if attributes & _COMPRESSION:
                raise BadAnswer(f"the batch at offset {base} is compressed; nobody here did that")
            records = _records(data[at + HEAD_BYTES : end], base, count)
        found.append(Batch(base, epoch, crc, base + delta, records))
        at = end
    return found


def _records(data: bytes, base: int, count: int) -> list[tuple[int, bytes]]:
    if count == 1 and (value := _own_record(data)) is not None:
        return [(base, value)]
    reader = Reader(data)
    found = []
    for _ in range(count):
        length = reader.varint()
        end = reader.at + length
        reader.i8()
        reader.varint()
        offset = base + reader.varint()
        reader.raw(max(0, reader.varint()))
        found.append((offset, reader.raw(max(0, reader.varint()))))
        reader.at = end
    return found


def _own_record(data: bytes) -> bytes | None:
    """The value, if this is one short record as `one_record` makes them: nearly all are."""
    if len(data) < 7 or data[1:5] != _OWN_START or data[0] & 0x81 or data[5] & 0x81:
        return None
    size = data[5] >> 1
    if len(data) != 7 + size or data[0] >> 1 != 6 + size or data[-1]:
        return None
    return data[6:-1]
