"""Snapshots on disk: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`, as Kafka names them.

A snapshot holds a header, the shortest list of records that rebuilds the image, and a footer, in
batches as in the log; offsets count from 0 within the file. It is written under another name,
synced and then renamed, so a file with the final name is whole or damaged, never unfinished.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kraftpy.errors import CorruptRecord
from kraftpy.metadata_log.batches import (
    control_batch,
    control_records,
    metadata_records,
    packed_batches,
)
from kraftpy.metadata_log.control_records import ControlRecord, SnapshotFooter, SnapshotHeader
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import EMPTY, ClusterImage
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.metadata_log.snapshot_records import snapshot_records
from kraftpy.storage.file_layer import File, FileLayer
from kraftpy.storage.record_batch import read_header
from kraftpy.storage.scan import scan_batches

PART_SUFFIX: Final = ".checkpoint.part"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """Which part of the log a snapshot stands for: all before `end_offset`, written in `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(files: FileLayer, directory: str) -> list[SnapshotId]:
    """The snapshots in a directory, oldest first."""
    matches = map(_NAME.fullmatch, files.names(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def write_snapshot(
    files: FileLayer, directory: str, image: ClusterImage, batch_count: int | None = None
) -> SnapshotId:
    """Write an image, durably. OSError leaves nothing but a file that nobody takes for a snapshot.

    ValueError if a metadata transaction is open in it.
    """
    snapshot_id = SnapshotId(image.end_offset, max(image.epoch, 0))
    path = os.path.join(directory, snapshot_id.file_name)
    part = path.removesuffix(".checkpoint") + PART_SUFFIX
    batches = _batches(image, snapshot_id.epoch, batch_count)
    file = files.open(part)
    try:
        file.truncate(0)
        position = 0
        for batch in batches:
            file.write(position, [batch])
            position += len(batch)
        file.sync()
    except BaseException:
        with contextlib.suppress(OSError):
            files.remove(part)
        raise
    finally:
        file.close()
    files.rename(part, path)
    files.sync_directory(directory)
    return snapshot_id


def _batches(image: ClusterImage, epoch: int, batch_count: int | None) -> Iterator[bytearray]:
    records = snapshot_records(image)  # Refuses an open transaction here, before any file is made.
    header = SnapshotHeader(
        last_contained_log_timestamp=image.timestamp_ms, batch_count=batch_count
    )
    return _encoded(header, records, epoch)


def _encoded(
    header: SnapshotHeader, records: Iterable[MetadataRecord], epoch: int
) -> Iterator[bytearray]:
    timestamp = header.last_contained_log_timestamp
    yield control_batch(header, base_offset=0, epoch=epoch, timestamp_ms=timestamp)
    offset = 1
    for batch in packed_batches(records, base_offset=1, epoch=epoch, timestamp_ms=timestamp):
        yield batch
        offset = read_header(batch).end_offset
    yield control_batch(SnapshotFooter(), base_offset=offset, epoch=epoch, timestamp_ms=timestamp)


def snapshot_header(files: FileLayer, directory: str, snapshot_id: SnapshotId) -> SnapshotHeader:
    """What a snapshot says of itself."""
    file = files.open_for_read(os.path.join(directory, snapshot_id.file_name))
    try:
        for position, batch, data in scan_batches(file, 0, file.size(), 0):
            header, _ = _read_control(file, position, control_records(batch, data), None)
            return header
        raise CorruptRecord(file.path, 0, 0, "the snapshot is empty")
    finally:
        file.close()


def read_snapshot(
    files: FileLayer,
    directory: str,
    snapshot_id: SnapshotId,
    progress: Callable[[int], None] = lambda _count: None,
) -> ClusterImage:
    """The image that a snapshot holds; CorruptRecord if the file is not whole.

    `progress` is told how many records have been replayed.
    """
    file = files.open_for_read(os.path.join(directory, snapshot_id.file_name))
    try:
        delta = ClusterDelta(EMPTY)
        header: SnapshotHeader | None = None
        footer: ControlRecord | None = None
        due = 0
        for position, batch, data in scan_batches(file, 0, file.size(), due):
            if batch.base_offset != due or footer is not None:
                raise CorruptRecord(file.path, position, due, f"offset {batch.base_offset} here")
            due = batch.end_offset
            if batch.is_control:
                header, footer = _read_control(file, position, control_records(batch, data), header)
            else:
                progress(delta.replay_all(metadata_records(batch, data), batch.base_offset))
        if header is None or footer is None:
            raise CorruptRecord(file.path, file.size(), due, "the snapshot has no end")
        timestamp = header.last_contained_log_timestamp
        return delta.image(snapshot_id.end_offset, snapshot_id.epoch, timestamp)
    finally:
        file.close()


def check_snapshot(file: File) -> SnapshotHeader:
    """Whether a file is a whole snapshot, without building its image; CorruptRecord if not."""
    header: SnapshotHeader | None = None
    footer: SnapshotFooter | None = None
    due = 0
    for position, batch, data in scan_batches(file, 0, file.size(), due):
        if batch.base_offset != due or footer is not None:
            raise CorruptRecord(file.path, position, due, f"offset {batch.base_offset} here")
        due = batch.end_offset
        if batch.is_control:
            header, footer = _read_control(file, position, control_records(batch, data), header)
    if header is None or footer is None:
        raise CorruptRecord(file.path, file.size(), due, "the snapshot has no end")
    return header


def _read_control(
    file: File, position: int, controls: list[ControlRecord], header: SnapshotHeader | None
) -> tuple[SnapshotHeader, SnapshotFooter | None]:
    for control in controls:
        if isinstance(control, SnapshotHeader) and header is None and position == 0:
            header = control
        elif isinstance(control, SnapshotFooter) and header is not None:
            return header, control
    if header is None:
        raise CorruptRecord(file.path, position, 0, "the snapshot has no header")
    return header, None
