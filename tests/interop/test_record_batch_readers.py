"""Other people's record parsers read our segments, and our log stores their batches.

kafka-python and aiokafka (its compiled parser) were written against Kafka itself, so what they
agree with on disk is Kafka's format and not only our idea of it. Real files, the real FileLayer.
"""

import importlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kraftpy.clock import ManualClock
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import Record, build_batch, iter_records
from kraftpy.storage.segment import SegmentConfig

BASE_MS = 1_700_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True)
class Expected:
    """One record, as any reader must see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(count: int, offset: int = 0) -> list[Expected]:
    """Records with every shape of key, value and headers."""
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", (("trace", b"\x00\xff"),)),
        (b"tombstone", None, ()),
        (b"", b"", (("empty", b""), ("twice", b"1"), ("twice", b"2"))),
        (None, None, (("null", None), ("ünïcödé", "日本".encode()))),
        (b"k" * 300, b"v" * 70_000, ()),
    ]
    return [
        # Out of order on purpose: the deltas are negative for some.
        Expected(offset + i, BASE_MS + (i * 7919) % 1000, *shapes[i % len(shapes)])
        for i in range(count)
    ]


def theirs(library: str, module: str) -> Any:
    """A module of theirs; neither library carries types."""
    with warnings.catch_warnings():
        # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{library}.{module}")


def has_codec(library: str, codec: str) -> bool:
    return codec == "none" or bool(getattr(theirs(library, "codec"), f"has_{codec}")())


def skip_without_codec(library: str, codec: str) -> None:
    if not has_codec(library, codec):
        pytest.skip(f"{library} finds no library for {codec}")


def read_by(library: str, data: bytes) -> Iterator[Expected]:
    """All records in these bytes, by their parser; every CRC checked by their code."""
    memory = theirs(library, "record.memory_records").MemoryRecords(data)
    parsed = 0
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        for record in batch:
            parsed += 1
            headers = tuple((key, value) for key, value in record.headers)
            yield Expected(record.offset, record.timestamp, record.key, record.value, headers)
    assert parsed, "their parser found no batch at all"


def build_by(library: str, codec: str, records: list[Expected]) -> bytes:
    """One batch with these records, by their builder, at base offset 0 as a producer sends it."""
    builder = theirs(library, "record.default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10_000_000,
    )
    for i, each in enumerate(records):
        headers = list(each.headers)
        assert builder.append(i, each.timestamp, each.key, each.value, headers) is not None
    return bytes(builder.build())


LIBRARIES = ["kafka", "aiokafka"]
EPOCH = 7


def opened(tmp_path: Path) -> Log:
    config = LogConfig(segment=SegmentConfig(segment_bytes=100_000, index_interval_bytes=1_000))
    return Log.open(OsFiles(), str(tmp_path / "topic-0"), config, ManualClock())


def segment_files(tmp_path: Path) -> bytes:
    """The `.log` files as they lie on the disk, one after the other."""
    paths = sorted((tmp_path / "topic-0").glob("*.log"))
    assert len(paths) > 1
    return b"".join(path.read_bytes() for path in paths)


def as_stored(record: Expected) -> Record:
    return Record(
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def assert_log_holds(log: Log, expected: list[Expected]) -> None:
    """By the log's own readers: all records, each offset, and a timestamp."""
    found = [record for _, data in log.batches(0) for record in iter_records(data)]
    assert found == [as_stored(each) for each in expected]
    for each in expected:
        batch = log.read(each.offset, bytes_max=1).read()
        assert as_stored(each) in list(iter_records(batch))
    youngest = max(expected, key=lambda each: each.timestamp)
    assert log.offset_for_timestamp(youngest.timestamp) == (youngest.offset, youngest.timestamp)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_their_parser_reads_the_segments_that_the_log_wrote(
    library: str, codec: str, tmp_path: Path
) -> None:
    skip_without_codec(library, codec)
    expected = records_of(24)
    log = opened(tmp_path)
    for first in range(0, 24, 4):
        records = [as_stored(each) for each in expected[first : first + 4]]
        log.append(build_batch(records, attributes=CODECS[codec]), EPOCH)
    # Batches that fill segments although they compress well.
    filler = Record(offset=0, timestamp=BASE_MS, key=None, value=os.urandom(90_000))
    log.append(build_batch([filler], attributes=CODECS[codec]), EPOCH)
    log.append(build_batch([filler], attributes=CODECS[codec]), EPOCH)
    log.close()
    found = list(read_by(library, segment_files(tmp_path)))
    assert found[:24] == expected
    assert [each.offset for each in found] == list(range(26))
    assert [each.value for each in found[24:]] == [filler.value] * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_log_stores_and_reads_what_their_builder_wrote(
    library: str, codec: str, tmp_path: Path
) -> None:
    skip_without_codec(library, codec)
    expected = records_of(24)
    log = opened(tmp_path)
    for first in range(0, 24, 6):
        log.append(build_by(library, codec, expected[first : first + 6]), EPOCH)
    assert_log_holds(log, expected)
    log.close()
    log = opened(tmp_path)
    assert_log_holds(log, expected)
    for other in [each for each in LIBRARIES if has_codec(each, codec)]:
        data = b"".join(bytes(data) for _, data in log.batches(0))
        assert list(read_by(other, data)) == expected
    log.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_their_parser_sees_the_epoch_and_the_producer(library: str, tmp_path: Path) -> None:
    log = opened(tmp_path)
    records = [as_stored(each) for each in records_of(2)]
    log.append(
        build_batch(records, attributes=0x10, producer_id=41, producer_epoch=3, base_sequence=9),
        EPOCH,
    )
    memory = theirs(library, "record.memory_records").MemoryRecords(log.read(0, 1 << 20).read())
    batch = memory.next_batch()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (41, 3, 9)
    log.close()


def test_every_codec_is_tried_with_a_library() -> None:
    """Not skipped, that is: aiokafka takes cramjam, which storage needs anyway, for them all."""
    assert all(has_codec("aiokafka", codec) for codec in CODECS)
    assert all(has_codec("kafka", codec) for codec in ("none", "gzip"))
