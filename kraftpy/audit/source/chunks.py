"""A plan's bytes in portions that end with a batch, and wherever somebody wants to stop."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kraftpy.audit.source.pieces import Piece, Plan
from kraftpy.audit.source.stores import Store, store_of
from kraftpy.storage.record_batch import HEADER_BYTES, LENGTH_END

CHUNK_BYTES: Final = 4 * 1024 * 1024
_HEAD: Final = struct.Struct(">qi")
_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23


class Chunk(NamedTuple):
    """Whole batches. They end at `end_offset`, which may be one of the stops."""

    data: memoryview
    end_offset: int


def chunks(
    plan: Plan, stops: Sequence[int] = (), *, start_offset: int = 0, end_offset: int | None = None
) -> Iterator[Chunk]:
    """The plan's batches in order, from `start_offset` on; those that are asked for end a chunk."""
    wanted = sorted(stop for stop in stops if stop > start_offset)
    limit = plan.end_offset if end_offset is None else end_offset
    stores: dict[str, Store] = {}
    for number, piece in enumerate(plan.pieces):
        following = plan.pieces[number + 1] if number + 1 < len(plan.pieces) else None
        if following is not None and following.base_offset <= start_offset:
            continue  # All of it lies before the start.
        directory = piece.path.rsplit("/", 1)[0]
        store = stores.setdefault(directory, store_of(piece.path))
        yield from _of_piece(store, piece, wanted, start_offset, limit)


def _of_piece(
    store: Store, piece: Piece, stops: list[int], start_offset: int, limit: int
) -> Iterator[Chunk]:
    position, size = piece.start, CHUNK_BYTES
    while position < piece.end:
        data = memoryview(store.read(piece.path, position, min(size, piece.end - position)))
        used = 0
        for begin, end, end_offset in _cut(data, stops, start_offset, limit):
            used = end
            if end > begin:
                yield Chunk(data[begin:end], end_offset)
        if used == 0:
            if position + len(data) >= piece.end:
                return
            size *= 4  # One batch is larger than a chunk.
        position += used


def _cut(
    data: memoryview, stops: list[int], start_offset: int, limit: int
) -> Iterator[tuple[int, int, int]]:
    """(begin, end, end offset) of runs of whole batches; a run that is left out begins at its end.

    `stops` loses those that were reached.
    """
    begin = at = 0
    offset = -1
    total = len(data)
    while at + HEADER_BYTES <= total:
        base, length = _HEAD.unpack_from(data, at)
        end = at + LENGTH_END + length
        if end > total or length <= 0:
            break
        if base >= limit:
            if at > begin:
                yield begin, at, offset
            yield total, total, offset
            return
        offset = base + int(_DELTA.unpack_from(data, at + _DELTA_AT)[0]) + 1
        at = end
        if offset <= start_offset:
            begin = at
            yield at, at, offset
        elif stops and offset >= stops[0]:
            while stops and offset >= stops[0]:
                stops.pop(0)
            yield begin, at, offset
            begin = at
    if at > begin:
        yield begin, at, offset
