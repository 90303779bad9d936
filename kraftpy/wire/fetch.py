"""Fetch, v4 to v18: requests read in place, answers as bytes around slices of files. Pure.

An answer is a list of pieces: bytes, and slices that are sent from their files. What a slice is
does not matter here, only how many bytes it has.

There are no incremental fetch sessions (KIP-227): a full fetch is answered with session id 0, which
tells the client that none was made, and it goes on asking in full.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kraftpy.errors import WireError
from kraftpy.types import ZERO_UUID, TopicId, Uuid
from kraftpy.wire import hot
from kraftpy.wire.generated import MALFORMED
from kraftpy.wire.hot import CurrentLeader
from kraftpy.wire.primitives import tag_head, varint

FETCH: Final = 1
READ_COMMITTED: Final = 1
HIGH_WATERMARK_NOT_SAID: Final = (1 << 63) - 1

_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_LEADER_EPOCH: Final = 9
_FIRST_WITH_RACK: Final = 11
_FIRST_FLEXIBLE: Final = 12
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_ENDPOINTS: Final = 16
_FIRST_WITH_DIRECTORY: Final = 17
_FIRST_WITH_HIGH_WATERMARK: Final = 18

_LIMITS: Final = struct.Struct(">iiib")  # Wait, least and most bytes, isolation level.
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_INT64: Final = struct.Struct(">q")
# Index, leader epoch, offset, last epoch, log start, most bytes; and the older ones with less.
_PARTITION: Final = struct.Struct(">iiqiqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V4: Final = struct.Struct(">iqi")
# Index, error, high watermark, last stable offset, and since v5 log start offset.
_FETCHED: Final = struct.Struct(">ihqqq")
_OLD_FETCHED: Final = struct.Struct(">ihqq")
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING: Final = struct.Struct(">iq")
_FETCH_SESSION_ID_NOT_FOUND: Final = 70


class Slice(Protocol):
    """Whole batches that are sent later, perhaps straight from a file."""

    @property
    def count(self) -> int: ...


R = TypeVar("R", bound=Slice)


@dataclass(slots=True)  # Not frozen: that would double the time it takes to make one.
class FetchPartition:
    """What is wanted of one partition. -1: not said."""

    topic: str | None
    topic_id: TopicId | None
    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int
    replica_directory_id: Uuid = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_NOT_SAID


class FetchRequest(NamedTuple):
    """One request. `topics` is how the answer names them: bytes, and how many partitions.

    `forgotten` are the (topic or id, partitions) to drop from a session. Nothing has one here.
    """

    version: int
    correlation_id: int
    client_id: str | None
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    topics: list[tuple[bytes, int]]
    forgotten: list[tuple[str | TopicId, tuple[int, ...]]]
    rack_id: str
    cluster_id: str | None

    @property
    def is_incremental(self) -> bool:
        """Whether it goes on with a session: all but the first (0) and the last (-1) do."""
        return self.session_epoch > 0


class FetchedPartition(NamedTuple, Generic[R]):
    """What one partition has. `aborted` is (producer id, first offset) of transactions, for
    READ_COMMITTED; `diverging` is (epoch, end offset) where the asker's log leaves ours."""

    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: R | None = None
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None
    leader: CurrentLeader | None = None


# -- reading ----------------------------------------------------------------------------------


def read_fetch(frame: memoryview) -> FetchRequest:
    """A request in a version that is served; WireError if it is not one."""
    try:
        return _read(frame)
    except MALFORMED as error:
        raise hot.malformed("FetchRequest", error) from None


