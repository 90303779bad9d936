"""Fetch by hand agrees with the codec that is made from Kafka's schemas, in every version."""

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.types import ZERO_UUID, from_wire_uuid
from kraftpy.wire import fetch
from kraftpy.wire.apis import VersionRange, read_request, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.fetch import (
    FETCH,
    HIGH_WATERMARK_NOT_SAID,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    fetch_refusal,
    fetch_response,
    no_such_session,
    read_fetch,
)
from kraftpy.wire.headers import read_response, response_frame
from tests.unit.wire.hot_frames import (
    CORRELATION_ID,
    EXAMPLES,
    endpoints_of,
    frame_of,
    random_frame,
    random_leader,
    refused_at_every_length,
    survives_damage,
)

VERSIONS = range(4, 19)
ERRORS = [error.value for error in ErrorCode if error.value > 0]
every_version = pytest.mark.parametrize("version", VERSIONS)


@dataclass(frozen=True)
class Piece:
    """What would be sent from a file."""

    data: bytes

    @property
    def count(self) -> int:
        return len(self.data)


def as_by_codec(frame: memoryview) -> FetchRequest:
    """What the codec reads, as our own value; the names of topics are taken as they are."""
    request = read_request({FETCH: VersionRange(4, 18)}, bytes(frame))
    asked = request.message
    version = request.header.api_version
    state = getattr(asked, "replica_state", None)
    partitions = []
    forgotten: list[Any] = []
    for topic in asked.topics:
        partitions += [partition_by_codec(topic, each) for each in topic.partitions]
    for topic in getattr(asked, "forgotten_topics_data", ()):
        by_id = hasattr(topic, "topic_id")
        named: Any = from_wire_uuid(topic.topic_id) if by_id else topic.topic
        forgotten.append((named, topic.partitions))
    return FetchRequest(
        version=version,
        correlation_id=request.header.correlation_id,
        client_id=request.header.client_id,
        replica_id=asked.replica_id if state is None else state.replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=asked.max_wait // timedelta(milliseconds=1),
        bytes_min=asked.min_bytes,
        bytes_max=asked.max_bytes,
        isolation_level=asked.isolation_level,
        session_id=getattr(asked, "session_id", 0),
        session_epoch=getattr(asked, "session_epoch", -1),
        partitions=partitions,
        topics=[(b"", len(topic.partitions)) for topic in asked.topics],
        forgotten=forgotten,
        rack_id=getattr(asked, "rack_id", ""),
        cluster_id=getattr(asked, "cluster_id", None),
    )


def partition_by_codec(topic: Any, asked: Any) -> FetchPartition:
    by_id = hasattr(topic, "topic_id")
    directory = getattr(asked, "replica_directory_id", None)
    return FetchPartition(
        topic=None if by_id else topic.topic,
        topic_id=from_wire_uuid(topic.topic_id) if by_id else None,  # type: ignore[arg-type]
        index=asked.partition,
        current_leader_epoch=getattr(asked, "current_leader_epoch", -1),
        fetch_offset=asked.fetch_offset,
        last_fetched_epoch=getattr(asked, "last_fetched_epoch", -1),
        log_start_offset=getattr(asked, "log_start_offset", -1),
        bytes_max=asked.partition_max_bytes,
        replica_directory_id=ZERO_UUID if directory is None else from_wire_uuid(directory),
        high_watermark=getattr(asked, "high_watermark", HIGH_WATERMARK_NOT_SAID),
    )


def without_names(request: FetchRequest) -> FetchRequest:
    return request._replace(topics=[(b"", count) for _, count in request.topics])


def read_plain(frame: memoryview) -> FetchRequest:
    return without_names(read_fetch(frame))


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_requests_are_read_as_by_the_codec(version: int, rng: random.Random) -> None:
    _, frame = random_frame(FETCH, version, rng)
    assert read_plain(frame) == as_by_codec(frame)


@every_version
def test_truncated_requests_are_refused_at_every_length(version: int) -> None:
    rng = random.Random(version)
    for _ in range(3):
        refused_at_every_length(read_fetch, random_frame(FETCH, version, rng)[1])


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_damaged_requests_are_read_or_refused_as_by_the_codec(
    version: int, rng: random.Random
) -> None:
    survives_damage(read_plain, as_by_codec, random_frame(FETCH, version, rng)[1], rng)


def test_damage_is_of_both_kinds() -> None:
    rng = random.Random(3)
    counts = [0, 0]
    for version in VERSIONS:
        frame = random_frame(FETCH, version, rng)[1]
        read, refused = survives_damage(read_plain, as_by_codec, frame, rng)
        counts = [counts[0] + read, counts[1] + refused]
    assert min(counts) > 20


