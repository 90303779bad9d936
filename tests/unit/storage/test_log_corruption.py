"""Damage at rest: refused by name and left alone, cut as a torn tail, or made good.

Records below the recovery point were whole once: any damage there stops the opening with file,
position and offset, and not one byte of the directory changes. A torn tail above it is cut, with
one warning. Everything that can be made anew from the batches is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import structlog

from kraftpy.clock import ManualClock
from kraftpy.errors import CorruptRecord
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import read_header
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import SimulatedFiles
from tests.unit.storage.log_driver import DIRECTORY, Driver
from tests.unit.storage.log_model import BASE_MS, Ledger, State, batch_of, check_equal

SEGMENT = SegmentConfig(segment_bytes=900, index_interval_bytes=100)
FAST = LogConfig(segment=SEGMENT)
THOROUGH = LogConfig(segment=SEGMENT, verify_all=True)
# Seldom in order: a time index that lies must show.
TIMES = [30, 10, 20, 50, 40, 45, 90, 60, 5, 70, 80, 85]


def closed_log(config: LogConfig = FAST) -> tuple[SimulatedFiles, Driver]:
    """Twelve batches of two records in three segments, four epochs, closed in order."""
    files = SimulatedFiles()
    run = Driver(files, config)
    run.open()
    for i, at_ms in enumerate(TIMES):
        batch = batch_of([BASE_MS + at_ms, BASE_MS + at_ms - 3], bytes(60))
        run.append([batch], epoch=1 + i // 3)
    assert run.log.segment_bases == (0, 8, 16)
    run.close()
    return files, run


@dataclass(frozen=True)
class Place:
    """A batch in a file."""

    path: str
    position: int
    offset: int
    size: int


def places(files: SimulatedFiles) -> list[Place]:
    """Every batch, as it stands in the files."""
    found = []
    for path, data in sorted(files.contents().items()):
        at = 0
        while path.endswith(".log") and at < len(data):
            header = read_header(data, at)
            found.append(Place(path, at, header.base_offset, header.size))
            at += header.size
    return found


def refused(files: SimulatedFiles, config: LogConfig = THOROUGH) -> CorruptRecord:
    """The error with which this log does not open; it has changed nothing."""
    before = files.contents()
    with pytest.raises(CorruptRecord) as caught:
        Log.open(files, DIRECTORY, config, ManualClock())
    assert files.contents() == before
    for named in (caught.value.path, caught.value.position, caught.value.offset):
        assert str(named) in str(caught.value)
    return caught.value


def assert_names(error: CorruptRecord, place: Place) -> None:
    assert (error.path, error.position, error.offset) == (place.path, place.position, place.offset)


# -- records --------------------------------------------------------------------------------

# Byte positions in a batch; the leader epoch (12 to 15) has tests of its own.
REGIONS = {
    "base offset, high": 0,
    "base offset, low": 7,
    "length, high": 8,
    "length, low": 11,
    "magic": 16,
    "crc": 17,
    "attributes": 22,
    "last offset delta": 26,
    "base timestamp": 34,
    "max timestamp": 42,
    "producer id": 50,
    "producer epoch": 52,
    "base sequence": 56,
    "record count": 60,
    "first byte of the records": 61,
    "last byte": -1,
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_a_flipped_bit_in_a_synced_batch_is_refused_by_name(region: str, mask: int) -> None:
    """In every batch: the first, the middle and the last of full segments and of the active one."""
    files, _ = closed_log()
    for place in places(files):
        damaged = files.clone()
        at = place.position + REGIONS[region] % place.size
        damaged.corrupt(place.path, at, mask)
        assert_names(refused(damaged), place)
        # The machine restarted meanwhile: that is no excuse either.
        assert_names(refused(damaged.power_loss()), place)


def test_the_last_batch_is_checked_at_every_opening() -> None:
    files, _ = closed_log()
    place = places(files)[-1]
    files.corrupt(place.path, place.position + 70, 0x10)
    assert_names(refused(files, FAST), place)


def test_damage_in_a_full_segment_is_found_when_it_is_read() -> None:
    files, run = closed_log()
    place = places(files)[1]
    files.corrupt(place.path, place.position + 70, 0x10)
    log = Log.open(files, DIRECTORY, FAST, run.clock)  # Nobody scans it at an orderly start.
    with pytest.raises(CorruptRecord) as caught:
        list(log.batches(0))
    assert_names(caught.value, place)


def test_an_epoch_that_goes_back_is_refused() -> None:
    files, _ = closed_log()
    place = places(files)[4]
    files.corrupt(place.path, place.position + 15, 0x02)  # 2 becomes 0.
    assert_names(refused(files), place)


def test_an_epoch_that_leaps_ahead_is_refused_at_the_next_batch() -> None:
    """No checksum covers the epoch: only what follows shows that it cannot be."""
    files, _ = closed_log()
    here, following = places(files)[4:6]
    files.corrupt(here.path, here.position + 15, 0x08)
    assert_names(refused(files), following)


@pytest.mark.parametrize("cut", [1, 50, 150])
def test_a_synced_tail_that_is_missing_is_refused(cut: int) -> None:
    files, _ = closed_log()
    place = places(files)[-1]
    files.open(place.path).truncate(place.position + place.size - cut)
    for config in (FAST, THOROUGH):
        assert_names(refused(files, config), place)


def test_a_synced_tail_that_is_missing_at_a_boundary_is_refused() -> None:
    files, _ = closed_log()
    place = places(files)[-1]
    files.open(place.path).truncate(place.position)
    for config in (FAST, THOROUGH):
        assert_names(refused(files, config), place)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("config", [FAST, THOROUGH], ids=["fast", "thorough"])
def test_a_missing_segment_is_refused(at: int, config: LogConfig) -> None:
    files, _ = closed_log()
    paths = sorted(path for path in files.contents() if path.endswith(".log"))
    files.remove(paths[at])
    error = refused(files, config)
    assert error.offset == (0, 8, 16)[at]
    assert error.path == (paths[1], paths[2], paths[1])[at]


# -- torn tails -----------------------------------------------------------------------------


def unsynced_log() -> tuple[SimulatedFiles, Driver, list[Place]]:
    """The closed log, opened again and appended to without a flush; the new batches."""
    files, run = closed_log()
    known = len(places(files))
    run.open()
    for i in range(3):
        run.append([batch_of([BASE_MS + i], bytes(40))], epoch=9)
    return files.process_crash(), run, places(files)[known:]


def cut_state(run: Driver, offset: int) -> State:
    return run.ledger.state.cut_at(offset)


@pytest.mark.parametrize("left", [1, 60, 61, 100])
def test_a_torn_tail_is_cut_with_one_warning(left: int) -> None:
    files, run, tail = unsynced_log()
    torn = tail[-1]
    files.open(torn.path).truncate(torn.position + left)
    with structlog.testing.capture_logs() as events:
        log = Log.open(files, DIRECTORY, FAST, run.clock)
    (event,) = events
    assert (event["event"], event["log_level"]) == ("torn_tail_cut", "warning")
    assert (event["file"], event["position"], event["offset"], event["bytes"]) == (
        torn.path,
        torn.position,
        torn.offset,
        left,
    )
    check_equal(log, cut_state(run, torn.offset))
    log.close()
    with structlog.testing.capture_logs() as events:
        check_equal(Log.open(files, DIRECTORY, FAST, run.clock), cut_state(run, torn.offset))
    assert events == []


def test_a_whole_batch_behind_damage_makes_it_corruption() -> None:
    """A killed process leaves a prefix of what it wrote: this is no torn write."""
    files, _, tail = unsynced_log()
    files.corrupt(tail[1].path, tail[1].position + 70, 0x10)
    for config in (FAST, THOROUGH):
        assert_names(refused(files, config), tail[1])


def test_after_a_power_cut_the_log_ends_at_the_first_bad_batch() -> None:
    """A disk may keep any part of what was not synced: nobody was promised the rest."""
    files, run, tail = unsynced_log()
    survivor = files.power_loss([1] * len(files.choices()))
    survivor.corrupt(tail[1].path, tail[1].position + 70, 0x10)
    with structlog.testing.capture_logs() as events:
        log = Log.open(survivor, DIRECTORY, FAST, run.clock)
    assert [event["event"] for event in events] == ["torn_tail_cut"]
    check_equal(log, cut_state(run, tail[1].offset))


# -- the state ------------------------------------------------------------------------------


def test_without_its_state_a_log_begins_with_its_first_segment() -> None:
    files, run = closed_log()
    files.remove(f"{DIRECTORY}/log-state")
    for config in (FAST, THOROUGH):
        check_equal(Log.open(files.clone(), DIRECTORY, config, run.clock), run.ledger.state)


@pytest.mark.parametrize("slot", [0, 512])
def test_one_slot_of_the_state_is_enough(slot: int) -> None:
    files, run = closed_log()
    run.open()
    run.move_start_offset(5)
    run.close()
    files.open(f"{DIRECTORY}/log-state").write(slot, [b"\xa5" * 41])
    check_equal(Log.open(files, DIRECTORY, FAST, run.clock), run.ledger.state)


@pytest.mark.parametrize("content", [b"", b"x", bytes(1024), b"\xff" * 1024])
def test_a_state_of_garbage_is_no_state(content: bytes) -> None:
    files, run = closed_log()
    files.replace(f"{DIRECTORY}/log-state", content)
    log = Log.open(files, DIRECTORY, FAST, run.clock)
    check_equal(log, run.ledger.state)
    log.move_start_offset(3)
    log.close()
    check_equal(Log.open(files, DIRECTORY, FAST, run.clock), run.ledger.state.with_start(3))


# -- indexes and epochs ---------------------------------------------------------------------

HARM: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda data: data[:0],
    "garbage": lambda data: b"\xa5" * len(data),
    "zeros behind": lambda data: data + bytes(96),
    "a byte too few": lambda data: data[:-1],
    "an entry too few": lambda data: data[: -(8 if len(data) % 12 else 12)],
    "backwards": lambda data: data[::-1],
    "twice": lambda data: data * 2,
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("config", [FAST, THOROUGH], ids=["fast", "thorough"])
def test_what_can_be_made_anew_is(harm: str, suffix: str, config: LogConfig) -> None:
    files, run = closed_log(config)
    pristine = run.files_in_directory()
    for path, data in files.contents().items():
        change = HARM[harm]
        if not path.endswith(suffix) or (suffix.startswith("leader") and harm == "twice"):
            continue
        if change is None:
            files.remove(path)
        else:
            files.replace(path, change(data))
    run.open()
    check_equal(run.log, run.ledger.state)
    run.close()
    after = run.files_in_directory()
    assert {name for name in pristine if after[name] != pristine[name]} <= {"log-state"}
    assert after.keys() == pristine.keys()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("mask", [0x01, 0x08, 0x80])
def test_a_wrong_entry_never_makes_a_lookup_wrong(suffix: str, mask: int) -> None:
    """Any byte of any entry, in full segments and the active one."""
    files, run = closed_log()
    for path, data in files.contents().items():
        if not path.endswith(suffix):
            continue
        for at in range(len(data)):
            damaged = files.clone()
            damaged.corrupt(path, at, mask)
            check_equal(Log.open(damaged, DIRECTORY, FAST, run.clock), run.ledger.state)


def test_the_indexes_of_another_segment_are_not_believed() -> None:
    files, run = closed_log()
    contents = files.contents()
    for suffix in (".index", ".timeindex"):
        stems = [path.removesuffix(".log") for path in contents if path.endswith(".log")]
        for stem, other in zip(stems, stems[1:] + stems[:1], strict=True):
            files.replace(stem + suffix, contents[other + suffix])
    check_equal(Log.open(files, DIRECTORY, FAST, run.clock), run.ledger.state)


def test_stale_indexes_are_completed() -> None:
    """Those of a moment ago, when the active segment had one batch."""
    files = SimulatedFiles()
    run = Driver(files, FAST)
    run.open()
    run.append([batch_of([BASE_MS + 50], bytes(60))], epoch=1)
    run.close()
    old = {path: data for path, data in files.contents().items() if path.endswith("index")}
    run.open()
    for at_ms in (10, 90, 20):
        run.append([batch_of([BASE_MS + at_ms], bytes(60))], epoch=1)
    run.close()
    for path, data in old.items():
        files.replace(path, data)
    run.open()
    check_equal(run.log, run.ledger.state)


def test_an_active_segment_does_not_go_on_from_a_time_index_that_lost_its_end() -> None:
    """New entries repeat the largest timestamp so far: it must be the largest."""
    files = SimulatedFiles()
    run = Driver(files, FAST)
    run.open()
    for at_ms in (10, 30, 90, 20):
        run.append([batch_of([BASE_MS + at_ms], bytes(60))], epoch=1)
    run.close()
    path = f"{DIRECTORY}/{0:020d}.timeindex"
    assert len(files.contents()[path]) == 24
    for left in (0, 12):
        disk = files.clone()
        disk.replace(path, files.contents()[path][:left])
        again = Driver(disk, FAST, ledger=Ledger(run.ledger.state))
        again.open()
        again.append([batch_of([BASE_MS + 60], bytes(60))], epoch=1)
        again.close()
        again.open()
        check_equal(again.log, again.ledger.state)


def test_retention_does_not_believe_a_time_index_that_lost_its_end() -> None:
    files, run = closed_log()
    for path, data in files.contents().items():
        if path.endswith("00000000000000000000.timeindex"):
            files.replace(path, data[:12])  # The youngest record, at 50 ms, is not in it.
    config = LogConfig(segment=SEGMENT, retention_ms=1_000)
    log = Log.open(files, DIRECTORY, config, run.clock)
    run.clock.advance(1_050)
    assert log.delete_old_segments() == 0
    run.clock.advance(1)
    assert log.delete_old_segments() == 1


# -- a directory that Kafka wrote -----------------------------------------------------------


def kafka_directory(*, clean: bool) -> tuple[SimulatedFiles, Driver]:
    """No log-state; after a crash, indexes at their full length, as Kafka maps them."""
    files, run = closed_log()
    files.remove(f"{DIRECTORY}/log-state")
    files.replace(f"{DIRECTORY}/partition.metadata", b"version: 0\ntopic_id: AAAA\n")
    files.replace(f"{DIRECTORY}/00000000000000000016.snapshot", b"producers")
    files.replace(f"{DIRECTORY}/00000000000000000000.log.deleted", b"old")
    if not clean:
        for path, data in files.contents().items():
            if path.endswith("index"):
                files.replace(path, data + bytes(1024))
    return files, run


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_kafka_wrote_opens(clean: bool) -> None:
    files, run = kafka_directory(clean=clean)
    log = Log.open(files, DIRECTORY, FAST, run.clock)
    check_equal(log, run.ledger.state)
    names = files.names(DIRECTORY)
    assert "partition.metadata" in names
    assert "00000000000000000016.snapshot" in names
    assert "00000000000000000000.log.deleted" not in names
    log.close()
    check_equal(Log.open(files, DIRECTORY, FAST, run.clock), run.ledger.state)


def test_the_torn_tail_that_kafka_left_is_cut() -> None:
    files, run = kafka_directory(clean=False)
    torn = places(files)[-1]
    files.open(torn.path).truncate(torn.position + 80)
    with structlog.testing.capture_logs() as events:
        log = Log.open(files, DIRECTORY, FAST, run.clock)
    assert [event["event"] for event in events] == ["torn_tail_cut"]
    check_equal(log, cut_state(run, torn.offset))


def test_damage_that_kafka_left_is_refused() -> None:
    files, _ = kafka_directory(clean=False)
    place = places(files)[5]
    files.corrupt(place.path, place.position + 70, 0x10)
    assert_names(refused(files), place)
