"""Fetch of the metadata log: for observers, and for any Kafka consumer.

Only what is committed is given out. A replica (it names its id or the epoch of its last record) is
told where its log diverges (KIP-595) or which snapshot to load instead (KIP-630); a consumer gets
OFFSET_OUT_OF_RANGE. A request that finds nothing new waits until the high watermark or the leader
changes, or its time is over. There are no sessions (KIP-227): a client then asks in full each time.
"""

import asyncio
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from kraftpy.errors import OffsetOutOfRange
from kraftpy.limits import METADATA_FETCH_BYTES_MAX, METADATA_FETCH_WAIT_MS_MAX
from kraftpy.logs import get_logger
from kraftpy.quorum.apis.context import Context, by_partition
from kraftpy.quorum.log_view import EpochEnd, MetadataView, Progress
from kraftpy.types import NO_EPOCH
from kraftpy.wire.apis import NO_THROTTLE, Request

log = get_logger(__name__)

_FIRST_WITH_TOPIC_IDS: Final = 13
_NOT_SAID: Final = (1 << 63) - 1


class _Wanted(NamedTuple):
    """What one request asks of the metadata log."""

    replica_id: int
    directory_id: UUID | None
    offset: int
    last_epoch: int
    leader_epoch: int
    known_high_watermark: int
    bytes_max: int

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0 or self.last_epoch >= 0


class _Found(NamedTuple):
    """The answer so far; `worth_sending` if waiting cannot make it better."""

    values: dict[str, Any]
    worth_sending: bool


async def fetch(context: Context, request: Request) -> bytearray:
    """Answer a Fetch."""
    asked = request.message
    cluster_id = getattr(asked, "cluster_id", None)
    if cluster_id is not None and cluster_id != context.controllers.cluster_id:
        return _response(request, [], ErrorCode.inconsistent_cluster_id)
    if getattr(asked, "session_id", 0) != 0:
        return _response(request, [], ErrorCode.fetch_session_id_not_found)
    by_id = request.header.api_version >= _FIRST_WITH_TOPIC_IDS

    async def answer(partition: Any, is_log: bool) -> dict[str, Any]:
        if is_log:
            values = await _wait_for(context, asked, _wanted(asked, partition))
        else:
            values = _partition(
                ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            )
        return {**values, "partition_index": partition.partition}

    topics = await by_partition(asked.topics, "topic_id" if by_id else "topic", "partition", answer)
    leader_id = context.view.progress.leader_id
    elsewhere = [] if leader_id == context.view.node_id else context.endpoints(leader_id)
    return _response(request, topics, endpoints=elsewhere)


def _response(
    request: Request,
    topics: list[dict[str, Any]],
    error_code: ErrorCode = ErrorCode.none,
    endpoints: list[dict[str, Any]] | None = None,
) -> bytearray:
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": error_code,
            "session_id": 0,
            "responses": topics,
            "node_endpoints": endpoints or [],
        }
    )


def _partition(error_code: ErrorCode, **values: Any) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "records": b"",
        **values,
    }


def _wanted(asked: Any, partition: Any) -> _Wanted:
    state = getattr(asked, "replica_state", None)
    bytes_max = min(asked.max_bytes, partition.partition_max_bytes, METADATA_FETCH_BYTES_MAX)
    return _Wanted(
        replica_id=asked.replica_id if state is None else state.replica_id,
        directory_id=getattr(partition, "replica_directory_id", None),
        offset=partition.fetch_offset,
        last_epoch=getattr(partition, "last_fetched_epoch", NO_EPOCH),
        leader_epoch=getattr(partition, "current_leader_epoch", NO_EPOCH),
        known_high_watermark=getattr(partition, "high_watermark", _NOT_SAID),
        bytes_max=max(bytes_max, 0),
    )


