"""Admin requests through a broker: to the active controller, and visible here when answered."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.apis.forwarding import Client, Forwarder, ForwardingTiming
from kraftpy.broker.apis.forwarding_errors import error_values
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.errors import WireError
from kraftpy.network.client import WireClient
from kraftpy.wire import apis
from kraftpy.wire.apis import Request, read_request, request_type, response_type
from kraftpy.wire.codec import build, decode, encode
from kraftpy.wire.envelope import (
    ANONYMOUS,
    FORWARDABLE,
    Principal,
    address_bytes,
    principal_bytes,
    read_address,
    read_principal,
)
from kraftpy.wire.headers import read_response, request_frame
from tests.unit.broker.live_broker import live_broker
from tests.unit.broker.live_quorum import live_quorum, quota_values, run
from tests.unit.broker.scripted import hang_up, scripted
from tests.unit.broker.test_controller_channel import channel_to

CLIENT = Client(address="10.1.2.3", principal=Principal("User", "alice"))
CREATE_VERSION = 7


def framed(api_key: int, version: int, values: dict[str, Any]) -> tuple[Request, bytes]:
    """A request as the broker has it: read, and as it came."""
    message: Any = build(request_type(api_key, version), values)
    frame = bytes(request_frame(message, api_key, version, 4711, "a client"))[4:]
    return read_request({api_key: apis.VersionRange(version, version)}, frame), frame


def create_topic(name: str, version: int = CREATE_VERSION) -> tuple[Request, bytes]:
    topic = {
        "name": name,
        "num_partitions": 3,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    values = {"topics": [topic], "timeout": timedelta(seconds=5), "validate_only": False}
    return framed(apis.CREATE_TOPICS, version, values)


async def forward(forwarder: Forwarder, request: Request, frame: bytes) -> Any:
    answer = await forwarder.forward(request, frame, CLIENT)
    correlation_id, message = read_response(
        bytes(answer[4:]), request.response_type, request.header.api_key
    )
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert correlation_id == 4711
    return message


# -- with real controllers --------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 7])
def test_a_topic_is_there_when_the_answer_is(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.running()
            forwarder = Forwarder(broker.channel, broker.cache)
            for number in range(5):
                answer = await forward(forwarder, *create_topic(f"topic-{number}", version))
                assert [t.error_code for t in answer.topics] == [ErrorCode.none]
                topic = broker.cache.image.topic(f"topic-{number}")
                assert topic is not None, "the broker has seen it itself"
                assert len(topic.partitions) == 3
            again = await forward(forwarder, *create_topic("topic-0", version))
            assert again.topics[0].error_code is ErrorCode.topic_already_exists

    run(main)


def test_without_the_wait_the_topic_is_often_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug of the test above."""

    async def do_not_wait(_self: Forwarder) -> None:
        return

    monkeypatch.setattr(Forwarder, "_until_visible", do_not_wait)

    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.running()
            broker.following.cancel()  # The slowest broker there can be.
            await asyncio.gather(broker.following, return_exceptions=True)
            forwarder = Forwarder(broker.channel, broker.cache)
            answer = await forward(forwarder, *create_topic("early"))
            assert answer.topics[0].error_code is ErrorCode.none
            assert broker.cache.image.topic("early") is None

    run(main)


def test_an_answer_does_not_wait_for_ever_for_a_slow_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.running()
            broker.following.cancel()
            await asyncio.gather(broker.following, return_exceptions=True)
            timing = ForwardingTiming(visible_s=0.1)
            forwarder = Forwarder(broker.channel, broker.cache, timing)
            answer = await forward(forwarder, *create_topic("orders"))
            assert answer.topics[0].error_code is ErrorCode.none

    run(main)


def test_requests_reach_the_new_controller_after_a_failover(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, 3) as quorum, live_broker(quorum) as broker:
            await broker.caught_up(quorum)
            forwarder = Forwarder(broker.channel, broker.cache)
            for number in range(3):
                asked = framed(apis.ALTER_CLIENT_QUOTAS, 1, quota_values(f"user-{number}"))
                answer = await forward(forwarder, *asked)
                assert [e.error_code for e in answer.entries] == [ErrorCode.none]
                leader_id = (await quorum.leader()).config.node_id
                await quorum.stop(leader_id)
                await quorum.start(leader_id)
            await broker.caught_up(quorum)
            assert len(broker.cache.image.quotas) == 3

    run(main)


