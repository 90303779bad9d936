"""Logs of the rule book's cases as directories on disk, as a node would have them."""

from collections.abc import Iterable
from pathlib import Path

from kraftpy.audit.rules import Evidence
from kraftpy.audit.rules.rule import NO_EVIDENCE
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log.batches import control_batch, record_batch
from kraftpy.metadata_log.control_records import leader_change
from tests.unit.audit.logs import EPOCH, Log

SEGMENT = f"{0:020d}.log"


def batches_of(log: Log, *, first_offset: int = 0) -> list[bytes]:
    """Behind a control batch there is no room for one: the cases begin at offset 0."""
    return [
        bytes(
            record_batch(records, base_offset=base + first_offset, epoch=EPOCH, timestamp_ms=base)
        )
        for base, records, _ in log.batches
        if records
    ]


def evidence_of(log: Log) -> dict[int, Evidence]:
    return {base: known for base, _, known in log.batches if known is not NO_EVIDENCE}


def write_segment(directory: Path, batches: Iterable[bytes], base_offset: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def batch(records: Iterable[MetadataRecord], base_offset: int, epoch: int = EPOCH) -> bytes:
    known = list(records)
    return bytes(record_batch(known, base_offset=base_offset, epoch=epoch, timestamp_ms=0))


def leader(base_offset: int, epoch: int, leader_id: int = 1) -> bytes:
    record = leader_change(leader_id, [1, 2, 3], [1, 2])
    return bytes(control_batch(record, base_offset=base_offset, epoch=epoch, timestamp_ms=0))
