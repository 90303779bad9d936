"""Metadata and control records <-> record batches: what the metadata log's bytes mean. Pure.

A batch holds either metadata records (bare values, no keys, uncompressed) or control records.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kraftpy.errors import InvalidBatch, RecordDecodeError
from kraftpy.limits import BATCH_RECORDS_MAX, METADATA_BATCH_BYTES_MAX
from kraftpy.metadata_log.codec import decode_records, encode_record, encode_records
from kraftpy.metadata_log.control_records import ControlRecord, decode_control, encode_control
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.storage.record_batch import (
    CONTROL,
    BatchHeader,
    build_value_batch,
    iter_records,
    iter_values,
)

_PACKED_BYTES: Final = 256 * 1024


def record_batch(
    records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """One atomic batch of metadata records; ValueError if it is larger than a batch may be."""
    if not 0 < len(records) <= BATCH_RECORDS_MAX:
        raise ValueError(f"a batch has 1 to {BATCH_RECORDS_MAX} records, not {len(records)}")
    batch = build_value_batch(
        encode_records(records),
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
    )
    if len(batch) > METADATA_BATCH_BYTES_MAX:
        raise ValueError(f"a batch has at most {METADATA_BATCH_BYTES_MAX} bytes, not {len(batch)}")
    return batch


def packed_batches(
    records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> Iterator[bytearray]:
    """Any number of records, in batches of a size that is quick to read and never too large."""
    values: list[bytes] = []
    size = 0

    def batch() -> bytearray:
        return build_value_batch(
            values, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms
        )

    for record in records:
        value = encode_record(record)
        if values and (len(values) == BATCH_RECORDS_MAX or size + len(value) > _PACKED_BYTES):
            yield batch()
            base_offset += len(values)
            values, size = [], 0
        values.append(value)
        size += len(value)
    if values:
        yield batch()


def control_batch(
    record: ControlRecord, *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """A batch with one control record."""
    key, value = encode_control(record)
    return build_value_batch(
        [value],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
        attributes=CONTROL,
        keys=[key],
    )


def metadata_records(header: BatchHeader, data: memoryview) -> Sequence[MetadataRecord]:
    """The metadata records of a batch, by offset; none if it is a control batch."""
    if header.is_control:
        return ()
    return decode_records(metadata_values(header, data), header.base_offset)


def metadata_values(header: BatchHeader, data: memoryview) -> Iterator[bytes]:
    """The values of a batch that is no control batch, not decoded yet."""
    if header.compression:
        raise RecordDecodeError("a batch of metadata is compressed", header.base_offset)
    try:
        yield from iter_values(data, header)
    except InvalidBatch as error:
        raise RecordDecodeError(str(error), header.base_offset) from None


def control_records(header: BatchHeader, data: memoryview) -> list[ControlRecord]:
    """The records of a control batch."""
    try:
        return [decode_control(each.key, each.value, each.offset) for each in iter_records(data)]
    except InvalidBatch as error:
        raise RecordDecodeError(str(error), header.base_offset) from None