def _read(frame: memoryview) -> FetchRequest:
    _, version, correlation_id, length = hot.HEAD.unpack_from(frame)
    client_id, at = hot.text(frame, hot.HEAD.size, length)
    reading = hot.FLEXIBLE if version >= _FIRST_FLEXIBLE else hot.PLAIN
    at = reading.skip_tags(frame, at)
    replica_id, replica_epoch, cluster_id = -1, -1, None
    if version < _FIRST_WITH_REPLICA_STATE:
        (replica_id,) = hot.INT32.unpack_from(frame, at)
        at += 4
    max_wait_ms, bytes_min, bytes_max, isolation_level = _LIMITS.unpack_from(frame, at)
    at += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= _FIRST_WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(frame, at)
        at += _SESSION.size
    budget = hot.Budget()
    partitions, topics, at = _read_topics(frame, at, version, reading, budget)
    forgotten: list[tuple[str | TopicId, tuple[int, ...]]] = []
    if version >= _FIRST_WITH_SESSIONS:
        forgotten, at = _read_forgotten(frame, at, version, reading, budget)
    rack_id = ""
    if version >= _FIRST_WITH_RACK:
        rack_id, at = _read_text(frame, at, reading)
    if version >= _FIRST_FLEXIBLE:
        replica, cluster_id = _read_last_tags(frame, at, version)
        if version >= _FIRST_WITH_REPLICA_STATE:
            replica_id, replica_epoch = replica
    # What follows it is not looked at, as in Kafka.
    return FetchRequest(
        version,
        correlation_id,
        client_id,
        replica_id,
        replica_epoch,
        max_wait_ms,
        bytes_min,
        bytes_max,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        topics,
        forgotten,
        rack_id,
        cluster_id,
    )


def _read_text(frame: memoryview, at: int, reading: hot.Reading) -> tuple[str, int]:
    length, at = reading.text(frame, at)
    end = hot.end_of(frame, at, length)
    return str(frame[at:end], "utf-8"), end


def _read_topic(
    frame: memoryview, at: int, version: int, reading: hot.Reading
) -> tuple[str | None, TopicId | None, int]:
    if version < _FIRST_WITH_TOPIC_IDS:
        topic, at = _read_text(frame, at, reading)
        return topic, None, at
    end = hot.end_of(frame, at, hot.UUID_BYTES)
    return None, TopicId(Uuid(bytes(frame[at:end]))), end


def _read_topics(
    frame: memoryview, at: int, version: int, reading: hot.Reading, budget: hot.Budget
) -> tuple[list[FetchPartition], list[tuple[bytes, int]], int]:
    partitions: list[FetchPartition] = []
    topics = []
    read_partition = _partition_reader(version)
    count, at = budget.array(frame, at, reading.size)
    for _ in range(count):
        start = at
        topic, topic_id, at = _read_topic(frame, at, version, reading)
        key = bytes(frame[start:at])
        wanted, at = budget.array(frame, at, reading.size)
        for _ in range(wanted):
            partition, at = read_partition(frame, at, topic, topic_id)
            partitions.append(partition)
        at = reading.skip_tags(frame, at)
        topics.append((key, wanted))
    return partitions, topics, at


class _ReadPartition(Protocol):
    def __call__(
        self, frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None, /
    ) -> tuple[FetchPartition, int]: ...


def _partition_reader(version: int) -> _ReadPartition:
    if version >= _FIRST_WITH_DIRECTORY:
        return _read_v18 if version >= _FIRST_WITH_HIGH_WATERMARK else _read_v17
    if version >= _FIRST_FLEXIBLE:
        return _read_v12
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return _read_v9
    return _read_v5 if version >= _FIRST_WITH_LOG_START else _read_v4


