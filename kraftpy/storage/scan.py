"""Reading a segment file batch by batch, and telling whether anything good follows damage.

Used by recovery, by replay and by the tools that look into a directory without owning it.
"""

from collections.abc import Iterator
from typing import Final

from kraftpy.errors import CorruptRecord
from kraftpy.storage.file_layer import File
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    damage,
    header_damage,
    read_header,
)

_CHUNK_BYTES: Final = 1024 * 1024
_MAGIC_AT: Final = 16


def scan_batches(
    file: File, position: int, end: int, offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch in [position, end) with its position and bytes, CRC checked.

    CorruptRecord names the first damaged one; `offset` is the offset due at `position`.
    """
    while position < end:
        chunk = memoryview(file.read(position, min(_CHUNK_BYTES, end - position)))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            header = read_header(chunk, at)
            if header_damage(header) is None and at + header.size > len(chunk):
                break  # The chunk ends inside this batch.
            wrong = damage(chunk, at, len(chunk))
            if wrong is not None:
                raise CorruptRecord(file.path, position + at, offset, wrong)
            yield position + at, header, chunk[at : at + header.size]
            offset = header.end_offset
            at += header.size
        if at == 0:
            batch = _large_batch(file, position, end, offset)
            header = read_header(batch)
            yield position, header, batch
            offset = header.end_offset
            at = header.size
        position += at


def _large_batch(file: File, position: int, end: int, offset: int) -> memoryview:
    """One batch that does not fit a chunk, or the proof that it is damaged."""
    head = file.read(position, min(HEADER_BYTES, end - position))
    if len(head) == HEADER_BYTES and header_damage(read_header(head)) is None:
        size = min(read_header(head).size, end - position)
        head = file.read(position, size)
    wrong = damage(head, 0, len(head))
    if wrong is not None:
        raise CorruptRecord(file.path, position, offset, wrong)
    return memoryview(head)


def good_batch_after(file: File, position: int, end: int, offset: int) -> int | None:
    """The position of a whole batch behind `position` that could follow `offset`, or None.

    Looks at every byte: the damaged batch's own length cannot be trusted.
    """
    data = file.read(position, end - position)
    at = data.find(b"\x02", _MAGIC_AT + 1)
    while at >= 0:
        start = at - _MAGIC_AT
        if len(data) - start < HEADER_BYTES:
            return None
        header = read_header(data, start)
        plausible = offset <= header.base_offset < offset + (1 << 31)
        if plausible and damage(data, start, len(data)) is None:
            return position + start
        at = data.find(b"\x02", at + 1)
    return None
