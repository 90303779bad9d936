"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId and DescribeLogDirs."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.apis import offsets
from kraftpy.broker.apis.log_dirs import describe_log_dirs
from kraftpy.broker.log_keeper import DirDescription, ReplicaDescription
from kraftpy.broker.producer_ids import ProducerIds, init_producer_id
from kraftpy.errors import Unreachable
from kraftpy.types import BrokerId
from kraftpy.wire.apis import Request, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.headers import RequestHeader, read_response
from tests.unit.broker.test_replica_manager import Broker, batch

LIST_OFFSETS, DELETE_RECORDS, INIT_PRODUCER_ID, EPOCH_ENDS, LOG_DIRS = 2, 21, 22, 23, 35


def request(api_key: int, version: int, **values: Any) -> Request:
    header = RequestHeader(api_key, version, 1, "me")
    message: Any = build(request_type(api_key, version), values)
    return Request(header, message, response_type(api_key, version))


def read(asked: Request, frame: bytearray) -> Any:
    _, message = read_response(bytes(frame[4:]), asked.response_type, asked.header.api_key)
    return message


def listed(broker: Broker, timestamp: int, version: int = 7, **changed: Any) -> Any:
    partition = {
        "partition_index": 0,
        "current_leader_epoch": changed.get("epoch", -1),
        "timestamp": timestamp,
    }
    asked = request(
        LIST_OFFSETS,
        version,
        replica_id=changed.get("replica_id", -1),
        isolation_level=0,
        topics=[{"name": changed.get("topic", "orders"), "partitions": [partition]}],
        timeout=timedelta(0),
    )
    return read(asked, offsets.list_offsets(broker.manager, asked)).topics[0].partitions[0]