def _read_v4(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    index, offset, bytes_max = _PARTITION_V4.unpack_from(frame, at)
    found = FetchPartition(topic, topic_id, index, -1, offset, -1, -1, bytes_max)
    return found, at + _PARTITION_V4.size


def _read_v5(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    index, offset, log_start, bytes_max = _PARTITION_V5.unpack_from(frame, at)
    found = FetchPartition(topic, topic_id, index, -1, offset, -1, log_start, bytes_max)
    return found, at + _PARTITION_V5.size


def _read_v9(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    index, epoch, offset, log_start, bytes_max = _PARTITION_V9.unpack_from(frame, at)
    found = FetchPartition(topic, topic_id, index, epoch, offset, -1, log_start, bytes_max)
    return found, at + _PARTITION_V9.size


def _read_v12(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    found = FetchPartition(topic, topic_id, *_PARTITION.unpack_from(frame, at))
    return found, hot.FLEXIBLE.skip_tags(frame, at + _PARTITION.size)


def _read_v17(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    return _read_tagged(frame, at, topic, topic_id, 1)


def _read_v18(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None
) -> tuple[FetchPartition, int]:
    return _read_tagged(frame, at, topic, topic_id, 2)


def _read_tagged(
    frame: memoryview, at: int, topic: str | None, topic_id: TopicId | None, known: int
) -> tuple[FetchPartition, int]:
    """With a directory and a high watermark, of which the first `known` count."""
    numbers = _PARTITION.unpack_from(frame, at)
    at += _PARTITION.size
    if frame[at] == 0:
        return FetchPartition(topic, topic_id, *numbers), at + 1
    directory, high_watermark = ZERO_UUID, HIGH_WATERMARK_NOT_SAID
    count, at = _tag_count(frame, at)
    for _ in range(count):
        tag, at, end = _tag(frame, at)
        if tag == 0:
            directory = Uuid(bytes(frame[at:end]))
            at += hot.UUID_BYTES
        elif tag == 1 and known > 1:
            (high_watermark,) = _INT64.unpack_from(frame, at)
            at += _INT64.size
        else:
            at = end
        if at != end:
            raise WireError("a tag is not as long as it says")
    found = FetchPartition(topic, topic_id, *numbers)
    found.replica_directory_id = directory
    found.high_watermark = high_watermark
    return found, at


def _tag_count(frame: memoryview, at: int) -> tuple[int, int]:
    count = frame[at]
    return (count, at + 1) if count < 0x80 else varint(frame, at + 1, count)


def _tag(frame: memoryview, at: int) -> tuple[int, int, int]:
    """(tag, where its bytes begin, where they end)."""
    tag, size, at = tag_head(frame, at)
    return tag, at, hot.end_of(frame, at, size)


def _read_forgotten(
    frame: memoryview, at: int, version: int, reading: hot.Reading, budget: hot.Budget
) -> tuple[list[tuple[str | TopicId, tuple[int, ...]]], int]:
    forgotten: list[tuple[str | TopicId, tuple[int, ...]]] = []
    count, at = budget.array(frame, at, reading.size)
    for _ in range(count):
        topic, topic_id, at = _read_topic(frame, at, version, reading)
        named, at = budget.array(frame, at, reading.size)
        partitions = struct.unpack_from(f">{named}i", frame, at)
        at = reading.skip_tags(frame, at + 4 * named)
        key: str | TopicId | None = topic_id if topic is None else topic
        assert key is not None
        forgotten.append((key, partitions))
    return forgotten, at


def _read_last_tags(frame: memoryview, at: int, version: int) -> tuple[tuple[int, int], str | None]:
    """((replica id, its epoch), cluster id)."""
    replica = -1, -1
    cluster_id: str | None = None
    count, at = _tag_count(frame, at)
    for _ in range(count):
        tag, at, end = _tag(frame, at)
        if tag == 0:
            length, at = hot.FLEXIBLE.text(frame, at)
            cluster_id, at = hot.text(frame, at, length)
        elif tag == 1 and version >= _FIRST_WITH_REPLICA_STATE:
            replica = _REPLICA_STATE.unpack_from(frame, at)
            at = hot.FLEXIBLE.skip_tags(frame, at + _REPLICA_STATE.size)
        else:
            at = end
        if at != end:
            raise WireError("a tag is not as long as it says")
    return replica, cluster_id


# -- writing ----------------------------------------------------------------------------------


def fetch_response(
    request: FetchRequest, fetched: Sequence[FetchedPartition[R]], throttle_ms: int = 0
) -> list[bytes | R]:
    """The answer's frame in pieces; one result per partition, in the order of the request."""
    assert len(fetched) == len(request.partitions)
    version = request.version
    flexible = version >= _FIRST_FLEXIBLE
    pieces: list[bytes | R] = []
    size = 0
    out = [_start(version, throttle_ms, 0), hot.array_head(len(request.topics), flexible=flexible)]
    at = 0
    for key, count in request.topics:
        out += (key, hot.array_head(count, flexible=flexible))
        for number in range(at, at + count):
            result = fetched[number]
            out.append(_partition_head(version, request.partitions[number].index, result))
            if result.records is not None and result.records.count:
                # The bytes so far get the length and correlation id later, if they are the first.
                head = b"".join(out)
                pieces += (head, result.records)
                size += len(head) + result.records.count
                out = []
            if flexible:
                out.append(_partition_tags(result))
        if flexible:
            out.append(b"\0")
        at += count
    if flexible:
        out.append(_last_tags(version, fetched))
    last = b"".join(out)
    if last:
        pieces.append(last)
        size += len(last)
    first = pieces[0]
    assert isinstance(first, bytes)
    pieces[0] = hot.RESPONSE_HEAD.pack(size + 4, request.correlation_id) + first
    return pieces


def fetch_refusal(request: FetchRequest, error_code: int, throttle_ms: int = 0) -> bytes:
    """The answer to a request that is refused as a whole."""
    flexible = request.version >= _FIRST_FLEXIBLE
    body = _start(request.version, throttle_ms, error_code)
    body += hot.array_head(0, flexible=flexible) + (b"\0" if flexible else b"")
    return hot.RESPONSE_HEAD.pack(len(body) + 4, request.correlation_id) + body


def no_such_session(request: FetchRequest) -> bytes:
    """The answer to a request that goes on with a session: its client then asks in full."""
    return fetch_refusal(request, _FETCH_SESSION_ID_NOT_FOUND)


def _start(version: int, throttle_ms: int, error_code: int) -> bytes:
    start = hot.INT32.pack(throttle_ms)
    if version >= _FIRST_WITH_SESSIONS:
        start += hot.INT16.pack(error_code) + bytes(4)  # No session was made.
    return b"\0" + start if version >= _FIRST_FLEXIBLE else start


def _partition_head(version: int, index: int, result: FetchedPartition[R]) -> bytes:
    """Everything before the records, their length included."""
    flexible = version >= _FIRST_FLEXIBLE
    error_code, high_watermark, stable, log_start, records, aborted, preferred, _, _ = result
    if version >= _FIRST_WITH_LOG_START:
        head = _FETCHED.pack(index, error_code, high_watermark, stable, log_start)
    else:
        head = _OLD_FETCHED.pack(index, error_code, high_watermark, stable)
    head += _aborted_bytes(aborted, flexible=flexible)
    if version >= _FIRST_WITH_RACK:
        head += hot.INT32.pack(preferred)
    count = 0 if records is None else records.count
    return head + hot.array_head(count, flexible=flexible)


def _aborted_bytes(aborted: Sequence[tuple[int, int]] | None, *, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    end = b"\0" if flexible else b""
    written = b"".join(_ABORTED.pack(producer, first) + end for producer, first in aborted)
    return hot.array_head(len(aborted), flexible=flexible) + written


def _partition_tags(result: FetchedPartition[R]) -> bytes:
    if result.diverging is None and result.leader is None:
        return b"\0"
    tags = []
    if result.diverging is not None:
        tags.append((0, _DIVERGING.pack(*result.diverging) + b"\0"))
    if result.leader is not None:
        tags.append((1, hot.leader_bytes(result.leader)))
    return hot.tags_bytes(tags)


def _last_tags(version: int, fetched: Sequence[FetchedPartition[R]]) -> bytes:
    if version < _FIRST_WITH_ENDPOINTS:
        return b"\0"
    return hot.tags_bytes(hot.endpoints_tag(result.leader for result in fetched))
