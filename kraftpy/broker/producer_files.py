"""What is known of a partition's producers, kept beside its log: Kafka's `<offset>.snapshot` files.

A snapshot is written when a log is closed, and now and then. After a restart or a truncation the
newest usable one is loaded and the batches behind it are read again, headers only. A snapshot
beyond the log's end is removed, durably, before the log may grow past it: it speaks of other
records.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

from kraftpy.broker.producer_state import ProducerStates, plan_rebuild
from kraftpy.errors import StorageError
from kraftpy.limits import PRODUCER_SNAPSHOTS_KEPT
from kraftpy.logs import get_logger
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.storage.record_batch import HEADER_BYTES, BatchHeader, read_header

_SLICE_BYTES: Final = 1 << 30
_NAME: Final = re.compile(r"(\d{20})\.snapshot")

log = get_logger(__name__)


def _path(directory: str, offset: int) -> str:
    return os.path.join(directory, f"{offset:020d}.snapshot")


def _snapshots(files: FileLayer, directory: str) -> list[int]:
    matches = map(_NAME.fullmatch, files.names(directory))
    return sorted(int(match[1]) for match in matches if match)


def iter_headers(partition_log: Log, offset: int) -> Iterator[BatchHeader]:
    """Those of the batches from `offset` to the end, without reading the batches."""
    while offset < partition_log.end_offset:
        piece = partition_log.read(offset, _SLICE_BYTES)
        assert piece.file is not None
        position = piece.position
        while position < piece.position + piece.count:
            header = read_header(piece.file.read(position, HEADER_BYTES))
            yield header
            position += header.size
            offset = header.end_offset


def load_producers(files: FileLayer, partition_log: Log) -> ProducerStates:
    """The state that the log's batches tell."""
    directory = partition_log.directory
    start, end = partition_log.start_offset, partition_log.end_offset
    plan = plan_rebuild(_snapshots(files, directory), start, end)
    if plan.stale:
        for offset in plan.stale:
            files.remove(_path(directory, offset))
        files.sync_directory(directory)
    states = ProducerStates(start)
    for offset in plan.snapshots:
        try:
            states = ProducerStates.from_snapshot(
                files.read_whole(_path(directory, offset)), offset
            )
            break
        except StorageError as error:
            log.warning("producer_snapshot_ignored", dir=directory, offset=offset, why=str(error))
    for header in iter_headers(partition_log, max(states.end_offset, start)):
        states.append(header)
    states.end_offset = end
    return states


def save_producers(files: FileLayer, partition_log: Log, states: ProducerStates) -> bool:
    """Write a snapshot, if there is none at this offset, and remove old ones; whether it did."""
    directory = partition_log.directory
    known = _snapshots(files, directory)
    if states.end_offset in known or states.end_offset <= partition_log.start_offset:
        return False
    files.replace(_path(directory, states.end_offset), states.snapshot())
    for offset in [*known, states.end_offset][:-PRODUCER_SNAPSHOTS_KEPT]:
        files.remove(_path(directory, offset))
    return True
