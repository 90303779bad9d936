"""Segments of a log replaced by one that holds less: how compaction gives its work to the log.

The new segment is written beside the log under `.cleaned`, by any thread and at leisure, and
synced. Then `swap_in` makes it the log's in steps that can stop anywhere:
1. its files become `.swap`, the batches last, and the directory is synced: this is the decision.
2. the segments that it replaces are removed, the last one first, except for the first one, which
3. is overwritten when the files get their final names, again the batches last.
A crash before 1 is complete leaves `.cleaned` files, which recovery removes; after it, recovery
does 2 and 3 again (`finish_swaps`). What a `.swap` file replaces follows from the file alone: the
last batch of a replaced segment is always kept, if need be without records, so that the new one
ends exactly where the old ones did.
"""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from kraftpy.errors import StorageError
from kraftpy.storage.file_layer import Buffer, FileLayer
from kraftpy.storage.record_batch import BatchHeader, read_header
from kraftpy.storage.scan import scan_batches
from kraftpy.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    SegmentConfig,
    segment_name,
)

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
_SWAP_FILE: Final = re.compile(r"(\d{20})" + re.escape(LOG_SUFFIX + SWAP_SUFFIX))
_SEGMENT_FILE: Final = re.compile(r"(\d{20})" + re.escape(LOG_SUFFIX))
_BUFFERED_BYTES: Final = 1024 * 1024


class SealedSegment(NamedTuple):
    """A segment that gets no more batches, as it was at some moment."""

    segment: Segment
    end_offset: int
    cuts: int

    @property
    def is_unchanged(self) -> bool:
        """Whether it was not cut since: then it may have other batches now."""
        return self.segment.cuts == self.cuts


def seal_all(segments: Sequence[Segment]) -> list[SealedSegment]:
    """All but the active one, as they are now."""
    return [
        SealedSegment(segment, following.base_offset, segment.cuts)
        for segment, following in pairwise(segments)
    ]


class CleanedSegment:
    """The replacement of some consecutive segments, in the making. Any one thread may write it."""

    def __init__(
        self,
        files: FileLayer,
        directory: str,
        sources: Sequence[SealedSegment],
        config: SegmentConfig,
    ) -> None:
        assert sources
        self.sources = tuple(sources)
        self.end_offset = -1  # Where the last batch ends.
        base_offset = sources[0].segment.base_offset
        self.segment = Segment(files, directory, base_offset, config, CLEANED_SUFFIX)
        if self.segment.size:
            self.segment.file.truncate(0)  # Of an attempt that was given up.
            self.segment.size = 0
        self._headers: list[BatchHeader] = []
        self._buffers: list[Buffer] = []
        self._buffered = 0

    def append(self, data: Buffer) -> None:
        """A batch; its offset lies behind those that were added before."""
        header = read_header(data)
        assert header.base_offset >= self.end_offset
        self._headers.append(header)
        self._buffers.append(data)
        self._buffered += header.size
        self.end_offset = header.end_offset
        if self._buffered >= _BUFFERED_BYTES:
            self._write()

    def _write(self) -> None:
        self.segment.write(self._buffers, self._headers)
        self._headers, self._buffers, self._buffered = [], [], 0

    def finish(self) -> None:
        """Make what was added durable."""
        self._write()
        self.segment.seal()
        self.segment.sync()

    def discard(self) -> None:
        """Give it up."""
        self.segment.close()
        self.segment.remove()

    def place_in(self, segments: Sequence[Segment], *, synced_end: int) -> tuple[int, int]:
        """Where its sources begin and end in a log's segments; StorageError if it does not fit."""
        first = self.sources[0].segment
        at = segments.index(first) if first in segments else len(segments)
        after = at + len(self.sources)
        same = after < len(segments) and all(
            source.segment is segment and source.is_unchanged
            for source, segment in zip(self.sources, segments[at:after], strict=True)
        )
        if not same:
            raise StorageError("the log has other segments now than those that were cleaned")
        if not self.end_offset == segments[after].base_offset <= synced_end:
            raise StorageError(f"a segment that ends at {self.end_offset} leaves a gap or unsynced")
        return at, after

    def swap_in(self, files: FileLayer, directory: str) -> None:
        """Put it into the place of its sources, durably."""
        self.segment.rename(SWAP_SUFFIX)
        files.sync_directory(directory)
        for source in reversed(self.sources[1:]):
            source.segment.remove()
        self.segment.rename("")
        files.sync_directory(directory)


def finish_swaps(files: FileLayer, directory: str) -> None:
    """Complete the replacements that a crash stopped. CorruptRecord if one cannot be read."""
    names = files.names(directory)
    swaps = [int(match[1]) for match in map(_SWAP_FILE.fullmatch, names) if match]
    bases = [int(match[1]) for match in map(_SEGMENT_FILE.fullmatch, names) if match]
    for swap in swaps:
        end_offset = _end_of(files, _path(directory, swap, LOG_SUFFIX + SWAP_SUFFIX), swap)
        for base in reversed(bases):
            if swap < base < end_offset:
                files.remove(_path(directory, base, LOG_SUFFIX))
        for kind in (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX):
            source = _path(directory, swap, kind + SWAP_SUFFIX)
            if files.exists(source):
                files.rename(source, _path(directory, swap, kind))
    if swaps:
        files.sync_directory(directory)


def _path(directory: str, base_offset: int, suffix: str) -> str:
    return os.path.join(directory, segment_name(base_offset) + suffix)


def _end_of(files: FileLayer, path: str, base_offset: int) -> int:
    file = files.open_for_read(path)
    end_offset = base_offset
    for _, header, _ in scan_batches(file, 0, file.size(), base_offset):
        end_offset = header.end_offset
    file.close()
    return end_offset
