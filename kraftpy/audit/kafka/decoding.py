"""A record value, Kafka's or kraftpy's -> the record. Pure.

A value of Kafka's is frame version (always 1), type id and version, as unsigned varints, then the
message. kraftpy's is a msgpack array, which never begins with a 1: so the first byte tells whose
it is, value by value, and a log may be of either without anybody saying so.

What always holds: a type or version that is not known is an UnknownRecord with its id, and its
neighbours are read all the same; unknown tagged fields are skipped; bytes that are no record at all
raise RecordDecodeError. Kafka's PartitionChangeRecord carries no epochs, so its two are NO_EPOCH:
not recorded, which proves nothing.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, TypeAlias

from kraftpy.audit.kafka.flexible import Cursor
from kraftpy.audit.kafka.schema import SCHEMAS, STRUCTS, RecordSchema
from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log.codec import decode_record
from kraftpy.metadata_log.records import MetadataRecord, PartitionChangeRecord
from kraftpy.types import NO_EPOCH

_FRAME_VERSION: Final = 1


class UnknownRecord(NamedTuple):
    """A record of a type or version that this reader does not know."""

    api_key: int
    version: int
    size: int


Decoded: TypeAlias = MetadataRecord | UnknownRecord
_Reader: TypeAlias = Callable[[Cursor], Any]


def is_kafka_value(value: bytes) -> bool:
    """Whether a record value is in Kafka's encoding, not kraftpy's."""
    return value[:1] == b"\x01"


def decode_value(value: bytes | None, offset: int = -1) -> Decoded:
    """The record in a value; `offset` is for the error message."""
    if not value:
        raise RecordDecodeError("an empty value", offset)
    if not is_kafka_value(value):
        return decode_record(value, offset)
    try:
        return _decode(value)
    except (ValueError, IndexError) as error:
        raise RecordDecodeError(str(error), offset) from None


def known_record(value: bytes, offset: int = -1) -> MetadataRecord | None:
    """The same for those who pass over what cannot be read: somebody else has told of it."""
    try:
        record = decode_value(value, offset)
    except RecordDecodeError:
        return None
    return None if isinstance(record, UnknownRecord) else record


def _decode(value: bytes) -> Decoded:
    cursor = Cursor(value, 1)
    api_key, version = cursor.uvarint(), cursor.uvarint()
    read = _READERS.get((api_key, version))
    if read is None:
        return UnknownRecord(api_key, version, len(value))
    record: MetadataRecord = read(cursor)
    if cursor.left:
        raise ValueError(f"{cursor.left} bytes behind a record of type {api_key}")
    return record


# -- readers, made from the table ------------------------------------------------------------------


def _text(cursor: Cursor) -> str:
    text = cursor.text()
    if text is None:
        raise ValueError("null where a text must be")
    return text


def _data(cursor: Cursor) -> bytes:
    data = cursor.data()
    if data is None:
        raise ValueError("null where bytes must be")
    return data


_SIMPLE: Final[dict[str, _Reader]] = {
    "bool": Cursor.boolean,
    "uuid": Cursor.uuid,
    "text": _text,
    "text?": Cursor.text,
    "data": _data,
}


def _reader(kind: str) -> _Reader:
    if kind.startswith("["):
        element = _reader(kind[1:])
        return lambda cursor: cursor.array(element)
    if kind in STRUCTS:
        schema = STRUCTS[kind]
        parts = [(field.name, _reader(field.kind)) for field in schema.fields]

        def read(cursor: Cursor) -> Any:
            values = {name: part(cursor) for name, part in parts}
            cursor.tags()
            return schema.cls(**values)

        return read
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    return lambda cursor: cursor.number(kind)


def _record_reader(schema: RecordSchema, version: int) -> _Reader:
    present = [field for field in schema.fields if field.since <= version]
    plain = [(each.name, _reader(each.kind)) for each in present if each.tag is None]
    tagged = {each.tag: (each.name, _reader(each.kind)) for each in present if each.tag is not None}
    fixed = _fixed(schema)

    def read(cursor: Cursor) -> Any:
        values = dict(fixed)
        for name, part in plain:
            values[name] = part(cursor)
        for number, raw in cursor.tags().items():
            if number in tagged:
                name, part = tagged[number]
                inner = Cursor(raw)
                values[name] = part(inner)
                if inner.left:
                    raise ValueError(f"{inner.left} bytes behind the field {name}")
        for name, default in fixed.items():
            if values[name] is None:  # Kafka's nullable arrays say null for their default.
                values[name] = default
        return schema.cls(**values)

    return read


def _fixed(schema: RecordSchema) -> dict[str, Any]:
    """Defaults, and what Kafka's record cannot say."""
    found = {field.name: field.default for field in fields(schema.cls)}
    found = {name: default for name, default in found.items() if default is not MISSING}
    if schema.cls is PartitionChangeRecord:
        found |= {"leader_epoch": NO_EPOCH, "partition_epoch": NO_EPOCH}
    return found


_READERS: Final[dict[tuple[int, int], _Reader]] = {
    (api_key, version): _record_reader(schema, version)
    for api_key, schema in SCHEMAS.items()
    for version in range(schema.max_version + 1)
}
