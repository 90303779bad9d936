"""The idempotent producers of one partition, as far as its log tells (KIP-98).

For each producer id: its epoch and the last five batches, by their last sequence number, offset and
timestamp. A batch of the current epoch must continue the sequence; one that repeats any of the five
is not written again but answered with its old place. Sequence numbers go from 2^31 - 1 to 0. A
producer that the partition does not know may begin anywhere: its records may have been deleted.

The state is what the batch headers of the log say, in order: leaders `check` before they append and
`append` then, followers and recovery only `append`. `end_offset` is how far it has come. Snapshots
save the way from the log's start. Batches of transactions and their markers are noted, so that the
state, too, knows where the oldest open transaction begins; who may write them is decided elsewhere.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from kraftpy.errors import StorageError
from kraftpy.limits import PRODUCER_BATCHES_MAX
from kraftpy.storage.record_batch import TRANSACTIONAL, BatchHeader

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TRANSACTION: Final = -1

_SEQUENCES: Final = 1 << 31
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = struct.Struct(">hI")  # Version, CRC32C of what follows.
_SNAPSHOT_COUNT: Final = struct.Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction.
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class ProducedBatch(NamedTuple):
    """A batch that was written: what its repetition is answered with."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """One producer id. `batches` are of the current epoch, oldest first."""

    epoch: int = NO_PRODUCER_EPOCH
    batches: list[ProducedBatch] = field(default_factory=list)
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    """The machine. Whoever appends to the log tells it, batch by batch."""

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, Producer] = {}
        self.end_offset = end_offset

    # -- the leader's check ---------------------------------------------------------------

    def check(self, header: BatchHeader) -> ErrorCode | ProducedBatch:
        """Whether a client's batch may be appended; a ProducedBatch if it already was."""
        if header.producer_id == NO_PRODUCER_ID:
            return ErrorCode.none
        if header.base_sequence < 0 or header.producer_epoch < 0:
            return ErrorCode.invalid_record
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return ErrorCode.none
        if header.producer_epoch == producer.epoch:
            return _check_sequence(producer, header)
        if header.producer_epoch < producer.epoch:
            return ErrorCode.invalid_producer_epoch
        if header.base_sequence != 0:
            return ErrorCode.out_of_order_sequence_number
        return ErrorCode.none

    # -- what is in the log ---------------------------------------------------------------

    def append(self, header: BatchHeader) -> None:
        """A batch is in the log, or about to be: from a client, a leader, or found at start."""
        self.end_offset = header.end_offset
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.is_control:
            self.append_marker(header)
            return
        producer = self.producers.setdefault(header.producer_id, Producer())
        producer.begin_epoch(header.producer_epoch)
        batches = producer.batches
        batches.append(
            ProducedBatch(
                _last_sequence(header),
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(batches) > PRODUCER_BATCHES_MAX:
            del batches[0]
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = header.base_offset

    def append_marker(self, header: BatchHeader, coordinator_epoch: int = -1) -> None:
        """A transaction of this producer ends; the epoch of its coordinator is in the record."""
        self.end_offset = header.end_offset
        producer = self.producers.setdefault(header.producer_id, Producer())
        producer.begin_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
        producer.transaction_first_offset = NO_TRANSACTION

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        firsts = [each.transaction_first_offset for each in self.producers.values()]
        return min((first for first in firsts if first >= 0), default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for so long and have no open transaction."""
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction_first_offset < 0
            and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    # -- snapshots ------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Kafka's `.snapshot` file; its name is `end_offset`. Only the last batch of each stays."""
        body = bytearray(_SNAPSHOT_COUNT.pack(len(self.producers)))
        for producer_id, producer in sorted(self.producers.items()):
            last = producer.batches[-1] if producer.batches else None
            body += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                last.last_offset if last else -1,
                last.offset_delta if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + bytes(body)

    @classmethod
    def from_snapshot(cls, data: bytes, end_offset: int) -> "ProducerStates":
        """The state at `end_offset`; StorageError if the file is damaged: take an older one."""
        if len(data) < _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size:
            raise StorageError("a producer snapshot is cut short")
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise StorageError(f"a producer snapshot has the unknown version {version}")
        body = memoryview(data)[_SNAPSHOT_HEAD.size :]
        if crc32c(body) != crc:
            raise StorageError("a producer snapshot is damaged: its CRC does not match")
        (count,) = _SNAPSHOT_COUNT.unpack_from(body)
        entries = body[_SNAPSHOT_COUNT.size :]
        if count < 0 or len(entries) != count * _SNAPSHOT_ENTRY.size:
            raise StorageError("a producer snapshot does not hold what it counts")
        states = cls(end_offset)
        for entry in _SNAPSHOT_ENTRY.iter_unpack(entries):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = entry
            batches = [ProducedBatch(sequence, offset, delta, timestamp)] if offset >= 0 else []
            states.producers[producer_id] = Producer(epoch, batches, timestamp, coordinator, first)
        return states


class Rebuild(NamedTuple):
    """How to arrive at the state of a log: from which snapshot, and which ones must go."""

    snapshots: tuple[int, ...]  # Usable ones, best first: the next one if a file is damaged.
    stale: tuple[int, ...]


def plan_rebuild(snapshots: Collection[int], start_offset: int, end_offset: int) -> Rebuild:
    """After a restart or a truncation: `snapshots` are the offsets that the files are named by.

    A snapshot beyond the log's end speaks of records that were cut off. It must be removed before
    the log grows past it again, or it would be taken for the state of other records. One at or
    before the log's start tells nothing that a replay from the start does not. After the snapshot
    the batches from its offset on are replayed; without one, those from the start.
    """
    usable = sorted((each for each in snapshots if start_offset < each <= end_offset), reverse=True)
    stale = sorted(each for each in snapshots if not start_offset < each <= end_offset)
    return Rebuild(tuple(usable), tuple(stale))


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def _check_sequence(producer: Producer, header: BatchHeader) -> ErrorCode | ProducedBatch:
    base_sequence, last_sequence = header.base_sequence, _last_sequence(header)
    for batch in producer.batches:
        if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
            return batch
    if base_sequence != (producer.last_sequence + 1) % _SEQUENCES:
        return ErrorCode.out_of_order_sequence_number
    return ErrorCode.none
