"""Which leader epoch began at which offset: `leader-epoch-checkpoint`, in Kafka's text format.

Entries grow strictly in epoch and in start offset. The file is replaced durably before the first
batch of a new epoch is written, so it may run ahead of the log after a crash (and is then cut back
to it) but never lags behind it.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import Final

from kraftpy.errors import StorageError
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import NO_EPOCH

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    def __init__(self, files: FileLayer, path: str) -> None:
        self._files = files
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def load(self) -> bool:
        """Read the checkpoint; False if it is missing or malformed, so that a scan must tell."""
        if not self._files.exists(self._path):
            return False
        try:
            entries = parse_checkpoint(self._files.read_whole(self._path))
        except StorageError:
            return False
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        return True

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), oldest first."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int, *, durably: bool = True) -> None:
        """An epoch begins here. Nothing happens if it is the latest already, or none."""
        if epoch <= self.latest:
            return
        while self._starts and self._starts[-1] >= start_offset:
            # An epoch that wrote nothing: its successor takes the same place.
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        if durably:
            self.write()

    def cut_end(self, end_offset: int, *, durably: bool = True) -> None:
        """The log was cut: epochs that begin at or after its end never were."""
        if self._starts and self._starts[-1] >= end_offset:
            while self._starts and self._starts[-1] >= end_offset:
                self._epochs.pop()
                self._starts.pop()
            if durably:
                self.write()

    def cut_start(self, start_offset: int, end_offset: int, *, durably: bool = True) -> None:
        """The log begins later now: keep the epoch that covers the new start, from there on."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or (at == 0 and self._starts[0] == start_offset < end_offset):
            return
        del self._epochs[:at]
        del self._starts[:at]
        self._starts[0] = start_offset
        self.cut_end(end_offset, durably=False)
        if durably:
            self.write()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record at `offset` was written in."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and where it ends (KIP-101, KIP-279).

        (-1, -1) if the log knows none: the asker must then go by other means.
        """
        at = bisect_right(self._epochs, epoch) - 1
        if at < 0:
            return NO_EPOCH, -1
        end = self._starts[at + 1] if at + 1 < len(self._starts) else log_end_offset
        return self._epochs[at], end

    def divergence(self, epoch: int, end_offset: int, log_end_offset: int) -> int:
        """From which offset on a leader whose `epoch` ends at `end_offset` may have other records.

        If this log does not know that epoch, that is where its largest smaller one ends.
        """
        own_epoch, own_end = self.end_offset_for(epoch, log_end_offset)
        if own_epoch == NO_EPOCH:
            return end_offset  # No epochs were noted that far back: take the leader's word.
        return min(own_end, end_offset) if own_epoch == epoch else own_end

    def write(self) -> None:
        """Replace the checkpoint file, durably."""
        lines = [_VERSION, str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries]
        self._files.replace(self._path, ("\n".join(lines) + "\n").encode())


def parse_checkpoint(content: bytes) -> list[tuple[int, int]]:
    """The entries of a checkpoint file; StorageError if it is not one, or does not grow."""
    entries = parse_entries(content)
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if not (0 <= epoch < next_epoch and 0 <= start < next_start):
            raise StorageError("leader-epoch-checkpoint does not grow")
    return entries


def parse_entries(content: bytes) -> list[tuple[int, int]]:
    """What the lines of a checkpoint file say, for whoever wants to judge that."""
    try:
        version, count, *lines = content.decode().split("\n")
        if version != _VERSION or lines[-1:] != [""] or len(lines) != int(count) + 1:
            raise ValueError
        return [(int(epoch), int(start)) for epoch, start in map(str.split, lines[:-1])]
    except ValueError:
        raise StorageError("leader-epoch-checkpoint is malformed") from None
