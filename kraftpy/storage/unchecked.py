"""Which bytes of a segment nobody has looked at since the log was opened, and looking at them.

Recovery reads what was not synced. What is older was whole when it was synced, but disks rot: it is
checked when it is first read, so that no reader is ever given other records than were written. What
this process wrote or checked itself is not read again.

A checksum covers neither a batch's offset nor its epoch. So batches must follow one another, up to
the one behind them, and their epochs must be those that the log has noted.
"""

from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.storage.epochs import LeaderEpochs
from kraftpy.storage.file_layer import File
from kraftpy.storage.scan import scan_batches

# Readers that jump about leave holes. Beyond so many, what they read is read again next time.
_RANGES_MAX: Final = 256


class Unchecked:
    """Ranges of positions, in order. All bounds are batch boundaries. Empty: all is known."""

    __slots__ = ("_ranges",)

    def __init__(self, end: int = 0) -> None:
        self._ranges: list[tuple[int, int]] = [(0, end)] if end else []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that were not checked."""
        clipped = ((max(start, low), min(end, high)) for low, high in self._ranges)
        return [(low, high) for low, high in clipped if low < high]

    def checked(self, start: int, end: int) -> None:
        """From now on [start, end) is known."""
        left: list[tuple[int, int]] = []
        for low, high in self._ranges:
            left += [(a, b) for a, b in ((low, min(high, start)), (max(low, end), high)) if a < b]
        if len(left) <= _RANGES_MAX:
            self._ranges = left

    def cut(self, end: int) -> None:
        """The segment ends there now."""
        self._ranges = self.within(0, end)


def check_batches(
    file: File, start: int, end: int, first: int, epochs: LeaderEpochs, start_offset: int
) -> int:
    """Every batch in [start, end) is whole and in its place; the offset behind the last one.

    CorruptRecord names the first that is not. None may begin before offset `first`. Of what lies
    before `start_offset`, epochs are not noted any more.
    """
    due = first
    for at, header, _ in scan_batches(file, start, end, first):
        if header.base_offset < due:
            raise out_of_place(file, at, due, header.base_offset)
        due = header.end_offset
        noted = epochs.epoch_at(header.last_offset)
        if noted != header.leader_epoch and header.last_offset >= start_offset:
            wrong = f"epoch {header.leader_epoch} where the log has noted {noted}"
            raise CorruptRecord(file.path, at, header.base_offset, wrong)
    return due


def out_of_place(file: File, position: int, due: int, offset: int) -> CorruptRecord:
    """Batches do not follow one another: this one is wrong, or the one before it."""
    return CorruptRecord(file.path, position, due, f"offset {offset} where {due} is due")
