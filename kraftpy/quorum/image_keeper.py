"""The image of what is committed, kept by replaying it as it comes, and offered as snapshots.

The engine's thread only puts what it has to tell into a queue; a thread here replays it, a few
milliseconds later: were it woken by every commit, it would run when whoever waits for the commit
should, and a replay of many batches costs little more than one of few. Whoever
wants the image takes it as it is: an immutable value. A record that cannot be replayed is a fault
of the node, since every other node has the same record.

On a standby an index of the partitions is kept up with the image. Whoever becomes the active
controller is handed both, complete, and loads nothing; the keeper begins a new index when this node
is a standby again.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault, KraftError
from kraftpy.metadata_log.image import EMPTY, Changes, ClusterImage
from kraftpy.metadata_log.image_notes import due_at
from kraftpy.metadata_log.loading import replay_with_changes
from kraftpy.metadata_log.snapshot_file import SnapshotId, read_snapshot
from kraftpy.quorum.consensus import CommittedBatch, Consensus
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.storage.file_layer import FileLayer

_OFFER_EVERY_MS: Final = 1000
_NO_END: Final = (1 << 63) - 1
_GATHER_S: Final = 0.005

HandOver = Callable[[ClusterImage, PartitionIndex], None]
# Told of each step: the image before, the one after, and what changed; None after a snapshot.
Replayed = Callable[[ClusterImage, ClusterImage, Changes | None], None]
_Told = list[CommittedBatch] | SnapshotId | HandOver | bool | None  # None is the end.


class ImageKeeper:
    """One of an engine's Listeners."""

    def __init__(
        self,
        files: FileLayer,
        directory: str,
        consensus: Consensus,
        clock: Clock,
        on_fault: Callable[[FatalFault], None],
        notes: Replayed | None = None,
    ) -> None:
        self.image: ClusterImage = EMPTY
        self._notes = notes
        self._index = PartitionIndex(EMPTY)
        self._keeps_index = True
        self._files = files
        self._directory = directory
        self._consensus = consensus
        self._clock = clock
        self._on_fault = on_fault
        self._offered_ms = clock.monotonic_ms()
        self._told: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="image", daemon=True)
        self._thread.start()

    # -- the engine's Listener: in its thread -------------------------------------------------

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        """Of no interest to an image."""

    def committed(self, batches: list[CommittedBatch]) -> None:
        self._told.put(batches)

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self._told.put(snapshot_id)

    def failed(self, fault: FatalFault) -> None:
        """Whoever runs the node hears of it too."""

    # -- for a controller: in any thread ------------------------------------------------------

    def hand_over(self, take: HandOver) -> None:
        """Call, in the thread here, with all that was told so far in the image and its index.

        What waits meanwhile is replayed at once, without the gathering: somebody needs it.
        """
        self._told.put(take)
        self._hurry.set()

    def stand_by(self) -> None:
        """The controller of this node is not active: keep an index for when it will be."""
        self._told.put(True)

    # -- the thread ---------------------------------------------------------------------------

    def close(self) -> None:
        self._told.put(None)
        self._hurry.set()
        self._thread.join()

    def _run(self) -> None:
        told: list[_Told] = []
        while not told or told[-1] is not None:
            told = [self._told.get()]
            self._hurry.wait(_GATHER_S)
            self._hurry.clear()  # What it was set for is in the queue, or taken already.
            with suppress(queue.Empty):
                while told[-1] is not None:
                    told.append(self._told.get_nowait())
            try:
                self._take_all(told)
            except (KraftError, OSError) as error:
                fault = error if isinstance(error, FatalFault) else FatalFault(str(error))
                self._on_fault(fault)
                return

    def _take_all(self, told: list[_Told]) -> None:
        """In order; batches between snapshots are replayed together."""
        gathered: list[CommittedBatch] = []
        for each in told:
            if isinstance(each, list):
                gathered += each
                continue
            self._replay(gathered)
            gathered = []
            self._take(each)
        self._replay(gathered)
        if self._keeps_index:
            self._index.build()

    def _take(self, told: SnapshotId | HandOver | bool | None) -> None:
        if isinstance(told, SnapshotId):
            before, self.image = self.image, read_snapshot(self._files, self._directory, told)
            self._index = PartitionIndex(self.image)
            if self._notes is not None:
                self._notes(before, self.image, None)
        elif isinstance(told, bool):
            self._keeps_index = told
        elif told is not None:
            index, self._index = self._index, PartitionIndex(self.image)
            self._keeps_index = False
            told(self.image, index)

    def _replay(self, batches: list[CommittedBatch]) -> None:
        if not batches:
            return
        if self._notes is not None:
            ends = [batch.header.end_offset for batch in batches]
            due = due_at(batches[0].header.base_offset, ends)
            if due is not None:
                self._step(batches[: due + 1])
                batches = batches[due + 1 :]
        if batches:
            self._step(batches)
        self._offer()

    def _step(self, batches: list[CommittedBatch]) -> None:
        found = ((batch.header, memoryview(batch.data)) for batch in batches)
        image, changes = replay_with_changes(self.image, found, _NO_END)
        self._index.move(image, changes)
        before, self.image = self.image, image
        if self._notes is not None:
            self._notes(before, image, changes)

    def _offer(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._offered_ms >= _OFFER_EVERY_MS:
            self._offered_ms = now_ms
            self._consensus.offer_snapshot(self.image)
