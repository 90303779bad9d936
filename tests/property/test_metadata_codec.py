"""Every record survives the wire at every version; anything else is refused, with its offset.

Each property is a plain function, so that test_metadata_planted_bugs.py can run it against a codec
with a bug in it and see that it fails.
"""

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import RECORD_TYPES, MetadataRecord, decode_record, encode_record
from kraftpy.metadata_log.fieldcheck import WireType, wire_types
from tests.property.strategies import field_names, records_of

OFFSET = 41
VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in RECORD_TYPES.values()
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]
any_record = st.sampled_from(list(RECORD_TYPES.values())).flatmap(records_of)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=17)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=5))
)
wild_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
# One value of every kind that msgpack has, and for integers one beyond each width.
KINDS: list[Any] = [None, True, 1.0, "x", b"x", [], {}]
KINDS += [[None], [True], [1.0], ["x"], [b"x"], [[]], [{}]]
KINDS += [1 << 7, 1 << 15, 1 << 16, 1 << 31, 1 << 63, -1 - (1 << 31), float("nan"), [1 << 31]]
KINDS += [msgpack.ExtType(5, b""), [msgpack.ExtType(5, b"")], [["x", 1]]]


# --- properties -----------------------------------------------------------------------------------


def survives_the_wire(record: MetadataRecord, version: int) -> None:
    value = encode_record(record, version)
    decoded = decode_record(value)
    assert decoded == record
    assert type(decoded) is type(record)
    assert hash(decoded) == hash(record)
    assert encode_record(decoded, version) == value
    assert decode_record(memoryview(value)) == record


def every_cut_is_refused(record: MetadataRecord, version: int) -> None:
    value = encode_record(record, version)
    for cut in range(len(value)):
        assert refusal(value[:cut]) == "the bytes end before the record does"


def more_bytes_are_refused(record: MetadataRecord, more: bytes) -> None:
    reason = refusal(encode_record(record) + more)
    assert reason == f"{len(more)} bytes after the end of the record"


def another_arity_is_refused(record: MetadataRecord, version: int, more: list[Any]) -> None:
    array = msgpack.unpackb(encode_record(record, version))
    for wrong in (array[:-1], array + more):
        if len(wrong) >= 2:
            found = f"{len(wrong) - 2} fields where there must be {len(array) - 2}"
            assert found in refusal(msgpack.packb(wrong))


def every_wrong_field_is_refused_by_name(record: MetadataRecord, version: int) -> None:
    array = msgpack.unpackb(encode_record(record, version))
    wires = wire_types(type(record))
    for index, name in enumerate(field_names(type(record), version), start=2):
        for value in KINDS:
            if not may_hold(wires[name], value):
                reason = refusal(msgpack.packb([*array[:index], value, *array[index + 1 :]]))
                assert reason.startswith(f"{type(record).__name__} version {version}: ")
                assert wires[name].struct is not None or f" {name} must be " in reason


def is_decoded_or_refused(value: bytes) -> None:
    """What decodes must be a canonical record; what does not must say where."""
    try:
        record = decode_record(value, OFFSET)
    except RecordDecodeError as error:
        refused = error
    else:
        version = msgpack.unpackb(value)[1]
        assert decode_record(encode_record(record, version)) == record
        return
    assert refused.offset == OFFSET
    assert refused.reason


def refusal(value: bytes) -> str:
    """The reason for which the codec refuses these bytes; it must name the offset, too."""
    with pytest.raises(RecordDecodeError) as refused:
        decode_record(value, OFFSET)
    assert refused.value.offset == OFFSET
    return refused.value.reason


def may_hold(wire: WireType, value: Any) -> bool:
    """What each kind of field takes of KINDS, told apart from the code that checks it."""
    if value is None:
        return wire.nullable
    if wire.kind in ("i8", "i16", "u16", "i32", "i64"):
        bits = int(wire.kind[1:]) - (wire.kind[0] == "i")
        low = -(1 << bits) if wire.kind[0] == "i" else 0
        return type(value) is int and low <= value < 1 << bits
    if wire.kind in ("i32s", "uuids", "strs", "structs"):
        return value == [] or (wire.kind == "strs" and value == ["x"])
    if wire.kind == "f64":
        return type(value) is float and value == value
    return {"str": str, "bytes": bytes, "bool": bool}.get(wire.kind) is type(value)


# --- their tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@given(data=st.data())
def test_a_record_survives_the_wire(
    cls: type[MetadataRecord], version: int, data: st.DataObject
) -> None:
    survives_the_wire(data.draw(records_of(cls, version)), version)


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@given(data=st.data())
@settings(max_examples=25)
def test_no_part_of_a_record_is_taken_for_it(
    cls: type[MetadataRecord], version: int, data: st.DataObject
) -> None:
    record = data.draw(records_of(cls, version))
    every_cut_is_refused(record, version)
    another_arity_is_refused(record, version, data.draw(st.lists(scalars, min_size=1)))


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@given(data=st.data())
@settings(max_examples=10)  # Each example tries every field with every kind of value.
def test_every_wrong_field_is_refused(
    cls: type[MetadataRecord], version: int, data: st.DataObject
) -> None:
    every_wrong_field_is_refused_by_name(data.draw(records_of(cls, version)), version)


@given(record=any_record, more=st.binary(min_size=1))
def test_more_bytes_than_the_record_has_are_refused(record: MetadataRecord, more: bytes) -> None:
    more_bytes_are_refused(record, more)


@given(type_id=st.integers(-(1 << 63), (1 << 64) - 1), version=st.integers(-1, 1 << 16))
def test_unknown_types_and_versions_are_refused_by_name(type_id: int, version: int) -> None:
    reason = refusal(msgpack.packb([type_id, version, 1]))
    cls = RECORD_TYPES.get(type_id)
    if cls is None:
        assert reason == f"unknown record type {type_id}"
    elif not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        assert f"{cls.__name__} has no version {version}" in reason


@given(record=any_record)
def test_a_header_longer_than_it_need_be_is_the_same_header(record: MetadataRecord) -> None:
    value = encode_record(record)
    elements, key, version = value[0] & 0x0F, value[1], value[2]
    longer = b"\xdc" + elements.to_bytes(2) + b"\xcc" + bytes([key]) + b"\xcc" + bytes([version])
    assert decode_record(longer + value[3:]) == record
    assert "must be integers" in refusal(bytes([value[0], key]) + b"\xc2" + value[3:])


@given(value=st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_a_decode_error(value: bytes) -> None:
    is_decoded_or_refused(value)


@given(record=any_record, data=st.data())
def test_damaged_bytes_raise_nothing_but_a_decode_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    value = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    is_decoded_or_refused(bytes(value))


@given(record=any_record, data=st.data())
def test_a_wild_field_raises_nothing_but_a_decode_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    array = msgpack.unpackb(encode_record(record))
    array[data.draw(st.integers(0, len(array) - 1))] = data.draw(wild_values)
    is_decoded_or_refused(msgpack.packb(array))