@pytest.mark.parametrize(
    ("session_id", "epoch", "incremental"),
    [(0, -1, False), (0, 0, False), (5, 0, False), (5, -1, False), (5, 1, True), (0, 7, True)],
)
def test_only_what_goes_on_with_a_session_is_incremental(
    session_id: int, epoch: int, incremental: bool
) -> None:
    message, _ = random_frame(FETCH, 12, random.Random(1))
    asked = replace(message, session_id=session_id, session_epoch=epoch)
    assert read_fetch(frame_of(asked, FETCH, 12)).is_incremental is incremental


def test_versions_without_sessions_always_ask_in_full() -> None:
    _, frame = random_frame(FETCH, 6, random.Random(1))
    assert not read_fetch(frame).is_incremental


# -- answers ----------------------------------------------------------------------------------


def random_fetched(rng: random.Random) -> FetchedPartition[Piece]:
    data = rng.randbytes(rng.choice([0, 1, 126, 127, 5000]))
    if rng.random() < 0.4:
        return FetchedPartition(0, 7, 7, 0, Piece(data))
    return FetchedPartition(
        error_code=rng.choice(ERRORS),
        high_watermark=rng.randrange(-1, 2**63),
        last_stable_offset=rng.randrange(-1, 2**63),
        log_start_offset=rng.randrange(-1, 2**63),
        records=rng.choice([None, Piece(data)]),
        aborted=rng.choice([None, [], [(1, 2), (2**40, 5)]]),
        preferred_read_replica=rng.choice([-1, 3]),
        diverging=rng.choice([None, (3, 99)]),
        leader=random_leader(rng),
    )


def fetched_values(partition: FetchPartition, got: FetchedPartition[Piece]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "partition_index": partition.index,
        "error_code": ErrorCode(got.error_code),
        "high_watermark": got.high_watermark,
        "last_stable_offset": got.last_stable_offset,
        "log_start_offset": got.log_start_offset,
        "aborted_transactions": None
        if got.aborted is None
        else [{"producer_id": pid, "first_offset": first} for pid, first in got.aborted],
        "preferred_read_replica": got.preferred_read_replica,
        "records": b"" if got.records is None else got.records.data,
    }
    if got.diverging is not None:
        values["diverging_epoch"] = {"epoch": got.diverging[0], "end_offset": got.diverging[1]}
    if got.leader is not None:
        leader = {"leader_id": got.leader.leader_id, "leader_epoch": got.leader.leader_epoch}
        values["current_leader"] = leader
    return values


def joined(pieces: list[bytes | Piece]) -> bytes:
    return b"".join(each if isinstance(each, bytes) else each.data for each in pieces)


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_answers_are_written_as_by_the_codec(version: int, rng: random.Random) -> None:
    message, frame = random_frame(FETCH, version, rng)
    request = read_fetch(frame)
    fetched = [random_fetched(rng) for _ in request.partitions]
    rest = list(zip(request.partitions, fetched, strict=True))
    topics = []
    for topic in message.topics:
        mine = [rest.pop(0) for _ in topic.partitions]
        name = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.topic}
        topics.append({**name, "partitions": [fetched_values(p, got) for p, got in mine]})
    values: dict[str, Any] = {
        "throttle_time": timedelta(milliseconds=5),
        "error_code": ErrorCode.none,
        "session_id": 0,
        "responses": topics,
        "node_endpoints": endpoints_of([got.leader for got in fetched]),
    }
    expected: Any = build(response_type(FETCH, version), values)
    pieces = fetch_response(request, fetched, throttle_ms=5)
    found = joined(pieces)
    assert found == bytes(response_frame(expected, FETCH, CORRELATION_ID))
    assert read_response(found[4:], type(expected), FETCH)[0] == CORRELATION_ID
    # Records stay what they are: nothing of a file is copied into an answer.
    sent = [each for each in pieces if isinstance(each, Piece)]
    assert sent == [got.records for got in fetched if got.records and got.records.count]


@every_version
def test_refusals_are_written_as_by_the_codec(version: int) -> None:
    _, frame = random_frame(FETCH, version, random.Random(1))
    request = read_fetch(frame)
    for found, error in (
        (fetch_refusal(request, 104), ErrorCode.inconsistent_cluster_id),
        (no_such_session(request), ErrorCode.fetch_session_id_not_found),
    ):
        values = {"throttle_time": timedelta(0), "error_code": error, "responses": []}
        expected: Any = build(response_type(FETCH, version), values)
        assert found == bytes(response_frame(expected, FETCH, CORRELATION_ID))


def test_a_planted_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without the log start offset, as before v5, is not what v12 is due."""
    monkeypatch.setattr(fetch, "_FIRST_WITH_LOG_START", 13)
    with pytest.raises(AssertionError):
        test_answers_are_written_as_by_the_codec(12)
