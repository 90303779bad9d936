"""The metadata log of one node: a log of metadata records, its snapshots, and images from both.

What always holds:
- every append is durable when it returns, unless the owner has chosen to flush by itself.
- for each snapshot that is kept, the log from its end on is kept too; log that no snapshot covers
  is never removed.
- `load_image` gives what replaying the whole history would give, whichever snapshots there are.
Which part of the log is committed is Raft's to know: whoever asks for an image says up to where.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kraftpy.clock import Clock
from kraftpy.config import Settings
from kraftpy.errors import DiskFault, StorageError
from kraftpy.limits import METADATA_BATCH_BYTES_MAX
from kraftpy.logs import get_logger
from kraftpy.metadata_log.batches import control_batch, record_batch
from kraftpy.metadata_log.control_records import ControlRecord
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.loading import (
    Progress,
    load_newest_snapshot,
    no_progress,
    replay_batches,
)
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.metadata_log.snapshot_file import (
    PART_SUFFIX,
    SnapshotId,
    list_snapshots,
    snapshot_header,
    write_snapshot,
)
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.request import Appended
from kraftpy.storage.segment import SegmentConfig

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    """How a metadata log is kept; None is "no limit". The defaults are Kafka's."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int | None = 100 * 1024**2
    retention_ms: int | None = 7 * 24 * 3_600_000
    # Off for Raft, which syncs once for all that a tick has appended, before it promises anything.
    flush_every_append: bool = True

    @staticmethod
    def of(settings: Settings) -> "MetadataLogConfig":
        bytes_max, ms_max = (
            settings.metadata_max_retention_bytes,
            settings.metadata_max_retention_ms,
        )
        return MetadataLogConfig(
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
            retention_bytes=None if bytes_max < 0 else bytes_max,
            retention_ms=None if ms_max < 0 else ms_max,
        )

    @property
    def log(self) -> LogConfig:
        return LogConfig(
            segment=SegmentConfig(segment_bytes=self.segment_bytes, segment_ms=self.segment_ms),
            batch_bytes_max=METADATA_BATCH_BYTES_MAX,
            flush_interval_messages=1 if self.flush_every_append else None,
            retention_bytes=None,  # Snapshots decide, see `delete_old`.
            retention_ms=None,
            verify_all=True,
        )


