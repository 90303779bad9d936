"""Where directories are: the local disk, or whatever pyarrow has a filesystem for.

A path with a scheme (s3://, gs://, hdfs://, file://) goes to pyarrow, any other to the disk. Only
reads. What always holds: a path alone says where it is, so tasks on other machines need nothing
else; a read beyond the end gives what is there, since a live log may have been cut.
"""

import os
from typing import Any, Final, Protocol

from kraftpy.storage.file_layer import OsFiles

_SCHEME: Final = "://"


class Store(Protocol):
    """A tree of files to read."""

    def names(self, directory: str) -> list[str]:
        """Sorted; FileNotFoundError or NotADirectoryError if there is no such directory."""
        ...

    def size(self, path: str) -> int: ...

    def read(self, path: str, position: int, count: int) -> bytes: ...

    def is_directory(self, path: str) -> bool: ...


class LocalStore:
    """The disk."""

    def __init__(self) -> None:
        self._files = OsFiles()

    def names(self, directory: str) -> list[str]:
        return self._files.names(directory)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str, position: int, count: int) -> bytes:
        file = self._files.open_for_read(path)
        try:
            return file.read(position, count)
        finally:
            file.close()

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)


class ArrowStore:
    """A filesystem of pyarrow's."""

    def __init__(self, filesystem: Any, prefix: str) -> None:
        self._filesystem = filesystem
        self._prefix = prefix  # What the path of the filesystem lacks.

    def _inner(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def names(self, directory: str) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._filesystem.get_file_info(FileSelector(self._inner(directory)))
        return sorted(each.base_name for each in found)

    def size(self, path: str) -> int:
        return int(self._filesystem.get_file_info(self._inner(path)).size or 0)

    def read(self, path: str, position: int, count: int) -> bytes:
        with self._filesystem.open_input_file(self._inner(path)) as file:
            left = max(0, min(count, int(file.size()) - position))
            return bytes(file.read_at(left, position))

    def is_directory(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._filesystem.get_file_info(self._inner(path)).type == FileType.Directory)


def from_anywhere(path: str) -> str:
    """The path as every process of this machine has it: a task's directory is not the driver's."""
    return path if _SCHEME in path else os.path.join(os.getcwd(), path)


def store_of(path: str) -> Store:
    """The store that holds a path; OSError or ValueError if there is none for its scheme."""
    if _SCHEME not in path:
        return LocalStore()
    from pyarrow.fs import FileSystem

    filesystem, inner = FileSystem.from_uri(path)
    return ArrowStore(filesystem, path.removesuffix(inner))
