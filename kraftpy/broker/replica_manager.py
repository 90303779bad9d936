"""All partitions that this broker hosts: what metadata makes of them, appends, reads, replication.

It owns the HostedPartitions and carries out the effects of their machines, in order and before
anything else happens to them. It is the DataPlane of the server and a subscriber of the metadata.

What always holds: nothing is told of an append before it is written; a partition whose disk fails
is offline, and the others go on; a read never shows more than the machine of its partition allows.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol, assert_never

from kio.schema.errors import ErrorCode

from kraftpy.broker.data_plane import Abandon, RespondToFetch, RespondToProduce
from kraftpy.broker.effects import (
    AssignEpoch,
    CompleteWaiting,
    Effect,
    FetchFrom,
    HighWatermarkMoved,
    MoveLogStart,
    ProposeIsr,
    StartOver,
    StopFetching,
    TruncateTo,
)
from kraftpy.broker.hosted import Appended, HostedPartition, Intake, Placed
from kraftpy.broker.isr import IsrProposal, Moment
from kraftpy.broker.partition import ACKS_ALL
from kraftpy.broker.reading import Reader
from kraftpy.broker.validation import Accepted, RefusedBatch, accept
from kraftpy.broker.waiting import WaitingFetch, WaitingProduce
from kraftpy.clock import Clock
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.storage.record_batch import read_header
from kraftpy.storage.request import Request
from kraftpy.types import BrokerId, TopicId
from kraftpy.wire.fetch import FetchRequest
from kraftpy.wire.produce import ProducePartition, ProduceRequest, ProduceResult, RecordError

log = get_logger(__name__)

_ACKS: Final = (0, 1, ACKS_ALL)
_FIRST_WITH_ZSTD: Final = 7
Key = tuple[TopicId, int]


class Logs(Protocol):
    """Who keeps the logs on disk: kraftpy.broker.log_manager."""

    def host(
        self, topic: str, topic_id: TopicId, index: int, image: ClusterImage
    ) -> HostedPartition:
        """Open the partition's log, or make one."""
        ...

    def remove(self, partition: HostedPartition) -> None:
        """Its files are not needed any more."""
        ...

    def failed(self, partition: HostedPartition, error: KraftError) -> None:
        """A write or read of its log failed."""
        ...

    def high_watermark_moved(self, partition: HostedPartition) -> None: ...

    def allows_deletion(self, partition: HostedPartition) -> bool:
        """Whether the topic's cleanup.policy lets records be deleted by offset."""
        ...

    def rebuild_producers(self, partition: HostedPartition) -> None:
        """The log was cut: what is known of producers must follow."""
        ...


class Followers(Protocol):
    """Who fetches from other leaders: kraftpy.broker.fetcher."""

    def follow(self, partition: HostedPartition, leader: BrokerId) -> None: ...
    def stop(self, partition: HostedPartition) -> None: ...


class IsrChannel(Protocol):
    """Who asks the controller: kraftpy.broker.isr_channel."""

    def propose(
        self, partition: HostedPartition, proposal: IsrProposal, *, again: bool
    ) -> None: ...


