"""What a log knows of itself beside its batches: the file `log-state`.

- `start_offset`: records before it are gone, even where their bytes are still there.
- `recovery_point` (offset and the position in its segment): every byte before it has been synced,
  so damage there is damage, never a torn write.
- `boot`: the boot in which it was written.
- `failed`: a write or fsync failed after it. The kernel may then show bytes, and call them clean,
  that the disk never got: they must be written again before an fsync of them means anything. The
  note needs no fsync itself, since a restart of the machine drops those bytes too.

Two slots are written in turn, each with a sequence number and a CRC: a torn write leaves the other.
A raised recovery point is written without an fsync of its own (after a power loss an older one is
still true); a lowered one, or a moved start offset, is synced before anything relies on it.
"""

import struct
import zlib
from typing import Final, NamedTuple

from kraftpy.storage.file_layer import File, FileLayer

FILE_NAME: Final = "log-state"
_SLOT: Final = struct.Struct(">QqqqI?")
# A sector each: a torn sector write takes one slot only.
_SLOT_BYTES: Final = 512
_CRC: Final = struct.Struct(">I")
_UNKNOWN_BOOT: Final = 0


class LogState(NamedTuple):
    """One state of the file."""

    start_offset: int
    recovery_point: int
    recovery_position: int
    boot: int
    failed: bool


class Mark(NamedTuple):
    """The recovery point: what is before it has been synced."""

    offset: int
    position: int  # In the segment that held the end at that moment.


class LogStateFile:
    """The file, open for as long as its log is."""

    def __init__(self, files: FileLayer, path: str) -> None:
        self._boot = boot_number(files.boot_id())
        self._file: File | None = None
        self._files = files
        self._path = path
        self._sequence = 0
        self.is_whole = False  # Whether both slots were found whole: the next write may tear one.

    def load(self) -> LogState | None:
        """The newest whole slot; None if there is none. Writes nothing."""
        if not self._files.exists(self._path):
            return None
        raw = self._files.read_whole(self._path)
        slots = [_parse(raw[at : at + _SLOT.size + _CRC.size]) for at in (0, _SLOT_BYTES)]
        found = [slot for slot in slots if slot is not None]
        self.is_whole = len(found) == len(slots)
        if not found:
            return None
        self._sequence, state = max(found, key=lambda slot: slot[0])
        return state

    def is_of_this_boot(self, state: LogState) -> bool:
        """Whether the machine is known not to have restarted since `state` was written."""
        return state.boot == self._boot != _UNKNOWN_BOOT

    def write(
        self, start_offset: int, recovery_point: int, recovery_position: int, *, sync: bool
    ) -> None:
        """Put a new state into the older slot, or, synced, into both: none older is left."""
        state = LogState(start_offset, recovery_point, recovery_position, self._boot, failed=False)
        file = self._put(state)
        if sync:
            # One after the other: at every moment one of the slots is whole on the disk.
            file.sync()
            self._put(state)
            file.sync()

    def write_new(self, start_offset: int) -> None:
        """The first state of a log, in both slots; no older one has to outlive the write."""
        state = LogState(start_offset, start_offset, 0, self._boot, failed=False)
        self._put(state)
        self._put(state).sync()

    def write_failed(self, start_offset: int, recovery_point: int, recovery_position: int) -> None:
        """Note that nothing behind the recovery point is known to be what it seems."""
        self._put(
            LogState(start_offset, recovery_point, recovery_position, self._boot, failed=True)
        )

    def sync(self) -> None:
        """Make durable what was found: the process that wrote it may have been stopped before."""
        self._opened().sync()

    def _put(self, state: LogState) -> File:
        file = self._opened()
        self._sequence += 1
        body = _SLOT.pack(self._sequence, *state)
        file.write(self._sequence % 2 * _SLOT_BYTES, [body + _CRC.pack(zlib.crc32(body))])
        return file

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._path)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def boot_number(boot_id: str) -> int:
    """The boot's id in 32 bits."""
    return zlib.crc32(boot_id.encode()) if boot_id else _UNKNOWN_BOOT


def _parse(raw: bytes) -> tuple[int, LogState] | None:
    if len(raw) < _SLOT.size + _CRC.size:
        return None
    if zlib.crc32(raw[: _SLOT.size]) != _CRC.unpack_from(raw, _SLOT.size)[0]:
        return None
    sequence, *fields = _SLOT.unpack_from(raw)
    return sequence, LogState(*fields)