class MetadataLog:
    """An open metadata log. One thread changes it; `write_snapshot` may run in another."""

    def __init__(
        self, files: FileLayer, directory: str, config: MetadataLogConfig, clock: Clock
    ) -> None:
        self.directory = directory
        self._config = config
        self._files = files
        self._clock = clock
        self.log = Log.open(files, directory, config.log, clock)
        with self._disk("open"):
            self._remove_unfinished_snapshots()
        newest = self.snapshots[-1] if self.snapshots else SnapshotId(0, 0)
        if newest.end_offset > self.log.end_offset:
            # A snapshot from another node was stored, and the crash came before the log followed.
            log.warning("log_begins_at_snapshot", snapshot=newest.file_name, dir=directory)
            self.log.truncate_fully_and_start_at(newest.end_offset)
        if newest.end_offset < self.log.start_offset:
            raise StorageError(
                f"{directory}: the log begins at offset {self.log.start_offset}, and there is no "
                f"snapshot of what was before it"
            )

    def _remove_unfinished_snapshots(self) -> None:
        for name in self._files.names(self.directory):
            if name.endswith(PART_SUFFIX):
                self._files.remove(os.path.join(self.directory, name))

    @property
    def snapshots(self) -> list[SnapshotId]:
        """The snapshots that are there, oldest first."""
        return list_snapshots(self._files, self.directory)

    def append(self, records: Sequence[MetadataRecord], epoch: int) -> Appended:
        """Write records as one batch, durably. ValueError if they are too many for one."""
        now_ms = self._clock.now_ms()
        offset = self.log.end_offset
        batch = record_batch(records, base_offset=offset, epoch=epoch, timestamp_ms=now_ms)
        return self.log.append(batch, epoch)

    def append_control(self, record: ControlRecord, epoch: int) -> Appended:
        """Write an entry of Raft's own, durably."""
        now_ms = self._clock.now_ms()
        offset = self.log.end_offset
        batch = control_batch(record, base_offset=offset, epoch=epoch, timestamp_ms=now_ms)
        return self.log.append(batch, epoch)

    # -- images ---------------------------------------------------------------------------

    def load_image(
        self, end_offset: int | None = None, progress: Progress = no_progress
    ) -> ClusterImage:
        """The image at `end_offset` or at the end: a snapshot and what follows it in the log."""
        end_offset = self.log.end_offset if end_offset is None else end_offset
        image = load_newest_snapshot(
            self._files, self.directory, end_offset, self.log.start_offset, progress
        )
        return self.replay(image, end_offset, progress)

    def replay(
        self, image: ClusterImage, end_offset: int, progress: Progress = no_progress
    ) -> ClusterImage:
        """The image after every batch that ends at or before `end_offset`."""
        return replay_batches(image, self.log.batches(image.end_offset), end_offset, progress)

    # -- snapshots ------------------------------------------------------------------------

    def write_snapshot(self, image: ClusterImage, batch_count: int | None = None) -> SnapshotId:
        """Store a committed image as a snapshot, durably."""
        with self._disk("write a snapshot of"):
            return write_snapshot(self._files, self.directory, image, batch_count)

    def snapshot_at_start(self) -> tuple[SnapshotId, int]:
        """The snapshot at which the log begins, and how many batches it stands for."""
        for snapshot_id in self.snapshots:
            if snapshot_id.end_offset == self.log.start_offset:
                header = snapshot_header(self._files, self.directory, snapshot_id)
                if header.batch_count is not None:
                    return snapshot_id, header.batch_count
        raise StorageError(
            f"{self.directory}: the log begins at offset {self.log.start_offset}, and no snapshot "
            f"says how many batches were before"
        )

    def bytes_since_snapshot(self) -> int:
        """How much log a load has to replay behind the newest snapshot."""
        snapshots = self.snapshots
        start = snapshots[-1].end_offset if snapshots else self.log.start_offset
        return self.log.bytes_from(max(start, self.log.start_offset))

    def delete_old(self) -> list[SnapshotId]:
        """Remove old snapshots, and the log that only they needed, by size and age.

        The newest snapshot always stays, and so does the log from the oldest kept one on.
        """
        removed = []
        snapshots = self.snapshots
        while len(snapshots) > 1 and self._is_too_old(snapshots):
            oldest = snapshots.pop(0)
            with self._disk("remove a snapshot of"):
                # The snapshot first: it must never be there without the log behind it.
                self._files.remove(os.path.join(self.directory, oldest.file_name))
                self._files.sync_directory(self.directory)
            self.log.move_start_offset(snapshots[0].end_offset)
            self.log.delete_old_segments(upto=snapshots[0].end_offset)
            removed.append(oldest)
        return removed

    def _is_too_old(self, snapshots: list[SnapshotId]) -> bool:
        paths = [os.path.join(self.directory, each.file_name) for each in snapshots]
        total = self.log.size_bytes + sum(file_size(self._files, path) for path in paths)
        if self._config.retention_bytes is not None and total > self._config.retention_bytes:
            return True
        if self._config.retention_ms is None:
            return False
        header = snapshot_header(self._files, self.directory, snapshots[0])
        age_ms = self._clock.now_ms() - header.last_contained_log_timestamp
        return age_ms > self._config.retention_ms

    def close(self) -> None:
        self.log.close()

    @contextmanager
    def _disk(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskFault(
                f"cannot {doing} the metadata log in {self.directory}: {error}"
            ) from error


def file_size(files: FileLayer, path: str) -> int:
    file = files.open_for_read(path)
    try:
        return file.size()
    finally:
        file.close()
