"""What the codec writes, and how it names each way in which bytes can be wrong."""

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import RECORD_TYPES, decode_record, decode_records, encode_record
from kraftpy.metadata_log import records as r
from kraftpy.types import Uuid
from tests.unit.metadata_log.makers import TOPIC_ID, brokers, change, partition, quota, register

FENCE = [7, 0, 1, 5]
PARTITION = [3, 0, 0, b"T" * 16, [1, 2], [1], [], [], 1, 0, 4, 7]
CONTROLLER = [27, 0, 1, b"C" * 16, False, [["n", "h", 9093, 0]], [["f", 1, 2]]]
QUOTA = [14, 0, [["user", None]], "k", 1.5, False]


def with_field(array: list[Any], index: int, value: Any) -> list[Any]:
    return [*array[:index], value, *array[index + 1 :]]


def test_there_are_all_27_types_of_kafka() -> None:
    gone = {6, 13, 16}
    assert RECORD_TYPES.keys() == set(range(30)) - gone
    assert all(cls.__name__.endswith("Record") for cls in RECORD_TYPES.values())


def test_a_record_is_an_array_of_type_version_and_fields() -> None:
    value = encode_record(change(isr=brokers(1, 2)))
    assert msgpack.unpackb(value) == [
        *(5, 2, 0, TOPIC_ID, [1, 2], -2, None, None, None, -1, None, None, None, 4, 8)
    ]
    assert msgpack.unpackb(encode_record(r.NoOpRecord())) == [20, 0]


def test_nested_structs_are_arrays() -> None:
    endpoint = r.Endpoint(name="PLAINTEXT", host="b1", port=9092, security_protocol=0)
    record = register(end_points=(endpoint,))
    assert msgpack.unpackb(encode_record(record, 0))[5] == [["PLAINTEXT", "b1", 9092, 0]]
    assert decode_record(encode_record(record, 0)) == record


def test_a_newer_field_is_never_dropped_at_an_older_version() -> None:
    record = register(log_dirs=(Uuid(b"D" * 16),))
    with pytest.raises(ValueError, match="version 2 has no field log_dirs"):
        encode_record(record, 2)
    assert decode_record(encode_record(record, 3)) == record


@pytest.mark.parametrize("version", [-1, 3])
def test_encoding_refuses_a_version_that_does_not_exist(version: int) -> None:
    with pytest.raises(ValueError, match="PartitionRecord has no version"):
        encode_record(partition(), version)


@pytest.mark.parametrize(
    "record",
    [
        partition(leader_epoch=1 << 31),
        partition(isr=(1.0,)),
        partition(replicas=[1]),
        partition(topic_id=b"short"),
        quota(float("nan")),
        quota(3),
        register(end_points=(("PLAINTEXT", "b1", 9092, 0),)),
    ],
)
def test_encoding_refuses_what_decoding_would(record: Any) -> None:
    with pytest.raises(ValueError, match="cannot encode"):
        encode_record(record)


