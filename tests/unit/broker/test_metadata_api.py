"""Metadata, DescribeCluster, DescribeTopicPartitions: in every version, as a client reads them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.apis import metadata as api
from kraftpy.broker.apis.client_view import ClientView, is_online
from kraftpy.broker.apis.describe_topics import describe_topic_partitions
from kraftpy.broker.metadata.nodes import listener_nodes
from kraftpy.metadata_log import EMPTY, MetadataRecord, replay_all
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.records import Endpoint
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.codec import build, decode, encode
from tests.unit.metadata_log.makers import (
    DIR,
    OTHER_ID,
    TOPIC_ID,
    brokers,
    partition,
    register,
    topic,
)

VERSIONS = range(14)


def point(name: str, port: int) -> Endpoint:
    return Endpoint(name=name, host="example", port=port, security_protocol=0)


def broker(broker_id: int, *, fenced: bool = False, listener: str = "L") -> MetadataRecord:
    points = (point(listener, 9000 + broker_id),)
    log_dirs = (DIR[broker_id],)
    return register(
        broker_id, end_points=points, fenced=fenced, rack=f"r{broker_id}", log_dirs=log_dirs
    )


def view(*records: MetadataRecord, own: int = 1) -> ClientView:
    image = replay_all(EMPTY, records)
    return ClientView(
        image=image,
        cluster_id="the-cluster",
        broker_id=BrokerId(own),
        listener=listener_nodes(image, "L"),
        topic_names=lambda: sorted(image.topic_ids),
    )


def three(**changed: Any) -> ClientView:
    dirs = (DIR[1], DIR[2], DIR[3])
    parts = [partition(index, directories=dirs, **changed) for index in (1, 0)]
    return view(broker(1), broker(2), broker(3), topic("orders"), *parts)


def ask(
    seen: ClientView, version: int, topics: Sequence[Any] | None, **values: Any
) -> tuple[Any, tuple[str, ...]]:
    """Through bytes, both ways."""
    auto_create = values.pop("auto_create", False)
    asked = [t if isinstance(t, dict) else {"name": t, "topic_id": None} for t in topics or ()]
    known = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
    known |= {"include_cluster_authorized_operations": False}
    given = {"topics": None if topics is None else asked, **known, **values}
    entity = request_type(apis.METADATA, version)
    message: Any = decode(entity, bytes(encode(build(entity, given))))
    outcome = api.metadata(seen, version, message, auto_create=auto_create)
    response = response_type(apis.METADATA, version)
    built: Any = build(response, outcome.values)
    return decode(response, bytes(encode(built))), outcome.topics_to_create


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_with_leaders_and_brokers(version: int) -> None:
    answer, _ = ask(three(), version, [] if version == 0 else None)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (1, "example", 9001),
        (2, "example", 9002),
        (3, "example", 9003),
    ]
    (found,) = answer.topics
    assert (found.name, found.error_code) == ("orders", ErrorCode.none)
    assert [p.partition_index for p in found.partitions] == [0, 1]
    first = found.partitions[0]
    assert (first.leader_id, first.error_code) == (1, ErrorCode.none)
    assert first.replica_nodes == first.isr_nodes == (1, 2, 3)
    if version >= 1:
        assert answer.controller_id == 1
        assert not found.is_internal
        assert answer.brokers[0].rack == "r1"
    if version >= 2:
        assert answer.cluster_id == "the-cluster"
    if version >= 5:
        assert first.offline_replicas == ()
    if version >= 7:
        assert first.leader_epoch == 4
    if version >= 10:
        assert found.topic_id == UUID(bytes=TOPIC_ID)
    if version >= 13:
        assert answer.error_code is ErrorCode.none


@pytest.mark.parametrize("version", range(1, 14))
def test_an_empty_list_asks_for_no_topics(version: int) -> None:
    answer, _ = ask(three(), version, [])
    assert answer.topics == ()
    assert len(answer.brokers) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_topics_are_named_with_their_error(version: int) -> None:
    answer, create = ask(three(), version, ["orders", "new", "no/good", "new"])
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("orders", ErrorCode.none),
        ("new", ErrorCode.unknown_topic_or_partition),
        ("no/good", ErrorCode.invalid_topic_exception),
    ]
    assert create == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_may_be_created_if_broker_and_client_want_it(version: int) -> None:
    names = ["orders", "new", "no/good"]
    assert ask(three(), version, names, auto_create=True)[1] == ("new",)
    refused = ask(three(), version, names, auto_create=True, allow_auto_topic_creation=False)[1]
    assert refused == (("new",) if version < 4 else ())
    assert ask(three(), version, [] if version == 0 else None, auto_create=True)[1] == ()


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(version: int) -> None:
    wanted = [UUID(bytes=TOPIC_ID), UUID(bytes=OTHER_ID)]
    answer, create = ask(
        three(), version, [{"name": None, "topic_id": each} for each in wanted], auto_create=True
    )
    assert [(t.name, t.topic_id, t.error_code) for t in answer.topics] == [
        ("orders", wanted[0], ErrorCode.none),
        (None, wanted[1], ErrorCode.unknown_topic_id),
    ]
    assert create == ()


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_in_versions_that_only_have_the_field(version: int) -> None:
    for each in ({"name": None, "topic_id": None}, {"name": "orders", "topic_id": UUID(int=5)}):
        answer, _ = ask(three(), version, [each])
        assert [t.error_code for t in answer.topics] == [ErrorCode.invalid_request]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fenced_broker_is_not_alive_and_its_replicas_are_offline(version: int) -> None:
    dirs = (DIR[1], DIR[2], DIR[3])
    seen = view(
        broker(1),
        broker(2, fenced=True),
        broker(3),
        topic("orders"),
        partition(0, directories=dirs),
    )
    answer, _ = ask(seen, version, ["orders"])
    assert [b.node_id for b in answer.brokers] == [1, 3]
    (found,) = answer.topics[0].partitions
    if version == 0:
        assert found.error_code is ErrorCode.replica_not_available
        assert found.replica_nodes == found.isr_nodes == (1, 3)
    else:
        assert found.error_code is ErrorCode.none
        assert found.replica_nodes == (1, 2, 3)
    if version >= 5:
        assert found.offline_replicas == (2,)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_cannot_be_reached_is_an_error(version: int) -> None:
    nobody = three(leader=BrokerId(-1))
    (found, _) = ask(nobody, version, ["orders"])[0].topics[0].partitions
    assert (found.leader_id, found.error_code) == (-1, ErrorCode.leader_not_available)
    other = view(
        broker(1, listener="OTHER"), broker(2), topic("orders"), partition(0, replicas=brokers(1))
    )
    (found,) = ask(other, version, ["orders"])[0].topics[0].partitions
    expected = ErrorCode.listener_not_found if version >= 6 else ErrorCode.leader_not_available
    assert (found.leader_id, found.error_code) == (-1, expected)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_operations_are_told_to_who_asks(version: int) -> None:
    wish = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    answer, _ = ask(three(), version, ["orders", "new"], **wish)
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE and both kinds of configs, as Kafka numbers them.
    assert [t.topic_authorized_operations for t in answer.topics] == [3576, -(2**31)]
    assert answer.cluster_authorized_operations == 8096
    answer, _ = ask(three(), version, ["orders"])
    assert answer.topics[0].topic_authorized_operations == -(2**31)


def test_the_controller_is_a_broker_that_is_alive() -> None:
    assert three().controller_id() == 1
    assert view(broker(1, fenced=True), broker(2)).controller_id() == 2
    assert view(broker(1, fenced=True)).controller_id() == -1
    assert view(broker(1, listener="OTHER"), broker(2), own=1).controller_id() == 2


def test_internal_topics_are_marked() -> None:
    seen = view(broker(1), topic("__consumer_offsets"), partition(0))
    assert ask(seen, 13, None)[0].topics[0].is_internal


def test_a_replica_is_online_where_its_directory_is() -> None:
    registered = register(1, log_dirs=(DIR[0],))
    assert is_online(DIR[0], registered)
    assert not is_online(DIR[1], registered)
    assert is_online(r.UNASSIGNED_DIRECTORY, registered)
    assert is_online(r.MIGRATING_DIRECTORY, registered)
    assert not is_online(r.LOST_DIRECTORY, registered)
    assert is_online(DIR[1], register(1)), "a broker that names none"
    assert not is_online(r.LOST_DIRECTORY, register(1))
    lost = three(isr=brokers(1, 2, 3))
    part = lost.image.topics[TOPIC_ID].partitions[0]
    assert list(lost.offline_replicas(part)) == []
    seen = view(
        broker(1), broker(2), topic("orders"), partition(0, directories=(DIR[1], DIR[4], DIR[3]))
    )
    assert seen.offline_replicas(seen.image.topics[TOPIC_ID].partitions[0]) == [2, 3]


# -- DescribeCluster --------------------------------------------------------------------------


def describe(seen: ClientView, version: int, **values: Any) -> Any:
    entity = request_type(apis.DESCRIBE_CLUSTER, version)
    wish = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    known = {**wish, **values}
    message: Any = decode(entity, bytes(encode(build(entity, known))))
    response = response_type(apis.DESCRIBE_CLUSTER, version)
    return decode(response, bytes(encode(build(response, api.describe_cluster(seen, message)))))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster_gives_the_brokers(version: int) -> None:
    seen = view(broker(1), broker(2, fenced=True))
    answer = describe(seen, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (
        ErrorCode.none,
        "the-cluster",
        1,
    )
    assert [b.broker_id for b in answer.brokers] == [1]
    if version == 2:
        both = describe(seen, version, include_fenced_brokers=True)
        assert [(b.broker_id, b.is_fenced) for b in both.brokers] == [(1, False), (2, True)]
    asked = describe(seen, version, include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
def test_controllers_are_not_described_by_a_broker(version: int) -> None:
    answer = describe(three(), version, endpoint_type=2)
    assert (answer.error_code, answer.brokers) == (ErrorCode.mismatched_endpoint_type, ())
    assert describe(three(), version, endpoint_type=3).error_code is (
        ErrorCode.unsupported_endpoint_type
    )


# -- DescribeTopicPartitions ------------------------------------------------------------------


def page(
    seen: ClientView, names: Sequence[str], limit: int, cursor: Any = None, most: int = 2000
) -> Any:
    entity = request_type(apis.DESCRIBE_TOPIC_PARTITIONS, 0)
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor,
    }
    message: Any = decode(entity, bytes(encode(build(entity, values))))
    response = response_type(apis.DESCRIBE_TOPIC_PARTITIONS, 0)
    found = describe_topic_partitions(seen, message, most)
    return decode(response, bytes(encode(build(response, found))))


def several() -> ClientView:
    records: list[MetadataRecord] = [broker(1), broker(2), broker(3)]
    for number, count in enumerate((3, 1, 0, 4)):
        topic_id = type(TOPIC_ID)(Uuid(bytes([number + 1]) * 16))
        records.append(topic(f"t{number}", topic_id))
        records += [partition(index, topic_id=topic_id) for index in range(count)]
    return view(*records)


EVERYTHING = [("t0", 0), ("t0", 1), ("t0", 2), ("t1", 0), *(("t3", index) for index in range(4))]


@pytest.mark.parametrize("limit", range(1, 11))
@pytest.mark.parametrize("names", [[], ["t3", "t0", "t1", "t2", "t0"]])
def test_pages_put_together_are_everything_once(limit: int, names: list[str]) -> None:
    seen, cursor, found = several(), None, []
    for _ in range(20):
        answer = page(seen, names, limit, cursor)
        here = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        assert len(here) <= limit
        found += here
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert found == EVERYTHING


def test_the_brokers_own_limit_holds_and_a_silly_one_gives_at_least_one() -> None:
    assert sum(len(t.partitions) for t in page(several(), [], 2000, most=2).topics) == 2
    assert sum(len(t.partitions) for t in page(several(), [], -5).topics) == 1


def test_unknown_topics_are_told_only_to_who_names_them() -> None:
    answer = page(several(), ["t1", "zzz", "no/good"], 100)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("no/good", ErrorCode.invalid_topic_exception),
        ("t1", ErrorCode.none),
        ("zzz", ErrorCode.unknown_topic_or_partition),
    ]


def test_a_cursor_that_does_not_fit_is_refused() -> None:
    for cursor in (
        {"topic_name": "t2", "partition_index": 0},
        {"topic_name": "t1", "partition_index": -1},
    ):
        answer = page(several(), ["t1", "t3"], 100, cursor)
        assert {t.error_code for t in answer.topics} == {ErrorCode.invalid_request}
    gone = page(several(), [], 100, {"topic_name": "t11", "partition_index": 7})
    assert [t.name for t in gone.topics] == ["t2", "t3"]


def test_eligible_leaders_are_told() -> None:
    parts = partition(
        0,
        isr=brokers(1),
        eligible_leader_replicas=brokers(2),
        last_known_elr=brokers(3),
        leader=BrokerId(1),
    )
    seen = view(broker(1), broker(2), broker(3, fenced=True), topic("orders"), parts)
    (found,) = page(seen, ["orders"], 10).topics[0].partitions
    assert (found.eligible_leader_replicas, found.last_known_elr) == ((2,), (3,))
    assert found.offline_replicas == (3,)
    assert found.error_code is ErrorCode.none
