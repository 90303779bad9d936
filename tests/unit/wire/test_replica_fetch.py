"""A follower's Fetch by hand agrees with the codec that is made from Kafka's schemas."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.errors import WireError
from kraftpy.types import TopicId, Uuid, from_wire_uuid
from kraftpy.wire.apis import VersionRange, read_request, response_type
from kraftpy.wire.fetch import FETCH, read_fetch
from kraftpy.wire.headers import response_frame
from kraftpy.wire.replica_fetch import (
    VERSION_MAX,
    VERSION_MIN,
    ReplicaFetch,
    WantedPartition,
    read_replica_answer,
    replica_fetch,
)
from tests.unit.wire.fuzz import mutated
from tests.unit.wire.hot_frames import CORRELATION_ID, EXAMPLES, refused_at_every_length
from tests.unit.wire.messages import random_message

every_version = pytest.mark.parametrize("version", range(VERSION_MIN, VERSION_MAX + 1))


def random_request(rng: random.Random) -> ReplicaFetch:
    def partition() -> WantedPartition:
        offset, start = rng.randrange(2**63), rng.randrange(-1, 2**63)
        return WantedPartition(rng.randrange(2**31), 5, offset, rng.randrange(-1, 9), start, 1000)

    topics = {
        TopicId(Uuid(rng.randbytes(16))): [partition() for _ in range(rng.choice([1, 2, 200]))]
        for _ in range(rng.randrange(4))
    }
    return ReplicaFetch(rng.randrange(2**31), rng.randrange(2**63), 500, 1, 10_000_000, topics)


def random_answer(version: int, rng: random.Random) -> tuple[Any, memoryview]:
    message = random_message(response_type(FETCH, version), rng)
    frame = response_frame(message, FETCH, CORRELATION_ID)[4:]
    return message, memoryview(frame)


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_requests_are_what_the_codec_and_the_leader_read(version: int, rng: random.Random) -> None:
    request = random_request(rng)
    frame = memoryview(replica_fetch(request, version, 9))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found = read_fetch(frame[4:])
    assert (found.version, found.correlation_id) == (version, 9)
    assert (found.replica_id, found.replica_epoch) == request[:2]
    assert (found.max_wait_ms, found.bytes_min, found.bytes_max) == request[2:5]
    assert not found.is_incremental
    asked = [(each.topic_id, each.index, each.fetch_offset) for each in found.partitions]
    assert asked == [
        (topic_id, each.partition, each.offset)
        for topic_id, partitions in request.topics.items()
        for each in partitions
    ]
    by_codec = read_request({FETCH: VersionRange(4, 18)}, bytes(frame[4:])).message
    assert by_codec.replica_state.replica_epoch == request.replica_epoch
    ends = [each for topic in by_codec.topics for each in topic.partitions]
    wanted = [each for partitions in request.topics.values() for each in partitions]
    assert [(e.current_leader_epoch, e.last_fetched_epoch, e.log_start_offset) for e in ends] == [
        (each.leader_epoch, each.last_fetched_epoch, each.log_start_offset) for each in wanted
    ]


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_answers_are_read_as_by_the_codec(version: int, rng: random.Random) -> None:
    message, frame = random_answer(version, rng)
    answer = read_replica_answer(frame)
    assert answer.correlation_id == CORRELATION_ID
    assert answer.error_code == message.error_code.value
    expected = [
        (from_wire_uuid(topic.topic_id), each)
        for topic in message.responses
        for each in topic.partitions
    ]
    assert len(answer.partitions) == len(expected)
    for found, (topic_id, each) in zip(answer.partitions, expected, strict=True):
        assert (found.topic_id, found.partition) == (topic_id, each.partition_index)
        assert found.error_code == each.error_code.value
        assert found.high_watermark == each.high_watermark
        assert found.log_start_offset == each.log_start_offset
        assert (None if found.records is None else bytes(found.records)) == each.records
        end = each.diverging_epoch
        assert (found.diverging or (-1, -1)) == (end.epoch, end.end_offset)


@every_version
def test_truncated_answers_are_refused_at_every_length(version: int) -> None:
    rng = random.Random(version)
    for _ in range(3):
        refused_at_every_length(read_replica_answer, random_answer(version, rng)[1])


@every_version
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_damaged_answers_are_read_or_refused_and_nothing_else(
    version: int, rng: random.Random
) -> None:
    _, frame = random_answer(version, rng)
    for _ in range(50):
        with suppress(WireError):
            read_replica_answer(memoryview(mutated(bytes(frame), rng)))
