"""What a client's batches must be before they are appended. Pure.

A partition takes one record batch per request, of format v2, whole, not too large, whose header
agrees with itself. Compressed batches stay as they came; nobody looks inside, but where a topic
demands what only the records tell: keys (cleanup.policy compact), another codec (compression.type)
or how far back their times may lie (message.timestamp.before.max.ms). A refusal is definite:
nothing of the partition's part of the request is appended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.errors import ApiError, InvalidBatch
from kraftpy.limits import RECORD_ERRORS_MAX
from kraftpy.storage.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kraftpy.storage.raw_records import (
    DELETE_HORIZON,
    RawRecord,
    read_raw_records,
    rebuild,
    stamp_append_time,
)
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    damage_of,
    read_header,
)
from kraftpy.storage.request import Request

CODECS: Final = {
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
_MAGIC_AT: Final = 16
_NO_LIMIT_MS: Final = (1 << 63) - 1
_NO_PRODUCER: Final = -1
_NO_APPEND_TIME: Final = -1


class RefusedRecord(NamedTuple):
    """One record that is the reason, by its place in the batch."""

    batch_index: int
    why: str


class RefusedBatch(ApiError):
    """The partition's part of a produce request is not appended."""

    def __init__(self, error: ErrorCode, why: str, records: tuple[RefusedRecord, ...] = ()) -> None:
        super().__init__(why)
        self.error = error
        self.code = error.value
        self.records = records


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendConfig:
    """A topic's settings for what it accepts, by Kafka's names."""

    batch_bytes_max: int = 1024 * 1024 + 12
    log_append_time: bool = False
    timestamp_before_max_ms: int = _NO_LIMIT_MS
    timestamp_after_max_ms: int = 3_600_000
    compression: int | None = None  # None: as the producer has it.
    compacted: bool = False


class Accepted(NamedTuple):
    """A batch that may be appended, and the time that the producer is told."""

    request: Request
    append_time_ms: int


def accept(
    records: Buffer,
    config: AppendConfig,
    now_ms: int,
    *,
    transactional: bool = False,
    zstd: bool = True,
) -> Accepted:
    """Judge a client's records; RefusedBatch says why not.

    The buffer is changed in place where the topic wants other timestamps, unless it is read-only.
    `transactional` says that the request names a transaction that this batch may belong to; `zstd`
    that its version is one that knows the codec.
    """
    header = _whole_batch(records, config.batch_bytes_max)
    _check_header(header, transactional=transactional, zstd=zstd)
    _check_times(header, config, now_ms)
    data: bytearray | memoryview = _writable(records)
    if _must_look_inside(header, config):
        changed = _look_inside(header, data, config, now_ms)
        if changed is not None:
            data = changed
            header = read_header(data)
            _check_size(header.size, config.batch_bytes_max)
    append_time_ms = _NO_APPEND_TIME
    if config.log_append_time:
        append_time_ms = now_ms
        header = stamp_append_time(data, 0, header, now_ms)
    return Accepted(Request(data, [(0, header)]), append_time_ms)


def _writable(records: Buffer) -> bytearray | memoryview:
    if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
        return bytearray(records)
    return records


# -- the batch and its header -------------------------------------------------------------------


def _whole_batch(records: Buffer, batch_bytes_max: int) -> BatchHeader:
    size = len(records)
    if size > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        raise RefusedBatch(
            ErrorCode.invalid_record, f"records of format {records[_MAGIC_AT]}, not {MAGIC}"
        )
    if size < HEADER_BYTES:
        raise RefusedBatch(ErrorCode.invalid_record, "there is no record batch")
    header = read_header(records)
    _check_size(header.size, batch_bytes_max)
    wrong = damage_of(header, records, 0, size)
    if wrong is not None:
        raise RefusedBatch(ErrorCode.corrupt_message, wrong)
    if header.size != size:
        raise RefusedBatch(ErrorCode.invalid_record, "more than one record batch")
    return header


def _check_size(size: int, batch_bytes_max: int) -> None:
    if size > batch_bytes_max:
        why = f"a batch of {size} bytes, where {batch_bytes_max} are allowed"
        raise RefusedBatch(ErrorCode.message_too_large, why)


