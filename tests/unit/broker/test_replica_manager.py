"""Appends and reads of one broker: what is told when, and to whom."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.data_plane import FetchAnswer
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.isr import IsrProposal
from kraftpy.broker.partition import Replica, ReplicaConfig
from kraftpy.broker.producer_state import ProducerStates
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.broker.validation import AppendConfig
from kraftpy.clock import ManualClock
from kraftpy.errors import DiskFault, KraftError
from kraftpy.metadata_log import EMPTY, ClusterDelta, ClusterImage
from kraftpy.metadata_log import records as r
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import Record, build_batch
from kraftpy.testing import SimulatedFiles
from kraftpy.types import BrokerId, TopicId, Uuid
from kraftpy.wire.fetch import FetchPartition, FetchRequest
from kraftpy.wire.produce import ProducePartition, ProduceRequest, ProduceResult

TOPIC_ID = TopicId(Uuid(b"T" * 16))
OTHER_ID = TopicId(Uuid(b"O" * 16))


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.001)


class Logs:
    """Logs on a simulated disk."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.clock = ManualClock()
        self.removed: list[str] = []
        self.failures: list[str] = []
        self.min_insync_replicas = 1
        self.is_broken = False

    def host(
        self, topic: str, topic_id: TopicId, index: int, _image: ClusterImage
    ) -> HostedPartition:
        if self.is_broken:
            raise DiskFault("the disk is gone")
        directory = f"/logs/{topic}-{index}"
        self.files.make_directory(directory)
        log = Log.open(self.files, directory, LogConfig(), self.clock)
        config = ReplicaConfig(min_insync_replicas=self.min_insync_replicas)
        replica = Replica(BrokerId(1), log, config, high_watermark=0)
        accepts = AppendConfig(timestamp_before_max_ms=1 << 62)
        return HostedPartition(topic, topic_id, index, log, replica, ProducerStates(), accepts)

    def remove(self, partition: HostedPartition) -> None:
        self.removed.append(str(partition))

    def failed(self, partition: HostedPartition, error: KraftError) -> None:
        self.failures.append(f"{partition}: {error}")

    def high_watermark_moved(self, partition: HostedPartition) -> None:
        """Written now and then."""

    def allows_deletion(self, _partition: HostedPartition) -> bool:
        return True

    def rebuild_producers(self, partition: HostedPartition) -> None:
        partition.producers = ProducerStates(partition.log.end_offset)


class Others:
    """Fetchers and the way to the controller, which only write down what they are told."""

    def __init__(self) -> None:
        self.followed: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.proposals: list[IsrProposal] = []

    def follow(self, partition: HostedPartition, leader: BrokerId) -> None:
        self.followed.append((str(partition), leader))

    def stop(self, partition: HostedPartition) -> None:
        self.stopped.append(str(partition))

    def propose(self, _partition: HostedPartition, proposal: IsrProposal, *, again: bool) -> None:
        assert not again
        self.proposals.append(proposal)


class Broker:
    """Broker 1, which leads partition 0 of "orders"."""

    def __init__(self, *replicas: int, min_insync_replicas: int = 1) -> None:
        self.logs = Logs()
        self.logs.min_insync_replicas = min_insync_replicas
        self.others = Others()
        self.manager = ReplicaManager(
            broker_id=BrokerId(1),
            logs=self.logs,
            clock=self.logs.clock,
            broker_epoch=lambda: 100,
            listener="PLAINTEXT",
        )
        self.manager.followers = self.others
        self.manager.isr_channel = self.others
        self.image = EMPTY
        ids = tuple(BrokerId(each) for each in replicas or (1,))
        self.publish(
            *(registered(each) for each in (1, 2, 3)),
            r.TopicRecord(name="orders", topic_id=TOPIC_ID),
            r.TopicRecord(name="others", topic_id=OTHER_ID),
            partition(TOPIC_ID, ids, ids[0]),
            partition(OTHER_ID, (BrokerId(2),), BrokerId(2)),
        )

    def publish(self, *records: r.MetadataRecord) -> None:
        delta = ClusterDelta(self.image)
        end_offset = delta.replay_all(records, self.image.end_offset)
        before, self.image = self.image, delta.image(end_offset, 1)
        self.manager.apply(before, self.image, delta.changes())

    @property
    def hosted(self) -> HostedPartition:
        found = self.manager.find("orders", None, 0)
        assert isinstance(found, HostedPartition)
        return found

    def produce(
        self, *batches: bytearray, acks: int = -1, topic: str = "orders", timeout_ms: int = 1000
    ) -> list[list[ProduceResult]]:
        """One input with a request per batch; the answers that came, each a list of results."""
        answers: list[list[ProduceResult]] = []
        for batch in batches:
            asked = ProducePartition(topic, None, 0, memoryview(batch))
            request = ProduceRequest(9, 1, None, None, acks, timeout_ms, [asked], [])
            self.manager.produce(request, lambda results: answers.append(list(results)))
        assert not answers or answers[0][0].error_code, "nothing is told before it is written"
        self.manager.end_of_input()
        return answers

    def fetch(
        self,
        offset: int = 0,
        *,
        replica_id: int = -1,
        wait_ms: int = 0,
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        topic: str = "orders",
        leader_epoch: int = -1,
        log_start_offset: int = 0,
    ) -> list[FetchAnswer]:
        epoch = 0 if replica_id >= 0 and leader_epoch == -1 else leader_epoch
        asked = FetchPartition(topic, None, 0, epoch, offset, -1, log_start_offset, bytes_max)
        request = FetchRequest(
            12, 1, None, replica_id, -1, wait_ms, bytes_min, bytes_max, 0, 0, -1,
            [asked], [], [], "", None,
        )  # fmt: skip
        answers: list[FetchAnswer] = []
        self.manager.fetch(request, answers.append)
        return answers


