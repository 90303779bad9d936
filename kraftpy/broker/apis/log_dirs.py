"""DescribeLogDirs: what is kept where, and how much room is left. Pure."""

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.log_keeper import DirDescription
from kraftpy.wire.apis import NO_THROTTLE


def describe_log_dirs(found: Iterable[DirDescription], asked: Any) -> dict[str, Any]:
    """All partitions, or those that are asked for, under the directories that hold them."""
    wanted = None
    if asked.topics is not None:
        wanted = {(topic.topic, each) for topic in asked.topics for each in topic.partitions}
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": ErrorCode.none,
        "results": [_result(each, wanted) for each in found],
    }


def _result(found: DirDescription, wanted: set[tuple[str, int]] | None) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for replica in found.replicas:
        if wanted is None or (replica.topic, replica.partition) in wanted:
            topics.setdefault(replica.topic, []).append(
                {
                    "partition_index": replica.partition,
                    "partition_size": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "is_future_key": False,
                }
            )
    failed = found.failure is not None
    return {
        "error_code": ErrorCode.kafka_storage_error if failed else ErrorCode.none,
        "log_dir": found.path,
        "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "is_cordoned": False,
    }