def _check_header(header: BatchHeader, *, transactional: bool, zstd: bool) -> None:
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        offsets = header.last_offset_delta + 1
        why = f"{header.record_count} records for {offsets} offsets"
        raise RefusedBatch(ErrorCode.invalid_record, why)
    if header.is_control:
        raise RefusedBatch(ErrorCode.invalid_record, "clients do not write control records")
    if header.attributes & DELETE_HORIZON:
        raise RefusedBatch(ErrorCode.invalid_record, "clients do not set a delete horizon")
    if header.compression > ZSTD:
        why = f"unknown compression {header.compression}"
        raise RefusedBatch(ErrorCode.unsupported_compression_type, why)
    if header.compression == ZSTD and not zstd:
        why = "this version of the request does not know zstd"
        raise RefusedBatch(ErrorCode.unsupported_compression_type, why)
    _check_producer(header, transactional)


def _check_producer(header: BatchHeader, transactional: bool) -> None:
    if header.producer_id != _NO_PRODUCER:
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            why = (
                f"producer {header.producer_id}, epoch {header.producer_epoch}, "
                f"sequence {header.base_sequence} are inconsistent"
            )
            raise RefusedBatch(ErrorCode.invalid_record, why)
    elif header.attributes & TRANSACTIONAL:
        raise RefusedBatch(ErrorCode.invalid_record, "a transactional batch without a producer")
    if header.attributes & TRANSACTIONAL and not transactional:
        why = "a transactional batch of a producer that has no transaction here"
        raise RefusedBatch(ErrorCode.invalid_txn_state, why)


def _check_times(header: BatchHeader, config: AppendConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        why = "the time of the append is not for producers to set"
        raise RefusedBatch(ErrorCode.invalid_timestamp, why)
    if config.log_append_time:
        return
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        why = f"a timestamp {header.max_timestamp - now_ms} ms in the future"
        raise RefusedBatch(ErrorCode.invalid_timestamp, why)


# -- the records --------------------------------------------------------------------------------


def _must_look_inside(header: BatchHeader, config: AppendConfig) -> bool:
    other_codec = config.compression is not None and config.compression != header.compression
    old_refused = config.timestamp_before_max_ms != _NO_LIMIT_MS and not config.log_append_time
    return config.compacted or other_codec or old_refused


def _look_inside(
    header: BatchHeader, data: Buffer, config: AppendConfig, now_ms: int
) -> bytearray | None:
    """Judge each record; the batch in the topic's codec, if it is in another one."""
    try:
        found = read_raw_records(data, header)
    except InvalidBatch as error:
        raise RefusedBatch(ErrorCode.corrupt_message, str(error)) from None
    if [record.offset - header.base_offset for record in found] != list(range(len(found))):
        raise RefusedBatch(ErrorCode.invalid_record, "offsets of records do not follow each other")
    if config.compacted:
        _refuse_any(
            ErrorCode.invalid_record,
            (
                RefusedRecord(index, "a compacted topic needs keys")
                for index, record in enumerate(found)
                if record.key is None
            ),
        )
    if not config.log_append_time:
        _refuse_any(ErrorCode.invalid_timestamp, _refused_times(found, config, now_ms))
    if config.compression is None or config.compression == header.compression:
        return None
    return bytearray(rebuild(header, found, compression=config.compression))


def _refused_times(
    found: Iterable[RawRecord], config: AppendConfig, now_ms: int
) -> Iterable[RefusedRecord]:
    for index, record in enumerate(found):
        if record.timestamp == NO_TIMESTAMP:
            continue
        if now_ms - record.timestamp > config.timestamp_before_max_ms:
            yield RefusedRecord(index, f"a timestamp {now_ms - record.timestamp} ms in the past")
        elif record.timestamp - now_ms > config.timestamp_after_max_ms:
            yield RefusedRecord(index, f"a timestamp {record.timestamp - now_ms} ms in the future")


def _refuse_any(error: ErrorCode, refused: Iterable[RefusedRecord]) -> None:
    found = []
    for each in refused:
        found.append(each)
        if len(found) == RECORD_ERRORS_MAX:
            break
    if found:
        raise RefusedBatch(error, found[0].why, tuple(found))
