"""What a disk still holds after the power went, as values without IO.

A FileNode is a file's content: what the page cache shows, what is durable, and the operations in
between. A DirectoryNode is the same for names. `restore` builds the tree that a restarted machine
finds, given a fate for every operation that was not synced. What always holds:
- what was synced is there, byte for byte, unless its sync failed.
- an unsynced write is lost, whole, torn at sectors, or only its length is there (zeros). Each
  operation has its own fate, so a later write may survive an earlier one. This is a little worse
  than real disks, where two writes into one sector cannot part.
- the unsynced operations of one directory survive as a prefix of their order, as in a journal. A
  name and the content behind it are independent: a durable rename may show an empty file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

SECTOR_BYTES = 512
# Writes of up to this many sectors are torn in every possible way, longer ones in typical ways.
_SECTORS_COMPLETE_MAX = 3


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes put at a position."""

    position: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    def sectors(self) -> list[tuple[int, int]]:
        """The write cut at sector boundaries, as (start, end) positions in the file."""
        first = self.position // SECTOR_BYTES * SECTOR_BYTES
        return [
            (max(start, self.position), min(start + SECTOR_BYTES, self.end))
            for start in range(first, self.end, SECTOR_BYTES)
        ]


@dataclass(frozen=True, slots=True)
class Truncate:
    """The file made shorter or longer."""

    size: int


