"""What a log accepts: batches checked whole, before anything of a request is written. Pure.

A producer's request has no offsets yet; a replica's batches have theirs and must continue the log.
"""

from typing import NamedTuple

from kraftpy.errors import InvalidBatch
from kraftpy.storage.record_batch import BatchHeader, Buffer, stamp, validate


class Appended(NamedTuple):
    """Where a request's batches stand in the log."""

    base_offset: int
    end_offset: int


class PlacedBatch(NamedTuple):
    """A batch with its final header, ready to be written."""

    header: BatchHeader
    data: memoryview


class Request(NamedTuple):
    """A producer's batches, found whole, and where each begins."""

    data: bytearray | memoryview
    batches: list[tuple[int, BatchHeader]]

    def place(self, offset: int, epoch: int) -> list[PlacedBatch]:
        """Stamp the batches, in place, with consecutive offsets from `offset` on."""
        placed = []
        view = memoryview(self.data)
        for position, header in self.batches:
            stamped = stamp(self.data, position, header, offset, epoch)
            placed.append(PlacedBatch(stamped, view[position : position + stamped.size]))
            offset = stamped.end_offset
        return placed


def check_request(data: Buffer, batch_bytes_max: int) -> Request:
    """A producer's request; InvalidBatch if it cannot be appended. Read-only bytes are copied."""
    view: bytearray | memoryview = bytearray(data) if isinstance(data, bytes) else data
    if isinstance(view, memoryview) and view.readonly:
        view = bytearray(view)
    batches = validate(view)
    for position, header in batches:
        _check_size(position, header, batch_bytes_max)
        if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
            raise InvalidBatch(
                f"batch at byte {position} of the request: {header.record_count} records "
                f"for {header.last_offset_delta + 1} offsets"
            )
    return Request(view, batches)


def read_replicated(data: Buffer) -> list[PlacedBatch]:
    """A replica's batches; InvalidBatch unless each is whole."""
    view = memoryview(data)
    return [
        PlacedBatch(header, view[position : position + header.size])
        for position, header in validate(view)
    ]


def check_continues(
    placed: list[PlacedBatch], batch_bytes_max: int | None, due: int, epoch: int
) -> None:
    """InvalidBatch unless the batches continue a log that ends at `due` in `epoch`.

    None is for a topic's log: its leader may have compacted away what was between batches, and may
    have accepted larger ones, or made one larger, than is allowed now.
    """
    position = 0
    for header, _ in placed:
        if batch_bytes_max is not None:
            _check_size(position, header, batch_bytes_max)
        gap = header.base_offset - due
        if gap < 0 or (gap > 0 and batch_bytes_max is not None):
            raise InvalidBatch(f"a batch of offset {header.base_offset} where {due} was due")
        if header.leader_epoch < epoch:
            raise InvalidBatch(f"epoch {header.leader_epoch} at offset {due}, after {epoch}")
        due, epoch = header.end_offset, header.leader_epoch
        position += header.size


def _check_size(position: int, header: BatchHeader, batch_bytes_max: int) -> None:
    if header.size > batch_bytes_max:
        raise InvalidBatch(
            f"batch at byte {position} of the request: {header.size} bytes are more than the "
            f"{batch_bytes_max} allowed"
        )
