"""A FileLayer on the real disk that can lose its power, fill up, fail and be slow, on command.

Every write goes to the operating system at once, so that others see it (sendfile, readers); beside
it stands how to undo it. A sync forgets how. `lose_power` undoes what was not synced, as far as the
chosen mode says, and ends the process with SIGKILL before anyone can notice: what a restarted
machine would find is on the disk. What always holds:

- what was synced is there afterwards, byte for byte; unless its sync failed, then never.
- what was not synced is undone from the end: wholly (LOST), down to some operation (PREFIX), or
  with that operation cut at a sector (TORN). Each file has its own fate, each directory too.
- names that were not synced go the same way: a created file vanishes, a renamed one is back, a
  removed one too (until its directory is synced it lies in the graveyard).
- the boot id changes with each loss of power.
"""

import contextlib
import errno
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftpy.storage.file_layer import Buffer, OsFile, OsFiles

_SECTOR_BYTES: Final = 512


class Loss(Enum):
    """What becomes of that which was not synced."""

    LOST = "lost"
    PREFIX = "prefix"
    TORN = "torn"


@dataclass(slots=True)
class DiskFaults:
    """What is wrong with the disk just now."""

    full: bool = False
    io_error: bool = False
    sync_delay_ms: float = 0.0
    syncs_to_fail: int = 0


@dataclass(frozen=True, slots=True)
class _Undo:
    """How a write or truncation is undone: the old size, and the old bytes at a position."""

    old_size: int
    position: int
    old: bytes
    end: int  # Of what was written; the old size, for a truncation.


@dataclass(slots=True)
class _Unsynced:
    """One file's operations since its last sync; `descriptor` outlives its owner's."""

    descriptor: int
    undo: list[_Undo] = field(default_factory=list)
    poisoned: bool = False  # A sync failed: the kernel calls the pages clean, the disk has none.


class FaultyFile(OsFile):
    """A file whose unsynced bytes can be taken back."""

    __slots__ = ("_layer",)

    def __init__(self, path: str, flags: int, layer: "FaultyFiles") -> None:
        super().__init__(path, flags)
        self._layer = layer

    def read(self, position: int, count: int) -> bytes:
        self._layer.check_io(self.path)
        return super().read(position, count)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        count = sum(map(len, buffers))
        with self._layer.lock_disk:
            self._layer.check_io(self.path)
            self._layer.check_room(self.path)
            self._layer.note(self._fd, position, position + count)
            super().write(position, buffers)

    def truncate(self, size: int) -> None:
        with self._layer.lock_disk:
            self._layer.check_io(self.path)
            self._layer.note(self._fd, min(size, self.size()), max(size, self.size()))
            super().truncate(size)

    def sync(self) -> None:
        self._layer.before_sync(self.path, self._fd)
        super().sync()
        self._layer.synced(self._fd)


