"""FetchSnapshot (KIP-630): a snapshot of the metadata log, in pieces that the client asks for."""

from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.limits import METADATA_FETCH_BYTES_MAX
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.apis.context import (
    Context,
    by_partition,
)
from kraftpy.quorum.log_view import MetadataView
from kraftpy.wire.apis import NO_THROTTLE, Request


async def fetch_snapshot(context: Context, request: Request) -> bytearray:
    """Answer a FetchSnapshot."""
    asked = request.message
    cluster_id = asked.cluster_id
    if cluster_id is not None and cluster_id != context.controllers.cluster_id:
        return _response(request, [], [], ErrorCode.inconsistent_cluster_id)
    progress = context.view.progress

    async def answer(partition: Any, is_log: bool) -> dict[str, Any]:
        wanted = partition.snapshot_id
        values = {
            "index": partition.partition,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "snapshot_id": {"end_offset": wanted.end_offset, "epoch": wanted.epoch},
            "current_leader": context.current_leader(progress),
            "size": 0,
            "position": partition.position,
            "unaligned_records": b"",
        }
        if not is_log:
            return values
        problem = context.leader_problem(progress, partition.current_leader_epoch)
        if problem is not None:
            return {**values, "error_code": problem}
        return values | await context.in_thread(_read, context.view, partition, asked.max_bytes)

    topics = await by_partition(asked.topics, "name", "partition", answer)
    return _response(request, topics, context.endpoints(progress.leader_id))


def _response(
    request: Request,
    topics: list[dict[str, Any]],
    endpoints: list[dict[str, Any]],
    error_code: ErrorCode = ErrorCode.none,
) -> bytearray:
    return request.response(
        {
            "throttle_time": NO_THROTTLE,
            "error_code": error_code,
            "topics": topics,
            "node_endpoints": endpoints,
        }
    )


def _read(view: MetadataView, partition: Any, bytes_max: int) -> dict[str, Any]:
    """One piece. In a thread."""
    snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if snapshot_id not in view.snapshots():
        return {"error_code": ErrorCode.snapshot_not_found}
    if partition.position < 0:
        return {"error_code": ErrorCode.position_out_of_range}
    limit = min(max(bytes_max, 1), METADATA_FETCH_BYTES_MAX)
    try:
        chunk = view.read_snapshot(snapshot_id, partition.position, limit)
    except FileNotFoundError:  # Retention was faster.
        return {"error_code": ErrorCode.snapshot_not_found}
    except OSError:
        return {"error_code": ErrorCode.kafka_storage_error}
    if partition.position >= chunk.size:
        return {"error_code": ErrorCode.position_out_of_range}
    return {"error_code": ErrorCode.none, "size": chunk.size, "unaligned_records": chunk.data}
