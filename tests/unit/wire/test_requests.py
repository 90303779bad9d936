"""Frames, headers and the version table."""

import random

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.api_versions.v3.request import ApiVersionsRequest

from kraftpy.errors import WireError
from kraftpy.wire import apis
from kraftpy.wire.apis import VersionRange, read_request, request_type, response_type
from kraftpy.wire.frames import FrameBuffer
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame, response_frame
from tests.unit.wire.messages import random_message

TABLE = {API_VERSIONS: VersionRange(0, 4), apis.METADATA: VersionRange(1, 13)}


def test_frames_come_out_whole_however_their_bytes_came_in() -> None:
    rng = random.Random(3)
    frames = [rng.randbytes(size) for size in (0, 1, 3, 100, 0, 5000)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for step in (1, 2, 3, 7, 1000, len(stream)):
        buffer = FrameBuffer(5000)
        found = []
        for at in range(0, len(stream), step):
            buffer.feed(stream[at : at + step])
            while (frame := buffer.next_frame()) is not None:
                found.append(frame)
        assert found == frames
        assert len(buffer) == 0


@pytest.mark.parametrize("length", [-1, 5001, 2**31 - 1, -(2**31)])
def test_a_length_beyond_the_limit_is_refused_before_anything_follows(length: int) -> None:
    buffer = FrameBuffer(5000)
    buffer.feed(length.to_bytes(4, "big", signed=True))
    with pytest.raises(WireError, match="at most 5000"):
        buffer.next_frame()


def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    """librdkafka's Metadata for all topics has some."""
    message = random_message(request_type(apis.METADATA, 12), random.Random(5))
    frame = bytes(request_frame(message, apis.METADATA, 12, 7, "me"))[4:]
    assert read_request(TABLE, frame + b"\0\0\0").message == read_request(TABLE, frame).message


def test_requests_and_responses_survive_their_frames_in_every_version() -> None:
    rng = random.Random(4)
    for api_key, versions in TABLE.items():
        for version in range(versions.min_version, versions.max_version + 1):
            message = random_message(request_type(api_key, version), rng)
            frame = bytes(request_frame(message, api_key, version, 7, "me"))
            request = read_request(TABLE, frame[4:])
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            assert request.header == (api_key, version, 7, "me")
            assert request.message == message
            answer = random_message(response_type(api_key, version), rng)
            sent = bytes(response_frame(answer, api_key, 7))
            assert read_response(sent[4:], type(answer), api_key) == (7, answer)


def test_an_answer_to_api_versions_has_no_tags_in_its_header() -> None:
    answer = random_message(response_type(API_VERSIONS, 4), random.Random(1))
    frame = bytes(response_frame(answer, API_VERSIONS, 1))
    assert frame[4:8] == (1).to_bytes(4, "big")
    assert frame[8:10] == answer.error_code.value.to_bytes(2, "big", signed=True)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_any_version_is_understood_enough_to_be_answered(version: int) -> None:
    head = b"".join(n.to_bytes(2, "big", signed=True) for n in (API_VERSIONS, version))
    request = read_request(TABLE, head + (9).to_bytes(4, "big") + b"whatever comes")
    assert request.message is None
    assert request.header == (API_VERSIONS, 0, 9, None)
    assert request.response_type is ApiVersionsResponse


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "of 0 bytes"),
        (bytes(7), "of 7 bytes"),
        (bytes(8), "API 0 is not served"),
        (b"\0\3\0\x0e" + bytes(6), "metadata version 14"),
        (b"\0\3\0\0" + bytes(6), "metadata version 0"),
        (b"\0\3\0\x0c" + bytes(4), "malformed request header"),
        (b"\0\3\0\x0c" + bytes(4) + b"\0\5abc", "longer than"),
        (b"\0\3\0\x0c" + bytes(4) + b"\0\1\xff\0", "utf-8"),
        (b"\0\3\0\x0c" + bytes(4) + b"\0\1a\1\1\x7f", "longer than"),
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_request(TABLE, frame)


def test_a_client_id_may_be_null() -> None:
    request = read_request(TABLE, b"\0\x12\0\3" + bytes(4) + b"\xff\xff\0" + b"\2a\2b\0")
    assert request.header.client_id is None
    assert request.message == ApiVersionsRequest(
        client_software_name="a", client_software_version="b"
    )
