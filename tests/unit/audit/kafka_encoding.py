"""Metadata records as Apache Kafka writes them, for logs that no recording has.

Written from Kafka's description of its formats, apart from the decoder: only the table of fields is
shared, and recordings of real clusters hold that to the truth.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kraftpy.audit.kafka.schema import SCHEMAS, STRUCTS
from kraftpy.metadata_log.batches import control_batch
from kraftpy.metadata_log.control_records import SnapshotFooter, SnapshotHeader
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.storage.record_batch import build_value_batch
from tests.unit.audit.log_files import leader, write_segment
from tests.unit.audit.logs import Log

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


def kafka_batches(log: Log, epoch: int = 1) -> list[bytes]:
    """Behind the leader change that every log begins with; offsets move on by one."""
    return [leader(0, epoch), *_moved_batches(log, epoch)]


def _moved_batches(log: Log, epoch: int) -> list[bytes]:
    return [
        kafka_batch([moved(each) for each in records], base_offset=base + 1, epoch=epoch)
        for base, records, _ in log.batches
    ]


def write_kafka_log(directory: Path, log: Log) -> str:
    write_segment(directory, kafka_batches(log))
    return str(directory)


def moved(record: MetadataRecord) -> MetadataRecord:
    """Broker epochs are offsets, so they move too."""
    for name in ("broker_epoch", "epoch"):
        if hasattr(record, name):
            return replace(record, **{name: getattr(record, name) + 1})
    return record


def write_kafka_snapshot(
    directory: Path, records: Sequence[MetadataRecord], end_offset: int, epoch: int = 1
) -> None:
    """One that claims to end there. Its records are those of a log that `moved` has moved."""
    header = SnapshotHeader(last_contained_log_timestamp=0)
    body = kafka_batch([moved(each) for each in records], base_offset=1, epoch=epoch)
    last = 1 + len(records)
    data = control_batch(header, base_offset=0, epoch=epoch, timestamp_ms=0) + body
    data += control_batch(SnapshotFooter(), base_offset=last, epoch=epoch, timestamp_ms=0)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{end_offset:020d}-{epoch:010d}.checkpoint").write_bytes(bytes(data))
