"""Metadata records as Apache Kafka writes them, for logs that no recording has.

Written from Kafka's description of its formats, apart from the decoder: only the table of fields is
shared, and recordings of real clusters hold that to the truth.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from kraftpy.audit.kafka.schema import SCHEMAS, STRUCTS
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.storage.record_batch import build_value_batch

NUMBERS = {"i8": ">b", "i16": ">h", "u16": ">H", "i32": ">i", "i64": ">q", "f64": ">d"}


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(kind: str, value: Any) -> bytes:
    if kind.startswith("["):
        if value is None:
            return uvarint(0)
        return uvarint(len(value) + 1) + b"".join(encode_field(kind[1:], each) for each in value)
    if kind in STRUCTS:
        parts = STRUCTS[kind].fields
        return b"".join(encode_field(f.kind, getattr(value, f.name)) for f in parts) + b"\x00"
    if kind in ("text", "text?", "data"):
        if value is None:
            return uvarint(0)
        raw: bytes = value if kind == "data" else value.encode()
        return uvarint(len(raw) + 1) + raw
    if kind == "bool":
        return bytes([int(value)])
    if kind == "uuid":
        return bytes(value)
    return struct.pack(NUMBERS[kind], value)


def kafka_value(
    record: MetadataRecord, version: int | None = None, extra: Iterable[tuple[int, bytes]] = ()
) -> bytes:
    """The value of a record. `extra` are tagged fields of a release to come."""
    schema = SCHEMAS[record.API_KEY]
    version = schema.max_version if version is None else version
    body, tags = b"", []
    for field in schema.fields:
        if field.since > version:
            continue
        value = getattr(record, field.name)
        if field.tag is None:
            body += encode_field(field.kind, value)
        elif value != type(record).__dataclass_fields__[field.name].default:
            tags.append((field.tag, encode_field(field.kind, value)))
    tags += extra
    body += uvarint(len(tags))
    for number, raw in sorted(tags):
        body += uvarint(number) + uvarint(len(raw)) + raw
    return uvarint(1) + uvarint(record.API_KEY) + uvarint(version) + body


def kafka_batch(
    records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int = 0
) -> bytes:
    return bytes(
        build_value_batch(
            [kafka_value(record) for record in records],
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp_ms=timestamp_ms,
        )
    )
