"""Every record survives the wire at every version, and no bytes at all break the decoder."""

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import RECORD_TYPES, MetadataRecord, decode_record, encode_record
from tests.property.strategies import records_of

VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in RECORD_TYPES.values()
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]
any_record = st.sampled_from(list(RECORD_TYPES.values())).flatmap(records_of)
wild_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=17),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@given(data=st.data())
def test_a_record_survives_the_wire(
    cls: type[MetadataRecord], version: int, data: st.DataObject
) -> None:
    record = data.draw(records_of(cls, version))
    value = encode_record(record, version)
    decoded = decode_record(value)
    assert decoded == record
    assert type(decoded) is cls
    assert hash(decoded) == hash(record)
    assert encode_record(decoded, version) == value
    assert decode_record(memoryview(value)) == record


@given(value=st.binary(max_size=60), offset=st.integers(-1, 1 << 40))
def test_random_bytes_raise_nothing_but_a_decode_error(value: bytes, offset: int) -> None:
    decode_or_refuse(value, offset)


@given(record=any_record, data=st.data())
def test_damaged_bytes_raise_nothing_but_a_decode_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    value = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(value), 7)


@given(record=any_record, data=st.data())
def test_a_wrong_field_raises_nothing_but_a_decode_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    array = msgpack.unpackb(encode_record(record))
    array[data.draw(st.integers(0, len(array) - 1))] = data.draw(wild_values)
    decode_or_refuse(msgpack.packb(array), 7)


@given(record=any_record, data=st.data())
def test_a_cut_record_is_refused(record: MetadataRecord, data: st.DataObject) -> None:
    value = encode_record(record)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(RecordDecodeError, match="the bytes end before the record does"):
        decode_record(value[:cut], 3)


def decode_or_refuse(value: bytes, offset: int) -> None:
    """What decodes must be a canonical record; what does not must say where."""
    try:
        record = decode_record(value, offset)
    except RecordDecodeError as error:
        refusal = error
    else:
        version = msgpack.unpackb(value)[1]
        assert decode_record(encode_record(record, version)) == record
        return
    assert refusal.offset == offset
    assert refusal.reason