class FaultyFiles(OsFiles):
    """The layer. `graveyard` is a directory on the same disk, outside of the node's own."""

    def __init__(self, graveyard: str) -> None:
        self.faults = DiskFaults()
        self.lock_disk = threading.RLock()
        self._graveyard = graveyard
        self._buried = 0
        self._unsynced: dict[tuple[int, int], _Unsynced] = {}
        self._names: dict[str, list[Callable[[], None]]] = {}  # Directory to undoing, in order.
        os.makedirs(graveyard, exist_ok=True)

    # -- what a node calls ------------------------------------------------------------------

    def open(self, path: str) -> FaultyFile:
        with self.lock_disk:
            self.check_io(path)
            is_new = not os.path.exists(path)
            if is_new:
                self.check_room(path)
            file = FaultyFile(path, os.O_RDWR | os.O_CREAT, self)
            if is_new:
                self._name_changed(path, lambda: os.unlink(path))
            return file

    def open_for_read(self, path: str) -> FaultyFile:
        self.check_io(path)
        return FaultyFile(path, os.O_RDONLY, self)

    def read_whole(self, path: str) -> bytes:
        self.check_io(path)
        return super().read_whole(path)

    def rename(self, source: str, target: str) -> None:
        with self.lock_disk:
            self.check_io(source)
            kept = self._keep(target)
            os.rename(source, target)

            def undo() -> None:
                os.rename(target, source)
                if kept is not None:
                    os.rename(kept, target)

            self._name_changed(target, undo)

    def remove(self, path: str) -> None:
        with self.lock_disk:
            self.check_io(path)
            kept = self._keep(path)
            os.unlink(path)
            if kept is not None:
                self._name_changed(path, lambda: os.rename(kept, path))

    def sync_directory(self, path: str) -> None:
        self.before_sync(path, None)
        super().sync_directory(path)
        with self.lock_disk:
            self._names.pop(os.path.abspath(path), None)

    def replace(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        file = self.open(temporary)
        try:
            file.write(0, [content])
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def boot_id(self) -> str:
        try:
            return OsFiles.read_whole(self, self._boot_file).decode()
        except FileNotFoundError:
            return super().boot_id()

    # -- what files tell ----------------------------------------------------------------------

    def check_io(self, path: str) -> None:
        if self.faults.io_error:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def check_room(self, path: str) -> None:
        if self.faults.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def note(self, descriptor: int, position: int, end: int) -> None:
        """Bytes from `position` to `end` are about to change."""
        found = os.fstat(descriptor)
        key = (found.st_dev, found.st_ino)
        unsynced = self._unsynced.get(key)
        if unsynced is None:
            unsynced = self._unsynced[key] = _Unsynced(os.dup(descriptor))
        old_end = min(end, found.st_size)
        old = os.pread(descriptor, old_end - position, position) if position < old_end else b""
        unsynced.undo.append(_Undo(found.st_size, position, old, end))

    def before_sync(self, path: str, descriptor: int | None) -> None:
        """Be slow, or fail as long as that is asked for."""
        if self.faults.sync_delay_ms > 0:
            threading.Event().wait(self.faults.sync_delay_ms / 1000)
        with self.lock_disk:
            self.check_io(path)
            if self.faults.syncs_to_fail <= 0:
                return
            self.faults.syncs_to_fail -= 1
            if descriptor is not None:
                found = os.fstat(descriptor)
                unsynced = self._unsynced.get((found.st_dev, found.st_ino))
                if unsynced is not None:
                    unsynced.poisoned = True
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def synced(self, descriptor: int) -> None:
        with self.lock_disk:
            found = os.fstat(descriptor)
            key = (found.st_dev, found.st_ino)
            unsynced = self._unsynced.get(key)
            if unsynced is not None and not unsynced.poisoned:
                os.close(unsynced.descriptor)
                del self._unsynced[key]

    # -- the end ------------------------------------------------------------------------------

    def lose_power(self, loss: Loss, rng: random.Random) -> None:
        """Leave what a restarted machine would find, and end this process."""
        self.lock_disk.acquire()  # For ever: nobody writes any more.
        self.undo_unsynced(loss, rng)
        os.kill(os.getpid(), signal.SIGKILL)

    def undo_unsynced(self, loss: Loss, rng: random.Random) -> None:
        """The same without the end, for whoever wants to look."""
        for unsynced in self._unsynced.values():
            _undo_file(unsynced, loss, rng)
        for _, undone in sorted(self._names.items()):
            kept = 0 if loss is Loss.LOST else rng.randint(0, len(undone))
            for undo in reversed(undone[kept:]):
                with contextlib.suppress(FileNotFoundError):
                    undo()
        self._unsynced.clear()
        self._names.clear()
        with open(self._boot_file, "w") as file:
            file.write(f"boot-{rng.getrandbits(64):016x}")

    @property
    def unsynced_count(self) -> int:
        """How many operations a loss of power would take back."""
        return sum(len(each.undo) for each in self._unsynced.values())

    @property
    def _boot_file(self) -> str:
        return os.path.join(self._graveyard, "boot-id")

    def _keep(self, path: str) -> str | None:
        """A second name for a file that is about to lose this one."""
        if not os.path.isfile(path):
            return None
        self._buried += 1
        kept = os.path.join(self._graveyard, f"{os.getpid()}-{self._buried}")
        os.link(path, kept)
        return kept

    def _name_changed(self, path: str, undo: Callable[[], None]) -> None:
        directory = os.path.dirname(os.path.abspath(path))
        self._names.setdefault(directory, []).append(undo)


def _undo_file(unsynced: _Unsynced, loss: Loss, rng: random.Random) -> None:
    is_whole_loss = loss is Loss.LOST or unsynced.poisoned
    kept = 0 if is_whole_loss else rng.randint(0, len(unsynced.undo))
    for index in range(len(unsynced.undo) - 1, kept - 1, -1):
        undo = unsynced.undo[index]
        is_torn = loss is Loss.TORN and index == kept and not is_whole_loss
        _undo_one(unsynced.descriptor, undo, _tear(undo, rng) if is_torn else undo.position)
    os.close(unsynced.descriptor)


def _tear(undo: _Undo, rng: random.Random) -> int:
    """A sector boundary inside of the operation: what is before it stays."""
    first = undo.position // _SECTOR_BYTES + 1
    last = (undo.end - 1) // _SECTOR_BYTES
    return undo.position if last < first else rng.randint(first, last) * _SECTOR_BYTES


def _undo_one(descriptor: int, undo: _Undo, since: int) -> None:
    """Put the old bytes back from `since` on."""
    rest = undo.old[since - undo.position :]
    if rest:
        os.pwrite(descriptor, rest, since)
    if since > undo.position:
        os.ftruncate(descriptor, max(undo.old_size, since))
    else:
        os.ftruncate(descriptor, undo.old_size)
