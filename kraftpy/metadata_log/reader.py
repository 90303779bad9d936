"""Looking into a metadata log's directory without owning it: for tools, tests and audits.

Takes no lock and writes nothing, so the node whose directory it is may be running. Several passes
over the directory see what is there at that moment; a tail that is not committed yet is included.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log.batches import control_records, metadata_records, metadata_values
from kraftpy.metadata_log.codec import decode_record
from kraftpy.metadata_log.control_records import ControlRecord
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.loading import (
    Progress,
    load_newest_snapshot,
    no_progress,
    replay_batches,
)
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.reader import FoundBatch, LogReader
from kraftpy.storage.record_batch import BatchHeader


class MetadataEntry(NamedTuple):
    """One record of the log, and where it stands."""

    offset: int
    epoch: int
    timestamp_ms: int
    record: MetadataRecord | ControlRecord | RecordDecodeError


class MetadataReader:
    """A metadata log, seen from outside."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._directory = directory

    def image_at(self, end_offset: int | None, progress: Progress = no_progress) -> ClusterImage:
        """The image after every record before `end_offset`, or after the last one.

        An offset inside a batch gives a state that no node ever showed: the records of that batch
        before it, and not the rest.
        """
        limit = (1 << 63) - 1 if end_offset is None else end_offset
        start_offset = LogReader(self._files, self._directory).start_offset
        image = load_newest_snapshot(self._files, self._directory, limit, start_offset, progress)
        rest: list[FoundBatch] = []
        image = replay_batches(image, self._batches(image.end_offset, limit, rest), limit, progress)
        return _replay_part(image, rest[0], limit) if rest else image

    def _batches(
        self, offset: int, limit: int, rest: list[FoundBatch]
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches that end before `limit`; the one that spans it goes into `rest`."""
        for found in LogReader(self._files, self._directory, offset).batches():
            if found.header.end_offset > limit:
                if found.header.base_offset < limit:
                    rest.append(found)
                return
            yield found.header, found.data


def _replay_part(image: ClusterImage, found: FoundBatch, limit: int) -> ClusterImage:
    delta = ClusterDelta(image)
    base = found.header.base_offset
    for offset, record in enumerate(metadata_records(found.header, found.data), base):
        if offset < limit:
            delta.replay(record, offset)
    return delta.image(limit, found.header.leader_epoch, found.header.max_timestamp)


def entries(found: FoundBatch) -> Iterator[MetadataEntry]:
    """The records of a batch, metadata or control; one that cannot be decoded is its error."""
    header = found.header
    if header.is_control:
        records: Iterable[MetadataRecord | ControlRecord | RecordDecodeError]
        records = control_records(header, found.data)
    else:
        records = _decoded(header, found.data)
    for offset, record in enumerate(records, header.base_offset):
        yield MetadataEntry(offset, header.leader_epoch, header.max_timestamp, record)


def _decoded(header: BatchHeader, data: memoryview) -> Iterator[MetadataRecord | RecordDecodeError]:
    for offset, value in enumerate(metadata_values(header, data), header.base_offset):
        try:
            yield decode_record(value, offset)
        except RecordDecodeError as error:
            yield error


def is_metadata(found: FoundBatch) -> bool:
    """Whether a batch that is no control batch looks like one of a metadata log.

    One record that decodes is enough: a damaged or newer one beside it is still metadata.
    """
    try:
        return any(not isinstance(entry.record, RecordDecodeError) for entry in entries(found))
    except RecordDecodeError:
        return False
