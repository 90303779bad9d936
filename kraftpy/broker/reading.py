"""Fetch: what each partition of a request has to give, and whether that is enough to answer.

A request is answered when it has found its least number of bytes, or an error, or what its asker
must know at once (its log parts ways with ours, another replica is closer). The first batch is
given whole however large it is, or a consumer with a small buffer would never get on.
"""

from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from kraftpy.broker.data_plane import FetchAnswer
from kraftpy.broker.effects import Effects
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.isr import Moment
from kraftpy.broker.metadata.nodes import node_of
from kraftpy.broker.reads import (
    Diverging,
    FetchPlan,
    FollowerFetch,
    Refused,
    Serve,
    preferred_read_replica,
)
from kraftpy.errors import KraftError
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.storage import LogSlice
from kraftpy.types import NO_LEADER, BrokerId, TopicId
from kraftpy.wire.fetch import READ_COMMITTED, FetchedPartition, FetchPartition, FetchRequest
from kraftpy.wire.hot import CurrentLeader, NodeEndpoint
from kraftpy.wire.produce import ProducePartition, ProduceResult

_NOT_HERE: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


class Partitions(Protocol):
    """Who hosts partitions: the ReplicaManager."""

    broker_id: BrokerId

    @property
    def image(self) -> ClusterImage: ...
    def moment(self) -> Moment: ...
    def find(
        self, topic: str | None, topic_id: TopicId | None, index: int
    ) -> HostedPartition | ErrorCode: ...
    def carry_out(self, hosted: HostedPartition, effects: Effects) -> None: ...
    def low_watermark_may_have_moved(self, hosted: HostedPartition, moment: Moment) -> None: ...
    def take_offline(self, hosted: HostedPartition, error: KraftError) -> None: ...


class Reader:
    """Reads for one listener, whose addresses its hints name."""

    def __init__(self, partitions: Partitions, listener: str, reads_from_followers: bool) -> None:
        self._partitions = partitions
        self._listener = listener
        self._reads_from_followers = reads_from_followers

    def read(self, request: FetchRequest) -> tuple[FetchAnswer, bool]:
        """The answer as it would be now, and whether it should be given now."""
        moment = self._partitions.moment()
        left, found, must_answer = request.bytes_max, 0, not request.partitions
        results = []
        for asked in request.partitions:
            result = self._partition(request, asked, moment, left, is_first=found == 0)
            results.append(result)
            count = result.records.count if result.records is not None else 0
            found += count
            left = max(0, left - count)
            must_answer = must_answer or _must_be_told(result)
        is_enough = must_answer or found >= request.bytes_min or request.max_wait_ms <= 0
        return FetchAnswer(results), is_enough

    def _partition(
        self,
        request: FetchRequest,
        asked: FetchPartition,
        moment: Moment,
        bytes_left: int,
        *,
        is_first: bool,
    ) -> FetchedPartition[LogSlice]:
        hosted = self._partitions.find(asked.topic, asked.topic_id, asked.index)
        if isinstance(hosted, ErrorCode):
            return FetchedPartition(error_code=hosted.value, leader=self._hint(asked, hosted))
        plan = self._plan(hosted, request, asked, moment)
        match plan:
            case Refused(error):
                return FetchedPartition(error_code=error.value, leader=self._hint(asked, error))
            case Diverging(epoch, end_offset):
                return FetchedPartition(diverging=(epoch, end_offset))
            case Serve():
                closer = self._closer(hosted, request, asked, moment)
                if closer is not None:
                    return _served(plan, None, preferred_read_replica=closer)
                bytes_max = min(asked.bytes_max, bytes_left)
                return self._records(hosted, asked, plan, bytes_max, is_first=is_first)

    def _plan(
        self, hosted: HostedPartition, request: FetchRequest, asked: FetchPartition, moment: Moment
    ) -> FetchPlan:
        if request.replica_id < 0:
            return hosted.replica.consumer_fetch(
                asked.fetch_offset,
                leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                read_committed=request.isolation_level == READ_COMMITTED,
                leader_only=not self._reads_from_followers,
            )
        fetch = FollowerFetch(
            BrokerId(request.replica_id),
            request.replica_epoch,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        plan, effects = hosted.replica.follower_fetch(fetch, moment)
        self._partitions.carry_out(hosted, effects)
        self._partitions.low_watermark_may_have_moved(hosted, moment)
        return plan

    def _records(
        self,
        hosted: HostedPartition,
        asked: FetchPartition,
        plan: Serve,
        bytes_max: int,
        *,
        is_first: bool,
    ) -> FetchedPartition[LogSlice]:
        if asked.fetch_offset >= plan.end_offset or (bytes_max <= 0 and not is_first):
            return _served(plan, None)
        try:
            found = hosted.log.read(
                asked.fetch_offset,
                bytes_max,
                end_offset=plan.end_offset,
                first_batch_whole=is_first,
            )
        except KraftError as error:
            self._partitions.take_offline(hosted, error)
            return FetchedPartition(error_code=ErrorCode.kafka_storage_error.value)
        return _served(plan, found if found.count else None)

    def _closer(
        self, hosted: HostedPartition, request: FetchRequest, asked: FetchPartition, moment: Moment
    ) -> BrokerId | None:
        replica = hosted.replica
        if not self._reads_from_followers or request.replica_id >= 0 or not replica.is_leader:
            return None
        return preferred_read_replica(
            request.rack_id,
            asked.fetch_offset,
            leader=self._partitions.broker_id,
            high_watermark=replica.high_watermark,
            isr=replica.isr,
            followers=replica.followers,
            brokers=moment.brokers,
        )

    # -- where to go instead ------------------------------------------------------------------

    def refusal(self, asked: ProducePartition, code: ErrorCode) -> ProduceResult:
        return ProduceResult(error_code=code.value, leader=self._hint(asked, code))

    def _hint(
        self, asked: FetchPartition | ProducePartition, code: ErrorCode
    ) -> CurrentLeader | None:
        """KIP-951: who leads now, so that the client need not ask for it."""
        if code not in _NOT_HERE:
            return None
        image = self._partitions.image
        topic_id = asked.topic_id
        if topic_id is None:
            topic_id = image.topic_ids.get(asked.topic) if asked.topic is not None else None
        partition = None if topic_id is None else image.partition(topic_id, asked.index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        node = node_of(image.brokers.get(partition.leader), self._listener)
        endpoint = None
        if node is not None:
            endpoint = NodeEndpoint(node.broker_id, node.host, node.port, node.rack)
        return CurrentLeader(partition.leader, partition.leader_epoch, endpoint)


def _served(
    plan: Serve, records: LogSlice | None, *, preferred_read_replica: int = -1
) -> FetchedPartition[LogSlice]:
    return FetchedPartition(
        high_watermark=plan.high_watermark,
        last_stable_offset=plan.last_stable_offset,
        log_start_offset=plan.log_start_offset,
        records=records,
        preferred_read_replica=preferred_read_replica,
    )


def _must_be_told(result: FetchedPartition[LogSlice]) -> bool:
    return (
        result.error_code != 0 or result.diverging is not None or result.preferred_read_replica >= 0
    )
