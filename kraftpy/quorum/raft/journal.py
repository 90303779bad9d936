"""pysyncobj's Journal on our metadata log: one entry is one batch, term and vote are quorum-state.

Raft counts entries, a log counts records. Entry `index` is batch number `index - 1` since the
beginning of the cluster; entry 1 exists on every node by convention and is in no log. Snapshots
carry the number of batches they stand for, so a log that begins at one knows its place.

What always holds:
- `sync` returns only when every entry, the term and the vote are on disk. The transport lets no
  answer out before it, and a leader does not count itself before it.
- an entry at or below the commit index is never removed: a leader that asks for it breaks Raft,
  and the node stops rather than obey.
- the commit index is not stored. Raft finds it again, and a stored one could cover entries that
  never were committed (raft.md, j).
- after the first fault nothing is written any more, whatever the core swallows.
"""

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, overload

from pysyncobj.journal import Journal

from kraftpy.clock import Clock
from kraftpy.errors import DiskFault, FatalFault, InvalidBatch, StorageError
from kraftpy.limits import RECENT_BATCH_BYTES_MAX
from kraftpy.metadata_log.batches import control_batch
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.metadata_log import MetadataLog
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.raft.entries import NO_OP, Command
from kraftpy.quorum.raft.quorum_state import QuorumStateFile, Vote
from kraftpy.storage.record_batch import read_header
from kraftpy.storage.request import PlacedBatch

Entry = tuple[Command, int, int]
_FIRST_INDEX: Final = 1
_NOTHING: Final = Command(NO_OP, 1)


class EntryView(Sequence[Entry]):
    """A range of entries that are made when they are looked at: most never are."""

    def __init__(self, journal: "RaftJournal", positions: range) -> None:
        self._journal = journal
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, key: int) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> "EntryView": ...
    def __getitem__(self, key: int | slice) -> "Entry | EntryView":
        if isinstance(key, slice):
            return EntryView(self._journal, self._positions[key])
        return self._journal.entry(self._positions[key])

    def __iter__(self) -> Iterator[Entry]:
        return map(self._journal.entry, self._positions)


