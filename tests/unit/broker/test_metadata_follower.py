"""A broker follows the metadata log of real controllers, whatever happens to them or to it."""

import asyncio
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.copy import MetadataCopy
from kraftpy.broker.metadata.follower import MetadataFollower, Observer
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.clock import ManualClock
from kraftpy.errors import FatalFault, ReplayError
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLogConfig
from kraftpy.metadata_log.snapshotter import SnapshotPolicy
from kraftpy.storage.record_batch import build_value_batch
from kraftpy.testing.simulated_files import SimulatedFiles
from kraftpy.types import ZERO_UUID
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request
from tests.unit.broker.history import History, Written, life_of_a_cluster
from tests.unit.broker.live_broker import LiveBroker, live_broker
from tests.unit.broker.live_quorum import PATIENCE_S, LiveQuorum, live_quorum, run, until
from tests.unit.broker.scripted import ScriptedController, scripted
from tests.unit.metadata_log.makers import topic

# Snapshots and trimming after a few dozen small batches.
SMALL: dict[str, Any] = {
    "metadata_log_segment_bytes": 1024,
    "metadata_max_retention_bytes": 2048,
    "metadata_log_max_record_bytes_between_snapshots": 1500,
    "metadata_max_idle_interval_ms": 100,
}


async def follows(quorum: LiveQuorum, broker: LiveBroker) -> None:
    """Wait until the broker has what is committed, and compare."""
    leader = await quorum.leader()
    committed = leader.server._context.view.progress.high_watermark
    assert await broker.cache.reached(committed, PATIENCE_S)
    await until(lambda: leader.image.end_offset == broker.cache.image.end_offset)
    assert broker.cache.image == leader.image


def test_a_fresh_broker_gets_everything_and_what_comes_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum:
            await quorum.write(3)
            async with live_broker(quorum) as broker:
                await follows(quorum, broker)
                assert broker.published[0][0] == 0
                await quorum.write(6)
                await follows(quorum, broker)
                steps = broker.published
                assert all(a[1] == b[0] for a, b in pairwise(steps))

    run(main)


def test_the_quorum_lists_the_broker_as_an_observer(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.caught_up(quorum)
            partitions = [{"partition_index": 0}]
            asked = {"topics": [{"topic_name": "__cluster_metadata", "partitions": partitions}]}
            answer = await quorum.ask(apis.DESCRIBE_QUORUM, asked)
            (observer,) = answer.topics[0].partitions[0].observers
            assert observer.replica_id == 101
            assert observer.replica_directory_id.bytes == broker.dirs.directory_ids[0]

    run(main)


def test_a_restart_replays_the_copy_and_fetches_only_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum:
            await quorum.write(5)
            async with live_broker(quorum) as broker:
                await follows(quorum, broker)
                was = broker.cache.end_offset
            await quorum.write(9)
            async with live_broker(quorum) as broker:
                assert broker.follower._copy.image.end_offset >= was
                assert broker.cache.end_offset == 0, "not published before it is caught up"
                await follows(quorum, broker)
                assert broker.published[0][0] == 0
                assert broker.published[0][1] > was

    run(main)


async def trim(quorum: LiveQuorum) -> None:
    """Write until the leader has removed the beginning of its log."""
    leader = await quorum.leader()
    for number in range(400):
        await quorum.write(1, size=300 + number)
        if leader.server._context.view.log_start_offset > 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the leader keeps its log")


def test_a_fresh_broker_loads_a_snapshot_where_the_log_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, **SMALL) as quorum:
            await trim(quorum)
            with structlog.testing.capture_logs() as lines:
                async with live_broker(quorum) as broker:
                    await follows(quorum, broker)
                    assert broker.follower._copy.start_offset > 0
                async with live_broker(quorum) as broker:
                    await follows(quorum, broker)
            loaded = [each for each in lines if each["event"] == "snapshot_loaded"]
            assert len(loaded) == 1, "the restart goes on from its own copy"

    run(main)


