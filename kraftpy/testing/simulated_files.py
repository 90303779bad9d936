"""A disk in memory that forgets: the FileLayer for tests of what survives a crash.

Every effect (create, write, truncate, sync, rename, remove, sync of a directory) is a numbered
boundary. A test runs its script once to count them, then once for each, with `crash_at`; the
layer raises PowerLoss there and in every operation after it. Then:
- `process_crash()` is what a killed process leaves: all effects so far, in the same boot.
- `outcomes(limit)` is what a power cut may leave, enumerated; `random_outcome(rng)` is one of them
  at random; `power_loss(choice)` is a chosen one. Each is a new disk in a new boot, all durable.

What always holds: the same calls with the same seed give the same disk, in any process. A write
that crashes leaves any part of itself, down to the byte. The rules of loss are in durability.py.
"""

import errno
import hashlib
import io
import itertools
import math
import os
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kraftpy.errors import DirectoryInUse
from kraftpy.storage.file_layer import Buffer
from kraftpy.testing.durability import (
    GROWN,
    LOST,
    WHOLE,
    DirectoryNode,
    Fate,
    FileNode,
    Link,
    Node,
    Operation,
    Rename,
    Truncate,
    Unlink,
    Write,
    copy_tree,
    fates,
    restore,
    unsynced,
)

PathPredicate = Callable[[str], bool]


class PowerLoss(BaseException):
    """The machine is gone. No Exception, so that no production handler takes it for an error."""


@dataclass(slots=True)
class _SyncFault:
    """An fsync that will fail: the one that counts `left` down to zero."""

    left: int
    matches: PathPredicate


