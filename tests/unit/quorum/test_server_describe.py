"""What the controller listener says of the quorum, the cluster and the log's ends."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.quorum.apis.context import METADATA_TOPIC
from kraftpy.wire import apis
from tests.unit.quorum.served import CLUSTER_ID, Served, fetch_request, list_request


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with Served(1) as served:
        served.cluster.commit(5)
        yield served


@pytest.fixture(scope="module")
def three() -> Iterator[Served]:
    with Served(3) as served:
        served.cluster.commit(5)
        served.cluster.run(500)
        yield served


# -- DescribeQuorum ---------------------------------------------------------------------------


def quorum_of(served: Served, version: int, node_id: int | None = None) -> tuple[Any, Any]:
    topic = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    answer = served.ask(apis.DESCRIBE_QUORUM, {"topics": [topic]}, version, node_id)
    assert answer.error_code is ErrorCode.none
    return answer, answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(3))
def test_the_leader_describes_the_quorum(three: Served, version: int) -> None:
    answer, found = quorum_of(three, version)
    leader = three.cluster.leader
    assert leader is not None
    assert found.error_code is ErrorCode.none
    assert (found.leader_id, found.leader_epoch) == (leader.node_id, leader.epoch)
    assert found.high_watermark == leader.high_watermark
    assert [voter.replica_id for voter in found.current_voters] == [1, 2, 3]
    assert {voter.log_end_offset for voter in found.current_voters} == {leader.high_watermark}
    now_ms = three.cluster.clock.now_ms()
    if version >= 1:
        for voter in found.current_voters:
            assert now_ms - 1000 < voter.last_fetch_timestamp <= now_ms
            assert now_ms - 1000 < voter.last_caught_up_timestamp <= now_ms
    if version >= 2:
        ports = {node.node_id: node.listeners[0].port for node in answer.nodes}
        assert ports == three.ports


def test_a_follower_that_is_cut_off_lags() -> None:
    with Served(3) as served:
        served.cluster.commit(1)
        served.cluster.run(200)
        slow = served.followers[0]
        cut_off_ms = served.cluster.clock.now_ms()
        served.cluster.isolate(slow)
        ends = served.cluster.commit(4)
        served.cluster.run(300)
        _, found = quorum_of(served, 2)
        voters = {voter.replica_id: voter for voter in found.current_voters}
        assert found.high_watermark == ends[-1]
        assert voters[slow].log_end_offset == ends[-1] - 4
        assert voters[slow].last_caught_up_timestamp <= cut_off_ms
        assert voters[served.leader_id].log_end_offset == ends[-1]


@pytest.mark.parametrize("version", range(3))
def test_a_follower_says_who_leads(three: Served, version: int) -> None:
    _, found = quorum_of(three, version, three.followers[0])
    assert found.error_code is ErrorCode.not_leader_or_follower
    assert found.leader_id == three.leader_id
    assert list(found.current_voters) == []


def test_observers_are_who_fetched_lately_with_an_id() -> None:
    with Served(1) as served:
        served.cluster.commit(4)
        clock = served.cluster.clock
        directory_id = UUID(int=77)
        values = fetch_request(2, replica_id=101, last_epoch=1)
        served.ask(apis.FETCH, values, 12)
        clock.advance(1000)
        values = fetch_request(5, replica_id=100)
        values["topics"][0]["partitions"][0]["replica_directory_id"] = directory_id
        served.ask(apis.FETCH, values, 17)
        served.ask(apis.FETCH, fetch_request(5), 17)  # A consumer is none.
        served.ask(apis.FETCH, fetch_request(5, replica_id=1), 17)  # Nor is a voter.
        _, found = quorum_of(served, 2)
        now_ms = clock.now_ms()
        assert [
            (o.replica_id, o.log_end_offset, o.last_fetch_timestamp, o.last_caught_up_timestamp)
            for o in found.observers
        ] == [(100, 5, now_ms, now_ms), (101, 2, now_ms - 1000, -1)]
        assert found.observers[0].replica_directory_id == directory_id
        clock.advance(5 * 60_000 - 500)
        _, found = quorum_of(served, 2)
        assert [observer.replica_id for observer in found.observers] == [100]


# -- DescribeCluster, Metadata, ListOffsets ---------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_lists_the_controllers(three: Served, version: int) -> None:
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 2,
        "include_fenced_brokers": False,
    }
    for node_id in three.cluster.voters:
        answer = three.ask(apis.DESCRIBE_CLUSTER, values, version, node_id)
        assert answer.error_code is ErrorCode.none
        assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, three.leader_id)
        assert {node.broker_id: node.port for node in answer.brokers} == three.ports
    if version:
        for kind, expected in (
            (1, ErrorCode.mismatched_endpoint_type),
            (3, ErrorCode.unsupported_endpoint_type),
        ):
            answer = three.ask(apis.DESCRIBE_CLUSTER, {**values, "endpoint_type": kind}, version)
            assert answer.error_code is expected


@pytest.mark.parametrize("version", range(14))
def test_metadata_knows_the_metadata_topic(three: Served, version: int) -> None:
    switches = {
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    everything: Any = [] if version == 0 else None
    named = [{"name": METADATA_TOPIC, "topic_id": None}]
    for topics in (everything, named):
        answer = three.ask(apis.METADATA, {**switches, "topics": topics}, version)
        assert {node.node_id: node.port for node in answer.brokers} == three.ports
        (topic,) = answer.topics
        assert (topic.name, topic.error_code) == (METADATA_TOPIC, ErrorCode.none)
        (partition,) = topic.partitions
        assert partition.leader_id == three.leader_id
        assert partition.replica_nodes == (1, 2, 3)
    other = [{"name": "other", "topic_id": None}]
    answer = three.ask(apis.METADATA, {**switches, "topics": other}, version)
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    if version >= 10:
        by_id = [{"name": None, "topic_id": UUID(int=5)}, {"name": None, "topic_id": UUID(int=1)}]
        answer = three.ask(apis.METADATA, {**switches, "topics": by_id}, version)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.unknown_topic_id,
            ErrorCode.none,
        ]
    if version >= 1:
        answer = three.ask(apis.METADATA, {**switches, "topics": []}, version)
        assert list(answer.topics) == []


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_finds_the_ends(one: Served, version: int) -> None:
    def offset(timestamp: int) -> int:
        answer = one.ask(apis.LIST_OFFSETS, list_request(timestamp), version)
        found = answer.topics[0].partitions[0]
        assert found.error_code is ErrorCode.none
        return int(found.offset)

    assert (offset(-1), offset(-2), offset(0)) == (6, 0, 0)
    assert offset(one.cluster.clock.now_ms() + 1) == -1
    assert offset(-3) == -1