def test_a_broker_behind_by_more_than_the_log_loads_a_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, **SMALL) as quorum:
            async with live_broker(quorum) as broker:
                await follows(quorum, broker)
            await trim(quorum)
            async with live_broker(quorum) as broker:
                await follows(quorum, broker)
                assert broker.follower._copy.start_offset > 0
                await quorum.write(5, size=50)
                await follows(quorum, broker)

    run(main)


def test_it_follows_through_failovers(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, 3) as quorum, live_broker(quorum) as broker:
            for number in range(3):
                await quorum.write(2, size=10 + number)
                await follows(quorum, broker)
                leader_id = (await quorum.leader()).config.node_id
                await quorum.stop(leader_id)
                await quorum.write(2, size=100 + number)
                await follows(quorum, broker)
                await quorum.start(leader_id)
            steps = broker.published
            assert all(a[1] == b[0] for a, b in pairwise(steps))

    run(main)


def test_a_quorum_that_lost_its_log_stops_the_broker(tmp_path: Path) -> None:
    """The same voters, so the same cluster id, and another history."""

    async def main() -> None:
        async with live_quorum(tmp_path) as quorum:
            await quorum.write(20)
            async with live_broker(quorum) as broker:
                await broker.caught_up(quorum)
            await quorum.stop(1)
            shutil.rmtree(tmp_path / "controller-1")
            await quorum.start(1)
            async with live_broker(quorum) as broker:
                async with asyncio.timeout(PATIENCE_S):
                    with pytest.raises(FatalFault, match="the quorum has lost records"):
                        await broker.following

    run(main)


def test_a_broker_of_another_cluster_stops(tmp_path: Path) -> None:
    async def main() -> None:
        other = "AAAAAAAAQACAAAAAAAAAAA"
        async with (
            live_quorum(tmp_path) as quorum,
            live_broker(quorum, cluster_id=other) as broker,
            asyncio.timeout(PATIENCE_S),
        ):
            with pytest.raises(FatalFault, match=f"not of cluster {other}"):
                await broker.following

    run(main)


def test_idle_and_healthy_it_says_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            live_quorum(tmp_path, metadata_max_idle_interval_ms=20) as quorum,
            live_broker(quorum) as broker,
        ):
            await broker.running()
            with structlog.testing.capture_logs() as lines:
                offset = broker.cache.end_offset
                assert await broker.cache.reached(offset + 20, PATIENCE_S)
            assert [each for each in lines if each["log_level"] != "debug"] == []

    run(main)


# -- controllers that say something odd -------------------------------------------------------


def scripted_log(node: ScriptedController, history: History, **changed: Any) -> None:
    """Let a scripted controller serve a history, with some values of its own."""

    async def fetch(request: Request) -> dict[str, Any]:
        offset = request.message.topics[0].partitions[0].fetch_offset
        data = changed.get("records", history.after(offset, 5))
        if not data:
            await asyncio.sleep(0.01)
        values = {
            "partition_index": 0,
            "error_code": ErrorCode.none,
            "high_watermark": history.end_offset,
            "last_stable_offset": history.end_offset,
            "log_start_offset": 0,
            "aborted_transactions": None,
            **changed,
            "records": data,
        }
        topic_id = request.message.topics[0].topic_id
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": ErrorCode.none,
            "session_id": 0,
            "responses": [{"topic_id": topic_id, "partitions": [values]}],
            "node_endpoints": [],
        }

    node.answers[apis.FETCH] = fetch


