"""What the controller listener sees of the metadata log: all that is committed, and who leads.

`LogView` stands between the engine, which has a thread of its own, and the listener's event loop.
It follows the engine as one of its Listeners: what it was told last, it holds as one value that is
replaced as a whole, so that the loop never sees a leader with another one's epoch. Reads of the log
take the journal's lock for as long as it takes to find their place; nothing at or above the high
watermark is ever given out.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from kraftpy.errors import FatalFault
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch, QuorumState
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.quorum.recent_batches import RecentBatches
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import NO_EPOCH


@dataclass(frozen=True, slots=True)
class Progress:
    """What the engine has told so far."""

    leader_id: int | None
    epoch: int
    high_watermark: int


class EpochEnd(NamedTuple):
    """An epoch of this log, and the offset after its last record."""

    epoch: int
    end_offset: int


class SnapshotChunk(NamedTuple):
    """A piece of a snapshot, and the size of the whole."""

    size: int
    data: bytes


class MetadataView(Protocol):
    """What the listener's handlers read. What takes the journal's lock or reads files may block
    for a moment, and is called in a thread: `read` and all that follows it."""

    node_id: int

    @property
    def progress(self) -> Progress: ...

    @property
    def log_start_offset(self) -> int: ...

    async def changed(self, since: Progress) -> None:
        """Return as soon as `progress` is not `since` any more."""
        ...

    def state(self) -> QuorumState: ...

    def read_recent(self, offset: int, upto: int, last_epoch: int, bytes_max: int) -> bytes | None:
        """As `read`, from memory, for a log whose last record is of `last_epoch` (-1: not said);
        None if memory cannot tell. Does not block."""
        ...

    def read(self, offset: int, upto: int, bytes_max: int) -> bytes:
        """Committed batches from the one that holds `offset` on, before `upto`; OffsetOutOfRange.

        The first one is given whole, however small `bytes_max` is."""
        ...

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Of the largest epoch at or below `epoch` that the log has; (-1, -1) if there is none."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first committed record at or after a time."""
        ...

    def snapshots(self) -> Sequence[SnapshotId]:
        """Those that are there, oldest first."""
        ...

    def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, bytes_max: int
    ) -> SnapshotChunk:
        """FileNotFoundError if the snapshot is not there any more."""
        ...


class LogView:
    """The view of a RaftEngine. Give it to the engine as a Listener, or among its Listeners."""

    def __init__(self, engine: RaftEngine, files: FileLayer) -> None:
        self.node_id = engine.node_id
        self._engine = engine
        self._files = files
        self._journal = engine.journal
        self._metadata_log = engine.journal.metadata_log
        self._recent = RecentBatches()
        self._progress = Progress(engine.leader_id, engine.epoch, engine.high_watermark)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    # -- the engine's Listener: in its thread -------------------------------------------------

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self._advance(replace(self._progress, leader_id=leader_id, epoch=epoch))

    def committed(self, batches: list[CommittedBatch]) -> None:
        end_offset = batches[-1].header.end_offset
        self._recent.add(batches)  # First: whoever sees the high watermark finds the batches.
        self._advance(replace(self._progress, high_watermark=end_offset))

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self._recent.clear()
        end_offset = max(snapshot_id.end_offset, self._progress.high_watermark)
        self._advance(replace(self._progress, high_watermark=end_offset))

    def failed(self, _fault: FatalFault) -> None:
        self._advance(replace(self._progress, leader_id=None))

    def _advance(self, progress: Progress) -> None:
        self._progress = progress
        # 1. A waiter enters the set, 2. and compares: whoever changes the value after that finds
        # the waiter here, and whoever changed it before is seen by the comparison.
        loop = self._loop
        if loop is not None and self._waiting:
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(self._wake)

    # -- MetadataView: in the event loop ------------------------------------------------------

    @property
    def progress(self) -> Progress:
        return self._progress

    @property
    def log_start_offset(self) -> int:
        return self._metadata_log.log.start_offset

    async def changed(self, since: Progress) -> None:
        self._loop = asyncio.get_running_loop()
        waiting = self._loop.create_future()
        self._waiting.add(waiting)
        try:
            if self._progress == since:
                await waiting
        finally:
            self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    # -- MetadataView: in any thread ----------------------------------------------------------

    def state(self) -> QuorumState:
        progress = self._progress
        return replace(
            self._engine.state(),
            leader_id=progress.leader_id,
            epoch=progress.epoch,
            high_watermark=progress.high_watermark,
        )

    def read_recent(self, offset: int, upto: int, last_epoch: int, bytes_max: int) -> bytes | None:
        if offset < self.log_start_offset:
            return None  # Still in memory, but not in the log any more.
        return self._recent.read(offset, upto, last_epoch, bytes_max)

    def read(self, offset: int, upto: int, bytes_max: int) -> bytes:
        log = self._metadata_log.log
        with self._journal.lock:
            end_offset = min(upto, self._progress.high_watermark)
            found = log.read(offset, bytes_max, end_offset=end_offset)
        # Without the lock, so that a slow disk does not hold up Raft: what is committed is never
        # cut, and an open file outlives its removal. Only a snapshot that takes the place of the
        # whole log empties files; then there is nothing to give, and the client asks again.
        data = found.read()
        return data if len(data) == found.count else b""

    def epoch_end(self, epoch: int) -> EpochEnd:
        log = self._metadata_log.log
        with self._journal.lock:
            found = EpochEnd(*log.epochs.end_offset_for(epoch, log.end_offset))
            start = log.start_offset
        if found.epoch == NO_EPOCH or found.end_offset < start:
            return EpochEnd(NO_EPOCH, -1)
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        with self._journal.lock:
            found = self._metadata_log.log.offset_for_timestamp(timestamp_ms)
        return found if found is not None and found[0] < self._progress.high_watermark else None

    def snapshots(self) -> Sequence[SnapshotId]:
        return self._metadata_log.snapshots

    def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, bytes_max: int
    ) -> SnapshotChunk:
        path = os.path.join(self._metadata_log.directory, snapshot_id.file_name)
        file = self._files.open_for_read(path)
        try:
            return SnapshotChunk(file.size(), file.read(position, bytes_max))
        finally:
            file.close()
