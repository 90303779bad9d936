"""Our reading and writing agree with kio's on every message that it knows, and survive any bytes.

Method: random messages of every class in every version are written by both, and read by both from
the same bytes. Only bytes that kio wrote are given to kio's reader: others could end the process.
"""

import io
import random
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.fetch.v12.response import FetchResponse as FetchResponse12
from kio.schema.fetch.v17.response import FetchResponse as FetchResponse17
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kraftpy.errors import WireError
from kraftpy.limits import MESSAGE_ELEMENTS_MAX
from kraftpy.wire.codec import build, decode, encode
from kraftpy.wire.headers import read_response, response_frame
from tests.unit.wire.messages import random_message, top_level_types

FETCH_HEAD = b"\xff" * 4 + bytes(21)  # Up to the topics of a FetchRequest v12.


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [EntityType.request, EntityType.response, EntityType.data])
def test_every_message_is_written_and_read_as_by_kio(kind: EntityType) -> None:
    rng = random.Random(kind.value)
    seen = 0
    for entity in top_level_types(kind):
        for _ in range(5):
            message = random_message(entity, rng)
            data = kio_bytes(message)
            assert bytes(encode(message)) == data, message
            assert decode(entity, data) == message
            assert decode(entity, memoryview(data)) == message
            assert entity_reader(entity)(data, 0) == (message, len(data))
            seen += 1
    assert seen > 50


def test_a_truncated_message_is_refused_at_every_length() -> None:
    rng = random.Random(5)
    for entity in top_level_types(EntityType.request):
        data = bytes(encode(random_message(entity, rng, length_max=2)))[:400]
        for end in range(len(data)):
            try:
                decode(entity, data[:end])
            except WireError:
                continue
            # A shorter message may be whole: then it is written as it was read.
            assert bytes(encode(decode(entity, data[:end]))) == data[:end]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\xff\xff\xff\xff\x0f", "shorter"),  # An array of 2^32 topics: kio's reader aborts.
        (b"\xff\xff\xff\xff\xff\xff\x01", "more than five"),
        (b"\x00", "null where"),
        (b"\x01\x01\xff\xff\xff\xff\x07", "shorter"),  # A string of 2 GiB.
        (b"\x01\x01\x02\xff\x00", "utf-8"),
        (b"\x01\x01\x01\x01\x00\x09\x03ab", "shorter"),  # A tag beyond the end.
        (b"\x01\x01\x01\x01\x00\x04\x03abc", "not as long"),
        (b"\x01\x01\x01\x00\x00", "1 bytes behind"),
        (b"\x01\x01\x01\x01\x63\x7f\x00", "shorter"),
        (b"", "shorter"),
    ],
)
def test_hostile_bytes_are_refused_with_a_reason(tail: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(FetchRequest, FETCH_HEAD + tail)


def test_tags_that_are_not_known_are_skipped() -> None:
    known = decode(FetchRequest, FETCH_HEAD + b"\x01\x01\x01\x02\x00\x02\x02a\x63\x05hello")
    assert known.cluster_id == "a"
    plain = decode(ApiVersionsRequest, b"\x02a\x02b\x01\x63\x05hello")
    assert (plain.client_software_name, plain.client_software_version) == ("a", "b")
    with pytest.raises(WireError):
        decode(ApiVersionsRequest, b"\x02a\x02b\x01\x63\x06hello")


def test_elements_are_counted_over_the_whole_message() -> None:
    topics = tuple({"topic_id": None, "name": None} for _ in range(10))
    message = build(
        MetadataRequest,
        {
            "topics": topics,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    )
    data = bytes(encode(message))
    assert decode(MetadataRequest, data, elements_max=10) == message
    with pytest.raises(WireError, match="more elements"):
        decode(MetadataRequest, data, elements_max=9)


def test_an_answer_may_have_more_elements_than_a_request() -> None:
    """All offsets of a group, which somebody asked for."""
    offset = {"committed_offset": 1, "metadata": "", "error_code": ErrorCode.none}
    partitions = [{**offset, "partition_index": at} for at in range(MESSAGE_ELEMENTS_MAX)]
    topics = [{"name": "t", "partitions": partitions}]
    answer = {"throttle_time": timedelta(0), "error_code": ErrorCode.none, "topics": topics}
    message = build(OffsetFetchResponse, answer)
    frame = bytes(response_frame(message, 9, 1)[4:])
    assert read_response(frame, OffsetFetchResponse, 9) == (1, message)
    with pytest.raises(WireError, match="more elements"):
        decode(OffsetFetchResponse, bytes(encode(message)))


def test_what_a_version_lacks_is_left_out() -> None:
    values: dict[str, Any] = {
        "throttle_time": None,
        "error_code": None,
        "responses": [{"topic": "t", "topic_id": None, "partitions": []}],
        "node_endpoints": [],
    }
    assert build(FetchResponse12, values).responses[0].topic == "t"
    assert not hasattr(build(FetchResponse17, values).responses[0], "topic")
