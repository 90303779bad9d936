"""A metadata log from its first record to its last, Kafka's or kraftpy's, for those who tell about
it: reports and timelines. What has been forgotten by the log comes from its snapshot.

Reading ends where the log is damaged; `LogEntries.problem` says where. Records that are not known
are passed over. Nothing here judges: that is for the engines.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from kraftpy.audit.kafka.decoding import UnknownRecord, decode_value, is_kafka_value
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, PartitionKey
from kraftpy.audit.rules.view import View
from kraftpy.errors import InvalidBatch, RecordDecodeError, StorageError
from kraftpy.metadata_log.batches import control_records
from kraftpy.metadata_log.control_records import ControlRecord
from kraftpy.metadata_log.image import EMPTY
from kraftpy.metadata_log.records import MetadataRecord, PartitionChangeRecord, Record
from kraftpy.metadata_log.snapshot_file import list_snapshots
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.reader import LogReader
from kraftpy.storage.record_batch import BatchHeader, iter_records
from kraftpy.storage.scan import scan_batches
from kraftpy.types import NO_LEADER


class Entry(NamedTuple):
    """A record and where it stands. `is_past`: of a snapshot, which sums up what came before."""

    offset: int
    epoch: int
    timestamp_ms: int
    record: MetadataRecord | ControlRecord
    is_past: bool = False


class LogEntries:
    """One pass over a directory. No locks, no writes."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.problem: str | None = None
        self.bytes_read = 0

    def __iter__(self) -> Iterator[Entry]:
        try:
            reader = LogReader(self._files, self._directory)
            start = reader.start_offset
            if start:
                start = yield from self._past(start)
            for found in LogReader(self._files, self._directory, start).batches():
                self.bytes_read += found.header.size
                yield from _entries(found.header, found.data)
        except (StorageError, InvalidBatch, OSError) as error:
            self.problem = str(error)

    def _past(self, start_offset: int) -> Generator[Entry, None, int]:
        """The oldest snapshot from which the log goes on, and where it ends."""
        for snapshot in list_snapshots(self._files, self._directory):
            if snapshot.end_offset < start_offset:
                continue
            path = f"{self._directory}/{snapshot.file_name}"
            file = self._files.open_for_read(path)
            for _, header, data in scan_batches(file, 0, file.size(), 0):
                for entry in _entries(header, data):
                    offset = snapshot.end_offset - 1
                    yield entry._replace(offset=offset, epoch=snapshot.epoch, is_past=True)
            return snapshot.end_offset
        return start_offset


def unclean_epochs(files: FileLayer, directory: str) -> dict[PartitionKey, set[int]]:
    """The leader epochs of partitions that began with somebody neither in sync nor eligible.

    The second such election in a row is not marked in its record, so states are compared.
    """
    found: dict[PartitionKey, set[int]] = {}
    view = View(EMPTY, KAFKA_DEFAULTS)
    for entry in LogEntries(files, directory):
        record = entry.record
        if not isinstance(record, Record):
            continue
        if not isinstance(record, PartitionChangeRecord):
            view.replay(record)
            continue
        key = record.topic_id, record.partition_id
        old = view.partition(key)
        view.replay(record)
        new = view.partition(key)
        if old is None or new is None or new.leader in (NO_LEADER, old.leader):
            continue
        if new.leader not in (*old.isr, *old.elr):
            found.setdefault(key, set()).add(new.leader_epoch)
    return found


def log_format(files: FileLayer, directory: str) -> str:
    """Who wrote a log, by the first record that is there: "kafka", "kraftpy", or "" if none is."""
    try:
        for found in LogReader(files, directory).batches():
            if not found.header.is_control:
                for record in iter_records(found.data):
                    return "kafka" if is_kafka_value(record.value or b"") else "kraftpy"
    except (StorageError, InvalidBatch, OSError):
        return ""
    return ""


def _entries(header: BatchHeader, data: memoryview) -> Iterator[Entry]:
    place = header.leader_epoch, header.max_timestamp
    if header.is_control:
        try:
            found = control_records(header, data)
        except RecordDecodeError:
            return
        for offset, control in enumerate(found, header.base_offset):
            yield Entry(offset, *place, control)
        return
    for record in iter_records(data):
        try:
            decoded = decode_value(record.value, record.offset)
        except RecordDecodeError:
            continue
        if not isinstance(decoded, UnknownRecord):
            yield Entry(record.offset, *place, decoded)
