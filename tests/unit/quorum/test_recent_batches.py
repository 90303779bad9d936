"""The end of the log in memory gives what the log gives, or nothing."""

import random
import threading

from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.records import NoOpRecord
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.recent_batches import RecentBatches
from kraftpy.storage.record_batch import read_header


def batch(base_offset: int, epoch: int, count: int = 1) -> CommittedBatch:
    data = bytes(
        record_batch(
            [NoOpRecord()] * count, base_offset=base_offset, epoch=epoch, timestamp_ms=base_offset
        )
    )
    return CommittedBatch(read_header(data), data)


def log_of(rng: random.Random, start: int, count: int) -> list[CommittedBatch]:
    found: list[CommittedBatch] = []
    offset, epoch = start, 1
    for _ in range(count):
        epoch += rng.random() < 0.2
        found.append(batch(offset, epoch, rng.randrange(1, 4)))
        offset = found[-1].header.end_offset
    return found


def expected(log: list[CommittedBatch], offset: int, upto: int, bytes_max: int) -> bytes:
    found = [b for b in log if b.header.end_offset > offset and b.header.base_offset < upto]
    data = b""
    for each in found:
        if data and len(data) + len(each.data) > bytes_max:
            break
        data += each.data
    return data


def test_what_is_in_memory_is_what_the_log_has() -> None:
    rng = random.Random(4)
    for _ in range(50):
        log = log_of(rng, rng.randrange(100), rng.randrange(1, 40))
        recent = RecentBatches(bytes_max=rng.choice([1, 500, 2000, 1 << 20]))
        at = 0
        while at < len(log):
            step = rng.randrange(1, 5)
            recent.add(log[at : at + step])
            at += step
        start, end = log[0].header.base_offset, log[-1].header.end_offset
        ends = [each.header.end_offset for each in log]
        for _ in range(100):
            offset, upto = rng.randrange(start, end + 3), rng.choice(ends)
            bytes_max = rng.choice([0, 100, 400, 1 << 20])
            found = recent.read(offset, upto, -1, bytes_max)
            if found is not None:
                assert offset <= upto
                assert found == expected(log, offset, upto, bytes_max)
        assert recent.read(end, end, -1, 0) == b""
        assert recent.read(log[-1].header.base_offset, end, -1, 0) == log[-1].data


def test_a_replica_is_answered_from_memory_only_if_its_last_record_is_known() -> None:
    recent = RecentBatches()
    recent.add([batch(10, 3, 2), batch(12, 4), batch(13, 4)])
    assert recent.read(12, 14, 3, 0) == batch(12, 4).data
    assert recent.read(13, 14, 4, 0) == batch(13, 4).data
    assert recent.read(14, 14, 4, 0) == b""
    for offset, epoch in ((12, 4), (12, 2), (13, 3), (14, 3), (14, 5), (10, 3), (11, 3)):
        assert recent.read(offset, 14, epoch, 0) is None


def test_a_gap_or_a_snapshot_begins_anew() -> None:
    recent = RecentBatches()
    recent.add([batch(0, 1), batch(1, 1)])
    recent.add([batch(5, 1)])
    assert recent.read(1, 6, -1, 0) is None
    assert recent.read(5, 6, -1, 0) == batch(5, 1).data
    recent.clear()
    assert recent.read(5, 6, -1, 0) is None


def test_a_reader_beside_the_writer_sees_whole_batches_only() -> None:
    log = log_of(random.Random(1), 0, 3000)
    recent = RecentBatches(bytes_max=5000)

    def write() -> None:
        for each in log:
            recent.add([each])

    writer = threading.Thread(target=write)
    writer.start()
    by_base = {each.header.base_offset: each.data for each in log}
    end = log[-1].header.end_offset
    seen = 0
    while writer.is_alive() or not seen:
        for base_offset in by_base:
            found = recent.read(base_offset, end, -1, 300) or b""
            while found:
                header = read_header(found)
                assert found[: header.size] == by_base[header.base_offset]
                found = found[header.size :]
                seen += 1
    writer.join()