def test_encoding_refuses_what_is_not_a_record() -> None:
    with pytest.raises(ValueError, match="int is not a metadata record"):
        encode_record(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ([99, 0], "unknown record type 99"),
        ([6, 0], "unknown record type 6"),
        ([3, 9], "PartitionRecord has no version 9, only 0 to 2"),
        ([3, -1], "PartitionRecord has no version -1"),
        ([20], "begins with a type id and a version"),
        ([], "begins with a type id and a version"),
        (["3", 0], "must be integers"),
        ([[3], 0], "must be integers"),
        ([{}, 0], "must be integers"),
        ([7.0, 0, 1, 5], "must be integers"),
        ([7, False, 1, 5], "must be integers"),
        (FENCE[:3], "FenceBrokerRecord version 0: 1 fields where there must be 2"),
        ([*FENCE, 1], "3 fields where there must be 2"),
        (with_field(FENCE, 2, True), "id must be i32, not bool True"),
        (with_field(FENCE, 2, 1.0), "id must be i32, not float"),
        (with_field(FENCE, 2, None), "id must be i32, not NoneType"),
        (with_field(FENCE, 2, 1 << 31), "id must be i32"),
        (with_field(FENCE, 3, 1 << 63), "epoch must be i64"),
        (with_field(PARTITION, 9, 128), "leader_recovery_state must be i8"),
        (with_field(PARTITION, 3, b"short"), "topic_id must be uuid"),
        (with_field(PARTITION, 3, "T" * 16), "topic_id must be uuid, not str"),
        (with_field(PARTITION, 4, 5), "replicas must be a list of i32"),
        (with_field(PARTITION, 4, [1, 2.0]), "replicas must be a list of i32"),
        (with_field(PARTITION, 4, [True, 2]), "replicas must be a list of i32"),
        (with_field(PARTITION, 4, [1, 1 << 31]), "replicas must be a list of i32"),
        (with_field(PARTITION, 4, [1, {}]), "replicas must be a list of i32"),
        (with_field(PARTITION, 4, None), "replicas must be a list of i32"),
        (with_field(CONTROLLER, 4, 1), "zk_migration_ready must be bool"),
        (with_field(CONTROLLER, 5, [["n", "h", 65536, 0]]), "port must be u16"),
        (with_field(CONTROLLER, 5, [["n", "h", 1]]), "end_points must be a list of Endpoint"),
        (with_field(CONTROLLER, 5, "n"), "end_points must be a list of Endpoint"),
        (with_field(CONTROLLER, 6, [["f", 1, 40000]]), "max_supported_version must be i16"),
        (with_field(QUOTA, 4, 1), "value must be f64, not int"),
        (with_field(QUOTA, 4, float("inf")), "value must be f64"),
        (with_field(QUOTA, 2, [[1, None]]), "entity_type must be str"),
        ([3, 1, *PARTITION[2:], [b"x"]], "directories must be a list of uuid"),
        ([10, 0, "o", "r", ["x", 1], 1, 1, 1, "t"], "renewers must be a list of str"),
        ([11, 0, "n", 1, "salt", b"", b"", 1], "salt must be bytes"),
        ("text", "a record is an array, not str"),
        (b"\x07\x00\x01\x05", "a record is an array, not bytes"),
        ({}, "a record is an array, not dict"),
    ],
)
def test_wrong_bytes_are_refused_with_the_offset_and_the_reason(array: Any, reason: str) -> None:
    with pytest.raises(RecordDecodeError) as refused:
        decode_record(msgpack.packb(array), 41)
    assert reason in refused.value.reason
    assert refused.value.offset == 41
    assert "offset 41" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the bytes end before the record does"),
        (b"\x94\x07\x00", "the bytes end before the record does"),
        (b"\xdd\xff\xff\xff\xff\x07", "the bytes end before the record does"),
        (msgpack.packb(FENCE) + b"\x00\x00", "bytes after the end of the record"),
        (b"\x94\x02\x00\xa1\xff\xc4\x00", "a string is not valid UTF-8"),
        (b"\xc1", "the bytes are not msgpack"),
        (b"\x81\x01\x01", "the bytes are not msgpack"),
        (b"\x91" * 5000, "the bytes are not msgpack"),
    ],
)
def test_damaged_bytes_are_refused(value: bytes, reason: str) -> None:
    with pytest.raises(RecordDecodeError) as refused:
        decode_record(value)
    assert reason in refused.value.reason


DEEP = b"\x91" * 1020 + b"\x00"  # As deep as msgpack goes, deeper than Python's repr does.


@pytest.mark.parametrize("value", [b"\x92" + DEEP + b"\x00", b"\x94\x07\x00" + DEEP + b"\x05"])
def test_a_value_nested_too_deep_to_print_is_refused_like_any_other(value: bytes) -> None:
    assert msgpack.unpackb(value)
    with pytest.raises(RecordDecodeError):
        decode_record(value)


def test_the_reason_stays_short_whatever_the_value_is() -> None:
    with pytest.raises(RecordDecodeError) as refused:
        decode_record(msgpack.packb(with_field(FENCE, 2, ["x" * 10_000] * 100)))
    assert len(str(refused.value)) < 400


def test_equal_lists_are_shared_between_decoded_records() -> None:
    value = encode_record(partition(directories=tuple(Uuid(bytes([n]) * 16) for n in range(3))))
    first, second = decode_record(value), decode_record(value)
    assert isinstance(first, r.PartitionRecord)
    assert isinstance(second, r.PartitionRecord)
    assert first.replicas is second.replicas
    assert first.directories is second.directories


def test_a_decoded_record_is_frozen() -> None:
    record = decode_record(encode_record(partition()))
    with pytest.raises(AttributeError):
        record.leader = 5  # type: ignore[misc,union-attr]
    assert repr(record) == repr(partition())


def test_a_value_may_be_any_buffer() -> None:
    value = encode_record(partition())
    for buffer in (value, memoryview(value), memoryview(bytearray(value))):
        assert decode_record(buffer) == partition()


def test_records_of_a_batch_are_refused_at_their_own_offset() -> None:
    values = [encode_record(r.NoOpRecord()), b"\xc1"]
    with pytest.raises(RecordDecodeError) as refused:
        list(decode_records(values, 100))
    assert refused.value.offset == 101


def test_scram_keys_stay_out_of_the_text_of_a_record() -> None:
    record = r.UserScramCredentialRecord(
        name="a", mechanism=1, salt=b"", stored_key=b"secret", server_key=b"secret", iterations=1
    )
    assert "secret" not in repr(record)


def test_scram_keys_stay_out_of_refusals() -> None:
    with pytest.raises(RecordDecodeError, match=r"stored_key must be bytes, not str$"):
        decode_record(msgpack.packb([11, 0, "a", 1, b"", "secret", b"secret", 1]))
