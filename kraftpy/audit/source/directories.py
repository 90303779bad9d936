"""Which metadata logs are under some paths: whose they are, their segments, their snapshots.

A path may be a `__cluster_metadata-0`, a node's data directory, or a directory of such. The node is
what meta.properties says; where there is none, a number in the directory's name, else the next that
is free. Reads names and sizes only, so a directory in use may be looked at.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kraftpy.audit.source.stores import Store, store_of
from kraftpy.config import METADATA_PARTITION
from kraftpy.storage.identity import META_FILE

_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_NODE: Final = re.compile(r"^node\.id=(-?\d+)\s*$", re.MULTILINE)
_DEPTH_MAX: Final = 3
_DIRECTORIES_MAX: Final = 10_000


class Segment(NamedTuple):
    base_offset: int
    path: str
    size: int


class Snapshot(NamedTuple):
    end_offset: int
    epoch: int
    path: str
    size: int


class LogDirectory(NamedTuple):
    """One node's metadata log."""

    node: int
    path: str
    segments: tuple[Segment, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def start_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


class Found(NamedTuple):
    logs: list[LogDirectory]
    problems: list[str]


def find_logs(paths: Sequence[str]) -> Found:
    """The logs under the paths; a line for each path that holds none."""
    found: list[LogDirectory] = []
    problems: list[str] = []
    taken: set[int] = set()
    seen: set[str] = set()
    for path in (each.rstrip("/") or "/" for each in paths):
        try:
            store = store_of(path)
            inside = _directories(store, path, _DEPTH_MAX)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {_reason(error)}")
            continue
        if not inside:
            problems.append(f"{path}: no metadata log is in it (no {'0' * 20}.log or the like)")
        for directory in inside:
            if directory not in seen:
                seen.add(directory)
                found.append(_log_of(store, directory, taken))
    found.sort()
    return Found(found, problems)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such directory"
    if isinstance(error, NotADirectoryError):
        return "that is a file, not a directory"
    return str(error)


def _directories(store: Store, path: str, depth: int) -> list[str]:
    names = store.names(path)
    if any(_SEGMENT.fullmatch(name) or _SNAPSHOT.fullmatch(name) for name in names):
        return [path]
    if METADATA_PARTITION in names:
        return _directories(store, f"{path}/{METADATA_PARTITION}", 1)
    if depth == 0:
        return []
    found = []
    for name in names[:_DIRECTORIES_MAX]:
        inner = f"{path}/{name}"
        if store.is_directory(inner) and not name.startswith("."):
            found += [each for each in _directories(store, inner, depth - 1) if _is_log(each)]
    return found


def _is_log(path: str) -> bool:
    """Data directories of topics look alike; only those of metadata are wanted, if named so."""
    name = path.rsplit("/", 1)[-1]
    return name == METADATA_PARTITION or not re.fullmatch(r".+-\d+", name)


def _log_of(store: Store, path: str, taken: set[int]) -> LogDirectory:
    names = store.names(path)
    segments = sorted(
        Segment(int(match[1]), f"{path}/{match[0]}", store.size(f"{path}/{match[0]}"))
        for match in _matches(_SEGMENT, names)
    )
    snapshots = sorted(
        Snapshot(int(m[1]), int(m[2]), f"{path}/{m[0]}", store.size(f"{path}/{m[0]}"))
        for m in _matches(_SNAPSHOT, names)
    )
    return LogDirectory(_node_of(store, path, taken), path, tuple(segments), tuple(snapshots))


def _matches(pattern: re.Pattern[str], names: Iterable[str]) -> list[re.Match[str]]:
    return [match for match in map(pattern.fullmatch, names) if match]


def _node_of(store: Store, path: str, taken: set[int]) -> int:
    parent = path.rsplit("/", 1)[0]
    wanted = _told(store, path)
    if wanted is None and path.endswith(METADATA_PARTITION):
        wanted = _told(store, parent)
    if wanted is None:
        name = (parent if path.endswith(METADATA_PARTITION) else path).rsplit("/", 1)[-1]
        number = re.search(r"(\d+)$", name)
        wanted = int(number[1]) if number else 1
    while wanted in taken:
        wanted += 1
    taken.add(wanted)
    return wanted


def _told(store: Store, directory: str) -> int | None:
    try:
        if META_FILE not in store.names(directory):
            return None
        path = f"{directory}/{META_FILE}"
        match = _NODE.search(store.read(path, 0, store.size(path)).decode(errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None
