"""The batches of a segment, also of a damaged one, in order.

Where a batch is damaged the reader goes on behind it: at the end that its header claims if a batch
begins there, else at the next byte from which a whole batch can be read. What always holds: every
byte of the range belongs to one Found, whole or damaged; no exception for what the bytes are.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftpy.audit.source.stores import Store
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    damage,
    header_damage,
    read_header,
)

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MAGIC_AT: Final = 16


class Found(NamedTuple):
    """A batch, or a stretch of bytes that is none."""

    position: int
    size: int
    header: BatchHeader | None  # None where not even that can be believed.
    data: memoryview
    damage: str | None


def found_batches(
    store: Store, path: str, position: int, end: int, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[Found]:
    """Everything in [position, end) of a file; a batch that begins there is there whole."""
    while position < end:
        chunk = memoryview(store.read(path, position, min(chunk_bytes, end - position)))
        if not chunk:
            return  # The file was cut meanwhile.
        is_last = position + len(chunk) >= end
        used = 0
        for found in _in_chunk(chunk, position, is_last):
            yield found
            used = found.position + found.size - position
        if used == 0:
            if is_last:
                return
            chunk_bytes *= 4  # One batch is larger than a chunk.
        position += used


def _in_chunk(chunk: memoryview, base: int, is_last: bool) -> Iterator[Found]:
    """What is whole, or surely damaged, in the chunk."""
    at, end = 0, len(chunk)
    while at < end:
        header = read_header(chunk, at) if end - at >= HEADER_BYTES else None
        if not is_last and (
            header is None or (header_damage(header) is None and at + header.size > end)
        ):
            return  # The next chunk begins with it.
        wrong = damage(chunk, at, end)
        if wrong is None:
            assert header is not None
            yield Found(base + at, header.size, header, chunk[at : at + header.size], None)
            at += header.size
            continue
        size = _claimed(chunk, at, header) or _searched(chunk, at, is_last)
        if not size:
            return
        believed = header if header is not None and _claimed(chunk, at, header) else None
        yield Found(base + at, size, believed, chunk[at : at + size], wrong)
        at += size


def _claimed(chunk: memoryview, at: int, header: BatchHeader | None) -> int:
    """The size that a damaged batch's header names, if something follows that could be next."""
    if header is None or header_damage(header) is not None:
        return 0
    end = at + header.size
    if end == len(chunk):
        return header.size
    if len(chunk) - end < HEADER_BYTES:
        return 0
    following = read_header(chunk, end)
    fits = following.base_offset == header.end_offset and header_damage(following) is None
    return header.size if fits else 0


def _searched(chunk: memoryview, at: int, is_last: bool) -> int:
    """Bytes up to the next whole batch; all the rest if there is none."""
    data = bytes(chunk)
    found = data.find(b"\x02", at + _MAGIC_AT + 1)
    while found >= 0:
        start = found - _MAGIC_AT
        if damage(data, start, len(data)) is None:
            return start - at
        found = data.find(b"\x02", found + 1)
    if is_last:
        return len(data) - at
    # A batch may begin in here and end in the next chunk; its header alone must be plausible.
    return max(0, len(data) - at - _CHUNK_BYTES // 2)