class Following:
    """A follower with a simulated disk, of scripted controllers."""

    def __init__(
        self,
        node: ScriptedController,
        may_begin: Callable[[ClusterImage], bool] = lambda _image: True,
    ) -> None:
        clock = ManualClock()
        self.copy = MetadataCopy(
            SimulatedFiles(), "/copy", MetadataLogConfig(), SnapshotPolicy(), clock, Written
        )
        self.publisher = MetadataPublisher(MetadataCache())
        observer = Observer(broker_id=7, directory_id=ZERO_UUID, cluster_id="the-cluster")
        finder = ControllerFinder([node.place], random.Random(1))
        self.follower = MetadataFollower(
            observer, self.copy, finder, self.publisher, random.Random(1), may_begin=may_begin
        )

    async def __aenter__(self) -> "Following":
        self.task = asyncio.create_task(self.follower.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.follower.close()


def test_nothing_is_published_before_the_first_high_watermark_is_reached() -> None:
    history = History(life_of_a_cluster())

    async def main() -> None:
        async with scripted() as (node,):
            scripted_log(node, history)
            async with Following(node) as following:
                assert await following.publisher.cache.reached(1, PATIENCE_S)
                assert following.publisher.cache.end_offset == history.end_offset
                assert node.count(apis.FETCH) > 1, "it came in several answers"

    run(main)


def test_nothing_is_published_before_the_broker_may_begin() -> None:
    """A broker that restarts within its session is still named leader in its former life's epoch;
    led like that, with records lost, it would have its followers cut theirs."""
    history = History(life_of_a_cluster())
    is_registered = False

    async def main() -> None:
        nonlocal is_registered
        async with scripted() as (node,):
            scripted_log(node, history)
            async with Following(node, lambda _image: is_registered) as following:
                await until(lambda: following.copy.end_offset == history.end_offset)
                asked = node.count(apis.FETCH)
                await until(lambda: node.count(apis.FETCH) > asked + 3)
                assert following.publisher.cache.end_offset == 0
                is_registered = True
                assert await following.publisher.cache.reached(history.end_offset, PATIENCE_S)

    run(main)


def test_what_is_not_committed_is_refused_and_asked_for_again() -> None:
    history = History(life_of_a_cluster(3))

    async def main() -> None:
        async with scripted() as (node,):
            scripted_log(node, history, high_watermark=2)
            with structlog.testing.capture_logs() as lines:
                async with Following(node) as following:
                    await until(lambda: node.count(apis.FETCH) >= 4)
                    assert following.copy.end_offset == 0
                    scripted_log(node, history)
                    assert await following.publisher.cache.reached(history.end_offset, PATIENCE_S)
            complaints = [each for each in lines if each["event"] == "metadata_fetch_refused"]
            assert len(complaints) == 1

    run(main)


def test_a_record_that_cannot_be_replayed_stops_the_broker_and_is_named() -> None:
    history = History([[topic("a")]])
    history.batches[1] = bytes(
        record_batch([topic("b")], base_offset=1, epoch=1, timestamp_ms=1_700_000_000_001)
    )
    history.images[2] = history.images[1]

    async def main() -> None:
        async with scripted() as (node,), asyncio.timeout(PATIENCE_S):
            scripted_log(node, history)
            async with Following(node) as following:
                with pytest.raises(ReplayError, match=r"TopicRecord\(name='b'.* at offset 1"):
                    await following.task
                assert following.publisher.cache.end_offset == 0

    run(main)


def test_garbage_in_a_batch_of_a_valid_checksum_stops_the_broker() -> None:
    bad = bytes(
        build_value_batch([b"\xc1"], base_offset=0, leader_epoch=1, timestamp_ms=1_700_000_000_000)
    )
    history = History([[topic("a")]])

    async def main() -> None:
        async with scripted() as (node,), asyncio.timeout(PATIENCE_S):
            scripted_log(node, history, records=bad)
            async with Following(node) as following:
                with pytest.raises(FatalFault, match=r"cannot replay .* offset 0"):
                    await following.task

    run(main)


def test_a_log_that_diverges_stops_the_broker_and_nothing_is_cut() -> None:
    history = History(life_of_a_cluster(3))

    async def main() -> None:
        async with scripted() as (node,), asyncio.timeout(PATIENCE_S):
            scripted_log(node, history)
            async with Following(node) as following:
                assert await following.publisher.cache.reached(history.end_offset, PATIENCE_S)
                scripted_log(node, history, diverging_epoch={"epoch": 1, "end_offset": 3})
                with pytest.raises(FatalFault, match="ends epoch 1 at offset 3"):
                    await following.task
                assert following.copy.end_offset == history.end_offset

    run(main)
