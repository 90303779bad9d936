"""Logs cut into byte ranges at batch boundaries, by the sparse indexes beside the segments.

An index is a help, never the truth: an entry is used only if the batch that it leads to is the one
that it speaks of. Without an index a segment is one range.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kraftpy.audit.source.directories import LogDirectory, Segment
from kraftpy.audit.source.pieces import Piece
from kraftpy.audit.source.stores import Store, store_of
from kraftpy.storage.record_batch import HEADER_BYTES, header_damage, read_header

_ENTRY: Final = struct.Struct(">II")
SPLIT_BYTES: Final = 64 * 1024 * 1024


class Split(NamedTuple):
    """A range of a node's segment; `due` is the offset with which it should begin."""

    node: int
    path: str
    start: int
    end: int
    due: int
    is_last: bool  # Whether the node's log ends with it.


def splits_of(logs: Sequence[LogDirectory], split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """All of all logs, in order."""
    found = []
    for log in logs:
        store = store_of(log.path)
        for number, segment in enumerate(log.segments):
            cuts = list(cut(store, segment, 0, segment.size, split_bytes))
            for position, (start, end, due) in enumerate(cuts):
                is_last = number == len(log.segments) - 1 and position == len(cuts) - 1
                found.append(Split(log.node, segment.path, start, end, due, is_last))
    return found


def cut_pieces(pieces: Sequence[Piece], split_bytes: int = SPLIT_BYTES) -> list[Piece]:
    """The same batches in smaller pieces."""
    found = []
    for piece in pieces:
        store = store_of(piece.path)
        base = int(piece.path.rsplit("/", 1)[-1].split(".")[0])
        segment = Segment(base, piece.path, piece.end)
        for start, end, due in cut(store, segment, piece.start, piece.end, split_bytes):
            first = piece.base_offset if start == piece.start else due
            found.append(Piece(first, piece.path, start, end))
    return found


def cut(
    store: Store, segment: Segment, start: int, end: int, split_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """(start, end, offset due there) of ranges of about `split_bytes`."""
    due = segment.base_offset
    if end - start > split_bytes:
        for last_offset, position in _entries(store, segment):
            if position - start >= split_bytes and position < end:
                base = _base_offset(store, segment.path, position, last_offset)
                if base is not None:
                    yield start, position, due
                    start, due = position, base
    if end > start:
        yield start, end, due


def _entries(store: Store, segment: Segment) -> Iterator[tuple[int, int]]:
    path = segment.path.removesuffix(".log") + ".index"
    try:
        raw = store.read(path, 0, store.size(path))
    except OSError:
        return
    for delta, position in _ENTRY.iter_unpack(raw[: len(raw) // 8 * 8]):
        if position == 0:
            continue  # Kafka fills up what it has allocated with zeros.
        yield segment.base_offset + delta, position


def _base_offset(store: Store, path: str, position: int, last_offset: int) -> int | None:
    """Of the batch that is there, if it is the one that the index means."""
    head = store.read(path, position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    header = read_header(head)
    if header_damage(header) is not None or header.last_offset != last_offset:
        return None
    return header.base_offset
