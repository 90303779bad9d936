"""Raft's own entries in the metadata log: Kafka's control records, in Kafka's wire format. Pure.

The key is (version i16, type i16). The value begins with its version and is one of Kafka's flexible
messages: compact arrays and strings, tagged fields behind each struct (skipped: none is defined).
Types of a transaction (abort, commit) belong to data partitions and are refused here. The reader
is our own since it must survive any bytes: every length is held against what is left.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from kraftpy.errors import RecordDecodeError
from kraftpy.types import ZERO_UUID, Uuid

T = TypeVar("T")
_KEY: Final = struct.Struct(">hh")
_KEY_VERSION: Final = 0
# One tagged field, number 10000 (far from where Kafka counts), of eight bytes.
_BATCH_COUNT_NUMBER: Final = 10_000
_BATCH_COUNT_TAG: Final = b"\x01\x90\x4e\x08"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The first entry of every epoch: who leads it, and who voted for that.

    A voter is (id, directory id); directory ids exist from version 1 on and are zero before.
    """

    leader_id: int
    voters: tuple[tuple[int, Uuid], ...]
    granting_voters: tuple[tuple[int, Uuid], ...]
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The first entry of a snapshot, with the time of the last record that it covers.

    `batch_count`, ours, is how many batches the log has had up to the snapshot's end: a log that
    begins there goes on counting. It is a tagged field, which other readers skip.
    """

    last_contained_log_timestamp: int
    batch_count: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooter:
    """The last entry of a snapshot: without it the file is not whole."""

    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersion:
    """Which Raft features the quorum agreed on."""

    kraft_version: int
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    voter_id: int
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voters:
    """The set of voters from here on."""

    voters: tuple[Voter, ...]
    version: int = 0


ControlRecord: TypeAlias = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters
CONTROL_TYPES: Final[dict[type[ControlRecord], int]] = {
    LeaderChange: 2,
    SnapshotHeader: 3,
    SnapshotFooter: 4,
    KRaftVersion: 5,
    Voters: 6,
}


def leader_change(leader_id: int, voters: list[int], granting: list[int]) -> LeaderChange:
    """A leader change among voters that are known by id alone."""
    return LeaderChange(
        leader_id=leader_id,
        voters=tuple((voter, ZERO_UUID) for voter in voters),
        granting_voters=tuple((voter, ZERO_UUID) for voter in granting),
    )


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """(key, value) of a control record."""
    body = bytearray(record.version.to_bytes(2, "big"))
    match record:
        case LeaderChange():
            body += struct.pack(">i", record.leader_id)
            for voters in (record.voters, record.granting_voters):
                _append_length(body, len(voters))
                for voter_id, directory_id in voters:
                    body += struct.pack(">i", voter_id)
                    body += directory_id if record.version >= 1 else b""
                    body.append(0)
        case SnapshotHeader():
            body += struct.pack(">q", record.last_contained_log_timestamp)
            if record.batch_count is not None:
                body += _BATCH_COUNT_TAG + struct.pack(">q", record.batch_count)
                return _key(record), bytes(body)
        case KRaftVersion():
            body += struct.pack(">h", record.kraft_version)
        case Voters():
            _append_length(body, len(record.voters))
            for voter in record.voters:
                _append_voter(body, voter)
        case SnapshotFooter():
            pass
    body.append(0)
    return _key(record), bytes(body)


def _key(record: ControlRecord) -> bytes:
    return _KEY.pack(_KEY_VERSION, CONTROL_TYPES[type(record)])


def _append_voter(body: bytearray, voter: Voter) -> None:
    body += struct.pack(">i", voter.voter_id) + voter.directory_id
    _append_length(body, len(voter.endpoints))
    for endpoint in voter.endpoints:
        for text in (endpoint.name, endpoint.host):
            raw = text.encode()
            _append_length(body, len(raw))
            body += raw
        body += struct.pack(">HB", endpoint.port, 0)
    body += struct.pack(">hhBB", voter.min_supported_version, voter.max_supported_version, 0, 0)


def _append_length(body: bytearray, length: int) -> None:
    """A compact length: one more than it is, seven bits at a time."""
    rest = length + 1
    while rest > 0x7F:
        body.append(rest & 0x7F | 0x80)
        rest >>= 7
    body.append(rest)


def decode_control(key: bytes | None, value: bytes | None, offset: int) -> ControlRecord:
    """The control record in these bytes; RecordDecodeError if they are none that we know."""
    if key is None or value is None or len(key) != _KEY.size:
        raise RecordDecodeError("a control record has a key of four bytes and a value", offset)
    key_version, number = _KEY.unpack(key)
    decoder = _DECODERS.get(number)
    if key_version != _KEY_VERSION or decoder is None:
        raise RecordDecodeError(f"unknown control record {number}, key {key_version}", offset)
    reader = _Reader(value)
    try:
        record = decoder(reader, reader.number(">h"))
        reader.expect_end()
    except ValueError as error:
        raise RecordDecodeError(f"control record {number}: {error}", offset) from None
    return record


class _Reader:
    """A cursor over a flexible message; ValueError where the bytes are not one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise ValueError("the bytes end too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, code: str) -> int:
        value: int = struct.unpack(code, self.take(struct.calcsize(code)))[0]
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a length of more than five bytes")

    def uuid(self) -> Uuid:
        return Uuid(self.take(16))

    def string(self) -> str:
        length = self.varint() - 1
        if length < 0:
            raise ValueError("a string is null")
        return self.take(length).decode()

    def array(self, element: Callable[[], T]) -> tuple[T, ...]:
        count = self.varint() - 1
        # Every element takes a byte at least: a count beyond that is not worth believing.
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"an array of {count} elements")
        return tuple(element() for _ in range(count))

    def tags(self) -> dict[int, bytes]:
        """Tagged fields by number; most readers skip them."""
        found = {}
        for _ in range(self.varint()):
            number = self.varint()
            found[number] = self.take(self.varint())
        return found

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")