class SimulatedFile:
    """One open file of a SimulatedFiles."""

    __slots__ = ("_disk", "_node", "_open", "_writable", "path")

    def __init__(self, disk: "SimulatedFiles", path: str, node: FileNode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._writable = writable
        self._open = True

    def _check(self, *, writes: bool) -> FileNode:
        self._disk.check_power()
        if not self._open or (writes and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._node

    def read(self, position: int, count: int) -> bytes:
        return bytes(self._check(writes=False).data[position : position + count])

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        node = self._check(writes=True)
        self._disk.write(self.path, node, Write(position, b"".join(buffers)))

    def size(self) -> int:
        return len(self._check(writes=False).data)

    def truncate(self, size: int) -> None:
        node = self._check(writes=True)
        self._disk.boundary("truncate", self.path)
        node.change(Truncate(size))

    def sync(self) -> None:
        self._disk.sync_node(self.path, self._check(writes=False))

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk.unlock(self)


class SimulatedFiles:
    """A FileLayer in memory. `hard` lets any subset of a write's sectors survive power loss."""

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        crash_at: int | None = None,
        torn_bytes: int | None = None,
        capacity_bytes: int | None = None,
        hard: bool = True,
    ) -> None:
        self._rng = rng
        self.crash_at = crash_at
        self.torn_bytes = torn_bytes  # What the write that crashes leaves; None: by rng, or half.
        self.capacity_bytes = capacity_bytes
        self.hard = hard
        self.boundaries: list[tuple[str, str]] = []  # (kind, path); boundary n is at index n - 1.
        self.writes = 0
        self.syncs = 0
        self.directory_syncs = 0
        self.dead = False
        self._boot = 1
        self._root = DirectoryNode()
        self._locks: dict[int, SimulatedFile] = {}
        self._faults: list[_SyncFault] = []

    # The FileLayer protocol.

    def open(self, path: str) -> SimulatedFile:
        self.check_power()
        node = self._find(path)
        if node is None:
            self.boundary("create", path)
            directory, name = self._parent(path)
            node = FileNode()
            directory.change(Link(name, node))
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return SimulatedFile(self, path, node, writable=True)

    def open_for_read(self, path: str) -> SimulatedFile:
        self.check_power()
        return SimulatedFile(self, path, self._file(path), writable=False)

    def read_whole(self, path: str) -> bytes:
        self.check_power()
        return bytes(self._file(path).data)

    def names(self, directory: str) -> list[str]:
        self.check_power()
        return sorted(self._directory(directory).entries)

    def exists(self, path: str) -> bool:
        self.check_power()
        return self._find(path) is not None

    def make_directory(self, path: str) -> None:
        self.check_power()
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            return
        if node is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        parent = posixpath.dirname(posixpath.normpath(path))
        self.make_directory(parent)
        self.boundary("create", path)
        directory, name = self._parent(path)
        directory.change(Link(name, DirectoryNode()))
        self.sync_directory(parent)

    def rename(self, source: str, target: str) -> None:
        self.check_power()
        directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        assert directory is target_directory, "renames stay in one directory"
        if source_name not in directory.entries:
            raise _not_found(source)
        self.boundary("rename", target)
        node = directory.entries[source_name]
        directory.change(Rename(source_name, target_name, node))

    def remove(self, path: str) -> None:
        self.check_power()
        self._file(path)
        self.boundary("remove", path)
        directory, name = self._parent(path)
        directory.change(Unlink(name))

    def remove_directory(self, path: str) -> None:
        self.check_power()
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.boundary("remove", path)
        directory, name = self._parent(path)
        directory.change(Unlink(name))

    def space(self, _path: str) -> tuple[int, int]:
        total = 1 << 40 if self.capacity_bytes is None else self.capacity_bytes
        return total, total - self.used_bytes()

    def sync_directory(self, path: str) -> None:
        self.check_power()
        node = self._directory(path)
        self.boundary("sync_directory", path)
        self.directory_syncs += 1
        self._sync(path, node)

    def replace(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary)
        try:
            if file.size():
                file.truncate(0)
            file.write(0, [content])
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(posixpath.dirname(path))

    def lock(self, path: str) -> SimulatedFile:
        file = self.open(path)
        node = self._file(path)
        if id(node) in self._locks:
            raise DirectoryInUse(f"{path}: another process uses this directory")
        self._locks[id(node)] = file
        return file

    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    # What open files call.

    def check_power(self) -> None:
        if self.dead:
            raise PowerLoss("the machine is down")

    def boundary(self, kind: str, path: str) -> None:
        """Count one effect; die before it if it is its turn."""
        self.boundaries.append((kind, path))
        if len(self.boundaries) == self.crash_at:
            self.dead = True
            raise PowerLoss(f"boundary {self.crash_at}: {kind} {path}")

    def write(self, path: str, node: FileNode, operation: Write) -> None:
        try:
            self.boundary("write", path)
        except PowerLoss:
            self._write_part(node, operation, self._torn(len(operation.data)))
            raise
        self.writes += 1
        room = self._room(node, operation)
        if room is not None and room < len(operation.data):
            self._write_part(node, operation, room)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if operation.data:
            node.change(operation)

    def sync_node(self, path: str, node: FileNode) -> None:
        self.boundary("sync", path)
        self.syncs += 1
        self._sync(path, node)

    def unlock(self, file: SimulatedFile) -> None:
        self._locks = {node: held for node, held in self._locks.items() if held is not file}

    # Faults.

    def fail_sync(self, nth: int = 1, path: PathPredicate | None = None) -> None:
        """Let the nth sync from now fail with EIO, once. Only paths that `path` accepts count,
        files and directories alike. What was pending there is lost at the next power loss, even
        if a later sync of it succeeds."""
        assert nth >= 1
        self._faults.append(_SyncFault(nth, path or (lambda _: True)))

    def corrupt(self, path: str, position: int, mask: int) -> None:
        """Flip the bits of `mask` in one byte at rest."""
        assert 0 < mask < 256
        self._file(path).corrupt(position, mask)

    # What is left.

    def contents(self) -> dict[str, bytes]:
        """Every file as a running process sees it, by path."""
        return dict(_walk(self._root, "/"))

    def used_bytes(self) -> int:
        """What all files hold together."""
        return _used_bytes(self._root)

    def clone(self) -> "SimulatedFiles":
        """The same disk with the same boot and the same unsynced operations, but without the
        open files, locks and planned faults."""
        root = copy_tree(self._root, {})
        assert isinstance(root, DirectoryNode)
        return self._successor(root, boot=self._boot)

    def process_crash(self) -> "SimulatedFiles":
        """After kill -9: the page cache lives on."""
        return self.clone()

    def choices(self) -> list[int]:
        """How many fates each unsynced operation has: the space that `power_loss` chooses from.
        One number for each write and truncation of a file, one for each directory."""
        return [len(options) for _, options in self._options()]

    def power_loss(self, choice: Sequence[int] = ()) -> "SimulatedFiles":
        """After a power cut: fate `choice[i]` for the i-th unsynced operation; 0, and so the empty
        choice, means lost; 1 means whole."""
        options = self._options()
        padded = itertools.chain(choice, itertools.repeat(0))
        return self._choose(options, list(itertools.islice(padded, len(options))))

    def outcomes(self, limit: int = 1000) -> Iterator["SimulatedFiles"]:
        """Different states that a power cut may leave, at most `limit`. All of them if the space
        is that small; otherwise nothing, everything, each deviation from these, then samples."""
        options = self._options()
        sizes = [len(each) for _, each in options]
        seen: set[bytes] = set()
        for choice in _choices(sizes, limit):
            outcome = self._choose(options, choice)
            digest = outcome.digest()
            if digest not in seen:
                seen.add(digest)
                yield outcome
                if len(seen) >= limit:
                    return

    def random_outcome(self, rng: random.Random) -> "SimulatedFiles":
        """One legal state after a power cut; any subset of sectors may survive in hard mode."""
        # Draw for every node first: the walk of `restore` depends on what it keeps.
        drawn: dict[int, list[Fate]] = {}
        kept: dict[int, int] = {}
        for node in unsynced(self._root):
            if isinstance(node, FileNode):
                bias = rng.choice((0.1, 0.5, 0.9))
                drawn[id(node)] = [
                    _random_fate(rng, each, bias, self.hard) for each in node.pending
                ]
            else:
                kept[id(node)] = rng.randint(0, len(node.pending))
        root = restore(self._root, lambda node: drawn[id(node)], lambda node: kept[id(node)])
        return self._successor(root, boot=self._boot + 1)

    def digest(self) -> bytes:
        """A fingerprint of all names and contents."""
        hasher = hashlib.blake2b(digest_size=16)
        for path, content in _walk(self._root, "/"):
            hasher.update(f"{path}\0{len(content)}\0".encode())
            hasher.update(content)
        return hasher.digest()

    # Helpers.

    def _successor(self, root: DirectoryNode, boot: int) -> "SimulatedFiles":
        disk = SimulatedFiles(self._rng, capacity_bytes=self.capacity_bytes, hard=self.hard)
        disk._root = root
        disk._boot = boot
        return disk

    def _options(self) -> list[tuple[Node, list[Fate] | range]]:
        found: list[tuple[Node, list[Fate] | range]] = []
        for node in unsynced(self._root):
            if isinstance(node, FileNode):
                size = len(node.durable)
                found += [(node, fates(each, size, hard=self.hard)) for each in node.pending]
            else:
                found.append((node, range(len(node.pending) + 1)))
        return found

    def _choose(
        self, options: list[tuple[Node, list[Fate] | range]], choice: Sequence[int]
    ) -> "SimulatedFiles":
        file_fates: dict[int, list[Fate]] = {}
        kept: dict[int, int] = {}
        for (node, each), index in zip(options, choice, strict=True):
            if isinstance(each, range):
                # 0 none, 1 all, then the other prefixes, so that 1 means whole here too.
                kept[id(node)] = (0, len(each) - 1, *each[1:-1])[index]
            else:
                file_fates.setdefault(id(node), []).append(each[index])
        root = restore(self._root, lambda node: file_fates[id(node)], lambda node: kept[id(node)])
        return self._successor(root, boot=self._boot + 1)

    def _torn(self, count: int) -> int:
        if self.torn_bytes is not None:
            return min(self.torn_bytes, count)
        return self._rng.randint(0, count) if self._rng else count // 2

    def _write_part(self, node: FileNode, operation: Write, count: int) -> None:
        if count:
            node.change(Write(operation.position, operation.data[:count]))

    def _room(self, node: FileNode, operation: Write) -> int | None:
        if self.capacity_bytes is None:
            return None
        growth_max = max(0, self.capacity_bytes - self.used_bytes())
        return max(0, len(node.data) + growth_max - operation.position)

    def _sync(self, path: str, node: Node) -> None:
        failed = False
        for fault in self._faults:
            if fault.left and fault.matches(path):
                fault.left -= 1
                failed = failed or fault.left == 0
        if failed:
            node.forget()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        node.sync()

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in posixpath.normpath(path).split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if node is None:
            raise _not_found(path)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            raise _not_found(path)
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        directory, name = posixpath.split(posixpath.normpath(path))
        return self._directory(directory), name


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _walk(directory: DirectoryNode, path: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, FileNode):
            yield posixpath.join(path, name), bytes(node.data)
        else:
            yield from _walk(node, posixpath.join(path, name))


def _used_bytes(directory: DirectoryNode) -> int:
    return sum(
        len(node.data) if isinstance(node, FileNode) else _used_bytes(node)
        for node in directory.entries.values()
    )


def _choices(sizes: list[int], limit: int) -> Iterator[list[int]]:
    if math.prod(sizes) <= limit:
        yield from map(list, itertools.product(*map(range, sizes)))
        return
    for base in (0, 1):
        yield [base] * len(sizes)
    for base in (1, 0):
        for i, size in enumerate(sizes):
            for option in range(size):
                if option != base:
                    yield [base] * i + [option] + [base] * (len(sizes) - i - 1)
    rng = random.Random(len(sizes))
    for _ in range(4 * limit):
        yield [rng.randrange(size) for size in sizes]


def _random_fate(rng: random.Random, operation: Operation, bias: float, hard: bool) -> Fate:
    if isinstance(operation, Truncate):
        return WHOLE if rng.random() < bias else LOST
    kind = rng.random()
    if kind < 0.3:
        return LOST
    if kind < 0.6:
        return WHOLE
    sectors = operation.sectors()
    if not hard or kind < 0.75:
        return Fate(kept=tuple(sectors[: rng.randint(0, len(sectors))]))
    if kind < 0.8:
        return GROWN
    subset = tuple(each for each in sectors if rng.random() < bias)
    return Fate(kept=subset, grown=rng.random() < 0.5)
