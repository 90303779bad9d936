"""What the controller listener gives to read, over real sockets, in every version it serves."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import MetadataRecord, NoOpRecord
from kraftpy.network.client import WireClient
from kraftpy.network.loop import new_event_loop
from kraftpy.quorum.apis.context import METADATA_TOPIC
from kraftpy.quorum.server import READ_APIS
from kraftpy.storage.record_batch import read_header
from kraftpy.wire import apis
from kraftpy.wire.headers import API_VERSIONS
from tests.unit.quorum.served import (
    CLUSTER_ID,
    Served,
    base_offsets,
    fetch_request,
    list_request,
    partition_of,
    wait_until,
)

FETCH_VERSIONS = range(4, 19)
NEWEST_FETCH = FETCH_VERSIONS[-1]


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


# -- ApiVersions ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(one: Served, version: int) -> None:
    values = {"client_software_name": "me", "client_software_version": "1"}
    answer = one.ask(API_VERSIONS, values, version)
    served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    expected = {key: tuple(api.versions) for key, api in READ_APIS.items()}
    assert served == {**expected, API_VERSIONS: (0, 4)}
    assert answer.error_code is ErrorCode.none


def test_api_versions_of_a_client_with_an_odd_name_is_refused(one: Served) -> None:
    values = {"client_software_name": "-", "client_software_version": "1"}
    assert one.ask(API_VERSIONS, values, 3).error_code is ErrorCode.invalid_request


# -- Fetch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_gives_the_log_up_to_the_high_watermark(one: Served, version: int) -> None:
    found = partition_of(one.ask(apis.FETCH, fetch_request(), version))
    assert found.error_code is ErrorCode.none
    assert found.high_watermark == found.last_stable_offset == 6
    assert found.records == one.cluster.log_bytes(1)
    middle = partition_of(one.ask(apis.FETCH, fetch_request(3), version))
    assert base_offsets(middle.records) == [3, 4, 5]


def test_what_memory_has_forgotten_is_read_from_the_log(one: Served) -> None:
    view = one.views[1]
    view._recent.clear()
    found = partition_of(one.ask(apis.FETCH, fetch_request(2), 12))
    assert base_offsets(found.records) == [2, 3, 4, 5]
    values = fetch_request(3, last_epoch=one.cluster.engines[1].epoch, replica_id=9)
    assert base_offsets(partition_of(one.ask(apis.FETCH, values, 12)).records) == [3, 4, 5]


def test_a_small_fetch_gets_at_least_one_batch(one: Served) -> None:
    values = fetch_request(1, partition_max_bytes=1)
    found = partition_of(one.ask(apis.FETCH, values, NEWEST_FETCH))
    assert base_offsets(found.records) == [1]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_other_topics_and_partitions_are_unknown(one: Served, version: int) -> None:
    unknown = ErrorCode.unknown_topic_or_partition if version < 13 else ErrorCode.unknown_topic_id
    for values in (
        fetch_request(topic="other", topic_id=UUID(int=9)),
        fetch_request(partition=1),
    ):
        assert partition_of(one.ask(apis.FETCH, values, version)).error_code is unknown


def test_the_log_is_given_once_per_request_however_often_it_is_named(one: Served) -> None:
    answer = one.ask(apis.FETCH, fetch_request(times=3), 12)
    first, *others = answer.responses[0].partitions
    assert first.records
    assert [other.records for other in others] == [b"", b""]


def test_an_offset_that_is_not_there_is_refused(one: Served) -> None:
    for offset in (-1, 7, 1 << 40):
        found = partition_of(one.ask(apis.FETCH, fetch_request(offset), 12))
        assert found.error_code is ErrorCode.offset_out_of_range


def test_leader_epochs_are_checked(one: Served) -> None:
    epoch = one.cluster.engines[1].epoch
    for asked, expected in (
        (epoch, ErrorCode.none),
        (epoch - 1, ErrorCode.fenced_leader_epoch),
        (epoch + 1, ErrorCode.unknown_leader_epoch),
    ):
        found = partition_of(one.ask(apis.FETCH, fetch_request(leader_epoch=asked), NEWEST_FETCH))
        assert found.error_code is expected
        if expected is not ErrorCode.none:
            assert found.current_leader.leader_id == 1
            assert found.current_leader.leader_epoch == epoch


def test_another_cluster_and_a_session_are_refused(one: Served) -> None:
    other = one.ask(apis.FETCH, fetch_request(cluster_id="other"), 12)
    assert other.error_code is ErrorCode.inconsistent_cluster_id
    assert one.ask(apis.FETCH, fetch_request(cluster_id=CLUSTER_ID), 12).responses
    session = one.ask(apis.FETCH, fetch_request(session_id=5), 12)
    assert session.error_code is ErrorCode.fetch_session_id_not_found


def test_a_follower_names_the_leader(three: Served) -> None:
    for node_id in three.followers:
        answer = three.ask(apis.FETCH, fetch_request(), 16, node_id)
        found = partition_of(answer)
        assert found.error_code is ErrorCode.not_leader_or_follower
        assert found.current_leader.leader_id == three.leader_id
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.port) == (
            three.leader_id,
            three.ports[three.leader_id],
        )


def test_a_long_poll_ends_with_the_next_commit() -> None:
    with Served(1) as served:
        end = served.cluster.commit(1)[-1]
        values = fetch_request(end, max_wait_ms=25_000)
        polls = [served.begin(served.asking(apis.FETCH, values, v)) for v in (4, 12, 18)]
        view = served.views[1]
        wait_until(lambda: len(view._waiting) == len(polls))
        assert not any(poll.done() for poll in polls)
        served.cluster.commit(1)
        for poll in polls:
            found = partition_of(poll.result(20))
            assert base_offsets(found.records) == [end]
            assert found.high_watermark == end + 1


def test_a_long_poll_ends_when_its_time_is_over(one: Served) -> None:
    found = partition_of(one.ask(apis.FETCH, fetch_request(6, max_wait_ms=30), 12))
    assert (found.error_code, found.records) == (ErrorCode.none, b"")
    assert not one.views[1]._waiting


def test_a_long_poll_ends_when_leadership_does() -> None:
    with Served(3) as served:
        end = served.cluster.commit(1)[-1]
        leader_id = served.leader_id
        values = fetch_request(end, max_wait_ms=25_000)
        poll = served.begin(served.asking(apis.FETCH, values, 12))
        wait_until(lambda: bool(served.views[leader_id]._waiting))
        served.cluster.engines[leader_id].resign()
        served.cluster.run_until(lambda: served.cluster.engines[leader_id].leader_id != leader_id)
        found = partition_of(poll.result(20))
        assert found.error_code is ErrorCode.not_leader_or_follower


def test_what_is_not_committed_is_not_given_out() -> None:
    with Served(3) as served:
        served.cluster.commit(2)
        leader = served.cluster.leader
        assert leader is not None
        served.cluster.isolate(leader.node_id)
        end = leader.high_watermark
        future = served.cluster.propose(leader)
        assert leader.journal.metadata_log.log.end_offset == end + 1
        found = partition_of(served.ask(apis.FETCH, fetch_request(), 12))
        assert base_offsets(found.records) == list(range(end))
        from_disk = served.views[leader.node_id].read(0, 1 << 40, 1 << 20)
        assert from_disk == found.records
        latest = served.ask(apis.LIST_OFFSETS, list_request(-1), 7)
        assert latest.topics[0].partitions[0].offset == end
        assert not future.done()


# -- replicas: divergence and snapshots -------------------------------------------------------


def test_a_replica_whose_log_diverges_is_told_where() -> None:
    with Served(3) as served:
        served.cluster.commit(3)
        first = served.cluster.leader
        assert first is not None
        first_epoch, first_end = first.epoch, first.high_watermark
        served.cluster.kill(first.node_id)
        served.cluster.run_until(lambda: served.cluster.leader not in (None, first))
        served.cluster.commit(2)
        second = served.cluster.leader
        assert second is not None

        def diverging(offset: int, epoch: int) -> tuple[int, int]:
            values = fetch_request(offset, last_epoch=epoch, replica_id=9)
            found = partition_of(served.ask(apis.FETCH, values, 12))
            assert found.error_code is ErrorCode.none
            if found.diverging_epoch.epoch >= 0:
                assert found.records == b""
            return found.diverging_epoch.epoch, found.diverging_epoch.end_offset

        nowhere = (-1, -1)
        assert diverging(first_end, first_epoch) == nowhere
        assert diverging(second.high_watermark, second.epoch) == nowhere
        assert diverging(0, 0) == nowhere
        assert diverging(first_end + 1, first_epoch) == (first_epoch, first_end)
        assert diverging(first_end + 9, second.epoch - 1)[1] == first_end
        assert diverging(1, 0) == (0, 0)
        assert diverging(90, second.epoch + 5) == (
            second.epoch,
            second.journal.metadata_log.log.end_offset,
        )


@pytest.fixture(scope="module")
def trimmed() -> Iterator[Served]:
    """A log whose beginning is gone, behind a snapshot."""
    with Served(1, retention_bytes=3000, snapshot_bytes=2000) as served:
        engine = served.cluster.engines[1]
        log = engine.journal.metadata_log
        for _ in range(200):
            if log.log.start_offset > 0:
                break
            served.cluster.commit(5)
            engine.offer_snapshot(served.cluster.image_of(1))
            served.cluster.run(50)
        assert log.log.start_offset > 0
        yield served


def test_a_replica_before_the_start_of_the_log_is_sent_to_a_snapshot(trimmed: Served) -> None:
    log = trimmed.cluster.engines[1].journal.metadata_log
    earliest, newest = log.snapshots[0], log.snapshots[-1]
    start = log.log.start_offset

    def snapshot(offset: int, epoch: int) -> tuple[int, int]:
        values = fetch_request(offset, last_epoch=epoch, replica_id=9)
        found = partition_of(trimmed.ask(apis.FETCH, values, 12))
        assert found.error_code is ErrorCode.none
        assert found.log_start_offset == start
        assert found.diverging_epoch.epoch == -1
        return found.snapshot_id.end_offset, found.snapshot_id.epoch

    assert snapshot(0, 0) == newest
    assert snapshot(start - 1, earliest.epoch) == newest
    assert snapshot(start, earliest.epoch + 1) == newest
    assert snapshot(start, earliest.epoch) == (-1, -1)
    consumer = partition_of(trimmed.ask(apis.FETCH, fetch_request(0), 12))
    assert consumer.error_code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", [0, 1])
def test_a_snapshot_is_fetched_in_pieces(trimmed: Served, version: int) -> None:
    log = trimmed.cluster.engines[1].journal.metadata_log
    newest = log.snapshots[-1]
    whole = trimmed.cluster.files[1].read_whole(f"{log.directory}/{newest.file_name}")
    got = b""
    while len(got) < len(whole):
        piece = snapshot_piece(trimmed, version, newest, len(got), bytes_max=100)
        assert piece.error_code is ErrorCode.none
        assert (piece.size, piece.position) == (len(whole), len(got))
        assert 0 < len(piece.unaligned_records) <= 100
        got += piece.unaligned_records
    assert got == whole
    for position in (-1, len(whole), len(whole) + 1):
        piece = snapshot_piece(trimmed, version, newest, position)
        assert piece.error_code is ErrorCode.position_out_of_range
    missing = newest._replace(end_offset=newest.end_offset + 1)
    piece = snapshot_piece(trimmed, version, missing, 0)
    assert piece.error_code is ErrorCode.snapshot_not_found
    piece = snapshot_piece(trimmed, version, newest, 0, leader_epoch=0)
    assert piece.error_code is ErrorCode.fenced_leader_epoch
    assert piece.current_leader.leader_id == 1


def snapshot_piece(
    served: Served,
    version: int,
    snapshot_id: Any,
    position: int,
    bytes_max: int = 1000,
    leader_epoch: int = -1,
) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": leader_epoch,
        "snapshot_id": {"end_offset": snapshot_id.end_offset, "epoch": snapshot_id.epoch},
        "position": position,
    }
    topic = {"name": METADATA_TOPIC, "partitions": [partition]}
    values = {"replica_id": 9, "max_bytes": bytes_max, "topics": [topic]}
    answer = served.ask(apis.FETCH_SNAPSHOT, values, version)
    assert answer.error_code is ErrorCode.none
    return answer.topics[0].partitions[0]


# -- both threads, both loops ------------------------------------------------------------------


def test_a_batch_larger_than_a_fetch_may_be_is_still_given() -> None:
    with Served(1) as served:
        records: list[MetadataRecord] = [NoOpRecord() for _ in range(9000)]
        end = served.cluster.commit(1, records)[-1]
        values = fetch_request(1, partition_max_bytes=10)
        found = partition_of(served.ask(apis.FETCH, values, 12))
        assert read_header(found.records).end_offset == end


def test_commits_from_another_thread_wake_every_poll() -> None:
    """The engine's thread and the event loop meet without a lock: no wake-up may be lost."""

    async def follow(port: int, offset: int, end: int) -> int:
        client = await WireClient.connect("127.0.0.1", port, timeout_s=30)
        polls = 0
        while offset < end:
            values = fetch_request(offset, max_wait_ms=25_000)
            found = partition_of(await client.ask(apis.FETCH, values, version_max=12))
            offset = found.high_watermark
            polls += 1
        await client.close()
        return polls

    with Served(1) as served:
        start = served.cluster.engines[1].high_watermark
        port, end = served.ports[1], start + 200
        follows = [served.begin(follow(port, start, end)) for _ in range(5)]
        served.cluster.commit(200)
        for each in follows:
            assert each.result(30) > 0


