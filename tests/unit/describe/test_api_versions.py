"""ApiVersions, as the clients of any version need it."""

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.describe.api_versions import Features, api_versions
from kraftpy.wire.apis import Request, VersionRange, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.headers import API_VERSIONS, RequestHeader, read_response

TABLE = {API_VERSIONS: VersionRange(0, 4), 3: VersionRange(1, 13)}
FEATURES = Features({"kraft.version": (0, 1), "metadata.version": (7, 20)}, {"a": 2}, 55)


def ask(version: int, name: str = "me") -> Request:
    values = {"client_software_name": name, "client_software_version": "1"}
    message: object = build(request_type(API_VERSIONS, version), values)
    header = RequestHeader(API_VERSIONS, version, 7, None)
    return Request(header, message, response_type(API_VERSIONS, version))


@pytest.mark.parametrize("version", range(5))
def test_the_table_is_listed(version: int) -> None:
    frame = api_versions(TABLE, ask(version), FEATURES)
    number, answer = read_response(
        bytes(frame[4:]), response_type(API_VERSIONS, version), API_VERSIONS
    )
    assert number == 7
    listed = [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]
    assert listed == [(3, 1, 13), (API_VERSIONS, 0, 4)]
    assert answer.error_code is ErrorCode.none


@pytest.mark.parametrize(("version", "known"), [(3, 1), (4, 2)])
def test_old_clients_are_not_told_of_features_that_begin_with_0(version: int, known: int) -> None:
    frame = api_versions(TABLE, ask(version), FEATURES)
    _, answer = read_response(bytes(frame[4:]), response_type(API_VERSIONS, version), API_VERSIONS)
    assert len(answer.supported_features) == known
    assert answer.finalized_features_epoch == 55
    (finalized,) = answer.finalized_features
    assert (finalized.name, finalized.max_version_level) == ("a", 2)


def test_a_version_that_is_not_served_is_answered_with_those_that_are() -> None:
    header = RequestHeader(API_VERSIONS, 0, 7, None)
    frame = api_versions(TABLE, Request(header, None, response_type(API_VERSIONS, 0)), FEATURES)
    _, answer = read_response(bytes(frame[4:]), response_type(API_VERSIONS, 0), API_VERSIONS)
    assert answer.error_code is ErrorCode.unsupported_version
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(API_VERSIONS, 4)]


def test_a_client_with_an_odd_name_is_refused() -> None:
    frame = api_versions(TABLE, ask(3, "-"))
    _, answer = read_response(bytes(frame[4:]), response_type(API_VERSIONS, 3), API_VERSIONS)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.api_keys == ()