class RaftJournal(Journal):  # type: ignore[misc]
    """The journal. All but `read` belongs to the thread that ticks the core."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        state_file: QuorumStateFile,
        node_id: int,
        voters: Sequence[int],
        clock: Clock,
    ) -> None:
        self.metadata_log = metadata_log
        self._log = metadata_log.log
        self._state_file = state_file
        self._node_id = node_id
        self._voters = sorted(voters)
        self._clock = clock
        self._vote = state_file.load()
        # Stored again with the first sync: what a killed process left of it may be in the page
        # cache only, and a power loss would take back an epoch that others have seen.
        self._vote_is_stored = self._vote == Vote(0, None)
        self._offsets = array("q")  # Where each entry's batch begins.
        self._terms = array("q")
        self._sizes = array("q")
        self._recent: OrderedDict[int, CommittedBatch] = OrderedDict()  # By base offset.
        self._recent_bytes = 0
        self._unwritten: list[PlacedBatch] = []  # Added, and not handed to the log yet.
        self._unwritten_end_offset = 0
        self._limit: int | None = None
        self._installing: tuple[int, int] | None = None
        self.fault: FatalFault | None = None
        self.is_leader: Callable[[], bool] = lambda: False
        self.on_truncated: Callable[[int], None] = lambda _offset: None
        # A read in another thread must not meet a log that is being cut.
        self.lock = threading.Lock()
        for header, _ in self._log.batches(self._log.start_offset):
            self._note(header.base_offset, header.leader_epoch, header.size)
        self._finish_interrupted()
        self._first = self._find_first()
        self._catch_up_epoch()
        self.commit_index = self._known_committed()

    def _catch_up_epoch(self) -> None:
        """A power loss may leave a batch of an epoch that was not stored yet. The core goes on in
        that epoch by itself; so it must be stored, with no vote in it, before anyone sees it."""
        epoch = self.last()[1]
        if epoch > self._vote.epoch:
            self.setCurrentTerm(epoch, None)

    def _finish_interrupted(self) -> None:
        """Do the rest of what a crash stopped: the log begins at a snapshot and agrees with all."""
        snapshots = self.metadata_log.snapshots
        if not snapshots:
            return
        newest, start_offset = snapshots[-1], self._log.start_offset
        if newest.end_offset != start_offset and not self.agrees_with(newest):
            # Another node's snapshot was stored, and the log that it replaces is still here. Were
            # it kept, entries that never were committed would count as such.
            self._restart_log_at(newest.end_offset)
        elif start_offset and all(each.end_offset != start_offset for each in snapshots):
            # The snapshot at the start was removed, and the start was not moved yet.
            later = next(each for each in snapshots if each.end_offset > start_offset)
            self._log.move_start_offset(later.end_offset)
            self._drop_entries(bisect_right(self._offsets, later.end_offset - 1))

    def _restart_log_at(self, end_offset: int) -> None:
        self._log.truncate_fully_and_start_at(end_offset)
        self._drop_entries(len(self._offsets))

    def _drop_entries(self, count: int) -> None:
        for column in (self._offsets, self._terms, self._sizes):
            del column[:count]

    def agrees_with(self, snapshot_id: SnapshotId) -> bool:
        """Whether a batch here ends where the snapshot does, in its epoch: then all before it is
        the same (Raft, section 7), and what follows it must stay."""
        position = bisect_right(self._offsets, snapshot_id.end_offset - 1)
        return (
            position > 0
            and self._terms[position - 1] == snapshot_id.epoch
            and self._end_of(position - 1) == snapshot_id.end_offset
        )

    def _end_of(self, position: int) -> int:
        """Where the batch at this place of the columns ends."""
        after = position + 1
        return self._offsets[after] if after < len(self._offsets) else self.end_offset

    def _find_first(self) -> tuple[int, int]:
        """(index, term) of the entry before the first batch of the log."""
        if self._log.start_offset == 0:
            return _FIRST_INDEX, 0
        snapshot_id, batch_count = self.metadata_log.snapshot_at_start()
        return _FIRST_INDEX + batch_count, snapshot_id.epoch

    def _known_committed(self) -> int:
        """What a snapshot stands for was committed; of anything later, only Raft knows."""
        newest = self.metadata_log.snapshots[-1:]
        return (
            _FIRST_INDEX + self.batch_count_at(newest[0].end_offset) if newest else self._first[0]
        )

    def _note(self, base_offset: int, term: int, size: int) -> None:
        self._offsets.append(base_offset)
        self._terms.append(term)
        self._sizes.append(size)

    # -- faults -------------------------------------------------------------------------------

    def fail(self, fault: FatalFault) -> FatalFault:
        """Remember the first fault; for `raise self.fail(...)`."""
        if self.fault is None:
            self.fault = fault
        return self.fault

    def _refuse_if_failed(self) -> None:
        if self.fault is not None:
            raise self.fault

    # -- what the core reads ------------------------------------------------------------------

    def __len__(self) -> int:
        whole = 1 + len(self._offsets)
        return whole if self._limit is None else min(whole, self._limit)

    @overload
    def __getitem__(self, key: int) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> EntryView: ...
    def __getitem__(self, key: int | slice) -> Entry | EntryView:
        if isinstance(key, slice):
            return EntryView(self, range(*key.indices(len(self))))
        position = key + len(self) if key < 0 else key
        if position == 1 == len(self):
            # The core asks for the second entry to learn where a snapshot ends: with the first.
            position = 0
        if not 0 <= position < len(self):
            raise IndexError(key)
        return self.entry(position)

    def entry(self, position: int) -> Entry:
        index, term = self._first
        if position == 0:
            return _NOTHING, index, term
        offset = self._offsets[position - 1]
        recent = self._recent.get(offset)
        size = self._sizes[position - 1]
        if recent is not None:
            command = Command(recent.data, size, header=recent.header)
        else:
            command = Command(None, size, lambda: self._batch_at(offset).data)
        return command, index + position, self._terms[position - 1]

    def _batch_at(self, offset: int) -> CommittedBatch:
        found = self._recent.get(offset)
        if found is not None:
            return found
        self.write()
        data = self._log.read(offset, 0).read()
        return CommittedBatch(read_header(data), data)

    def limit_view(self, last_index: int | None) -> None:
        """Hide the entries after `last_index` while the core handles one message; None: show all.

        The core cuts what it sees behind a message's place, conflict or not (raft.md, c). So it
        must not see it, unless there is a conflict.
        """
        self._limit = None if last_index is None else last_index - self._first[0] + 1

    def term_at(self, index: int) -> int | None:
        """The term of an entry, hidden or not; None if it is not here."""
        position = index - self._first[0]
        if position == 0:
            return self._first[1]
        return self._terms[position - 1] if 0 < position <= len(self._terms) else None

    @property
    def first_index(self) -> int:
        return self._first[0]

    def last(self) -> tuple[int, int]:
        """(index, term) of the last entry, hidden or not."""
        if not self._terms:
            return self._first
        return self._first[0] + len(self._terms), self._terms[-1]

    # -- what the core writes -----------------------------------------------------------------

    def add(self, command: Command | bytes, index: int, term: int) -> None:
        """Append an entry; on disk after the next `sync`."""
        self._refuse_if_failed()
        if self._installing is not None:
            self._add_installed(index, term)
            return
        if isinstance(command, bytes):
            # The core's own no-op, with which a leader begins its epoch.
            command = self._leader_change(term)
        if index != self.last()[0] + 1 or len(self) != 1 + len(self._offsets):
            raise self.fail(FatalFault(f"entry {index} after {self.last()[0]} of a longer log"))
        data, header = command.data(), command.header()
        if header.leader_epoch != term:
            raise self.fail(
                FatalFault(f"a batch decided in epoch {header.leader_epoch} in epoch {term}")
            )
        if header.base_offset != self.end_offset:
            raise self.fail(
                FatalFault(
                    f"cannot append entry {index}: a batch of offset {header.base_offset} where "
                    f"{self.end_offset} was due"
                )
            )
        self._note(header.base_offset, term, header.size)
        self._unwritten.append(PlacedBatch(header, memoryview(data)))
        self._unwritten_end_offset = header.end_offset
        if self._limit is not None:
            self._limit += 1
        self._remember(CommittedBatch(header, data))

    def write(self) -> None:
        """Hand to the log what was added: all of a message, or of a tick, with one write."""
        if not self._unwritten:
            return
        self._refuse_if_failed()
        # Every entry was found whole: by the engine that proposes it, or when it was received.
        placed, self._unwritten = self._unwritten, []
        try:
            with self.lock:
                self._log.append_placed(placed)
        except (DiskFault, InvalidBatch) as error:
            index = self.last()[0]
            raise self.fail(FatalFault(f"cannot append entry {index}: {error}")) from error

    @property
    def end_offset(self) -> int:
        """The offset after the last entry, written or not."""
        return self._unwritten_end_offset if self._unwritten else self._log.end_offset

    def _leader_change(self, term: int) -> Command:
        batch = control_batch(
            leader_change(self._node_id, self._voters, []),
            base_offset=self.end_offset,
            epoch=term,
            timestamp_ms=self._clock.now_ms(),
        )
        return Command(bytes(batch), len(batch))

    def _remember(self, batch: CommittedBatch) -> None:
        """Not committed yet; but then it is needed once more, as what the type says."""
        self._recent[batch.header.base_offset] = batch
        self._recent_bytes += batch.header.size
        while self._recent_bytes > RECENT_BATCH_BYTES_MAX:
            self._recent_bytes -= self._recent.popitem(last=False)[1].header.size

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """Cut the tail, because the leader's log differs from `position` on."""
        self._refuse_if_failed()
        if position >= len(self):
            return
        index = self._first[0] + position
        if index <= self.commit_index:
            raise self.fail(
                FatalFault(f"the leader contradicts entry {index}, which is committed here")
            )
        self.write()
        offset = self._offsets[position - 1]
        try:
            with self.lock:
                self._log.truncate_to(offset)
                for column in (self._offsets, self._terms, self._sizes):
                    del column[position - 1 :]
        except StorageError as error:
            raise self.fail(DiskFault(str(error))) from error
        self.on_truncated(offset)
        for each in [known for known in self._recent if known >= offset]:
            self._recent_bytes -= self._recent.pop(each).header.size

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802
        """Never: snapshots shorten the log in `shorten`, not in the core."""
        raise self.fail(FatalFault(f"the core wants to forget {position} entries"))

    def shorten(self, delete_old: Callable[[], object]) -> None:
        """Let the log begin later, at a snapshot; so does the journal then."""
        self.write()
        with self.lock:
            delete_old()
            self._forget_before_start()

    def _forget_before_start(self) -> None:
        count = bisect_right(self._offsets, self._log.start_offset - 1)
        if count:
            self._first = self._first[0] + count, self._terms[count - 1]
            self._drop_entries(count)

    # -- a snapshot instead of entries --------------------------------------------------------

    def install(self, end_offset: int, index: int, term: int) -> None:
        """A snapshot that is durable already takes the place of everything. Two steps: the core
        then calls `clear` and `add`, which only finish this."""
        self._refuse_if_failed()
        self.write()
        try:
            with self.lock:
                self._restart_log_at(end_offset)
        except StorageError as error:
            raise self.fail(DiskFault(str(error))) from error
        self._recent.clear()
        self._recent_bytes = 0
        self._first = index, term
        self._installing = index, term
        self.commit_index = index

    def clear(self) -> None:
        if self._installing is None:
            raise self.fail(FatalFault("the core wants to clear the log"))

    def _add_installed(self, index: int, term: int) -> None:
        if (index, term) == self._installing:
            self._installing = None

    # -- durable state ------------------------------------------------------------------------

    def sync(self) -> None:
        """Entries, term and vote are on disk when this returns."""
        self._refuse_if_failed()
        try:
            if not self._vote_is_stored:
                self._state_file.store(self._vote)
                self._vote_is_stored = True
            self.write()
            self._log.flush()
        except DiskFault as error:
            raise self.fail(error) from error

    def take_notes(
        self, on_stored: Callable[[Vote], None], on_truncated: Callable[[int], None]
    ) -> None:
        """Tell of votes, of the one that was found first, and of cuts; neither may raise."""
        on_stored(self._vote)
        self._state_file.on_stored = on_stored
        self.on_truncated = on_truncated

    @property
    def vote_is_stored(self) -> bool:
        return self._vote_is_stored

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        if index > self.commit_index:
            if self.is_leader():
                self.sync()  # It counted its own copy, which must be on disk for that.
            self.commit_index = index

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self.commit_index

    def setCurrentTerm(self, term: int, voted_id: int | None) -> None:  # noqa: N802
        vote = Vote(term, voted_id)
        if term < self._vote.epoch:
            raise self.fail(FatalFault(f"epoch {term} after epoch {self._vote.epoch}"))
        if term == self._vote.epoch and self._vote.voted_id not in (None, voted_id):
            raise self.fail(FatalFault(f"a second vote in epoch {term}"))
        if vote != self._vote:
            self._vote = vote
            self._vote_is_stored = False

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._vote.epoch

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        return self._vote.voted_id

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing is stored by time."""

    def _destroy(self) -> None:
        """The engine closes the log."""

    # -- what is committed --------------------------------------------------------------------

    def end_offset_of(self, index: int) -> int:
        """The offset after an entry's batch."""
        position = index - self._first[0]
        return self._offsets[position] if position < len(self._offsets) else self.end_offset

    def commit_to(self, snapshot_id: SnapshotId) -> None:
        """A snapshot that the log agrees with shows that all before its end is committed."""
        index = _FIRST_INDEX + self.batch_count_at(snapshot_id.end_offset)
        self.setRaftCommitIndex(index)

    def batch_count_at(self, end_offset: int) -> int:
        """How many batches the cluster's log has had before `end_offset`, a batch's end."""
        return self._first[0] - _FIRST_INDEX + bisect_right(self._offsets, end_offset - 1)

    def batches(self, after_index: int, to_index: int) -> list[CommittedBatch]:
        """The batches of the entries in (after_index, to_index]."""
        first = self._first[0] + 1
        offsets = self._offsets[after_index + 1 - first : to_index + 1 - first]
        return [self._batch_at(offset) for offset in offsets]
