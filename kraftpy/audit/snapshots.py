"""Snapshots beside a log: reading them, and holding them against what the log gives there (A50)."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kraftpy.audit.kafka.decoding import UnknownRecord, decode_value
from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.entities import Entities, entities_of, snapshot_is_the_log
from kraftpy.audit.rules.rule import Defaults, Violation
from kraftpy.audit.source.batches import found_batches
from kraftpy.audit.source.directories import LogDirectory, Snapshot
from kraftpy.audit.source.stores import store_of
from kraftpy.audit.violations import Unchecked
from kraftpy.errors import InvalidBatch, RecordDecodeError, StorageError
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import control_records
from kraftpy.metadata_log.control_records import SnapshotFooter
from kraftpy.storage.record_batch import iter_records, read_header

PARTITION_RECORDS: Final = (r.PartitionRecord, r.PartitionChangeRecord)


class SnapshotAt(NamedTuple):
    """A snapshot of a node."""

    end_offset: int
    epoch: int
    node: int
    path: str

    def unchecked(self, reason: str) -> Unchecked:
        return Unchecked("snapshot", self.node, 0, self.end_offset, 0, f"{self.path}: {reason}")


def snapshots_of(logs: Sequence[LogDirectory]) -> list[SnapshotAt]:
    return sorted(
        SnapshotAt(each.end_offset, each.epoch, log.node, each.path)
        for log in logs
        for each in log.snapshots
    )


def snapshot_bytes(snapshot: SnapshotAt | Snapshot) -> bytes:
    """Its batches; StorageError if it is damaged or has no end."""
    store = store_of(snapshot.path)
    parts: list[memoryview] = []
    is_whole = False
    for found in found_batches(store, snapshot.path, 0, store.size(snapshot.path)):
        if found.damage is not None or found.header is None:
            raise StorageError(f"damaged at position {found.position}: {found.damage}")
        parts.append(found.data)
        if found.header.is_control:
            is_whole = any(
                isinstance(each, SnapshotFooter)
                for each in control_records(found.header, found.data)
            )
    if not is_whole:
        raise StorageError("it has no end")
    return b"".join(parts)


def records_in(data: bytes | memoryview) -> Iterator[r.MetadataRecord]:
    """All records of whole batches that can be read."""
    view, at = memoryview(data), 0
    while at < len(view):
        header = read_header(view, at)
        batch = view[at : at + header.size]
        at += header.size
        if header.is_control:
            continue
        try:
            for each in iter_records(batch):
                record = decode_value(each.value, each.offset)
                if not isinstance(record, UnknownRecord):
                    yield record
        except InvalidBatch as error:
            raise RecordDecodeError(str(error), header.base_offset) from None


def others_in(data: bytes | memoryview) -> Iterator[r.MetadataRecord]:
    """The records that are no partition's; without the compiled decoder they are all decoded."""
    try:
        from kraftpy.audit.kernel.interning import Interned
        from kraftpy.audit.kernel.reading import read_batches
    except ImportError:
        for record in records_in(data):
            if not isinstance(record, PARTITION_RECORDS):
                yield record
        return
    for _, found in read_batches(data, Interned()).others:
        if isinstance(found, RecordDecodeError):
            raise found
        if not isinstance(found, UnknownRecord):
            yield found


class Comparison(NamedTuple):
    violations: list[Violation]
    entities: int
    unchecked: Unchecked | None


def compare_entities(
    snapshot: SnapshotAt, entities: Entities, defaults: Defaults, *, partitions: bool
) -> Comparison:
    """What the log gives against what the snapshot holds; without partitions if told so."""
    if entities.is_in_transaction:
        why = "a metadata transaction is open where it ends"
        return Comparison([_within_a_transaction(snapshot)], 0, snapshot.unchecked(why))
    try:
        data = snapshot_bytes(snapshot)
        stored = entities_of(records_in(data) if partitions else others_in(data), defaults)
    except (StorageError, OSError) as error:
        return Comparison([], 0, snapshot.unchecked(str(error)))
    replayed = entities.table()
    found = snapshot_is_the_log(
        replayed,
        stored,
        node=snapshot.node,
        end_offset=snapshot.end_offset,
        epoch=snapshot.epoch,
    )
    return Comparison(list(found), len(stored), None)


def _within_a_transaction(snapshot: SnapshotAt) -> Violation:
    """A45: whoever loads it would never hear how the transaction ended."""
    return Violation(
        rule=RULES[45],
        node=snapshot.node,
        offset=snapshot.end_offset,
        epoch=snapshot.epoch,
        expected="a snapshot outside metadata transactions",
        actual="one is open where it ends",
    )