def in_a_loop(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


@pytest.mark.parametrize("version", [1, 4, 7, 10])
def test_offsets_are_found_by_their_names(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.produce(batch(b"a"), batch(b"b", b"c"))
        assert listed(broker, offsets.LATEST, version).offset == 3
        assert listed(broker, offsets.EARLIEST, version).offset == 0
        assert listed(broker, 1000, version).offset == 0
        assert listed(broker, 1001, version).offset == -1
        if version >= 7:
            found = listed(broker, offsets.MAX_TIMESTAMP, version)
            assert (found.offset, found.timestamp) == (0, 1000)

    in_a_loop(story)


def test_consumers_are_told_of_what_is_committed_and_followers_of_all() -> None:
    async def story() -> None:
        broker = Broker(1, 2)
        broker.produce(batch(b"a"))
        assert listed(broker, offsets.LATEST).offset == 0
        assert listed(broker, offsets.LATEST, replica_id=2).offset == 1
        assert listed(broker, 1000).offset == -1

    in_a_loop(story)


def test_who_asks_the_wrong_leader_or_in_another_epoch_is_told_so() -> None:
    async def story() -> None:
        broker = Broker()
        other = listed(broker, offsets.LATEST, topic="others")
        assert other.error_code is ErrorCode.not_leader_or_follower
        newer = listed(broker, offsets.EARLIEST, epoch=5)
        assert newer.error_code is ErrorCode.unknown_leader_epoch
        nothing = listed(broker, offsets.LATEST, topic="nothing")
        assert nothing.error_code is ErrorCode.unknown_topic_or_partition

    in_a_loop(story)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_begins(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.produce(batch(b"a", b"b"))
        partition = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
        asked = request(
            EPOCH_ENDS,
            version,
            replica_id=-1,
            topics=[{"topic": name, "partitions": [partition]} for name in ("orders", "others")],
        )
        answer = read(asked, offsets.offset_for_leader_epoch(broker.manager, asked))
        found, wrong = (topic.partitions[0] for topic in answer.topics)
        assert (found.error_code, found.end_offset) == (ErrorCode.none, 2)
        assert wrong.error_code is ErrorCode.not_leader_or_follower

    in_a_loop(story)


def deletion(offset: int, timeout_s: float = 5.0) -> Request:
    partition = {"partition_index": 0, "offset": offset}
    topics = [{"name": "orders", "partitions": [partition]}]
    return request(DELETE_RECORDS, 2, topics=topics, timeout=timedelta(seconds=timeout_s))


async def deleted(broker: Broker, asked: Request) -> tuple[ErrorCode, int]:
    answer = read(asked, await offsets.delete_records(broker.manager, asked))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_records_are_deleted_up_to_what_is_committed() -> None:
    async def story() -> None:
        broker = Broker()
        broker.produce(batch(b"a"), batch(b"b"), batch(b"c"))
        assert await deleted(broker, deletion(2)) == (ErrorCode.none, 2)
        assert broker.hosted.log.start_offset == 2
        assert (await deleted(broker, deletion(4)))[0] is ErrorCode.offset_out_of_range
        assert await deleted(broker, deletion(-1)) == (ErrorCode.none, 3)

    in_a_loop(story)


def test_a_deletion_waits_for_the_replicas_and_not_for_ever() -> None:
    async def story() -> None:
        broker = Broker(1, 2)
        broker.produce(batch(b"a"))
        broker.fetch(1, replica_id=2)
        assert (await deleted(broker, deletion(1, 0.01)))[0] is ErrorCode.request_timed_out
        waiting = asyncio.ensure_future(deleted(broker, deletion(1)))
        await asyncio.sleep(0)
        broker.fetch(1, replica_id=2, log_start_offset=1)
        assert await waiting == (ErrorCode.none, 1)

    in_a_loop(story)


# -- producer ids -----------------------------------------------------------------------------


class Controller:
    """Hands out blocks of ten, or is not there."""

    def __init__(self) -> None:
        self.next = 1000
        self.is_there = True

    async def send(self, _request: Any) -> Any:
        await asyncio.sleep(0)
        if not self.is_there:
            raise Unreachable("nobody")
        self.next += 10
        return SimpleNamespace(
            error_code=ErrorCode.none, producer_id_start=self.next - 10, producer_id_len=10
        )


def test_no_two_producers_get_the_same_id() -> None:
    async def story() -> None:
        ids = ProducerIds(Controller(), BrokerId(1), lambda: 100)  # type: ignore[arg-type]
        found = await asyncio.gather(*(ids.next() for _ in range(25)))
        found += [await ids.next() for _ in range(25)]
        assert None not in found
        assert len(set(found)) == len(found) == 50
        await ids.close()

    in_a_loop(story)


@pytest.mark.parametrize("version", range(6))
def test_a_producer_is_told_to_wait_or_gets_its_id(version: int) -> None:
    async def story() -> None:
        controller = Controller()
        controller.is_there = False
        ids = ProducerIds(controller, BrokerId(1), lambda: 100)  # type: ignore[arg-type]
        asked = request(
            INIT_PRODUCER_ID,
            version,
            transactional_id=None,
            transaction_timeout=timedelta(0),
            producer_id=-1,
            producer_epoch=-1,
        )
        waits = read(asked, await init_producer_id(ids, asked))
        assert waits.error_code is ErrorCode.coordinator_load_in_progress
        controller.is_there = True
        found = read(asked, await init_producer_id(ids, asked))
        assert (found.error_code, found.producer_id, found.producer_epoch) == (
            ErrorCode.none,
            1000,
            0,
        )
        await ids.close()

    in_a_loop(story)


# -- DescribeLogDirs --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_tell_what_they_hold(version: int) -> None:
    replicas = (ReplicaDescription("a", 0, 100, 0), ReplicaDescription("b", 1, 200, 5))
    dirs = [
        DirDescription("/one", None, None, 1000, 500, replicas),
        DirDescription("/two", None, "the disk is gone", -1, -1, ()),
    ]
    for wanted, names in ((None, ["a", "b"]), ([{"topic": "b", "partitions": [1]}], ["b"])):
        asked = request(LOG_DIRS, version, topics=wanted)
        answer = read(asked, asked.response(describe_log_dirs(dirs, asked.message)))
        one, two = answer.results
        assert [topic.name for topic in one.topics] == names
        assert (one.error_code, two.error_code) == (ErrorCode.none, ErrorCode.kafka_storage_error)
