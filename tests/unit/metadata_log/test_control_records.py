"""Control records: the bytes are Kafka's (kio writes the same), and no bytes can do harm."""

import io
import random
import struct
import uuid
from typing import Any

import pytest
from kio.schema.k_raft_version_record.v0 import KRaftVersionRecord
from kio.schema.leader_change_message import v0, v1
from kio.schema.leader_change_message.v0.data import Voter as VoterV0
from kio.schema.leader_change_message.v1.data import Voter as VoterV1
from kio.schema.snapshot_footer_record.v0 import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0 import SnapshotHeaderRecord
from kio.schema.types import BrokerId
from kio.schema.voters_record.v0 import VotersRecord
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature
from kio.schema.voters_record.v0.data import Voter as KioVoter
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i64, u16

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log.control_records import (
    CONTROL_TYPES,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    VoterEndpoint,
    Voters,
    decode_control,
    encode_control,
    leader_change,
)
from kraftpy.types import Uuid

DIRECTORY = Uuid(bytes(range(16)))


def written_by_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


CASES: list[tuple[ControlRecord, Any]] = [
    (
        leader_change(1, [1, 2, 3], [1, 3]),
        v0.LeaderChangeMessage(
            version=i16(0),
            leader_id=BrokerId(1),
            voters=tuple(VoterV0(voter_id=i32(n)) for n in (1, 2, 3)),
            granting_voters=tuple(VoterV0(voter_id=i32(n)) for n in (1, 3)),
        ),
    ),
    (
        LeaderChange(leader_id=7, voters=((7, DIRECTORY),), granting_voters=(), version=1),
        v1.LeaderChangeMessage(
            version=i16(1),
            leader_id=BrokerId(7),
            voters=(VoterV1(voter_id=i32(7), voter_directory_id=uuid.UUID(bytes=DIRECTORY)),),
            granting_voters=(),
        ),
    ),
    (
        SnapshotHeader(last_contained_log_timestamp=1_700_000_000_000),
        SnapshotHeaderRecord(version=i16(0), last_contained_log_timestamp=i64(1_700_000_000_000)),
    ),
    (SnapshotFooter(), SnapshotFooterRecord(version=i16(0))),
    (KRaftVersion(kraft_version=1), KRaftVersionRecord(version=i16(0), k_raft_version=i16(1))),
    (
        Voters(
            voters=(
                Voter(
                    voter_id=3,
                    directory_id=DIRECTORY,
                    endpoints=(VoterEndpoint(name="CONTROLLER", host="node-3", port=9093),),
                    min_supported_version=0,
                    max_supported_version=1,
                ),
            )
        ),
        VotersRecord(
            version=i16(0),
            voters=(
                KioVoter(
                    voter_id=BrokerId(3),
                    voter_directory_id=uuid.UUID(bytes=DIRECTORY),
                    endpoints=(Endpoint(name="CONTROLLER", host="node-3", port=u16(9093)),),
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=i16(0), max_supported_version=i16(1)
                    ),
                ),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("record", "message"), CASES)
def test_the_bytes_are_kafkas(record: ControlRecord, message: Any) -> None:
    key, value = encode_control(record)
    assert key == struct.pack(">hh", 0, CONTROL_TYPES[type(record)])
    assert value == written_by_kio(message)
    assert decode_control(key, value, 0) == record


@pytest.mark.parametrize(("record", "_message"), CASES)
def test_every_prefix_and_any_excess_is_refused(record: ControlRecord, _message: Any) -> None:
    key, value = encode_control(record)
    for damaged in [value[:end] for end in range(len(value))] + [value + b"\x00"]:
        with pytest.raises(RecordDecodeError, match="offset 42"):
            decode_control(key, damaged, 42)


def test_the_count_of_batches_is_a_tagged_field() -> None:
    plain, ours = (
        SnapshotHeader(last_contained_log_timestamp=5, batch_count=count) for count in (None, 77)
    )
    key, value = encode_control(ours)
    assert decode_control(key, value, 0) == ours
    # One tagged field, number 10000, of eight bytes; what is before it is as without.
    assert value == encode_control(plain)[1][:-1] + b"\x01\x90\x4e\x08" + struct.pack(">q", 77)
    with pytest.raises(RecordDecodeError, match="batch count of 2 bytes"):
        decode_control(key, value[:10] + b"\x01\x90\x4e\x02ab", 0)


def test_tagged_fields_of_a_newer_kafka_are_skipped() -> None:
    key, value = encode_control(SnapshotFooter())
    assert decode_control(key, value[:-1] + b"\x01\x05\x02ab", 0) == SnapshotFooter()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00\x00\x00\x02", None),
        (b"\x00\x00", b""),
        (struct.pack(">hh", 1, 2), b"\x00" * 20),  # A later form of the key.
        (struct.pack(">hh", 0, 0), b"\x00" * 6),  # An abort marker: of data, not of metadata.
        (struct.pack(">hh", 0, 7), b"\x00" * 6),
        (struct.pack(">hh", 0, 4), b"\x00\x01\x00"),  # A later version of the footer.
        # An array of four billion voters in ten bytes.
        (struct.pack(">hh", 0, 2), b"\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\x0f"),
    ],
)
def test_what_is_not_known_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordDecodeError):
        decode_control(key, value, 0)


def test_random_bytes_raise_nothing_else() -> None:
    rng = random.Random(5)
    refused = 0
    for _ in range(20_000):
        key = struct.pack(">hh", 0, rng.randrange(8))
        try:
            decode_control(key, b"\x00\x00" + rng.randbytes(rng.randrange(40)), 0)
        except RecordDecodeError:
            refused += 1
    assert refused > 19_000
