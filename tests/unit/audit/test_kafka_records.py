"""Apache Kafka's records: every type in every version, and what a reader may meet beside them."""

import contextlib
from dataclasses import MISSING, fields, replace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.audit.kafka import SCHEMAS, UnknownRecord, decode_value
from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import encode_record
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_EPOCH, BrokerId, TopicId, Uuid
from tests.unit.audit.kafka_encoding import kafka_value, uvarint

ID = Uuid(bytes(range(16)))
STRUCTS: dict[type, Any] = {
    r.Endpoint: r.Endpoint(name="PLAINTEXT", host="a.example", port=9092, security_protocol=0),
    r.Feature: r.Feature(name="x", min_supported_version=0, max_supported_version=3),
    r.QuotaEntity: r.QuotaEntity(entity_type="user", entity_name=None),
}


def sample(kind: Any) -> Any:
    """A value of a field's type that is no default."""
    if get_origin(kind) is tuple:
        return (sample(get_args(kind)[0]),) * 2
    options = [each for each in get_args(kind) if each is not type(None)]
    if options:
        return sample(options[0])
    if kind in STRUCTS:
        return STRUCTS[kind]
    base = getattr(kind, "__supertype__", kind)
    base = getattr(base, "__supertype__", base)
    return {int: 1, float: 2.5, bool: True, str: "some text", bytes: ID}[base]


def full(cls: type[Any], version: int) -> Any:
    """A record that says something in every field which the version has."""
    hints = get_type_hints(cls)
    values = {}
    for field in fields(cls):
        is_there = field.metadata.get("since", 0) <= version
        values[field.name] = sample(hints[field.name]) if is_there else field.default
    if cls is r.PartitionChangeRecord:
        values |= {"leader_epoch": NO_EPOCH, "partition_epoch": NO_EPOCH}
    return cls(**values)


VERSIONS = [(key, version) for key, s in SCHEMAS.items() for version in range(s.max_version + 1)]


def test_every_type_is_in_the_table() -> None:
    assert set(SCHEMAS) == set(r.RECORD_TYPES)
    for schema in SCHEMAS.values():
        names = {field.name for field in schema.fields}
        own = (
            {"leader_epoch", "partition_epoch"} if schema.cls is r.PartitionChangeRecord else set()
        )
        assert names | own == {field.name for field in fields(schema.cls)}
        for field in fields(schema.cls):
            since = next((f.since for f in schema.fields if f.name == field.name), 0)
            assert since == field.metadata.get("since", 0)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_record_of_every_version_is_read(api_key: int, version: int) -> None:
    record = full(SCHEMAS[api_key].cls, version)
    assert decode_value(kafka_value(record, version)) == record


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_absent_tagged_fields_are_their_defaults(api_key: int, version: int) -> None:
    schema = SCHEMAS[api_key]
    record = full(schema.cls, version)
    plain = {
        field.name: field.default
        for field in fields(schema.cls)
        if field.default is not MISSING
        and any(f.name == field.name and f.tag is not None for f in schema.fields)
    }
    record = replace(record, **plain)
    assert decode_value(kafka_value(record, version)) == record


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_unknown_tagged_fields_are_skipped(api_key: int, version: int) -> None:
    record = full(SCHEMAS[api_key].cls, version)
    assert decode_value(kafka_value(record, version, extra=[(99, b"later"), (77, b"")])) == record


def test_unknown_types_and_versions_are_told_by_id() -> None:
    for api_key, version in ((501, 0), (600, 2), (6, 0), (13, 0), (16, 0), (20, 9)):
        value = uvarint(1) + uvarint(api_key) + uvarint(version) + b"whatever"
        assert decode_value(value) == UnknownRecord(api_key, version, len(value))


def test_our_own_records_are_read_by_the_same_door() -> None:
    record = full(r.PartitionChangeRecord, 2)
    record = replace(record, leader_epoch=3, partition_epoch=4)
    assert decode_value(encode_record(record)) == record


def test_nulls_of_nullable_arrays_are_defaults() -> None:
    record = r.PartitionChangeRecord(
        partition_id=1,
        topic_id=TopicId(ID),
        leader=BrokerId(2),
        leader_epoch=NO_EPOCH,
        partition_epoch=NO_EPOCH,
    )
    value = kafka_value(record, 2, extra=[(0, b"\x00"), (6, b"\x00")])
    assert decode_value(value) == record
    full_one = full(r.PartitionRecord, 2)
    assert decode_value(kafka_value(full_one, 2, extra=[])) == full_one


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), st.data())
def test_damaged_values_are_refused_or_read_and_nothing_else(
    which: tuple[int, int], data: st.DataObject
) -> None:
    value = bytearray(kafka_value(full(SCHEMAS[which[0]].cls, which[1]), which[1]))
    at = data.draw(st.integers(0, len(value) - 1))
    if data.draw(st.booleans()):
        value[at] ^= data.draw(st.integers(1, 255))
    else:
        del value[at:]
    with contextlib.suppress(RecordDecodeError):
        decode_value(bytes(value), 7)