async def _wait_for(context: Context, asked: Any, wanted: _Wanted) -> dict[str, Any]:
    """The answer for the metadata log, as soon as there is something to say."""
    loop = asyncio.get_running_loop()
    wait_s = min(max(asked.max_wait.total_seconds(), 0.0), METADATA_FETCH_WAIT_MS_MAX / 1000)
    deadline = loop.time() + wait_s
    while True:
        progress = context.view.progress
        found = await _look(context, progress, wanted)
        if found.worth_sending or asked.min_bytes <= 0 or loop.time() >= deadline:
            return found.values
        try:
            async with asyncio.timeout_at(deadline):
                await context.view.changed(progress)
        except TimeoutError:
            return found.values


async def _look(context: Context, progress: Progress, wanted: _Wanted) -> _Found:
    """What can be said right now."""
    problem = context.leader_problem(progress, wanted.leader_epoch)
    if problem is not None:
        return _Found(_partition(problem, current_leader=context.current_leader(progress)), True)
    if wanted.replica_id >= 0 and context.controllers.voter(wanted.replica_id) is None:
        context.observers.note(
            wanted.replica_id,
            wanted.directory_id,
            epoch=progress.epoch,
            fetch_offset=wanted.offset,
            high_watermark=progress.high_watermark,
            now_ms=context.clock.now_ms(),
        )
    recent = context.view.read_recent(
        wanted.offset, progress.high_watermark, wanted.last_epoch, wanted.bytes_max
    )
    if recent is not None:
        return _found(context.view, progress, wanted, recent)
    try:
        return await context.in_thread(_read, context.view, progress, wanted)
    except OSError as error:
        log.error("metadata_read_failed", offset=wanted.offset, reason=str(error))
        return _Found(_partition(ErrorCode.kafka_storage_error), True)


def _read(view: MetadataView, progress: Progress, wanted: _Wanted) -> _Found:
    """Check the asker's log against ours, and read on from where it ends. In a thread."""
    offsets = _offsets(view, progress)
    if wanted.is_replica:
        other_way = _snapshot_or_divergence(view, wanted)
        if other_way is not None:
            return _Found(_partition(ErrorCode.none, **offsets, **other_way), True)
    try:
        if wanted.offset > progress.high_watermark and not wanted.is_replica:
            raise OffsetOutOfRange(wanted.offset, view.log_start_offset, progress.high_watermark)
        data = view.read(wanted.offset, progress.high_watermark, wanted.bytes_max)
    except OffsetOutOfRange:
        return _Found(_partition(ErrorCode.offset_out_of_range, **offsets), True)
    return _found(view, progress, wanted, data)


def _found(view: MetadataView, progress: Progress, wanted: _Wanted, data: bytes) -> _Found:
    news = bool(data) or wanted.known_high_watermark < progress.high_watermark
    values = _partition(ErrorCode.none, **_offsets(view, progress), records=data)
    return _Found(values, news)


def _offsets(view: MetadataView, progress: Progress) -> dict[str, int]:
    return {
        "high_watermark": progress.high_watermark,
        "last_stable_offset": progress.high_watermark,
        "log_start_offset": view.log_start_offset,
    }


def _snapshot_or_divergence(view: MetadataView, wanted: _Wanted) -> dict[str, Any] | None:
    """What to do instead of reading, if a replica's log is not a beginning of ours."""
    start = view.log_start_offset
    if start == 0 and wanted.offset == 0:
        return None
    if start > 0:
        snapshots = view.snapshots()
        earliest = snapshots[0]
        if (wanted.offset, wanted.last_epoch) == earliest:
            return None
        if wanted.offset <= start or wanted.last_epoch < earliest.epoch:
            newest = snapshots[-1]
            return {"snapshot_id": {"end_offset": newest.end_offset, "epoch": newest.epoch}}
    if wanted.last_epoch == NO_EPOCH:
        return None  # A replica that does not say what it has: take its word for the offset.
    end = view.epoch_end(wanted.last_epoch)
    if end.epoch == wanted.last_epoch and wanted.offset <= end.end_offset:
        return None
    if end.epoch == NO_EPOCH:
        end = EpochEnd(view.snapshots()[0].epoch, start) if start > 0 else EpochEnd(0, 0)
    return {"diverging_epoch": {"epoch": end.epoch, "end_offset": end.end_offset}}