def _check_version(version: int, maximum: int) -> int:
    if not 0 <= version <= maximum:
        raise ValueError(f"unknown version {version}")
    return version


def _leader_change(reader: _Reader, version: int) -> LeaderChange:
    _check_version(version, 1)

    def voter() -> tuple[int, Uuid]:
        voter_id = reader.number(">i")
        directory_id = reader.uuid() if version >= 1 else ZERO_UUID
        reader.tags()
        return voter_id, directory_id

    record = LeaderChange(
        leader_id=reader.number(">i"),
        voters=reader.array(voter),
        granting_voters=reader.array(voter),
        version=version,
    )
    reader.tags()
    return record


def _snapshot_header(reader: _Reader, version: int) -> SnapshotHeader:
    version = _check_version(version, 0)
    timestamp = reader.number(">q")
    raw = reader.tags().get(_BATCH_COUNT_NUMBER)
    if raw is not None and len(raw) != 8:
        raise ValueError(f"a batch count of {len(raw)} bytes")
    batch_count = None if raw is None else int.from_bytes(raw, "big", signed=True)
    return SnapshotHeader(
        last_contained_log_timestamp=timestamp, batch_count=batch_count, version=version
    )


def _snapshot_footer(reader: _Reader, version: int) -> SnapshotFooter:
    reader.tags()
    return SnapshotFooter(version=_check_version(version, 0))


def _kraft_version(reader: _Reader, version: int) -> KRaftVersion:
    record = KRaftVersion(kraft_version=reader.number(">h"), version=_check_version(version, 0))
    reader.tags()
    return record


def _voters(reader: _Reader, version: int) -> Voters:
    _check_version(version, 0)

    def endpoint() -> VoterEndpoint:
        found = VoterEndpoint(name=reader.string(), host=reader.string(), port=reader.number(">H"))
        reader.tags()
        return found

    def voter() -> Voter:
        found = Voter(
            voter_id=reader.number(">i"),
            directory_id=reader.uuid(),
            endpoints=reader.array(endpoint),
            min_supported_version=reader.number(">h"),
            max_supported_version=reader.number(">h"),
        )
        reader.tags()  # Of the version range, which is a struct of its own.
        reader.tags()
        return found

    record = Voters(voters=reader.array(voter), version=version)
    reader.tags()
    return record


_DECODERS: Final[dict[int, Callable[[_Reader, int], ControlRecord]]] = {
    CONTROL_TYPES[LeaderChange]: _leader_change,
    CONTROL_TYPES[SnapshotHeader]: _snapshot_header,
    CONTROL_TYPES[SnapshotFooter]: _snapshot_footer,
    CONTROL_TYPES[KRaftVersion]: _kraft_version,
    CONTROL_TYPES[Voters]: _voters,
}
