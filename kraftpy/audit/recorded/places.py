"""Where the nodes' directories are, among the paths that a user names."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftpy.storage.recovery import segment_bases

METADATA_LOG: Final = "__cluster_metadata-0"
_DEPTH: Final = 2
_CHILDREN_MAX: Final = 10_000


class Place(NamedTuple):
    """A node's metadata log and the data directory that it lies in."""

    log: str
    data: str


def find_places(paths: Sequence[str]) -> list[Place]:
    """Every metadata log under the paths: the path itself, a data directory, or directories of
    such, two levels down. Each is told once; what cannot be looked into is passed over."""
    found: dict[str, Place] = {}
    for path in paths:
        for log in _logs(os.path.abspath(path), _DEPTH):
            found.setdefault(os.path.realpath(log), Place(log, os.path.dirname(log)))
    return list(found.values())


def _logs(path: str, depth: int) -> list[str]:
    names = _names(path)
    if segment_bases(names):
        return [path]
    inner = os.path.join(path, METADATA_LOG)
    if METADATA_LOG in names and segment_bases(_names(inner)):
        return [inner]
    if depth == 0:
        return []
    return [
        log for name in names[:_CHILDREN_MAX] for log in _logs(os.path.join(path, name), depth - 1)
    ]


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []
    except OSError:
        return []
