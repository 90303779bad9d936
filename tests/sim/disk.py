"""A node's disk: SimulatedFiles that tells what happens, and the truth about what is durable.

What a node believes of its own disk is what is under test, so the oracles read the simulated
platter: which batches are in the durable bytes of a segment whose name is durable, and up to where
a durable snapshot goes.
"""

import random
import struct
from collections.abc import Iterator
from typing import Protocol

from kraftpy.testing.durability import DirectoryNode, FileNode
from kraftpy.testing.simulated_files import SimulatedFiles

_PREFIX = struct.Struct(">qii")  # Base offset, length, leader epoch.
_CRC = struct.Struct(">I")
_CRC_AT = 17
_HEADER_BYTES = 61

Place = tuple[int, int]  # (leader epoch, CRC): what tells two batches of one offset apart.


def batches_in(data: bytes | memoryview, position: int = 0) -> Iterator[tuple[int, int, Place]]:
    """(position, base offset, place) of each whole batch."""
    while position + _HEADER_BYTES <= len(data):
        base, length, epoch = _PREFIX.unpack_from(data, position)
        end = position + 12 + length
        if length < _HEADER_BYTES - 12 or end > len(data):
            return
        yield position, base, (epoch, _CRC.unpack_from(data, position + _CRC_AT)[0])
        position = end


class Durable:
    """Which batches one node's platter holds."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.snapshot_end = 0
        self._held: dict[int, tuple[str, Place]] = {}
        self._parsed: dict[str, int] = {}
        self._bases: dict[str, list[int]] = {}
        self._names: set[str] = set()

    def holds(self, base: int, place: Place) -> bool:
        """Whether a power loss now would leave this batch, or a snapshot that stands for it."""
        if base < self.snapshot_end:
            return True
        path, found = self._held.get(base, ("", (-1, -1)))
        return found == place and path.rpartition("/")[2] in self._names

    def forget(self, path: str) -> None:
        for base in self._bases.pop(path, ()):
            if self._held.get(base, ("",))[0] == path:
                del self._held[base]
        self._parsed.pop(path, None)

    def file_synced(self, path: str, durable: bytes) -> None:
        start = self._parsed.get(path, 0)
        if len(durable) < start:
            self.forget(path)
            start = 0
        bases = self._bases.setdefault(path, [])
        for position, base, place in batches_in(durable, start):
            self._held[base] = path, place
            bases.append(base)
            start = position + 12 + _PREFIX.unpack_from(durable, position)[1]
        self._parsed[path] = start

    def names_synced(self, names: set[str]) -> None:
        self._names = names
        ends = [int(name[:20]) for name in names if name.endswith(".checkpoint")]
        self.snapshot_end = max(ends, default=0)

    def rebuild(self, disk: "SimDisk") -> None:
        """After a crash: read it all anew."""
        self.__init__(self.directory)  # type: ignore[misc]
        found = disk.directory_node(self.directory)
        if found is None:
            return
        self.names_synced(set(found.durable))
        for name, node in sorted(found.durable.items()):
            if name.endswith(".log") and isinstance(node, FileNode):
                self.file_synced(f"{self.directory}/{name}", node.durable)


class Watcher(Protocol):
    """Who is told of a disk's effects."""

    def effect(self, kind: str, path: str) -> None:
        """About to happen."""
        ...

    def synced(self, path: str) -> None: ...


class SimDisk(SimulatedFiles):
    """One life of a disk."""

    watcher: Watcher | None = None

    def boundary(self, kind: str, path: str) -> None:
        if self.watcher is not None:
            self.watcher.effect(kind, path)
        super().boundary(kind, path)

    def sync_node(self, path: str, node: FileNode) -> None:
        super().sync_node(path, node)
        if self.watcher is not None:
            self.watcher.synced(path)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        if self.watcher is not None:
            self.watcher.synced(path)

    def directory_node(self, path: str) -> DirectoryNode | None:
        found = self._find(path)
        return found if isinstance(found, DirectoryNode) else None

    def durable_bytes(self, path: str) -> bytes:
        return self._file(path).durable

    def die_in(self, effects: int) -> None:
        """Let the machine stop at that effect from now on, the next being 1."""
        self.crash_at = len(self.boundaries) + effects

    def clear_faults(self) -> None:
        self._faults.clear()
        self.crash_at = None
        self.capacity_bytes = None

    @property
    def has_faults(self) -> bool:
        return self.capacity_bytes is not None or any(fault.left for fault in self._faults)

    def full_at(self, free_bytes: int) -> None:
        self.capacity_bytes = self.used_bytes() + free_bytes

    def _successor(self, root: DirectoryNode, boot: int) -> "SimDisk":
        disk = SimDisk(self._rng, capacity_bytes=self.capacity_bytes, hard=self.hard)
        disk._root = root
        disk._boot = boot
        return disk

    def after_power_loss(self, rng: random.Random) -> "SimDisk":
        found = self.random_outcome(rng)
        assert isinstance(found, SimDisk)
        return found

    def after_kill(self) -> "SimDisk":
        found = self.process_crash()
        assert isinstance(found, SimDisk)
        return found