def envelope_of(frame: bytes, **changed: Any) -> dict[str, Any]:
    values = {
        "request_data": frame,
        "request_principal": principal_bytes(ANONYMOUS),
        "client_host_address": address_bytes("::1"),
    }
    return values | changed


def test_what_may_not_be_passed_on_is_refused_on_the_envelope(tmp_path: Path) -> None:
    _, good = framed(apis.ALTER_CLIENT_QUOTAS, 1, quota_values("u"))
    _, heartbeat = framed(
        apis.BROKER_HEARTBEAT,
        0,
        {
            "broker_id": 1,
            "broker_epoch": 1,
            "current_metadata_offset": 1,
            "want_fence": True,
            "want_shut_down": False,
        },
    )
    newer = bytearray(good)
    newer[3] = 99
    no_principal = ErrorCode.principal_deserialization_failure
    cases = [
        (envelope_of(good), ErrorCode.none),
        (envelope_of(good, request_principal=None), no_principal),
        (
            envelope_of(good, request_principal=b"\0\7x"),
            ErrorCode.principal_deserialization_failure,
        ),
        (envelope_of(good, client_host_address=b"abc"), ErrorCode.invalid_request),
        (envelope_of(heartbeat), ErrorCode.invalid_request),
        (envelope_of(bytes(newer)), ErrorCode.unsupported_version),
        (envelope_of(good[:-3]), ErrorCode.invalid_request),
        (envelope_of(b"\0"), ErrorCode.invalid_request),
    ]

    async def main() -> None:
        async with live_quorum(tmp_path) as quorum:
            for values, expected in cases:
                answer = await quorum.ask(apis.ENVELOPE, values)
                assert answer.error_code is expected
                assert (answer.response_data is None) == (expected is not ErrorCode.none)

    run(main)


def test_a_standby_says_on_the_envelope_that_it_is_not_active(tmp_path: Path) -> None:
    _, frame = framed(apis.ALTER_CLIENT_QUOTAS, 1, quota_values("u"))

    async def main() -> None:
        async with live_quorum(tmp_path, 3) as quorum:
            leader_id = (await quorum.leader()).config.node_id
            for node_id, port in quorum.ports.items():
                client = await WireClient.connect("127.0.0.1", port, timeout_s=30)
                answer = await client.ask(apis.ENVELOPE, envelope_of(frame))
                await client.close()
                active = node_id == leader_id
                expected = ErrorCode.none if active else ErrorCode.not_controller
                assert answer.error_code is expected

    run(main)


# -- what clients are told when it fails ------------------------------------------------------


def test_nothing_happened_and_nobody_knows_are_different_answers() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            timing = ForwardingTiming(request_s=0.3)
            forwarder = Forwarder(channel, MetadataCache(), timing)
            node.leader_id = -1
            answer = await forward(forwarder, *create_topic("a"))
            assert answer.topics[0].error_code is ErrorCode.not_controller
            assert "was not done" in answer.topics[0].error_message
            node.leader_id = 1
            node.answers[apis.ENVELOPE] = hang_up
            answer = await forward(forwarder, *create_topic("a"))
            assert answer.topics[0].error_code is ErrorCode.request_timed_out
            assert node.count(apis.ENVELOPE) == 1, "it is not sent twice"

    run(main)


def test_an_envelope_that_is_refused_is_an_error_of_the_server() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            forwarder = Forwarder(channel, MetadataCache())
            for error_code, data in (
                (ErrorCode.cluster_authorization_failed, None),
                (ErrorCode.none, None),
                (ErrorCode.none, b"\0\0\0\0 another client's"),
            ):

                async def answer(
                    _request: Request, error: ErrorCode = error_code, data: bytes | None = data
                ) -> dict[str, Any]:
                    return {"error_code": error, "response_data": data}

                node.answers[apis.ENVELOPE] = answer
                found = await forward(forwarder, *create_topic("a"))
                assert found.topics[0].error_code is ErrorCode.unknown_server_error

    run(main)


def test_a_request_that_no_controller_takes_is_refused_here() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            request, frame = create_topic("a")
            forwarder = Forwarder(channel, MetadataCache())
            answer = await forwarder.forward(request, frame + bytes(1 << 22), CLIENT)
            _, message = read_response(bytes(answer[4:]), request.response_type, 19)
            assert message.topics[0].error_code is ErrorCode.invalid_request
            assert node.told == []

    run(main)