def test_a_change_between_looking_and_waiting_is_not_missed() -> None:
    with Served(1) as served:
        view = served.views[1]
        seen = view.progress
        end = served.cluster.commit(1)[-1]
        served.run(view.changed(seen))
        assert view.read_recent(end - 1, end, -1, 0)  # And it is in memory by then.


def test_hundreds_of_polls_end_with_one_commit() -> None:
    async def poll_all(served: Served, offset: int, count: int) -> list[Any]:
        port = served.ports[1]
        clients = [await WireClient.connect("127.0.0.1", port, timeout_s=30) for _ in range(count)]
        values = fetch_request(offset, max_wait_ms=25_000)
        try:
            asked = (client.ask(apis.FETCH, values, version_max=12) for client in clients)
            return await asyncio.gather(*asked)
        finally:
            for client in clients:
                await client.close()

    with Served(1) as served:
        end = served.cluster.commit(1)[-1]
        polls = served.begin(poll_all(served, end, 300))
        wait_until(lambda: len(served.views[1]._waiting) == 300)
        served.cluster.commit(1)
        for answer in polls.result(30):
            assert base_offsets(partition_of(answer).records) == [end]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, new_event_loop])
def test_both_event_loops_serve_and_hand_peers_over(factory: Any) -> None:
    with Served(1, loop_factory=factory) as served:
        served.cluster.commit(1)
        assert partition_of(served.ask(apis.FETCH, fetch_request(), 12)).records
        sock = served.connect()
        sock.sendall(b"\xffpeer")
        wait_until(lambda: served.peers)
        taken, first = served.peers[0]
        assert b"\xffpeer".startswith(first)
        taken.setblocking(True)
        taken.sendall(b"welcome")
        assert sock.recv(100) == b"welcome"
        sock.close()
