"""Other people's parsers read what compaction wrote: thinned batches, empty ones, horizons."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftpy.broker.cleaner import Throttle, begin, dirtiness, take_up
from kraftpy.broker.compaction import CompactionConfig
from kraftpy.clock import ManualClock
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    iter_records,
    read_header,
)
from kraftpy.storage.segment import SegmentConfig
from tests.interop.test_record_batch_readers import (
    CODECS,
    LIBRARIES,
    Expected,
    skip_without_codec,
    theirs,
)

SEGMENT = SegmentConfig(segment_bytes=3000, index_interval_bytes=500)


def compacted(tmp_path: Path, codec: int) -> Log:
    """A log of a few keys, written again and again, some of them deleted; then compacted."""
    clock = ManualClock()
    config = LogConfig(segment=SEGMENT, of_topic=True)
    log = Log.open(OsFiles(), str(tmp_path / "topic-0"), config, clock)
    for turn in range(30):
        records = [
            Record(
                offset=i,
                timestamp=clock.now_ms() + (turn * 31 + i * 7) % 50,
                key=b"key-%d" % ((turn + i * i) % 9),
                value=None if (turn + i) % 11 == 0 else b"value-%d" % turn * 10,
                headers=(("turn", b"%d" % turn),),
            )
            for i in range(6)
        ]
        numbers = {"producer_id": turn % 3, "producer_epoch": 0, "base_sequence": turn}
        log.append(build_batch(records, attributes=codec, **numbers), epoch=1)
    log.flush()
    rules = CompactionConfig(segment_bytes=SEGMENT.segment_bytes)
    end = log.end_offset
    due = dirtiness(log, rules, checkpoint=None, committed_end=end, now_ms=clock.now_ms())
    cleaning = begin(OsFiles(), log, rules, due, {11, 17}, clock.now_ms())
    cleaning.run(1 << 20, Throttle(clock, lambda: 1e18))
    assert cleaning.counters.records_kept < cleaning.counters.records_read / 2
    assert take_up(log, cleaning)
    return log


def read_by(library: str, data: bytes) -> Iterator[Expected]:
    memory = theirs(library, "record.memory_records").MemoryRecords(data)
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        for record in batch:
            headers = tuple((key, value) for key, value in record.headers)
            yield Expected(record.offset, record.timestamp, record.key, record.value, headers)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_their_parser_reads_a_compacted_log(library: str, codec: str, tmp_path: Path) -> None:
    skip_without_codec(library, codec)
    log = compacted(tmp_path, CODECS[codec])
    parts = [bytes(data) for _, data in log.batches(0)]
    sizes = [read_header(part).size for part in parts]
    assert HEADER_BYTES in sizes, "one batch is there for its producer's numbers only"
    expected = [
        Expected(each.offset, each.timestamp, each.key, each.value, each.headers)
        for part in parts
        for each in iter_records(part)
    ]
    paths = sorted((tmp_path / "topic-0").glob("*.log"))
    assert list(read_by(library, b"".join(path.read_bytes() for path in paths))) == expected
    keys = [each.key for each in expected if each.offset < log.segment_bases[-1]]
    assert len(keys) == len(set(keys))