ASKED: dict[int, dict[str, Any]] = {
    apis.CREATE_TOPICS: {
        "topics": [
            {
                "name": "a",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ],
        "timeout": timedelta(0),
        "validate_only": False,
    },
    apis.DELETE_TOPICS: {
        "topics": [{"name": "a", "topic_id": None}],
        "topic_names": ["a"],
        "timeout": timedelta(0),
    },
    apis.CREATE_PARTITIONS: {
        "topics": [{"name": "a", "count": 2, "assignments": None}],
        "timeout": timedelta(0),
        "validate_only": False,
    },
    apis.CREATE_ACLS: {
        "creations": [
            {
                "resource_type": 2,
                "resource_name": "a",
                "resource_pattern_type": 3,
                "principal": "User:a",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            }
        ]
    },
    apis.DELETE_ACLS: {
        "filters": [
            {
                "resource_type_filter": 2,
                "resource_name_filter": None,
                "pattern_type_filter": 3,
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            }
        ]
    },
    apis.ALTER_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": "a", "configs": []}],
        "validate_only": False,
    },
    apis.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": "a", "configs": []}],
        "validate_only": False,
    },
    apis.ALTER_CLIENT_QUOTAS: quota_values("u"),
    apis.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "u", "mechanism": 1}, {"name": "u", "mechanism": 2}],
        "upsertions": [],
    },
    apis.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": None,
        "timeout": timedelta(0),
    },
    apis.ALTER_PARTITION_REASSIGNMENTS: {
        "timeout": timedelta(0),
        "allow_replication_factor_change": True,
        "topics": [],
    },
    apis.LIST_PARTITION_REASSIGNMENTS: {"timeout": timedelta(0), "topics": None},
    apis.DESCRIBE_QUORUM: {"topics": []},
    apis.UPDATE_FEATURES: {
        "timeout": timedelta(0),
        "feature_updates": [],
        "validate_only": False,
    },
    apis.UNREGISTER_BROKER: {"broker_id": 3},
}
VERSIONS = {
    apis.CREATE_TOPICS: range(2, 8),
    apis.DELETE_TOPICS: range(1, 7),
    apis.CREATE_PARTITIONS: range(4),
    apis.CREATE_ACLS: range(1, 4),
    apis.DELETE_ACLS: range(1, 4),
    apis.ALTER_CONFIGS: range(3),
    apis.INCREMENTAL_ALTER_CONFIGS: range(2),
    apis.ALTER_CLIENT_QUOTAS: range(2),
    apis.ALTER_USER_SCRAM_CREDENTIALS: range(1),
    apis.ELECT_LEADERS: range(3),
    apis.ALTER_PARTITION_REASSIGNMENTS: range(2),
    apis.LIST_PARTITION_REASSIGNMENTS: range(1),
    apis.DESCRIBE_QUORUM: range(3),
    apis.UPDATE_FEATURES: range(3),
    apis.UNREGISTER_BROKER: range(1),
}


def test_every_api_that_is_passed_on_has_an_answer_for_failure() -> None:
    assert set(ASKED) == set(VERSIONS) == FORWARDABLE


@pytest.mark.parametrize(
    ("api_key", "version"), [(key, version) for key in VERSIONS for version in VERSIONS[key]]
)
def test_a_failure_is_told_in_every_version(api_key: int, version: int) -> None:
    entity, response = request_type(api_key, version), response_type(api_key, version)
    asked: Any = decode(entity, bytes(encode(build(entity, ASKED[api_key]))))
    values = error_values(api_key, asked, ErrorCode.not_controller, "why")
    answer: Any = decode(response, bytes(encode(build(response, values))))
    if api_key == apis.ELECT_LEADERS and version == 0:
        return  # It has no place for an error of the whole request.
    assert "not_controller" in repr(answer)


# -- principals and addresses -----------------------------------------------------------------


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    data = principal_bytes(Principal("User", "alice", True))
    # Version, length plus one and text of type and name, the flag, no tags.
    assert data == b"\0\0\x05User\x06alice\x01\0"
    assert read_principal(data) == Principal("User", "alice", True)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\x05User", b"\0\0\x05Us", b"\0\0\1\1\0\0\0"])
def test_what_is_no_principal_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        read_principal(data)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "2001:db8::7"])
def test_addresses_are_their_bytes(address: str) -> None:
    assert read_address(address_bytes(address)) == address
    assert len(address_bytes(address)) in (4, 16)


def test_what_is_no_address_is_refused() -> None:
    for data in (b"", b"123", bytes(17)):
        with pytest.raises(WireError):
            read_address(data)
