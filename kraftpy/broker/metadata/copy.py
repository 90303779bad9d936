"""A broker's own copy of the metadata log, and the image that it makes.

What always holds:
- only what is committed is in it: the active controller gives out nothing else, and what claims to
  lie beyond the high watermark is refused. So all of it is replayed at a restart, and nothing of it
  is ever cut: a quorum that lacks a record that is here has lost it, and the broker stops.
- the image is that of the whole copy. A batch is replayed before it is written: what cannot be
  replayed never reaches the disk, and what is there can be replayed again.
- a snapshot from the controller takes the place of the log only once it is whole, checked and
  durable under its final name; a crash on the way leaves the old copy or the new one.

It is synced in groups, seldom: what a power loss takes is fetched again. Every method may block;
one thread calls them, one after the other.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from kraftpy.broker.metadata.image_changes import changes_between
from kraftpy.clock import Clock
from kraftpy.errors import (
    CorruptRecord,
    DiskFault,
    FatalFault,
    RecordDecodeError,
    StorageError,
    WireError,
)
from kraftpy.logs import get_logger
from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import EMPTY, NO_CHANGES, Changes, ClusterImage
from kraftpy.metadata_log.image_notes import ImageNotes, due_at
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.snapshot_file import (
    PART_SUFFIX,
    SnapshotId,
    check_snapshot,
    read_snapshot,
)
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter, Writing, in_a_thread
from kraftpy.storage.file_layer import File, FileLayer
from kraftpy.storage.record_batch import validate

log = get_logger(__name__)

_FLUSH_EVERY_MS: Final = 1000
_OFFER_EVERY_MS: Final = 1000


class Step(NamedTuple):
    """What the image became, and how it differs from the one before."""

    image: ClusterImage
    changes: Changes


class MetadataCopy:
    """An open copy. Close it."""

    def __init__(
        self,
        files: FileLayer,
        directory: str,
        config: MetadataLogConfig,
        policy: SnapshotPolicy,
        clock: Clock,
        begin: Callable[[Callable[[], None]], Writing] = in_a_thread,
    ) -> None:
        """Replay what is here. FatalFault if it cannot be: a copy is never guessed at."""
        self.directory = directory
        self._files = files
        self._clock = clock
        try:
            config = replace(config, flush_every_append=False)
            self._log = MetadataLog(files, directory, config, clock)
        except StorageError as error:
            raise self._unusable(error) from error
        try:
            self.image = self._log.load_image()
        except StorageError as error:
            self._log.close()
            raise self._unusable(error) from error
        except BaseException:
            self._log.close()
            raise
        self._snapshotter = Snapshotter(self._log, policy, clock, begin)
        self._flushed_ms = self._offered_ms = clock.monotonic_ms()
        self._receiving: _Receiving | None = None
        self.notes: ImageNotes | None = None  # Of whoever takes notes for audits.

    def _unusable(self, error: StorageError) -> FatalFault:
        return FatalFault(
            f"{error}; this is only a copy of the metadata log: remove {self.directory} and the "
            "broker fetches it again"
        )

    @property
    def end_offset(self) -> int:
        return self._log.log.end_offset

    @property
    def start_offset(self) -> int:
        return self._log.log.start_offset

    def close(self) -> None:
        self._snapshotter.close()
        self._drop_received()
        self._log.close()

    # -- batches ------------------------------------------------------------------------------

    def take(self, data: bytes, high_watermark: int) -> Step:
        """Batches that continue the copy; WireError if they do not, and nothing has changed then.

        FatalFault if they cannot be replayed, with the record and its offset.
        """
        steps = self._replayed(data, high_watermark)
        self._log.log.append_replicated(data)
        changes = NO_CHANGES
        for step in steps:
            if self.notes is not None:
                self.notes.replayed(self.image, step.image, step.changes)
            changes = changes.then(step.changes) if changes is not NO_CHANGES else step.changes
            self.image = step.image
        image = self.image
        self._offer_snapshot()
        self.flush_if_due()
        return Step(image, changes)

    def _replayed(self, data: bytes, high_watermark: int) -> list[Step]:
        """One step; two, if the notes want to see an image on the way."""
        view = memoryview(data)
        batches = validate(view)
        steps: list[Step] = []
        delta = ClusterDelta(self.image)
        due, epoch, timestamp = self.end_offset, int(self.image.epoch), self.image.timestamp_ms
        stop = None
        if self.notes is not None:
            stop = due_at(due, [header.end_offset for _, header in batches])
        for number, (position, header) in enumerate(batches):
            if header.base_offset != due or header.leader_epoch < epoch:
                raise WireError(
                    f"a batch of offset {header.base_offset} and epoch {header.leader_epoch}, "
                    f"where offset {due} of at least epoch {epoch} was due"
                )
            if header.end_offset > high_watermark:
                raise WireError(
                    f"a batch that ends at {header.end_offset}, beyond what is committed: "
                    f"{high_watermark}"
                )
            try:
                records = metadata_records(header, view[position : position + header.size])
            except RecordDecodeError as error:
                raise FatalFault(f"cannot replay the metadata log: {error}") from error
            delta.replay_all(records, due)
            due, epoch, timestamp = header.end_offset, header.leader_epoch, header.max_timestamp
            if number == stop and number + 1 < len(batches):
                steps.append(Step(delta.image(due, epoch, timestamp), delta.changes()))
                delta = ClusterDelta(steps[-1].image)
        return [*steps, Step(delta.image(due, epoch, timestamp), delta.changes())]

    def flush_if_due(self) -> None:
        """Sync what was appended, once a second at most."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._flushed_ms >= _FLUSH_EVERY_MS:
            self._flushed_ms = now_ms
            self._log.log.flush()

    def _offer_snapshot(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._offered_ms >= _OFFER_EVERY_MS:
            self._offered_ms = now_ms
            self._snapshotter.offer(self.image)

    # -- a snapshot from the controller -------------------------------------------------------

    def begin_snapshot(self, snapshot_id: SnapshotId) -> None:
        """What follows are its pieces. What was received of another one is dropped."""
        if snapshot_id.end_offset < self.end_offset:
            raise FatalFault(
                f"the quorum has no log from offset {self.end_offset} on, only a snapshot that "
                f"ends at {snapshot_id.end_offset}: it has lost what was committed, or "
                f"{self.directory} is of another cluster"
            )
        self._drop_received()
        name = f"{snapshot_id.file_name}.received{PART_SUFFIX}"
        try:
            file = self._files.open(os.path.join(self.directory, name))
            file.truncate(0)
        except OSError as error:
            raise self._disk_fault(error) from error
        self._receiving = _Receiving(snapshot_id, file)

    def add_piece(self, data: bytes) -> int:
        """Store the next piece; how much there is now."""
        receiving = self._receiving
        assert receiving is not None, "begin_snapshot comes first"
        try:
            receiving.file.write(receiving.size, [data])
        except OSError as error:
            raise self._disk_fault(error) from error
        receiving.size += len(data)
        return receiving.size

    def finish_snapshot(self) -> Step:
        """Check what was received, and let it take the place of the copy.

        WireError if it is damaged: the copy is as it was, and the snapshot can be asked for again.
        """
        receiving = self._receiving
        assert receiving is not None, "begin_snapshot comes first"
        snapshot_id = receiving.snapshot_id
        try:
            check_snapshot(receiving.file)
        except (CorruptRecord, RecordDecodeError) as error:
            self._drop_received()
            raise WireError(f"a damaged snapshot was received: {error}") from error
        self._snapshotter.close()  # Its snapshot would be of a log that is about to go.
        try:
            receiving.file.sync()
            receiving.file.close()
            self._receiving = None
            final = os.path.join(self.directory, snapshot_id.file_name)
            self._files.rename(receiving.file.path, final)
            self._files.sync_directory(self.directory)
        except OSError as error:
            raise self._disk_fault(error) from error
        before, self.image = self.image, self._loaded(snapshot_id)
        # Only now: from the rename on, a crash finds the snapshot, and the log follows it.
        self._log.log.truncate_fully_and_start_at(snapshot_id.end_offset)
        self._log.delete_old()
        if self.notes is not None:
            self.notes.replayed(before, self.image, None)
        log.info("snapshot_loaded", snapshot=snapshot_id.file_name)
        return Step(self.image, changes_between(before, self.image))

    def _loaded(self, snapshot_id: SnapshotId) -> ClusterImage:
        try:
            return read_snapshot(self._files, self.directory, snapshot_id)
        except StorageError as error:
            raise FatalFault(f"cannot load the snapshot of the metadata log: {error}") from error

    def _drop_received(self) -> None:
        if self._receiving is not None:
            receiving, self._receiving = self._receiving, None
            receiving.file.close()
            with suppress(OSError):  # The next start removes it.
                self._files.remove(receiving.file.path)

    def _disk_fault(self, error: OSError) -> DiskFault:
        return DiskFault(f"cannot store a snapshot in {self.directory}: {error}")


class _Receiving:
    def __init__(self, snapshot_id: SnapshotId, file: File) -> None:
        self.snapshot_id = snapshot_id
        self.file = file
        self.size = 0


def first_step(image: ClusterImage) -> Step:
    """What a broker that has just started is told: everything is new."""
    return Step(image, changes_between(EMPTY, image))
