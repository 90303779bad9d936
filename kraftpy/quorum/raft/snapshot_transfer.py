"""Sending a snapshot to a follower whose next entry is gone, in pieces, with answers.

The leader keeps a few pieces unanswered and sends the next one when an answer comes; each answer
also counts as a sign of life. The follower writes the pieces beside its log, syncs as it goes so
that the end is quick, and checks the whole file before it takes the place of anything. Neither
side blocks the tick for longer than one piece takes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftpy.errors import CorruptRecord, DiskFault, RecordDecodeError, StorageError, WireError
from kraftpy.limits import SNAPSHOT_CHUNK_BYTES, SNAPSHOT_CHUNKS_IN_FLIGHT_MAX
from kraftpy.logs import get_logger
from kraftpy.metadata_log.snapshot_file import PART_SUFFIX, SnapshotId, check_snapshot
from kraftpy.quorum.raft.guard import GuardTransport, Message
from kraftpy.quorum.raft.journal import RaftJournal
from kraftpy.storage.file_layer import File, FileLayer

log = get_logger(__name__)

_SYNC_EVERY_BYTES: Final = 8 * 1024 * 1024
_RESEND_AFTER_MS: Final = 500


@dataclass(slots=True)
class _Sending:
    """A snapshot on its way to one follower."""

    snapshot_id: SnapshotId
    file: File
    size: int
    term: int
    sent: int = 0
    answered: int = 0
    moved_ms: int = 0


@dataclass(slots=True)
class _Receiving:
    """A snapshot that is coming in."""

    snapshot_id: SnapshotId
    file: File
    size: int
    received: int = 0
    synced: int = 0


class SnapshotTransfer:
    """Both ends, for one node."""

    def __init__(
        self,
        files: FileLayer,
        journal: RaftJournal,
        guard: GuardTransport,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._journal = journal
        self._guard = guard
        self._now_ms = now_ms
        self._directory = journal.metadata_log.directory
        self._sending: dict[int, _Sending] = {}
        self._receiving: _Receiving | None = None
        self.on_installed: Callable[[SnapshotId], None] = lambda _id: None
        guard.wants_snapshot = self.begin
        guard.is_sent_snapshot = self.is_sending
        guard.on_snapshot_message = self.receive

    # -- the leader's end ---------------------------------------------------------------------

    def is_sending(self, node_id: int) -> bool:
        return node_id in self._sending

    def begin(self, node_id: int) -> None:
        """A follower needs what the log has no more: send it the newest snapshot."""
        if node_id in self._sending:
            return
        snapshots = self._journal.metadata_log.snapshots
        if not snapshots:
            return
        newest = snapshots[-1]
        file = self._files.open_for_read(os.path.join(self._directory, newest.file_name))
        sending = _Sending(newest, file, file.size(), self._guard.core.raftCurrentTerm)
        self._sending[node_id] = sending
        log.info("snapshot_send_began", follower=node_id, snapshot=newest.file_name)
        self._send_more(node_id, sending)

    def tick(self) -> None:
        """Give up what a lost leadership began; repeat what nobody answered."""
        now_ms = self._now_ms()
        for node_id, sending in list(self._sending.items()):
            if not self._guard.core._isLeader() or sending.term != self._guard.core.raftCurrentTerm:
                self._end(node_id)
            elif now_ms - sending.moved_ms > _RESEND_AFTER_MS:
                sending.sent = sending.answered
                self._send_more(node_id, sending)

    def forget(self, node_id: int) -> None:
        """The connection is gone; the core will ask again."""
        if node_id in self._sending:
            self._end(node_id)

    def _end(self, node_id: int) -> None:
        self._sending.pop(node_id).file.close()

    def _send_more(self, node_id: int, sending: _Sending) -> None:
        sending.moved_ms = self._now_ms()
        window = SNAPSHOT_CHUNK_BYTES * SNAPSHOT_CHUNKS_IN_FLIGHT_MAX
        while sending.sent < min(sending.size, sending.answered + window):
            data = sending.file.read(sending.sent, SNAPSHOT_CHUNK_BYTES)
            chunk = {"type": "snapshot_chunk", "term": sending.term, "size": sending.size}
            place = {"position": sending.sent, "data": data, **sending.snapshot_id._asdict()}
            self._guard.send_own(node_id, {**chunk, **place})
            sending.sent += len(data)

    def _answered(self, node_id: int, message: Message) -> None:
        sending = self._sending.get(node_id)
        same = sending is not None and sending.snapshot_id == _id_of(message)
        if sending is None or not same or message["term"] != sending.term:
            return
        self._guard.note_alive(node_id, 0)
        position = message["position"]
        if position >= sending.size:
            self._end(node_id)
            return
        if position < sending.answered:
            # The follower began anew, or this answer is late. Were a late one answered with all
            # that follows it, pieces and answers would multiply; so `tick` repeats them in time.
            sending.answered = position
            return
        sending.answered = position
        self._send_more(node_id, sending)

    # -- the follower's end -------------------------------------------------------------------

    def receive(self, node_id: int, message: Message) -> None:
        """A piece, or an answer to one."""
        if message["type"] == "snapshot_response":
            self._answered(node_id, message)
            return
        if not self._guard.hear_snapshot(node_id, message["term"]):
            return
        try:
            position = self._take(node_id, message)
        except (OSError, DiskFault) as error:
            raise self._journal.fail(DiskFault(f"cannot store a snapshot: {error}")) from error
        answer = {"type": "snapshot_response", "term": message["term"], "position": position}
        self._guard.send_own(node_id, {**answer, **_id_of(message)._asdict()})

    def _take(self, node_id: int, message: Message) -> int:
        """Store a piece; up to where the snapshot is here now."""
        snapshot_id, size = _id_of(message), message["size"]
        journal = self._journal
        if snapshot_id.end_offset <= journal.end_offset_of(journal.commit_index):
            # (m): what is committed here is never replaced by something older.
            self._drop()
            return int(size)
        if journal.agrees_with(snapshot_id):
            # Raft, figure 13, step 6: what follows the snapshot in this log may be acknowledged
            # and committed. So the log stays, and only the commit index moves.
            journal.commit_to(snapshot_id)
            self._drop()
            return int(size)
        receiving = self._receiving
        if receiving is None or (receiving.snapshot_id, receiving.size) != (snapshot_id, size):
            receiving = self._begin_receiving(snapshot_id, size)
        if message["position"] != receiving.received:
            return receiving.received
        data = message["data"]
        if receiving.received + len(data) > size:
            raise WireError(f"a snapshot of {size} bytes is longer than that")
        receiving.file.write(receiving.received, [data])
        receiving.received += len(data)
        if receiving.received - receiving.synced >= _SYNC_EVERY_BYTES:
            receiving.file.sync()
            receiving.synced = receiving.received
        if receiving.received == size:
            return self._finish(node_id, receiving)
        return receiving.received

    def _begin_receiving(self, snapshot_id: SnapshotId, size: int) -> _Receiving:
        self._drop()
        file = self._files.open(self._part(snapshot_id))
        file.truncate(0)
        self._receiving = _Receiving(snapshot_id, file, size)
        return self._receiving

    def _part(self, snapshot_id: SnapshotId) -> str:
        return os.path.join(self._directory, f"{snapshot_id.file_name}.received{PART_SUFFIX}")

    def _drop(self) -> None:
        if self._receiving is not None:
            self._receiving.file.close()
            self._files.remove(self._receiving.file.path)
            self._receiving = None

    def _finish(self, node_id: int, receiving: _Receiving) -> int:
        try:
            header = check_snapshot(receiving.file)
            if header.batch_count is None:
                raise CorruptRecord(receiving.file.path, 0, 0, "the snapshot counts no batches")
        except (CorruptRecord, RecordDecodeError) as error:
            # (l): a snapshot that cannot be loaded is not acknowledged, but asked for again.
            log.warning(
                "snapshot_damaged", snapshot=receiving.snapshot_id.file_name, why=str(error)
            )
            self._drop()
            return 0
        receiving.file.sync()
        receiving.file.close()
        self._receiving = None
        snapshot_id = receiving.snapshot_id
        final = os.path.join(self._directory, snapshot_id.file_name)
        self._files.rename(receiving.file.path, final)
        self._files.sync_directory(self._directory)
        # Only now: from here on a crash finds the snapshot, and the log follows it when it opens.
        self._journal.install(snapshot_id.end_offset, 1 + header.batch_count, snapshot_id.epoch)
        log.info("snapshot_installed", snapshot=snapshot_id.file_name)
        self.on_installed(snapshot_id)
        self._guard.hand_over_snapshot(node_id)
        return receiving.size

    def close(self) -> None:
        for node_id in list(self._sending):
            self._end(node_id)
        try:
            self._drop()
        except (OSError, StorageError):
            log.warning("snapshot_part_left", dir=self._directory)


def _id_of(message: Message) -> SnapshotId:
    return SnapshotId(message["end_offset"], message["epoch"])
