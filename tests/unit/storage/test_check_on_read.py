"""Bits rot in what was synced: a reader gets what was written, or is told; never anything else.

Logs are opened fast here, as a broker does after an orderly stop: nobody scans old batches then.
"""

import pytest

from kraftpy.clock import ManualClock
from kraftpy.errors import CorruptRecord
from kraftpy.storage.log import Log
from kraftpy.storage.unchecked import Unchecked
from kraftpy.testing import SimulatedFiles
from tests.unit.storage.log_driver import DIRECTORY
from tests.unit.storage.log_model import BASE_MS
from tests.unit.storage.test_log_corruption import FAST, TIMES, closed_log, places

END = 24
SMALL, LARGE = 1, 10_000
REFUSED = b"refused"


def reads(log: Log, bytes_max: int) -> list[bytes]:
    """What a reader of each offset gets; CorruptRecord if one of them is refused."""
    return [log.read(offset, bytes_max).read() for offset in range(END)]


def read(log: Log, offset: int, bytes_max: int) -> bytes:
    try:
        return log.read(offset, bytes_max).read()
    except CorruptRecord:
        return REFUSED


def opened(files: SimulatedFiles) -> Log:
    return Log.open(files, DIRECTORY, FAST, ManualClock())


@pytest.mark.parametrize("bytes_max", [SMALL, LARGE], ids=["batch by batch", "whole segments"])
def test_no_reader_is_given_rotten_records(bytes_max: int) -> None:
    """Every byte of every batch, one bit each; but for the epoch of the very last one, which no
    checksum covers and nothing follows."""
    files, _ = closed_log()
    last = places(files)[-1]
    exempt = range(last.position + 12, last.position + 16)
    whole = reads(opened(files.clone()), bytes_max)
    examined = detected = 0
    for path, data in files.contents().items():
        if not path.endswith(".log"):
            continue
        for at in range(len(data)):
            if path == last.path and at in exempt:
                continue
            damaged = files.clone()
            damaged.corrupt(path, at, 1 << at % 8)
            examined += 1
            try:
                log = opened(damaged)
            except CorruptRecord:
                detected += 1
                continue
            given = [read(log, offset, bytes_max) for offset in range(END)]
            assert all(a in (b, REFUSED) for a, b in zip(given, whole, strict=True)), (path, at)
            detected += REFUSED in given
    assert examined == detected > 1000


def test_what_is_far_from_the_damage_can_be_read() -> None:
    files, _ = closed_log()
    whole = reads(opened(files.clone()), SMALL)
    path = sorted(path for path in files.contents() if path.endswith(".log"))[0]
    files.corrupt(path, 70, 1)
    log = opened(files)
    with pytest.raises(CorruptRecord):
        log.read(0, SMALL)
    assert log.read(10, SMALL).read() == whole[10]
    assert log.read(23, SMALL).read() == whole[23]


def test_a_batch_is_looked_at_once() -> None:
    files, _ = closed_log()
    log = opened(files)
    before = reads(log, SMALL)
    for path in files.contents():
        if path.endswith(".log"):
            files.corrupt(path, 70, 1)  # In the records of its first batch.
    after = reads(log, SMALL)
    assert [a == b for a, b in zip(after, before, strict=True)].count(False) == 6


def by_time(log: Log, at_ms: int) -> tuple[int, int] | str | None:
    try:
        return log.offset_for_timestamp(at_ms)
    except CorruptRecord:
        return "refused"


def test_a_search_by_time_gives_no_rotten_record() -> None:
    files, _ = closed_log()
    wanted = [BASE_MS + at_ms for at_ms in TIMES]
    good = [opened(files.clone()).offset_for_timestamp(at_ms) for at_ms in wanted]
    path = sorted(path for path in files.contents() if path.endswith(".log"))[0]
    for at in range(61, len(files.contents()[path]), 7):
        damaged = files.clone()
        damaged.corrupt(path, at, 1)
        try:
            log = opened(damaged)
        except CorruptRecord:
            continue
        found = [by_time(log, at_ms) for at_ms in wanted]
        assert all(a in (b, "refused") for a, b in zip(found, good, strict=True)), at


def test_ranges_shrink_as_they_are_checked() -> None:
    unchecked = Unchecked(100)
    assert unchecked.within(90, 200) == [(90, 100)]
    unchecked.checked(20, 30)
    assert unchecked.within(0, 50) == [(0, 20), (30, 50)]
    unchecked.checked(0, 25)
    assert unchecked.within(0, 100) == [(30, 100)]
    unchecked.cut(40)
    unchecked.checked(30, 40)
    assert not unchecked
    assert not Unchecked(0)


def test_readers_that_jump_about_cost_no_memory_without_bound() -> None:
    unchecked = Unchecked(100_000)
    for at in range(0, 100_000, 10):
        unchecked.checked(at, at + 5)
    assert len(unchecked.within(0, 100_000)) <= 256
    assert unchecked.within(99_990, 100_000)
