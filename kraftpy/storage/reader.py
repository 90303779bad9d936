"""Reading a log that belongs to someone else, perhaps to a process that is writing it right now.

Takes no lock and changes nothing. A batch at the very end that is not whole is being written, or
was torn; it is left for the next call of `batches`, which goes on where the last one stopped.
Everything else that is damaged raises CorruptRecord, as recovery would.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from kraftpy.errors import CorruptRecord, StorageError
from kraftpy.storage.file_layer import File, FileLayer
from kraftpy.storage.log_state import FILE_NAME as STATE_FILE
from kraftpy.storage.log_state import LogStateFile
from kraftpy.storage.record_batch import HEADER_BYTES, BatchHeader, read_header
from kraftpy.storage.recovery import MisplacedBatch, segment_bases
from kraftpy.storage.scan import good_batch_after, scan_batches
from kraftpy.storage.segment import LOG_SUFFIX, segment_name
from kraftpy.types import NO_EPOCH


class FoundBatch(NamedTuple):
    """A batch and where it stands."""

    path: str
    position: int
    header: BatchHeader
    data: memoryview


class LogReader:
    """One pass over a log directory, from its start or from `offset`, that may be continued."""

    def __init__(
        self,
        files: FileLayer,
        directory: str,
        offset: int | None = None,
        *,
        of_topic: bool = False,
    ) -> None:
        """`of_topic`: offsets may be missing where compaction took records away."""
        self._files = files
        self._gaps = of_topic
        self._directory = directory
        bases = self._bases()
        if not bases:
            raise StorageError(f"{directory} holds no log: there is no .log file in it")
        state = LogStateFile(files, os.path.join(directory, STATE_FILE)).load()
        self.start_offset = max(bases[0], state.start_offset if state else bases[0])
        self._wanted = max(self.start_offset, offset or 0)
        base = max((b for b in bases if b <= self._wanted), default=bases[0])
        self.end_offset = base  # What was read so far ends here.
        self.incomplete_bytes = 0  # Behind it, of a batch that is not whole.
        self.truncations = 0  # How often the owner cut off what had been read already.
        self._epoch: int = NO_EPOCH
        self._last: tuple[int, int, BatchHeader] | None = None  # Base offset, position, header.
        self._base, self._position = base, 0
        self._file = self._open(base)

    def batches(self) -> Iterator[FoundBatch]:
        """The batches that are there now and were not given before."""
        if not self._resync_if_cut() and self._base in self._bases():
            self._file = self._open(self._base)  # It may be a new file of the same name.
        while True:
            yield from self._rest_of_file()
            bases = self._bases()
            if self.end_offset not in bases or self.end_offset == self._base:
                self._refuse_gap(bases)
                return
            self._move_to(self.end_offset)

    def _rest_of_file(self) -> Iterator[FoundBatch]:
        self.incomplete_bytes = 0
        looked_before = -1
        while True:
            size = self._file.size()
            try:
                yield from self._scan(size)
                return
            except CorruptRecord as damaged:
                # The first time it may have been in the making: look again.
                if looked_before == size and not self._resync_if_cut():
                    self._refuse_unless_last(damaged, size)
                    self.incomplete_bytes = size - damaged.position
                    return
                looked_before = size

    def _scan(self, size: int) -> Iterator[FoundBatch]:
        path = self._file.path
        due = self.end_offset
        for at, header, data in scan_batches(self._file, self._position, size, due):
            if header.base_offset < due or (header.base_offset > due and not self._gaps):
                raise MisplacedBatch(path, at, due, f"a batch of offset {header.base_offset}")
            if header.last_offset >= self.start_offset:  # Epochs before it do not count.
                if header.leader_epoch < self._epoch:
                    wrong = f"epoch {header.leader_epoch} after epoch {self._epoch}"
                    raise MisplacedBatch(path, at, due, wrong)
                self._epoch = header.leader_epoch
            due = self.end_offset = header.end_offset
            self._position = at + header.size
            self._last = self._base, at, header
            if due > self._wanted:
                yield FoundBatch(path, at, header, data)

    def _refuse_unless_last(self, damaged: CorruptRecord, size: int) -> None:
        whole = good_batch_after(self._file, damaged.position, size, damaged.offset)
        later_segment = any(base > self._base for base in self._bases())
        if isinstance(damaged, MisplacedBatch) or whole is not None or later_segment:
            raise damaged

    def _refuse_gap(self, bases: list[int]) -> None:
        later = [base for base in bases if base > self.end_offset]
        if later and self.incomplete_bytes == 0:
            path = self._path(later[0])
            raise MisplacedBatch(path, 0, self.end_offset, f"the segment begins at {later[0]}")

    # -- when the owner cuts its tail -----------------------------------------------------

    def _resync_if_cut(self) -> bool:
        """Whether the last batch that was read is gone; then go on where the owner did.

        A tail is only ever rewritten in a later epoch: what is left of the epochs that were read
        is known already, and the first batch of a later one is where to go on.
        """
        bases = self._bases()
        if self._last is None or not bases or bases[0] > self._last[0] or self._is_there(bases):
            return False
        self.truncations += 1
        for base in reversed(bases):
            self._move_to(base)
            self.end_offset = base
            for at, header, _ in scan_batches(self._file, 0, self._file.size(), base):
                if header.leader_epoch > self._epoch:
                    break
                self._position = at + header.size
                self.end_offset = header.end_offset
            if self._position > 0:
                break
        self._last = None
        return True

    def _is_there(self, bases: list[int]) -> bool:
        assert self._last is not None
        base, position, header = self._last
        if base not in bases:
            return False
        head = self._open(base).read(position, HEADER_BYTES)
        return len(head) == HEADER_BYTES and read_header(head) == header

    # -- files ----------------------------------------------------------------------------

    def _bases(self) -> list[int]:
        return segment_bases(self._files.names(self._directory))

    def _path(self, base: int) -> str:
        return os.path.join(self._directory, segment_name(base) + LOG_SUFFIX)

    def _open(self, base: int) -> File:
        return self._files.open_for_read(self._path(base))

    def _move_to(self, base: int) -> None:
        self._file = self._open(base)
        self._base, self._position = base, 0
