"""Images from bytes at rest: the newest good snapshot, then the batches behind it.

Used by the owner of a metadata log and by those who only look into its directory. A batch applies
whole or not at all. The collector is paused meanwhile: a million partitions are many objects, none
of them garbage, and walking over them again and again would take longer than making them.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kraftpy.errors import CorruptRecord, RecordDecodeError, StorageError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import EMPTY, Changes, ClusterImage
from kraftpy.metadata_log.snapshot_file import list_snapshots, read_snapshot
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.record_batch import BatchHeader

log = get_logger(__name__)

Progress = Callable[[int], None]


def no_progress(_records: int) -> None:
    """For those who do not watch."""


def load_newest_snapshot(
    files: FileLayer,
    directory: str,
    end_offset: int,
    log_start_offset: int,
    progress: Progress = no_progress,
) -> ClusterImage:
    """The newest image at or before `end_offset` from which the log goes on, EMPTY if it is whole.

    A damaged snapshot is passed over with a WARNING as long as an older one, or the log, tells the
    same story. CorruptRecord if nothing does.
    """
    damaged: StorageError | None = None
    for snapshot_id in reversed(list_snapshots(files, directory)):
        if not log_start_offset <= snapshot_id.end_offset <= end_offset:
            continue
        try:
            with collector_paused():
                return read_snapshot(files, directory, snapshot_id, progress)
        except (CorruptRecord, RecordDecodeError) as error:
            log.warning("snapshot_damaged", snapshot=snapshot_id.file_name, reason=str(error))
            damaged = damaged or error
    if log_start_offset == 0:
        return EMPTY
    raise damaged or StorageError(
        f"{directory}: the log begins at offset {log_start_offset}, and no snapshot leads there"
    )


def replay_batches(
    image: ClusterImage,
    batches: Iterable[tuple[BatchHeader, memoryview]],
    end_offset: int,
    progress: Progress = no_progress,
) -> ClusterImage:
    """The image after every batch that ends at or before `end_offset`; they begin at the image's.

    `progress` is told the offset that was reached.
    """
    return replay_with_changes(image, batches, end_offset, progress)[0]


def replay_with_changes(
    image: ClusterImage,
    batches: Iterable[tuple[BatchHeader, memoryview]],
    end_offset: int,
    progress: Progress = no_progress,
) -> tuple[ClusterImage, Changes]:
    """The same, and what differs from the image that it began with."""
    delta = ClusterDelta(image)
    due, epoch, timestamp = int(image.end_offset), int(image.epoch), image.timestamp_ms
    with collector_paused():
        for header, data in batches:
            if header.end_offset > end_offset:
                break
            if header.base_offset != due:
                raise StorageError(f"a batch of offset {header.base_offset} where {due} was due")
            delta.replay_all(metadata_records(header, data), due)
            due, epoch, timestamp = header.end_offset, header.leader_epoch, header.max_timestamp
            progress(due)
        return delta.image(due, epoch, timestamp), delta.changes()


@contextmanager
def collector_paused() -> Iterator[None]:
    """For work that makes many objects of which none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