Operation = Write | Truncate


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one operation: the parts of a write that survived, or a whole truncation."""

    kept: tuple[tuple[int, int], ...] = ()
    grown: bool = False  # The new length is there, whatever became of the data.
    whole: bool = False


LOST = Fate()
WHOLE = Fate(whole=True)
GROWN = Fate(grown=True)


def apply(content: bytearray, operation: Operation, fate: Fate = WHOLE) -> None:
    """Change `content` as far as the fate allows."""
    if isinstance(operation, Truncate):
        if fate.whole:
            _resize(content, operation.size)
        return
    kept = ((operation.position, operation.end),) if fate.whole else fate.kept
    for start, end in kept:
        if len(content) < start:
            _resize(content, start)
        first = start - operation.position
        content[start:end] = operation.data[first : first + end - start]
    if fate.grown and len(content) < operation.end:
        _resize(content, operation.end)


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def fates(operation: Operation, durable_size: int, *, hard: bool) -> list[Fate]:
    """The fates to enumerate: LOST first, WHOLE second. Complete for short writes."""
    found = [LOST, WHOLE]
    if isinstance(operation, Truncate):
        return found
    sectors = operation.sectors()
    prefixes = range(1, len(sectors))
    if len(sectors) > _SECTORS_COMPLETE_MAX:
        prefixes_few = sorted({1, len(sectors) // 2, len(sectors) - 1})
        found += [Fate(kept=tuple(sectors[:count])) for count in prefixes_few]
    else:
        found += [Fate(kept=tuple(sectors[:count])) for count in prefixes]
    if not hard:
        return found
    if len(sectors) > _SECTORS_COMPLETE_MAX:
        subsets = [sectors[1:], sectors[::2], sectors[-1:]]
    else:
        masks = range(1, 2 ** len(sectors) - 1)
        subsets = [[s for i, s in enumerate(sectors) if mask >> i & 1] for mask in masks]
    for subset in subsets:
        fate = Fate(kept=tuple(subset))
        if fate not in found:
            found.append(fate)
    if operation.end > durable_size:
        partial = [fate for fate in found if not fate.whole and sectors[-1] not in fate.kept]
        found += [replace(fate, grown=True) for fate in partial]
    return found


class FileNode:
    """A file's content, whatever its name."""

    __slots__ = ("data", "durable", "forgotten", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.data = bytearray(durable)
        self.durable = durable
        self.pending: list[Operation] = []
        # A failed sync left pages that count as clean: `data` has them, `durable` never will.
        self.forgotten = False

    def change(self, operation: Operation) -> None:
        apply(self.data, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        if not self.forgotten:
            self.durable = bytes(self.data)
        elif self.pending:
            content = bytearray(self.durable)
            for operation in self.pending:
                apply(content, operation)
            self.durable = bytes(content)
        self.pending.clear()

    def forget(self) -> None:
        """The sync failed, and the kernel marked the pages clean all the same."""
        self.pending.clear()
        self.forgotten = True

    def corrupt(self, position: int, mask: int) -> None:
        """Bits that flipped at rest: in the page cache and, if there already, on the disk."""
        self.data[position] ^= mask
        if position < len(self.durable):
            content = bytearray(self.durable)
            content[position] ^= mask
            self.durable = bytes(content)

    def copy(self) -> "FileNode":
        node = FileNode(self.durable)
        node.data = bytearray(self.data)
        node.pending = list(self.pending)
        node.forgotten = self.forgotten
        return node


@dataclass(frozen=True, slots=True)
class Link:
    """A new name."""

    name: str
    node: "Node"


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A name moved over another, atomically."""

    source: str
    target: str
    node: "Node"


NameOperation = Link | Unlink | Rename


def apply_name(entries: dict[str, "Node"], operation: NameOperation) -> None:
    """Change the names of a directory."""
    if isinstance(operation, Link):
        entries[operation.name] = operation.node
    elif isinstance(operation, Unlink):
        entries.pop(operation.name, None)
    else:
        entries.pop(operation.source, None)
        entries[operation.target] = operation.node


class DirectoryNode:
    """The names in one directory."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[NameOperation] = []

    def change(self, operation: NameOperation) -> None:
        apply_name(self.entries, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            apply_name(self.durable, operation)
        self.pending.clear()

    def forget(self) -> None:
        """The sync failed: what was pending will not survive."""
        self.pending.clear()

    def reachable(self) -> Iterator["Node"]:
        """Every node that some outcome may show in this directory."""
        yield from self.durable.values()
        for operation in self.pending:
            if not isinstance(operation, Unlink):
                yield operation.node


Node = FileNode | DirectoryNode


def copy_tree(node: Node, seen: dict[int, Node]) -> Node:
    """A deep copy; a node with two names, or in two states of a directory, stays one node."""
    if id(node) in seen:
        return seen[id(node)]
    if isinstance(node, FileNode):
        seen[id(node)] = copied = node.copy()
        return copied
    directory = DirectoryNode()
    seen[id(node)] = directory
    directory.entries = {name: copy_tree(each, seen) for name, each in node.entries.items()}
    directory.durable = {name: copy_tree(each, seen) for name, each in node.durable.items()}
    directory.pending = [_copy_name_operation(each, seen) for each in node.pending]
    return directory


def _copy_name_operation(operation: NameOperation, seen: dict[int, Node]) -> NameOperation:
    if isinstance(operation, Unlink):
        return operation
    return replace(operation, node=copy_tree(operation.node, seen))


def unsynced(root: DirectoryNode) -> list[Node]:
    """The nodes that power loss may change, in an order that is the same in every process."""
    found: list[Node] = []
    seen = {id(root)}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node.pending:
            found.append(node)
        if isinstance(node, DirectoryNode):
            for each in node.reachable():
                if id(each) not in seen:
                    seen.add(id(each))
                    stack.append(each)
    return found


FilePlan = Callable[[FileNode], Sequence[Fate]]
DirectoryPlan = Callable[[DirectoryNode], int]


def restore(root: DirectoryNode, file_fates: FilePlan, names_kept: DirectoryPlan) -> DirectoryNode:
    """The durable tree after power loss. The plans are asked once for each node that is found."""
    restored = _restore(root, file_fates, names_kept, {})
    assert isinstance(restored, DirectoryNode)
    return restored


def _restore(
    node: Node, file_fates: FilePlan, names_kept: DirectoryPlan, seen: dict[int, Node]
) -> Node:
    if id(node) in seen:
        return seen[id(node)]
    if isinstance(node, FileNode):
        content = bytearray(node.durable)
        if node.pending:
            for operation, fate in zip(node.pending, file_fates(node), strict=True):
                apply(content, operation, fate)
        seen[id(node)] = restored = FileNode(bytes(content))
        return restored
    entries = dict(node.durable)
    if node.pending:
        for name_operation in node.pending[: names_kept(node)]:
            apply_name(entries, name_operation)
    directory = DirectoryNode()
    seen[id(node)] = directory
    for name, each in entries.items():
        directory.entries[name] = _restore(each, file_fates, names_kept, seen)
    directory.durable = dict(directory.entries)
    return directory
