"""What a directory holds after a stop of any kind, and making a log of it again.

First everything is read and judged, and no file is changed: damage that is no torn tail raises
CorruptRecord with file, position and offset. Only then is the directory repaired. How a bad batch
is judged, by the recovery point and the boot that `log-state` names:
- before the recovery point: it was whole and synced once, so it is corrupt.
- behind it, in the same boot: a killed process leaves a prefix of what it wrote, so only the very
  last batch can be torn. If anything whole follows, it is corrupt.
- behind it, in another boot: the machine went down, and a disk may keep any part of what was not
  synced. The log ends at the first bad batch; what follows was never promised to anyone.
A directory without `log-state` (written by another Kafka) is judged as in the same boot.

Indexes are believed where their segment was full and synced, and in the same boot; elsewhere, and
where they do not fit, they are made anew from the batches. Epochs before the start do not count.

A topic's log may lack offsets between batches of a segment, where compaction took them out. It
still begins each segment where the one before it ends, so that a tail that a power cut took from
one segment is missed in the next; but for logs that another Kafka compacted, before the point that
was synced.
"""

import os
import re
from contextlib import suppress
from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.logs import get_logger
from kraftpy.storage.epochs import LeaderEpochs
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.log_state import LogState, LogStateFile
from kraftpy.storage.record_batch import BatchHeader
from kraftpy.storage.replacement import CLEANED_SUFFIX, SWAP_SUFFIX
from kraftpy.storage.scan import good_batch_after, scan_batches
from kraftpy.storage.segment import LOG_SUFFIX, Segment
from kraftpy.types import NO_EPOCH

log = get_logger(__name__)

# Replaced files on their way, what Kafka leaves of segments that it deletes later, and compacted
# segments that never became part of the log.
_LEFTOVER_SUFFIXES: Final = (".tmp", ".deleted", CLEANED_SUFFIX, SWAP_SUFFIX)
_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex)")


class MisplacedBatch(CorruptRecord):
    """A batch is whole, but its offset or epoch does not follow from what is before it."""


class _EpochsContradict(Exception):
    """The checkpoint of epochs and the batches disagree: only the batches are right."""


