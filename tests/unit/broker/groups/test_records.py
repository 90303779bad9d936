"""Records of __consumer_offsets are Kafka's, byte for byte, and every version of them is read."""

import struct

import pytest

from kraftpy.broker.groups import records
from kraftpy.broker.groups.records import GroupRecord, MemberRecord, OffsetKey, OffsetRecord
from kraftpy.errors import InvalidBatch

MEMBER = MemberRecord(
    member_id="m-1",
    instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"sub",
    assignment=b"ass",
)
GROUP = GroupRecord(
    protocol_type="consumer", generation=7, protocol="range", leader="m-1", state_ms=12,
    members=(MEMBER,),
)  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    key = records.offset_key("g", "t", 3)
    assert key == b"\x00\x01" + text("g") + text("t") + b"\x00\x00\x00\x03"
    assert records.read_offset_key(key) == OffsetKey("g", "t", 3)
    record = OffsetRecord(42, 5, "note", 1000)
    value = records.offset_value(record)
    assert value == struct.pack(">hqi", 3, 42, 5) + text("note") + struct.pack(">q", 1000)
    assert records.read_offset(value) == record


def test_an_offset_that_a_client_wants_to_expire_is_of_version_1() -> None:
    record = OffsetRecord(42, -1, "", 1000, 2000)
    value = records.offset_value(record)
    assert value == struct.pack(">hq", 1, 42) + text("") + struct.pack(">qq", 1000, 2000)
    assert records.read_offset(value) == record


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (struct.pack(">hq", 0, 9) + text("a") + struct.pack(">q", 1), OffsetRecord(9, -1, "a", 1)),
        (struct.pack(">hq", 2, 9) + text("a") + struct.pack(">q", 1), OffsetRecord(9, -1, "a", 1)),
        (
            struct.pack(">hqi", 4, 9, 2) + b"\x02a" + struct.pack(">q", 1) + b"\x01\x00\x10" * 1
            + bytes(16),
            OffsetRecord(9, 2, "a", 1),
        ),
    ],
)  # fmt: skip
def test_other_versions_of_an_offset_are_read(value: bytes, found: OffsetRecord) -> None:
    assert records.read_offset(value) == found


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert records.group_key("g") == b"\x00\x02" + text("g")
    assert records.read_group_key(records.group_key("g")) == "g"
    value = records.group_value(GROUP)
    assert value == (
        b"\x00\x03" + text("consumer") + struct.pack(">i", 7) + text("range") + text("m-1")
        + struct.pack(">qi", 12, 1) + text("m-1") + text("i") + text("c") + text("/h")
        + struct.pack(">ii", 300_000, 45_000) + blob(b"sub") + blob(b"ass")
    )  # fmt: skip
    assert records.read_group(value) == GROUP


def test_an_old_group_has_no_instances_and_no_timestamp() -> None:
    value = (
        b"\x00\x00" + text("consumer") + struct.pack(">i", 7) + text("range") + text("m")
        + struct.pack(">i", 1) + text("m") + text("c") + text("/h") + struct.pack(">i", 45_000)
        + blob(b"s") + blob(b"a")
    )  # fmt: skip
    found = records.read_group(value)
    assert found.state_ms == -1
    assert found.members[0].instance_id is None
    assert found.members[0].rebalance_timeout_ms == 45_000


@pytest.mark.parametrize("size", range(len(records.group_value(GROUP))))
def test_what_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(InvalidBatch):
        records.read_group(records.group_value(GROUP)[:size])


def test_a_version_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="version 5"):
        records.read_group(b"\x00\x05" + bytes(40))
    with pytest.raises(InvalidBatch):
        records.read_offset(b"\x00\x09" + bytes(40))
    with pytest.raises(InvalidBatch):
        records.key_type(b"\x00")