class ReplicaManager:
    """In the event loop; nothing here waits."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        logs: Logs,
        clock: Clock,
        broker_epoch: Callable[[], int],
        listener: str,
        reads_from_followers: bool = False,
    ) -> None:
        """`reads_from_followers`: consumers are sent to the replica in their rack (KIP-392)."""
        self.broker_id = broker_id
        self.intake = Intake()
        self._logs = logs
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._loop = asyncio.get_running_loop()
        self._image: ClusterImage | None = None
        self._partitions: dict[Key, HostedPartition] = {}
        self._without_log: set[Key] = set()  # Hosted by right, but their logs cannot be opened.
        self._dirty: dict[HostedPartition, list[tuple[Appended, bool]]] = {}  # Who wants acks=all.
        self._waiting: list[tuple[WaitingProduce, int]] = []  # Of this input, with timeouts.
        self._reader = Reader(self, listener, reads_from_followers)
        self.followers: Followers
        self.isr_channel: IsrChannel

    # -- looking ------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        assert self._image is not None, "nothing is asked before metadata was published"
        return self._image

    def moment(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._broker_epoch(), self.image.brokers)

    def partitions(self) -> Iterable[HostedPartition]:
        return self._partitions.values()

    def find(
        self, topic: str | None, topic_id: TopicId | None, index: int
    ) -> HostedPartition | ErrorCode:
        """The partition, named by its topic's name or id; else what a client is told."""
        image = self.image
        if topic_id is None:
            known = image.topic_ids.get(topic) if topic is not None else None
            if known is None:
                return ErrorCode.unknown_topic_or_partition
            topic_id = known
        elif topic_id not in image.topics:
            return ErrorCode.unknown_topic_id
        hosted = self._partitions.get((topic_id, index))
        if hosted is not None:
            return hosted
        if (topic_id, index) in self._without_log:
            return ErrorCode.kafka_storage_error
        if index in image.topics[topic_id].partitions:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_or_partition

    # -- metadata -----------------------------------------------------------------------------

    def apply(self, before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
        """Follow the metadata: a subscriber of MetadataPublisher."""
        self._image = after
        for topic_id in sorted(changes.deleted_topics):
            gone = before.topics.get(topic_id)
            for index in sorted(gone.partitions) if gone is not None else ():
                self._drop((topic_id, index))
        for topic_id, indexes in changes.topics.items():
            for index in sorted(indexes):
                self._apply_partition(after, (topic_id, index))

    def _apply_partition(self, image: ClusterImage, key: Key) -> None:
        partition = image.partition(*key)
        if partition is None or self.broker_id not in partition.replicas:
            self._drop(key)
            return
        hosted = self._partitions.get(key)
        if hosted is None:
            topic = image.topics[key[0]]
            try:
                hosted = self._logs.host(topic.name, key[0], key[1], image)
            except KraftError as error:
                if key not in self._without_log:
                    name = f"{topic.name}-{key[1]}"
                    log.error("partition_offline", partition=name, why=str(error))
                self._without_log.add(key)
                return
            self._without_log.discard(key)
            self._partitions[key] = hosted
        self.carry_out(hosted, hosted.replica.apply_metadata(partition, self.moment()))

    def _drop(self, key: Key) -> None:
        self._without_log.discard(key)
        hosted = self._partitions.pop(key, None)
        if hosted is None:
            return
        self.carry_out(hosted, hosted.replica.log_failed())
        self._logs.remove(hosted)

    # -- effects ------------------------------------------------------------------------------

    def carry_out(self, hosted: HostedPartition, effects: Iterable[Effect]) -> None:
        """Do what a machine asked for. A failing disk takes this partition offline only."""
        for effect in effects:
            try:
                self._do(hosted, effect)
            except KraftError as error:
                self.take_offline(hosted, error)
                return

    def _do(self, hosted: HostedPartition, effect: Effect) -> None:
        match effect:
            case CompleteWaiting():
                self._complete(hosted)
            case HighWatermarkMoved():
                self._logs.high_watermark_moved(hosted)
            case ProposeIsr(proposal, again):
                self.isr_channel.propose(hosted, proposal, again=again)
            case AssignEpoch(epoch, start_offset):
                hosted.log.assign_epoch(epoch, start_offset)
            case TruncateTo(offset):
                hosted.log.truncate_to(offset)
                self._log_was_cut(hosted)
            case StartOver(offset):
                hosted.log.truncate_fully_and_start_at(offset)
                self._log_was_cut(hosted)
            case MoveLogStart(offset):
                hosted.log.move_start_offset(offset)
            case FetchFrom(leader):
                self.followers.follow(hosted, leader)
            case StopFetching():
                self.followers.stop(hosted)
            case _:
                assert_never(effect)

    def _log_was_cut(self, hosted: HostedPartition) -> None:
        hosted.replica.log_changed()
        self._logs.rebuild_producers(hosted)

    def take_offline(self, hosted: HostedPartition, error: KraftError) -> None:
        """Its log cannot be trusted any more."""
        log.error("partition_offline", partition=str(hosted), why=str(error))
        for effect in hosted.replica.log_failed():
            self._do(hosted, effect)
        self._logs.failed(hosted, error)

    def allows_deletion(self, hosted: HostedPartition) -> bool:
        return self._logs.allows_deletion(hosted)

    def delete_records_before(self, hosted: HostedPartition, offset: int) -> "asyncio.Future[int]":
        """Move the start of a led log; the result is the low watermark that has reached it."""
        deleted: asyncio.Future[int] = self._loop.create_future()
        hosted.wait_for_deletion(offset, deleted)
        self.carry_out(hosted, (MoveLogStart(offset),))
        self.low_watermark_may_have_moved(hosted, self.moment())
        return deleted

    def low_watermark_may_have_moved(self, hosted: HostedPartition, moment: Moment) -> None:
        """A follower has told where its log begins."""
        if hosted.has_deletions:
            hosted.settle_deletions(hosted.replica.low_watermark(moment))

    def _complete(self, hosted: HostedPartition) -> None:
        hosted.settle_appends()
        for fetch in hosted.waiting_fetches():
            fetch.look_again()

    def tick(self) -> None:
        """Now and then: followers that fell behind leave their ISRs."""
        moment = self.moment()
        for hosted in tuple(self._partitions.values()):
            self.carry_out(hosted, hosted.replica.tick(moment))

    # -- DataPlane ----------------------------------------------------------------------------

    def produce(self, request: ProduceRequest, respond: RespondToProduce) -> None:
        operation = WaitingProduce(len(request.partitions), respond)
        if request.acks not in _ACKS:
            code = ErrorCode.invalid_required_acks
            for slot in range(len(request.partitions)):
                operation.finish(slot, ProduceResult(error_code=code.value))
            return
        for slot, asked in enumerate(request.partitions):
            refused = self._place(request, asked, operation, slot)
            if refused is not None:
                operation.finish(slot, refused)
        if operation.is_waiting and request.acks == ACKS_ALL:
            self._waiting.append((operation, request.timeout_ms))

    def _place(
        self,
        request: ProduceRequest,
        asked: ProducePartition,
        operation: WaitingProduce,
        slot: int,
    ) -> ProduceResult | None:
        """Why the partition's batch is refused, if it is."""
        hosted = self.find(asked.topic, asked.topic_id, asked.index)
        if isinstance(hosted, ErrorCode):
            return self._reader.refusal(asked, hosted)
        code = hosted.replica.check_append(request.acks)
        if code is not ErrorCode.none:
            return self._reader.refusal(asked, code)
        try:
            accepted = accept(
                asked.records if asked.records is not None else b"",
                hosted.accepts,
                self._clock.now_ms(),
                zstd=request.version >= _FIRST_WITH_ZSTD,
            )
        except RefusedBatch as refused:
            return _refused(refused)
        placed = hosted.place(accepted)
        if isinstance(placed, ErrorCode):
            return ProduceResult(error_code=placed.value)
        result = ProduceResult(
            base_offset=placed.base_offset,
            log_append_time_ms=placed.timestamp_ms,
            log_start_offset=hosted.log.start_offset,
        )
        operation.appended(slot, result)
        appended = Appended(placed.end_offset, placed.leader_epoch, operation, slot)
        self._dirty.setdefault(hosted, []).append((appended, request.acks == ACKS_ALL))
        return None

    def append_own(
        self, hosted: HostedPartition, batch: bytearray, respond: RespondToProduce
    ) -> None:
        """A batch that the broker itself has made, with acks=all; it is written at once.

        It waits without a deadline: whoever made it must know what became of it.
        """
        operation = WaitingProduce(1, respond)
        code = hosted.replica.check_append(ACKS_ALL)
        header = read_header(batch)
        if code is ErrorCode.none and header.size > hosted.accepts.batch_bytes_max:
            code = ErrorCode.message_too_large
        if code is not ErrorCode.none:
            operation.finish(0, ProduceResult(error_code=code.value))
            return
        placed = hosted.place(Accepted(Request(batch, [(0, header)]), header.max_timestamp))
        assert isinstance(placed, Placed), "it has no producer whose sequence could be wrong"
        operation.appended(0, ProduceResult(base_offset=placed.base_offset))
        appended = Appended(placed.end_offset, placed.leader_epoch, operation, 0)
        self._dirty.setdefault(hosted, []).append((appended, True))
        self.end_of_input()

    def end_of_input(self) -> None:
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        moment = self.moment()
        for hosted, appends in dirty.items():
            try:
                hosted.write(self.intake)
            except KraftError as error:
                for appended, _ in appends:
                    appended.operation.settle(appended.slot, ErrorCode.kafka_storage_error)
                self.take_offline(hosted, error)
                continue
            for appended, wants_all in appends:
                if wants_all:
                    hosted.wait_for_commit(appended)
                else:
                    appended.operation.settle(appended.slot, ErrorCode.none)
            effects = hosted.replica.appended(moment)
            self.carry_out(hosted, (each for each in effects if type(each) is not CompleteWaiting))
            # In any case: followers wait for what is appended, not for what is committed.
            self._complete(hosted)
        # Only now: where there are no followers nobody waits, and a timer for each is not cheap.
        waiting, self._waiting = self._waiting, []
        for operation, timeout_ms in waiting:
            if operation.is_waiting:
                operation.expire_after(timeout_ms, self._loop)

    def fetch(self, request: FetchRequest, respond: RespondToFetch) -> Abandon | None:
        answer, is_enough = self._reader.read(request)
        if is_enough:
            respond(answer)
            return None
        fetch = WaitingFetch(request, self._reader.read, respond)
        watched = [
            hosted
            for each in request.partitions
            if isinstance(
                hosted := self.find(each.topic, each.topic_id, each.index), HostedPartition
            )
        ]
        for hosted in watched:
            hosted.watch(fetch)

        def unwatch(fetch: WaitingFetch) -> None:
            for hosted in watched:
                hosted.unwatch(fetch)

        fetch.wait(self._loop, unwatch)
        return fetch.abandon


def _refused(refused: RefusedBatch) -> ProduceResult:
    return ProduceResult(
        error_code=refused.error.value,
        record_errors=[RecordError(index, why) for index, why in refused.records],
        error_message=str(refused),
    )
