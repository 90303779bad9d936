"""The records that are no partition's, out of bytes of which most are partitions'. Compiled.

A batch of an unusual shape is read by the other decoder.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kraftpy.audit.kernel.columns import CHANGED, CREATED, Array, Batches, compiled
from kraftpy.audit.kernel.decoding import record_at
from kraftpy.audit.kernel.interning import Interned
from kraftpy.audit.kernel.reading import NO_OP, place_of, read_batches, walk_batches
from kraftpy.metadata_log.records import Record
from kraftpy.storage.record_batch import COMPRESSION_MASK, CONTROL, HEADER_BYTES


class Skimmed(NamedTuple):
    """A record as it stands in the log."""

    place: tuple[int, int, int]  # Base offset, last offset and epoch of its batch.
    offset: int
    value: bytes


def skim(data: bytes | memoryview) -> Iterator[Skimmed]:
    """Each that can be decoded, in order."""
    buffer = np.frombuffer(data, np.uint8)
    count, batches, _ = walk_batches(buffer)
    places = np.zeros((1 << 10, 4), np.int64)
    batch = 0
    while batch < count:
        if len(places) < int(batches.count[batch]):
            places = np.zeros((int(batches.count[batch]), 4), np.int64)
        found, following, is_usual = _skim(buffer, batches, batch, count, places)
        for offset, at, end, b in places[:found].tolist():
            yield Skimmed(place_of(batches, b), offset, buffer[at:end].tobytes())
        if not is_usual:
            yield from _slowly(buffer, batches, following)
            following += 1
        batch = following


def _slowly(buffer: Array, batches: Batches, batch: int) -> Iterator[Skimmed]:
    start, end = int(batches.at[batch]) - HEADER_BYTES, int(batches.end[batch])
    read = read_batches(buffer[start:end].tobytes(), Interned())
    for index, record in read.others:
        if isinstance(record, Record):
            yield Skimmed(place_of(batches, batch), read.offset_of(index), read.value(index))


@compiled
def _skim(data: Any, batches: Any, first: Any, count: Any, out: Any) -> Any:
    """(how many, the batch to go on with, whether that is one for this function)."""
    found = 0
    for b in range(first, count):
        if batches.attributes[b] & CONTROL:
            continue
        if batches.attributes[b] & COMPRESSION_MASK:
            return found, b, False
        if found + batches.count[b] > out.shape[0]:
            return found, b, True
        begin = found
        p = batches.at[b]
        end = batches.end[b]
        for delta in range(batches.count[b]):
            at, value_end, p = record_at(data, p, end, delta)
            if p < 0:
                return begin, b, False
            head = data[at]
            key = data[at + 1]
            if head < 0x92 or head > 0x9F or key >= 0x80:
                return begin, b, False  # Apache Kafka's, for one.
            if key != CREATED and key != CHANGED and key != NO_OP:
                out[found, 0] = batches.base_offset[b] + delta
                out[found, 1] = at
                out[found, 2] = value_end
                out[found, 3] = b
                found += 1
        if p != end:
            return begin, b, False
    return found, count, True
