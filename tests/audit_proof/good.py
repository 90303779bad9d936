"""A million good records: batches of a healthy cluster, which faults are planted among."""

import struct
from dataclasses import dataclass
from pathlib import Path

from bench.audit_log import HealthyLog, LogWriter
from kraftpy.storage.record_batch import read_header

BROKERS, TOPICS, PER_TOPIC = 20, 100, 20
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12


@dataclass(frozen=True)
class Good:
    """Batches of a healthy cluster: those before a fault, and those behind it."""

    before: bytes
    behind: bytes
    offset: int  # Where the fault goes.
    records: int
    end_offset: int


def good_records(
    records: int, directory: Path, *, topics: int = TOPICS, per_topic: int = PER_TOPIC
) -> Good:
    writer = LogWriter([directory / "good"], 1 << 40)
    cluster = HealthyLog(writer, brokers=BROKERS, topics=topics, per_topic=per_topic)
    cluster.run(records // 2)
    offset = writer.end_offset
    path = directory / "good" / f"{0:020d}.log"
    size = path.stat().st_size
    cluster.run(records)
    data = path.read_bytes()
    return Good(data[:size], data[size:], offset, writer.records, writer.end_offset)


def shifted(data: bytes, by: int, epoch: int | None = None) -> bytes:
    """The same batches, further on in the log: checksums cover neither offset nor epoch."""
    moved, at = bytearray(data), 0
    while at < len(moved):
        header = read_header(moved, at)
        _OFFSET.pack_into(moved, at, header.base_offset + by)
        if epoch is not None:
            _EPOCH.pack_into(moved, at + _EPOCH_AT, epoch)
        at += header.size
    return bytes(moved)
