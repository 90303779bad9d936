"""Is a log directory sound? Every CRC, offset and epoch, and for metadata every record's legality.

Reads only, so the owner may be running: a batch at the very end that is not whole is reported, not
blamed. Snapshots are compared with what the log gives at their offset, as far as it goes back.
The walk ends at the first batch that is damaged, since nothing behind it can be believed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftpy.errors import InvalidBatch, ReplayError, StorageError
from kraftpy.metadata_log.batches import control_records, metadata_records
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import EMPTY, ClusterImage
from kraftpy.metadata_log.reader import is_metadata
from kraftpy.metadata_log.snapshot_file import SnapshotId, list_snapshots, read_snapshot
from kraftpy.storage.epochs import FILE_NAME as EPOCHS_FILE
from kraftpy.storage.epochs import parse_checkpoint
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log_state import FILE_NAME as STATE_FILE
from kraftpy.storage.log_state import LogStateFile
from kraftpy.storage.reader import FoundBatch, LogReader
from kraftpy.storage.record_batch import iter_records

_DIFFERENCES_SHOWN = 3


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was looked at, and what is wrong with it."""

    directory: str
    kind: str = "empty"
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, start offset)
    snapshots: int = 0
    incomplete_bytes: int = 0
    problems: list[str] = field(default_factory=list)


class _Replay:
    """Replays a metadata log from where its history is known, and compares the snapshots."""

    def __init__(self, files: FileLayer, directory: str, start_offset: int, out: Verdict) -> None:
        self._files = files
        self._directory = directory
        self._out = out
        self._snapshots = {each.end_offset: each for each in list_snapshots(files, directory)}
        self._image: ClusterImage | None = EMPTY if start_offset == 0 else None
        self._delta = ClusterDelta(EMPTY)
        self._enter(start_offset, 0, -1)
        if self._image is None and not self._snapshots:
            out.problems.append(f"the log begins at {start_offset}, and no snapshot leads there")

    def batch(self, found: FoundBatch) -> None:
        header = found.header
        if header.is_control:
            control_records(header, found.data)
        records = metadata_records(header, found.data)
        if self._image is not None:
            self._delta.replay_all(records, header.base_offset)
        self._enter(header.end_offset, header.leader_epoch, header.max_timestamp)

    def _enter(self, offset: int, epoch: int, timestamp_ms: int) -> None:
        """At a batch's end: a snapshot may be due here."""
        snapshot_id = self._snapshots.pop(offset, None)
        if snapshot_id is None:
            return
        stored = self._read(snapshot_id)
        if stored is None:
            return
        if self._image is not None:
            self._image = self._delta.image(offset, epoch, timestamp_ms)
            wrong = self._image.diff(stored)
            if wrong:
                shown = "; ".join(wrong[:_DIFFERENCES_SHOWN])
                self._out.problems.append(f"{snapshot_id.file_name} is not the log's: {shown}")
        else:
            self._image = stored
        self._delta = ClusterDelta(self._image)

    def _read(self, snapshot_id: SnapshotId) -> ClusterImage | None:
        try:
            stored = read_snapshot(self._files, self._directory, snapshot_id)
        except (StorageError, ReplayError) as error:
            self._out.problems.append(f"{snapshot_id.file_name}: {error}")
            return None
        self._out.snapshots += 1
        return stored

    def finish(self) -> None:
        """Snapshots that met no batch's end stand for nothing in this log."""
        for offset, snapshot_id in sorted(self._snapshots.items()):
            if self._read(snapshot_id) is not None and offset > self._out.start_offset:
                self._out.problems.append(
                    f"{snapshot_id.file_name}: no batch of the log ends at offset {offset}"
                )


def verify_log(
    files: FileLayer, directory: str, progress: Callable[[int], None] = lambda _bytes: None
) -> Verdict:
    """Walk over a log, of metadata or of data. `progress` is told the bytes of each batch."""
    out = Verdict(directory=directory)
    synced_end = _synced_end(files, directory)
    reader = LogReader(files, directory)
    out.start_offset = out.end_offset = reader.start_offset
    replay: _Replay | None = None
    undecided: list[FoundBatch] = []  # Control batches, until a record tells what log this is.
    try:
        for found in reader.batches():
            _count(found, out)
            progress(found.header.size)
            undecided.append(found)
            if out.kind == "empty" and not found.header.is_control:
                out.kind = "metadata" if is_metadata(found) else "data"
                if out.kind == "metadata":
                    replay = _Replay(files, directory, out.start_offset, out)
            if out.kind != "empty":
                _check_records(undecided, replay)
                undecided.clear()
        if undecided:  # Nothing but control batches: only a metadata log begins with such.
            replay = _Replay(files, directory, out.start_offset, out)
            out.kind = "metadata"
            _check_records(undecided, replay)
        if replay is not None:
            replay.finish()
        _check_epochs(files, directory, out)
        # Before and after: meanwhile the owner may have cut its tail, or grown it.
        synced_end = min(synced_end, _synced_end(files, directory))
        if out.end_offset < synced_end:
            out.problems.append(
                f"the log ends at {out.end_offset}, but was synced up to offset {synced_end}"
            )
    except (StorageError, ReplayError, InvalidBatch) as error:
        out.problems.append(str(error))
    out.incomplete_bytes = reader.incomplete_bytes
    return out


def _synced_end(files: FileLayer, directory: str) -> int:
    state = LogStateFile(files, os.path.join(directory, STATE_FILE)).load()
    return state.recovery_point if state else 0


def _count(found: FoundBatch, out: Verdict) -> None:
    header = found.header
    out.batches += 1
    out.records += header.record_count
    out.bytes += header.size
    out.end_offset = header.end_offset
    if not out.epochs or out.epochs[-1][0] != header.leader_epoch:
        out.epochs.append((header.leader_epoch, max(header.base_offset, out.start_offset)))


def _check_records(batches: list[FoundBatch], replay: _Replay | None) -> None:
    for found in batches:
        if replay is not None:
            replay.batch(found)
        else:
            for _ in iter_records(found.data):
                pass


def _check_epochs(files: FileLayer, directory: str, out: Verdict) -> None:
    path = os.path.join(directory, EPOCHS_FILE)
    if not files.exists(path):
        return
    # An epoch is noted before its first batch: one at the end may still be without.
    noted = [
        (epoch, max(start, out.start_offset))
        for epoch, start in parse_checkpoint(files.read_whole(path))
        if start < out.end_offset
    ]
    found = [entry for entry in out.epochs if entry[0] >= 0]
    if noted != found:
        out.problems.append(f"{path}: says {noted}, the batches say {found}")