def registered(broker_id: int) -> r.RegisterBrokerRecord:
    point = r.Endpoint(name="PLAINTEXT", host="h", port=9000 + broker_id, security_protocol=0)
    return r.RegisterBrokerRecord(
        broker_id=BrokerId(broker_id),
        incarnation_id=Uuid(bytes(15) + bytes([broker_id])),
        broker_epoch=100 * broker_id,
        end_points=(point,),
        features=(),
        rack=None,
        fenced=False,
    )


def partition(
    topic_id: TopicId, replicas: tuple[BrokerId, ...], leader: BrokerId
) -> r.PartitionRecord:
    return r.PartitionRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=replicas,
        isr=replicas,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


def batch(*values: bytes, **fields: Any) -> bytearray:
    records = [
        Record(offset=number, timestamp=1000, key=None, value=value, headers=())
        for number, value in enumerate(values)
    ]
    return bytearray(build_batch(records, **fields))


def codes(answers: list[list[ProduceResult]]) -> list[int]:
    return [answer[0].error_code for answer in answers]


def offsets(answers: list[list[ProduceResult]]) -> list[int]:
    return [answer[0].base_offset for answer in answers]


def records_of(answer: FetchAnswer) -> bytes:
    found = answer.partitions[0].records
    return b"" if found is None else found.read()


@pytest.mark.parametrize("acks", [1, -1])
def test_requests_of_one_input_get_consecutive_offsets_with_one_write(acks: int) -> None:
    async def test() -> None:
        broker = Broker()
        answers = broker.produce(batch(b"a"), batch(b"b", b"c"), batch(b"d"), acks=acks)
        assert codes(answers) == [0, 0, 0]
        assert offsets(answers) == [0, 1, 3]
        assert broker.hosted.log.end_offset == 4

    asyncio.run(test())


@in_a_loop
async def test_acks_all_waits_for_every_member_of_the_isr() -> None:
    broker = Broker(1, 2, 3)
    answers = broker.produce(batch(b"a"))
    assert answers == []
    broker.fetch(1, replica_id=2)
    assert answers == []
    broker.fetch(1, replica_id=3)
    assert codes(answers) == [0]


@in_a_loop
async def test_a_write_that_is_not_replicated_in_time_is_answered_as_unknown() -> None:
    broker = Broker(1, 2)
    answers = broker.produce(batch(b"a"), timeout_ms=1)
    await until(lambda: bool(answers))
    assert codes(answers) == [ErrorCode.request_timed_out.value]
    broker.fetch(1, replica_id=2)  # Too late for the answer; it is committed all the same.
    assert len(answers) == 1
    assert broker.hosted.replica.high_watermark == 1


@in_a_loop
async def test_too_few_in_sync_replicas_refuse_before_anything_is_written() -> None:
    broker = Broker(1, 2, min_insync_replicas=2)
    broker.publish(
        r.PartitionChangeRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            isr=(BrokerId(1),),
            leader_epoch=0,
            partition_epoch=1,
        )
    )
    assert codes(broker.produce(batch(b"a"))) == [ErrorCode.not_enough_replicas.value]
    assert broker.hosted.log.end_offset == 0


@in_a_loop
async def test_a_batch_that_is_sent_again_is_answered_with_its_old_place() -> None:
    broker = Broker()
    fields = {"producer_id": 7, "producer_epoch": 0}
    first = broker.produce(batch(b"a", base_sequence=0, **fields))
    again = broker.produce(
        batch(b"a", base_sequence=0, **fields),
        batch(b"b", base_sequence=1, **fields),
        batch(b"b", base_sequence=1, **fields),
    )
    assert offsets(first) == [0]
    assert offsets(again) == [0, 1, 1]
    gap = broker.produce(batch(b"c", base_sequence=5, **fields))
    assert codes(gap) == [ErrorCode.out_of_order_sequence_number.value]
    assert broker.hosted.log.end_offset == 2


@in_a_loop
async def test_a_damaged_batch_is_refused_and_its_neighbours_are_written() -> None:
    broker = Broker()
    bad = batch(b"b")
    bad[-1] ^= 1
    assert codes(broker.produce(batch(b"a"), bad, batch(b"c"))[1:]) == [0, 0]
    assert broker.hosted.log.end_offset == 2


