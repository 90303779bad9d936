"""Produce by hand agrees with the codec that is made from Kafka's schemas, in every version."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.errors import WireError
from kraftpy.types import from_wire_uuid
from kraftpy.wire import produce
from kraftpy.wire.apis import VersionRange, read_request, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.headers import read_response, response_frame
from kraftpy.wire.produce import (
    PRODUCE,
    ProducePartition,
    ProduceReader,
    ProduceRequest,
    ProduceResult,
    RecordError,
    produce_response,
    read_produce,
)
from tests.unit.wire.fuzz import mutated
from tests.unit.wire.hot_frames import (
    CLIENT_ID,
    CORRELATION_ID,
    EXAMPLES,
    endpoints_of,
    frame_of,
    random_frame,
    random_leader,
    refused_at_every_length,
    survives_damage,
)

VERSIONS = range(3, 14)
ERRORS = [error.value for error in ErrorCode if error.value > 0]
every_version = pytest.mark.parametrize("version", VERSIONS)
Plain = tuple[Any, ...]


def plain(request: ProduceRequest) -> Plain:
    """What a request says, but for how its answer will name the topics."""
    partitions = [
        (p.topic, p.topic_id, p.index, None if p.records is None else bytes(p.records))
        for p in request.partitions
    ]
    head = (request.correlation_id, request.client_id, request.transactional_id, request.acks)
    counts = [count for _, count in request.topics]
    return (*head, request.timeout_ms, counts, partitions)


def plain_by_codec(frame: memoryview) -> Plain:
    request = read_request({PRODUCE: VersionRange(3, 13)}, bytes(frame))
    message = request.message
    partitions = []
    for topic in message.topic_data:
        by_id = hasattr(topic, "topic_id")
        name = None if by_id else topic.name
        topic_id = from_wire_uuid(topic.topic_id) if by_id else None
        partitions += [(name, topic_id, p.index, p.records) for p in topic.partition_data]
    timeout_ms = message.timeout // timedelta(milliseconds=1)
    counts = [len(topic.partition_data) for topic in message.topic_data]
    head = (request.header.correlation_id, request.header.client_id, message.transactional_id)
    return (*head, message.acks, timeout_ms, counts, partitions)


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_requests_are_read_as_by_the_codec(version: int, rng: random.Random) -> None:
    _, frame = random_frame(PRODUCE, version, rng)
    found = read_produce(frame)
    assert plain(found) == plain_by_codec(frame)
    assert (found.version, found.client_id, found.correlation_id) == (
        version,
        CLIENT_ID,
        CORRELATION_ID,
    )


@every_version
def test_truncated_requests_are_refused_at_every_length(version: int) -> None:
    rng = random.Random(version)
    for _ in range(3):
        refused_at_every_length(read_produce, random_frame(PRODUCE, version, rng)[1])


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_damaged_requests_are_read_or_refused_as_by_the_codec(
    version: int, rng: random.Random
) -> None:
    frame = random_frame(PRODUCE, version, rng)[1]
    survives_damage(lambda data: plain(read_produce(data)), plain_by_codec, frame, rng)


def test_damage_is_of_both_kinds() -> None:
    rng = random.Random(3)
    counts = [0, 0]
    for version in VERSIONS:
        frame = random_frame(PRODUCE, version, rng)[1]
        read, refused = survives_damage(
            lambda data: plain(read_produce(data)), plain_by_codec, frame, rng
        )
        counts = [counts[0] + read, counts[1] + refused]
    assert min(counts) > 20


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_requests_that_are_alike_are_read_and_answered_as_any(
    version: int, rng: random.Random
) -> None:
    reader = ProduceReader()
    by_shape = 0
    for _ in range(12):
        by_id = {"topic_id": UUID(int=1 + rng.randrange(2))}
        named = by_id if version >= 13 else {"name": rng.choice(["a", "b", "ab"])}
        records = rng.choice([None, b"", b"x", bytes(126), bytes(127), bytes(20_000)])
        partition = {"index": rng.choice([0, 0, 7]), "records": records}
        values = {
            "transactional_id": rng.choice([None, None, "t"]),
            "acks": 1,
            "timeout": timedelta(0),
            "topic_data": [{**named, "partition_data": [partition]}],
        }
        message: Any = build(request_type(PRODUCE, version), values)
        frame = frame_of(message, PRODUCE, version)
        if rng.random() < 0.2:
            frame = memoryview(bytearray(bytes(frame[:4]) + mutated(bytes(frame[4:]), rng)))
        try:
            expected = read_produce(frame)
        except WireError:
            with pytest.raises(WireError):
                reader.read(frame)
            continue
        found = reader.read(frame)
        by_shape += found.shape is not None
        assert plain(found) == plain(expected)
        assert found._replace(shape=None) == expected
        results = [random_result(rng) for _ in expected.partitions]
        assert produce_response(found, results) == produce_response(expected, results)
    event("some were read by their shape" if by_shape else "none was read by its shape")


def test_most_of_what_a_producer_sends_is_read_by_its_shape() -> None:
    reader = ProduceReader()
    shapes = [reader.read(frame).shape is not None for frame in alike(20)]
    assert shapes == [False] + [True] * 19


def alike(count: int) -> Iterator[memoryview]:
    for number in range(count):
        topic = {"name": "t", "partition_data": [{"index": 1, "records": bytes(number)}]}
        values = {"transactional_id": None, "acks": 1, "timeout": timedelta(0)}
        message: Any = build(request_type(PRODUCE, 9), {**values, "topic_data": [topic]})
        yield frame_of(message, PRODUCE, 9)


def test_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "PRODUCE_SHAPES_MAX", 3)
    reader = ProduceReader()
    rng = random.Random(1)
    for _ in range(300):
        reader.read(random_frame(PRODUCE, 9, rng)[1])
        assert len(reader._shapes) <= 3


def test_records_are_where_they_came_in() -> None:
    topic = {"name": "t", "partition_data": [{"index": 1, "records": b"batch"}]}
    values = {"transactional_id": None, "acks": 1, "timeout": timedelta(0), "topic_data": [topic]}
    message: Any = build(request_type(PRODUCE, 9), values)
    frame = frame_of(message, PRODUCE, 9)
    (partition,) = read_produce(frame).partitions
    assert partition.records is not None
    partition.records[:2] = b"BA"
    assert b"BAtch" in bytes(frame)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xa1\x8d\x06", b"\x80\x80\x80\x80"])
def test_counts_are_not_believed(count: bytes) -> None:
    head = b"\0\0\0\x09\0\0\0\1\xff\xff\0" + b"\0\0\1\0\0\0\1"
    with pytest.raises(WireError):
        read_produce(memoryview(head + count + bytes(200_000)))


# -- answers ----------------------------------------------------------------------------------


def random_request(version: int, rng: random.Random) -> ProduceRequest:
    return read_produce(random_frame(PRODUCE, version, rng)[1])


def random_result(rng: random.Random) -> ProduceResult:
    if rng.random() < 0.4:
        return ProduceResult(0, rng.randrange(2**40))
    errors = [RecordError(i, rng.choice([None, "", "né"])) for i in range(rng.randrange(3))]
    return ProduceResult(
        error_code=rng.choice(ERRORS),
        base_offset=rng.randrange(-1, 2**63),
        log_append_time_ms=rng.choice([-1, 1_700_000_000_000]),
        log_start_offset=rng.randrange(-1, 2**63),
        record_errors=errors,
        error_message=rng.choice([None, "", "wröng" * 60]),
        leader=random_leader(rng),
    )


def result_values(partition: ProducePartition, result: ProduceResult) -> dict[str, Any]:
    time_ms = result.log_append_time_ms
    values: dict[str, Any] = {
        "index": partition.index,
        "error_code": ErrorCode(result.error_code),
        "base_offset": result.base_offset,
        "log_append_time": None if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC),
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": each.batch_index, "batch_index_error_message": each.message}
            for each in result.record_errors
        ],
        "error_message": result.error_message,
    }
    if result.leader is not None:
        leader = {"leader_id": result.leader.leader_id, "leader_epoch": result.leader.leader_epoch}
        values["current_leader"] = leader
    return values


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_answers_are_written_as_by_the_codec(version: int, rng: random.Random) -> None:
    message, frame = random_frame(PRODUCE, version, rng)
    request = read_produce(frame)
    results = [random_result(rng) for _ in request.partitions]
    rest = list(zip(request.partitions, results, strict=True))
    topics = []
    for topic in message.topic_data:
        mine = [rest.pop(0) for _ in topic.partition_data]
        name = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
        topics.append({**name, "partition_responses": [result_values(p, r) for p, r in mine]})
    values: dict[str, Any] = {
        "responses": topics,
        "throttle_time": timedelta(milliseconds=5),
        "node_endpoints": endpoints_of([result.leader for result in results]),
    }
    expected: Any = build(response_type(PRODUCE, version), values)
    found = produce_response(request, results, throttle_ms=5)
    assert found == bytes(response_frame(expected, PRODUCE, CORRELATION_ID))
    # And it reads back: what was compared was an answer, with its length in front.
    assert read_response(found[4:], type(expected), PRODUCE)[0] == CORRELATION_ID


def test_a_planted_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without the log start offset, as before v5, is not what v9 is due."""
    monkeypatch.setattr(produce, "_FIRST_WITH_LOG_START", 10)
    with pytest.raises(AssertionError):
        test_answers_are_written_as_by_the_codec(9)
