"""The one way to the disk. Nothing else in kraftpy opens, writes, syncs or renames a file of a log.

A FileLayer is an argument, so that a test can lose what was not synced, tear a write, fail an
fsync or fill the disk. What always holds:
- `write` puts every byte at its position or raises OSError; after an error any part may be there.
- only `sync` makes bytes durable, only `sync_directory` a name (so also a rename or removal).
- `replace` swaps a whole small file durably: after a crash the old or the new content is there.
- `boot_id` changes when the machine restarts: in the same boot no unsynced byte can have been lost
  by the page cache, so damage there is damage.
"""

import contextlib
import fcntl
import os
from collections.abc import Sequence
from typing import Protocol

from kraftpy.errors import DirectoryInUse
from kraftpy.limits import WRITEV_BUFFERS_MAX
from kraftpy.storage.record_batch import Buffer as Buffer  # For those who write.

_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


class File(Protocol):
    """One open file. Reads and writes name their position: there is no cursor to share."""

    path: str

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        ...

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """All the buffers, one after the other, from `position` on."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the content durable. An error is final: the caller never retries."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile."""
        ...

    def close(self) -> None: ...


class FileLayer(Protocol):
    """A directory tree that a node stores into."""

    def open(self, path: str) -> File:
        """Open for reading and writing; creates the file."""
        ...

    def open_for_read(self, path: str) -> File:
        """Open an existing file; FileNotFoundError if there is none."""
        ...

    def read_whole(self, path: str) -> bytes: ...

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, durably; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory that is empty."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the disk that holds `path`: all, and those that may still be used."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def replace(self, path: str, content: bytes) -> None:
        """Write a temporary file, sync it, rename it over `path`, sync the directory."""
        ...

    def lock(self, path: str) -> File:
        """Hold an exclusive lock until the file is closed; DirectoryInUse if another holds it."""
        ...

    def boot_id(self) -> str: ...


class OsFile:
    """A file of the operating system. Closes itself when nobody holds it any more, so that a
    reader in the middle of a sendfile outlives the removal of its segment."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def read(self, position: int, count: int) -> bytes:
        data = os.pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        read = len(data)
        while read < count and (data := os.pread(self._fd, count - read, position + read)):
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        for first in range(0, len(buffers), WRITEV_BUFFERS_MAX):
            group = buffers[first : first + WRITEV_BUFFERS_MAX]
            total = sum(map(len, group))
            written = os.pwritev(self._fd, group, position)
            if written < total:
                self._write_rest(position, group, written)
            position += total

    def _write_rest(self, position: int, group: Sequence[Buffer], written: int) -> None:
        # A short write is not an error yet: the next call tells why (ENOSPC, EIO) or goes on.
        rest = memoryview(b"".join(group))[written:]
        position += written
        while rest:
            count = os.pwrite(self._fd, rest, position)
            rest = rest[count:]
            position += count

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class OsFiles:
    """The FileLayer of the operating system."""

    def open(self, path: str) -> OsFile:
        return OsFile(path, os.O_RDWR | os.O_CREAT)

    def open_for_read(self, path: str) -> OsFile:
        return OsFile(path, os.O_RDONLY)

    def read_whole(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        self.sync_directory(parent)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        file = OsFile(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            file.write(0, [content])
            file.sync()
        finally:
            file.close()
        os.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> OsFile:
        file = self.open(path)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise DirectoryInUse(f"{path}: another process uses this directory") from None
        return file

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID_FILE) as file:
                return file.read().strip()
        except OSError:
            return ""  # Unknown: recovery then assumes that the machine may have restarted.