@in_a_loop
async def test_who_asks_the_wrong_broker_is_told_whom_to_ask() -> None:
    broker = Broker()
    ((result,),) = broker.produce(batch(b"a"), topic="others")
    assert result.error_code == ErrorCode.not_leader_or_follower.value
    assert result.leader is not None
    assert result.leader.leader_id == 2
    assert result.leader.endpoint is not None
    assert result.leader.endpoint.port == 9002
    (unknown,) = broker.fetch(topic="nothing")
    assert unknown.partitions[0].error_code == ErrorCode.unknown_topic_or_partition.value


@in_a_loop
async def test_consumers_see_what_is_committed_and_followers_all() -> None:
    broker = Broker(1, 2)
    broker.produce(batch(b"secret"))
    assert records_of(broker.fetch()[0]) == b""
    assert b"secret" in records_of(broker.fetch(replica_id=2)[0])
    broker.fetch(1, replica_id=2)
    assert b"secret" in records_of(broker.fetch()[0])


@in_a_loop
async def test_a_fetch_waits_for_enough_bytes_and_is_woken_by_them() -> None:
    broker = Broker()
    answers = broker.fetch(wait_ms=60_000, bytes_min=100)
    broker.produce(batch(b"a"))
    assert answers == []
    broker.produce(batch(b"b" * 100))
    assert len(answers) == 1
    assert len(records_of(answers[0])) > 100
    broker.produce(batch(b"c"))
    assert len(answers) == 1


@in_a_loop
async def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_over() -> None:
    broker = Broker()
    answers = broker.fetch(wait_ms=1, bytes_min=1000)
    broker.produce(batch(b"a"))
    await until(lambda: bool(answers))
    assert len(answers) == 1
    assert records_of(answers[0]) != b""


@in_a_loop
async def test_a_follower_that_waits_is_woken_by_an_append_that_is_not_committed() -> None:
    broker = Broker(1, 2)
    answers = broker.fetch(replica_id=2, wait_ms=60_000)
    assert answers == []
    broker.produce(batch(b"a"))
    assert len(answers) == 1


@in_a_loop
async def test_a_fetch_that_waits_hears_that_leadership_is_gone() -> None:
    broker = Broker(1, 2)
    waiting = broker.fetch(wait_ms=60_000)
    unacked = broker.produce(batch(b"a"))
    broker.publish(
        r.PartitionChangeRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            leader=BrokerId(2),
            leader_epoch=1,
            partition_epoch=1,
        )
    )
    code = ErrorCode.not_leader_or_follower.value
    assert [each.partitions[0].error_code for each in waiting] == [code]
    assert codes(unacked) == [code]
    assert broker.others.followed == [("orders-0", 2)]


@in_a_loop
async def test_a_topic_that_is_deleted_takes_its_log_and_its_waiters_along() -> None:
    broker = Broker()
    waiting = broker.fetch(wait_ms=60_000)
    broker.publish(r.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert len(waiting) == 1
    assert waiting[0].partitions[0].error_code != 0
    assert broker.logs.removed == ["orders-0"]


@in_a_loop
async def test_a_disk_that_fails_takes_one_partition_offline_and_says_so_to_all() -> None:
    broker = Broker()
    waiting = broker.fetch(wait_ms=60_000)
    broker.logs.files.capacity_bytes = broker.logs.files.used_bytes()
    answers = broker.produce(batch(b"a"))
    code = ErrorCode.kafka_storage_error.value
    assert codes(answers) == [code]
    assert [each.partitions[0].error_code for each in waiting] == [code]
    assert len(broker.logs.failures) == 1
    assert codes(broker.produce(batch(b"b"))) == [code]


@in_a_loop
async def test_a_client_that_left_is_not_answered() -> None:
    broker = Broker()
    asked = FetchPartition("orders", None, 0, -1, 0, -1, 0, 1000)
    request = FetchRequest(
        12, 1, None, -1, -1, 60_000, 1, 1000, 0, 0, -1, [asked], [], [], "", None
    )
    answers: list[FetchAnswer] = []
    abandon = broker.manager.fetch(request, answers.append)
    assert abandon is not None
    abandon()
    broker.produce(batch(b"a"))
    assert answers == []


@in_a_loop
async def test_an_unknown_number_of_acks_is_refused() -> None:
    broker = Broker()
    assert codes(broker.produce(batch(b"a"), acks=2)) == [ErrorCode.invalid_required_acks.value]
    assert broker.hosted.log.end_offset == 0


@in_a_loop
async def test_a_partition_whose_log_cannot_be_opened_is_offline_and_the_others_are_served() -> (
    None
):
    broker = Broker()
    broker.logs.is_broken = True
    lost = TopicId(Uuid(b"L" * 16))
    ids = (BrokerId(1),)
    broker.publish(r.TopicRecord(name="lost", topic_id=lost), partition(lost, ids, ids[0]))
    code = ErrorCode.kafka_storage_error.value
    assert codes(broker.produce(batch(b"a"), topic="lost")) == [code]
    assert codes(broker.produce(batch(b"a"))) == [0]