class Recovery:
    """One directory on its way to a log. After `survey` and `repair`, what the log consists of."""

    def __init__(
        self,
        files: FileLayer,
        directory: str,
        config: LogConfig,
        state_file: LogStateFile,
        epochs: LeaderEpochs,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config.segment
        self._gaps = config.of_topic
        self._state_file = state_file
        self._epochs = epochs
        self._state: LogState | None = None
        self._last_epoch: int = NO_EPOCH
        self._epochs_on_disk: tuple[tuple[int, int], ...] = ()
        # The first batch that is not part of the log: its segment's place in the list, and why.
        self._torn: tuple[int, CorruptRecord] | None = None
        self.segments: list[Segment] = []
        self.start_offset = 0
        self.end_offset = 0

    # -- looking --------------------------------------------------------------------------

    def survey(self, *, new_start_offset: int, verify_all: bool) -> None:
        """Read and judge; changes nothing. An empty directory will begin at `new_start_offset`."""
        self._state = self._state_file.load()
        bases = segment_bases(self._files.names(self._directory))
        self.segments = [
            Segment(self._files, self._directory, base, self._config) for base in bases
        ]
        self.start_offset = self._first_offset(new_start_offset)
        known = self._epochs.load()
        # Without a file there are none, as in a log that nothing was ever appended to.
        self._epochs_on_disk = self._epochs.entries if known else ()
        try:
            self._scan(whole=verify_all or self._state is None or not known)
        except _EpochsContradict:
            self._scan(whole=True)
        self._epochs.cut_end(self.end_offset, durably=False)
        self._epochs.cut_start(self.start_offset, self.end_offset, durably=False)
        synced_end = self._state.recovery_point if self._state else 0
        # What is missing before the start was to go anyway, perhaps by a repair that was stopped.
        if self.end_offset < synced_end and self.start_offset < synced_end:
            last = self.segments[-1] if self.segments else None
            raise CorruptRecord(
                last.file.path if last else self._directory,
                last.size if last else 0,
                self.end_offset,
                f"the log ends here, but was synced up to offset {synced_end}",
            )

    def _first_offset(self, new_start_offset: int) -> int:
        if self._state is None:
            return self.segments[0].base_offset if self.segments else new_start_offset
        start = self._state.start_offset
        if self._state.recovery_point <= start and not any(each.size for each in self.segments):
            # Nothing is left, and nothing is missed: the log was on its way to a new start.
            self.segments = [each for each in self.segments if each.base_offset == start]
        if self.segments and self.segments[0].base_offset > start:
            path = self.segments[0].file.path
            raise CorruptRecord(path, 0, start, "the segment that holds this offset is missing")
        return start

    def _scan(self, *, whole: bool) -> None:
        """Walk over the batches, all of them or those that may not have been synced."""
        self._last_epoch = NO_EPOCH
        if whole:
            self._epochs.clear()
        due = self.segments[0].base_offset if self.segments else self.start_offset
        for at, segment in enumerate(self.segments):
            try:
                due = self._scan_segment(segment, due, None if whole else self._scan_from(at))
            except CorruptRecord as damaged:
                self._refuse_unless_torn(at, damaged)
                self._torn = at, damaged
                due = damaged.offset
                break
        self.end_offset = due

    def _scan_from(self, at: int) -> int:
        """The position up to which batches were synced and their indexes can be believed."""
        assert self._state is not None
        segment = self.segments[at]
        is_last = at + 1 == len(self.segments)
        if not is_last and self._state.recovery_point > self._base_after(at):
            return segment.size  # That flush, in a later segment, has synced the indexes too.
        if self._state.recovery_point <= segment.base_offset or self._is_index_doubtful():
            return 0
        if not is_last and self._state.recovery_point == self._base_after(at):
            return segment.size
        return min(self._state.recovery_position, segment.size)

    def _is_index_doubtful(self) -> bool:
        """Whether index entries of the last segments, never synced, may be lost in part."""
        return self._state is None or not self._state_file.is_of_this_boot(self._state)

    def _base_after(self, at: int) -> int:
        return self.segments[at + 1].base_offset

    def _scan_segment(self, segment: Segment, due: int, scan_from: int | None) -> int:
        """Check and index the batches of a segment; the offset due after it."""
        path = segment.file.path
        if segment.base_offset != due:
            if not self._may_lack(due, segment.base_offset):
                raise MisplacedBatch(path, 0, due, f"the segment begins at {segment.base_offset}")
            due = segment.base_offset
        position = segment.load_indexes(scan_from or 0)
        if position:
            due = segment.header_at(position).base_offset
        for at, header, _ in scan_batches(segment.file, position, segment.size, due):
            if header.base_offset < due or (header.base_offset > due and not self._gaps):
                raise MisplacedBatch(path, at, due, f"a batch of offset {header.base_offset}")
            if header.last_offset >= self.start_offset:
                if header.leader_epoch < self._last_epoch:
                    wrong = f"epoch {header.leader_epoch} after epoch {self._last_epoch}"
                    raise MisplacedBatch(path, at, due, wrong)
                self._note_epoch(header, whole=scan_from is None)
            segment.note(header, at)
            due = header.end_offset
        return due

    def _may_lack(self, due: int, base_offset: int) -> bool:
        """Whether the end of a segment may have been compacted away, and was not lost."""
        synced = self._state is None or base_offset <= self._state.recovery_point
        return self._gaps and due < base_offset and synced

    def _note_epoch(self, header: BatchHeader, *, whole: bool) -> None:
        self._last_epoch = header.leader_epoch
        if whole:
            self._epochs.assign(header.leader_epoch, header.base_offset, durably=False)
        elif self._epochs.epoch_at(header.last_offset) != header.leader_epoch:
            raise _EpochsContradict

    def _refuse_unless_torn(self, at: int, damaged: CorruptRecord) -> None:
        state = self._state
        if state is not None and damaged.offset < state.recovery_point:
            raise damaged
        if state is not None and not self._state_file.is_of_this_boot(state):
            return
        segment = self.segments[at]
        if isinstance(damaged, MisplacedBatch) or any(s.size for s in self.segments[at + 1 :]):
            raise damaged
        follower = good_batch_after(segment.file, damaged.position, segment.size, damaged.offset)
        if follower is not None:
            reason = f"{damaged.reason}, and a whole batch follows at position {follower}"
            raise CorruptRecord(damaged.path, damaged.position, damaged.offset, reason)

    # -- repairing ------------------------------------------------------------------------

    def repair(self) -> None:
        """Make the directory what `survey` found, durably. A crash on the way is surveyed again."""
        try:
            self._repair()
        except OSError:
            state = self._state
            mark = (state.recovery_point, state.recovery_position) if state else (0, 0)
            with suppress(OSError):
                self._state_file.write_failed(self.start_offset, *mark)
            raise

    def _repair(self) -> None:
        self._remove_leftovers()
        if self._state is None and not self.segments:
            self._make_new()
            return
        if self._is_clean():
            # No record has to be synced, but a truncation or a new start that was stopped may have
            # to be: what is gone now could come back.
            self._state_file.sync()
            self.segments[-1].dirty = True
            self._repair_indexes()
            self._files.sync_directory(self._directory)
            return
        if self._state is None:
            # Before any segment of ours: a directory with segments and no state is a stranger's.
            self._state_file.write(self.start_offset, 0, 0, sync=True)
            self._files.sync_directory(self._directory)
        if self._torn is not None:
            self._cut_tail(*self._torn)
        if self.end_offset < self.start_offset:
            # All that is left was deleted already; what came after it was never synced.
            self._remove_segments(0)
            self.end_offset = self.start_offset
        if not self.segments:
            self.segments.append(
                Segment(self._files, self._directory, self.end_offset, self._config)
            )
        if self._epochs.entries != self._epochs_on_disk:
            self._epochs.write()
        self._sync_all()

    def _make_new(self) -> None:
        """A directory without a log: nothing can be lost yet, so two syncs are enough."""
        # Before the segment: a directory with segments and no state is a stranger's.
        self._state_file.write_new(self.start_offset)
        self.end_offset = self.start_offset
        self.segments = [Segment(self._files, self._directory, self.end_offset, self._config)]
        self._files.sync_directory(self._directory)

    def _is_clean(self) -> bool:
        state = self._state
        return (
            state is not None
            and bool(self.segments)
            and self._torn is None
            and not self._has_failed()
            and self._state_file.is_whole
            and self._state_file.is_of_this_boot(state)
            and state.recovery_point == self.end_offset
            and self._epochs.entries == self._epochs_on_disk
        )

    def _cut_tail(self, at: int, damaged: CorruptRecord) -> None:
        segment = self.segments[at]
        log.warning(
            "torn_tail_cut",
            file=damaged.path,
            position=damaged.position,
            offset=damaged.offset,
            bytes=segment.size - damaged.position,
            segments_removed=len(self.segments) - at - 1,
            reason=damaged.reason,
        )
        misplaced = segment.base_offset != damaged.offset and damaged.position == 0
        self._remove_segments(at if misplaced else at + 1)
        if not misplaced:
            segment.cut(damaged.position, damaged.offset)

    def _remove_segments(self, keep: int) -> None:
        """From the last backwards, so that a crash on the way leaves no gap."""
        while len(self.segments) > keep:
            self.segments.pop().remove()
        self._files.sync_directory(self._directory)

    def _has_failed(self) -> bool:
        return self._state is not None and self._state.failed

    def _repair_indexes(self) -> None:
        for at, segment in enumerate(self.segments):
            sealed = at + 1 < len(self.segments)
            segment.repair_indexes(sealed=sealed, anew=self._has_failed())
            segment.sync()

    def _remove_leftovers(self) -> None:
        bases = {segment.base_offset for segment in self.segments}
        for name in self._files.names(self._directory):
            match = _SEGMENT_FILE.fullmatch(name)
            orphan = match is not None and int(match[1]) not in bases
            if orphan or name.endswith(_LEFTOVER_SUFFIXES):
                self._files.remove(os.path.join(self._directory, name))

    def _sync_all(self) -> None:
        synced_end = self._state.recovery_point if self._state else 0
        for at, segment in enumerate(self.segments):
            if at + 1 == len(self.segments) or self._base_after(at) > synced_end:
                segment.dirty = True
                self._rewrite_unsynced(segment)
        self._repair_indexes()
        self._files.sync_directory(self._directory)
        self._state_file.write(
            self.start_offset, self.end_offset, self.segments[-1].size, sync=True
        )

    def _rewrite_unsynced(self, segment: Segment) -> None:
        """Make the next fsync cover what the last process wrote, whatever became of its own.

        That process may have been killed between an fsync that failed and the note of it. So in
        the same boot, all behind the recovery point is written again, noted or not.
        """
        is_last = segment is self.segments[-1]
        if self._has_failed():
            segment.rewrite(is_last=is_last)
        elif self._state is not None and self._state_file.is_of_this_boot(self._state):
            holds_point = segment.base_offset < self._state.recovery_point
            position = self._state.recovery_position if holds_point else 0
            segment.rewrite(position, is_last=is_last)


def segment_bases(names: list[str]) -> list[int]:
    """The base offsets of the segments among the names of a directory, in order."""
    matches = (_SEGMENT_FILE.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match and match[2] == LOG_SUFFIX)
