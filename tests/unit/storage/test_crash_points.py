"""Whatever moment a log is stopped at, what it promised is there and what it cut stays away.

Method: a script runs once to count its effects on the disk, then once for each of them with the
machine dying just there. What is left is judged twice: after a kill of the process (a write may be
torn at any byte) and after a power cut, for every legal fate of what was not synced, up to a limit.
Each of these disks is opened, compared with the ledger by every way of reading, appended to and
restarted; for a sample of them, the machine dies again at every effect of the recovery.

CRASH_LIMIT is how many outcomes of each power cut are tried: a thousand takes minutes.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import structlog

from kraftpy.storage import log_state
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.index import OffsetIndex, TimeIndex
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.raw_records import read_raw_records, rebuild
from kraftpy.storage.record_batch import BatchHeader
from kraftpy.storage.recovery import Recovery
from kraftpy.storage.replacement import SWAP_SUFFIX, CleanedSegment
from kraftpy.storage.segment import Segment
from kraftpy.testing import PowerLoss, SimulatedFiles
from kraftpy.testing.simulated_files import SimulatedFile
from tests.unit.storage.log_driver import ALWAYS, LAZY, Driver, check_after_crash
from tests.unit.storage.log_model import BASE_MS, OracleViolation, batch_of, place_all

OUTCOMES_MAX = int(os.environ.get("CRASH_LIMIT", "8"))
OUTCOMES_IN_RECOVERY_MAX = max(2, OUTCOMES_MAX // 6)
# Every so many disks, the recovery is stopped as well.
RECOVERY_SAMPLE = 60

Script = Callable[[Driver], None]
Plant = Callable[[pytest.MonkeyPatch], None]


def batches(count: int, at_ms: int, size: int = 60) -> list[bytearray]:
    """Batches of two records each, the later one younger."""
    return [batch_of([at_ms + i, at_ms + i + 5], bytes(size)) for i in range(count)]


def appends_and_truncations(run: Driver) -> None:
    run.open()
    run.append(batches(1, BASE_MS + 900), epoch=1)  # Younger than all that follows.
    run.append(batches(2, BASE_MS + 10), batches(3, BASE_MS + 20), epoch=1)  # Rolls on the way.
    run.flush()
    run.append(batches(2, BASE_MS + 5), epoch=2)  # Older than what is there.
    run.append(batches(2, BASE_MS + 40, size=700), epoch=3)  # A segment each.
    run.truncate_to(run.end_offset - 3)
    run.append(batches(1, BASE_MS + 50), epoch=4)
    run.flush()
    run.append(batches(3, BASE_MS + 60), epoch=4)
    run.truncate_to(5)  # Inside a batch, and behind the mark.
    run.append(batches(1, BASE_MS + 70), epoch=5)
    run.close()


def retention_and_restarts(run: Driver) -> None:
    run.open()
    for i in range(4):
        run.append(batches(2, BASE_MS + i * 10), epoch=1 + i // 2)
    run.flush()
    run.move_start_offset(7)
    run.append(batches(2, BASE_MS + 50), epoch=3)
    assert run.delete_old_segments() == 1
    run.truncate_to(8)  # The start is inside the batch that goes.
    run.append_replicated(place_all(batches(3, BASE_MS + 60), run.end_offset, 4))
    run.close()
    run.open()
    run.append(batches(2, BASE_MS + 80), epoch=5)
    run.clock.advance(2 * 3_600_000)
    assert run.delete_old_segments() == 2  # All expired: the active one is rolled.
    run.append(batches(1, BASE_MS + 7_200_000), epoch=6)
    run.start_anew_at(40)
    run.append(batches(1, BASE_MS + 7_200_010), epoch=7)
    run.flush()
    run.start_anew_at(20)
    run.append(batches(1, BASE_MS + 7_200_020), epoch=8)
    run.close()


def rewritten_history(run: Driver) -> None:
    """New batches, of the same sizes and nearly the same timestamps, stand where old ones did: an
    index entry of the old ones looks true and is not."""
    run.open()
    for at_ms in (0, 5, 7):
        run.append(batches(1, BASE_MS + at_ms), epoch=1)
    run.close()
    run.open()
    run.truncate_to(2)
    for at_ms in (9, 7):
        run.append(batches(1, BASE_MS + at_ms), epoch=2)
    run.flush()
    run.append(batches(1, BASE_MS + 8), epoch=2)  # Rolls.
    run.flush()
    run.append(batches(1, BASE_MS + 8), epoch=2)
    run.close()


def new_starts(run: Driver) -> None:
    """Short enough that every recovery can be stopped at every effect as well."""
    run.open()
    run.append(batches(1, BASE_MS), epoch=1)
    run.start_anew_at(40)
    run.start_anew_at(20)
    run.close()


def thin_out(header: BatchHeader, data: bytes) -> bytes | None:
    """Every other batch is left, some of them with one record or none. Those that begin an epoch
    stay whole: where an epoch began is remembered, but could not be seen in the batches."""
    if header.base_offset in (0, 10):
        return data
    match header.base_offset % 8:
        case 0:
            return rebuild(header, read_raw_records(data, header)[1:])
        case 2:
            return rebuild(header, [])
        case 4:
            return data
        case _:
            return None


def compactions(run: Driver) -> None:
    run.config = replace(run.config, of_topic=True)
    run.open()
    run.append(batches(5, BASE_MS + 10), epoch=1)
    run.append(batches(7, BASE_MS + 20), epoch=2)
    run.flush()
    run.compact(0, 1, thin_out)
    run.compact(1, 2, thin_out)
    run.append(batches(5, BASE_MS + 5), epoch=2)
    run.truncate_to(15)  # In a gap.
    later = place_all(batches(2, BASE_MS + 30), run.end_offset + 6, 2)
    run.append_replicated([*later, *place_all(batches(5, BASE_MS + 40), later[-1].end_offset, 2)])
    run.flush()
    run.compact(0, len(run.log.sealed_segments()), thin_out)
    run.close()
    run.open()
    run.move_start_offset(5)
    run.compact(0, 1, thin_out)
    run.append(batches(3, BASE_MS + 50), epoch=2)
    assert run.delete_old_segments(upto=run.end_offset) == 0
    run.close()


SCRIPTS: dict[str, Script] = {
    "compactions": compactions,
    "appends_and_truncations": appends_and_truncations,
    "retention_and_restarts": retention_and_restarts,
    "rewritten_history": rewritten_history,
}
POLICIES = {"always": ALWAYS, "lazy": LAZY}


def effects_of(script: Script, config: LogConfig) -> list[tuple[str, str]]:
    files = SimulatedFiles()
    script(Driver(files, config))
    return files.boundaries


@dataclass
class Crashed:
    """A machine that is down, and what was asked of it."""

    files: SimulatedFiles
    run: Driver


@dataclass
class Exploration:
    """Stops a script everywhere and checks what is left."""

    script: Script
    config: LogConfig
    outcomes_max: int = OUTCOMES_MAX
    recovery_sample: int = RECOVERY_SAMPLE
    points: int = 0
    disks: int = 0
    recoveries: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    def run(self) -> None:
        for point, (kind, _) in enumerate(effects_of(self.script, self.config), start=1):
            self.points += 1
            for torn_bytes in (0, 1, 37, 80) if kind == "write" else (0,):
                crashed = self._stopped_at(point, torn_bytes)
                self._check(crashed, crashed.files.process_crash(), same_boot=True)
                for disk in self._power_cuts(crashed.files, point):
                    self._check(crashed, disk, same_boot=False)

    def _power_cuts(self, files: SimulatedFiles, seed: int) -> Iterator[SimulatedFiles]:
        """The typical outcomes, and some that are like no other."""
        yield from files.outcomes(self.outcomes_max)
        rng = random.Random(seed)
        for _ in range(self.outcomes_max // 2):
            yield files.random_outcome(rng)

    def _stopped_at(self, point: int, torn_bytes: int) -> Crashed:
        files = SimulatedFiles(crash_at=point, torn_bytes=torn_bytes)
        run = Driver(files, self.config)
        with pytest.raises(PowerLoss):
            self.script(run)
        return Crashed(files, run)

    def _check(self, crashed: Crashed, disk: SimulatedFiles, *, same_boot: bool) -> None:
        key = (disk.digest(), same_boot, *crashed.run.ledger.candidates())
        if key in self._seen:
            return
        self._seen.add(key)
        self.disks += 1
        if self.recovery_sample and self.disks % self.recovery_sample == 0:
            for again in self._stopped_recoveries(disk, crashed.run.config):
                self.recoveries += 1
                check_after_crash(again, crashed.run.ledger, crashed.run.config)
        check_after_crash(disk, crashed.run.ledger, crashed.run.config)

    def _stopped_recoveries(
        self, disk: SimulatedFiles, config: LogConfig
    ) -> Iterator[SimulatedFiles]:
        """What is left of the disk when the machine dies again while it is being repaired."""
        trial = disk.clone()
        run = Driver(trial, config)
        run.open()
        for point in range(1, len(trial.boundaries) + 1):
            files = disk.clone()
            files.crash_at = point
            with pytest.raises(PowerLoss):
                Driver(files, config).open()
            yield files.process_crash()
            yield from files.outcomes(OUTCOMES_IN_RECOVERY_MAX)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every torn tail is logged, and there are thousands here."""
    with structlog.testing.capture_logs():
        yield


@pytest.mark.parametrize("policy", POLICIES)
def test_a_recovery_stopped_anywhere_is_done_again(policy: str) -> None:
    exploration = Exploration(new_starts, POLICIES[policy], recovery_sample=1)
    exploration.run()
    assert exploration.recoveries > exploration.disks > exploration.points


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_log_stopped_anywhere_keeps_its_promises(
    script: str, policy: str, record_property: Callable[[str, object], None]
) -> None:
    exploration = Exploration(SCRIPTS[script], POLICIES[policy])
    exploration.run()
    record_property("crash_points", exploration.points)
    record_property("disks", exploration.disks)
    record_property("recoveries", exploration.recoveries)
    assert exploration.points > 50
    assert exploration.disks > exploration.points
    assert exploration.recoveries > 0


# -- planted bugs: each must be caught, or the checks above are not worth their time ------------


def sync_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(segment: Segment) -> None:
        segment.dirty = False

    monkeypatch.setattr(Segment, "sync", sync)


def leave_torn_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_cut_tail", lambda *_: None)


def roll_without_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Log._roll

    def roll(log: Log, base_offset: int) -> None:
        names_changed = log._names_changed
        real(log, base_offset)
        log._names_changed = names_changed

    monkeypatch.setattr(Log, "_roll", roll)


def truncate_without_lowering_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Log._set_mark

    def set_mark(log: Log, offset: int, position: int, *, sync: bool) -> None:
        if offset < log._mark.offset:
            log._mark = log._mark._replace(offset=offset, position=position)
        else:
            real(log, offset, position, sync=sync)

    monkeypatch.setattr(Log, "_set_mark", set_mark)


def remove_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_segments_after(log: Log, last: Segment) -> None:
        keep = log._segments.index(last) + 1
        removed, log._segments = log._segments[keep:], log._segments[:keep]
        del log._bases[keep:]
        for segment in removed:
            segment.remove()
        log._files.sync_directory(log.directory)

    monkeypatch.setattr(Log, "_remove_segments_after", remove_segments_after)


def mark_ahead_of_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Log.flush

    def flush(log: Log) -> None:
        if log._end.offset > log._mark.offset:
            log._state.write(log.start_offset, log._end.offset, log._end.position, sync=True)
        real(log)

    monkeypatch.setattr(Log, "flush", flush)


def one_slot_for_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_state, "_SLOT_BYTES", 0)


def delete_before_the_start_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Log.delete_old_segments

    def delete_old_segments(log: Log, *, upto: int | None = None) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(Log, "_set_mark", lambda *_, **__: None)
            count = real(log, upto=upto)
        log._set_mark(*log._mark, sync=True)
        return count

    monkeypatch.setattr(Log, "delete_old_segments", delete_old_segments)


def truncate_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Segment.cut

    def cut(segment: Segment, position: int, end_offset: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedFile, "sync", lambda _: None)
            real(segment, position, end_offset)

    monkeypatch.setattr(Segment, "cut", cut)


def orderly_stop_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that a killed process did not sync is shown, and a power cut takes it back."""
    monkeypatch.setattr(log_state.LogStateFile, "sync", lambda _: None)


def truncation_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a truncation: opening does not sync what a killed process may have cut."""
    real = Recovery._repair_indexes

    def repair_indexes(recovery: Recovery) -> None:
        if recovery._is_clean():
            recovery.segments[-1].dirty = False
        real(recovery)

    monkeypatch.setattr(Recovery, "_repair_indexes", repair_indexes)


def indexes_unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    for index in (OffsetIndex, TimeIndex):
        monkeypatch.setattr(index, "sync", lambda _: None)


def indexes_believed_after_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_is_index_doubtful", lambda _: False)


def cleaned_segments_unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(cleaned: CleanedSegment) -> None:
        cleaned._write()
        cleaned.segment.seal()
        cleaned.segment.dirty = False

    monkeypatch.setattr(CleanedSegment, "finish", finish)


def sources_removed_before_the_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap_in(cleaned: CleanedSegment, files: FileLayer, directory: str) -> None:
        for source in reversed(cleaned.sources[1:]):
            source.segment.remove()
        cleaned.segment.rename(SWAP_SUFFIX)
        cleaned.segment.rename("")
        files.sync_directory(directory)

    monkeypatch.setattr(CleanedSegment, "swap_in", swap_in)


def swapped_in_under_its_final_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap_in(cleaned: CleanedSegment, files: FileLayer, directory: str) -> None:
        cleaned.segment.rename("")
        for source in reversed(cleaned.sources[1:]):
            source.segment.remove()
        files.sync_directory(directory)

    monkeypatch.setattr(CleanedSegment, "swap_in", swap_in)


def swaps_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftpy.storage.log.finish_swaps", lambda *_: None)


def swaps_unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap_in(cleaned: CleanedSegment, files: FileLayer, directory: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedFiles, "sync_directory", lambda *_: None)
            real(cleaned, files, directory)

    real = CleanedSegment.swap_in
    monkeypatch.setattr(CleanedSegment, "swap_in", swap_in)


def index_entries_outlive_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for index in (OffsetIndex, TimeIndex):
        monkeypatch.setattr(index, "drop_stale", lambda _: None)


# Where each is caught soonest: a script, how often the log is flushed, outcomes of each power cut.
BUGS: dict[Plant, tuple[Script, LogConfig, int]] = {
    sync_nothing: (appends_and_truncations, ALWAYS, 4),
    leave_torn_tail: (appends_and_truncations, LAZY, 4),
    roll_without_directory_sync: (appends_and_truncations, ALWAYS, 4),
    truncate_without_lowering_the_mark: (appends_and_truncations, ALWAYS, 4),
    remove_oldest_first: (appends_and_truncations, ALWAYS, 4),
    mark_ahead_of_the_sync: (appends_and_truncations, LAZY, 4),
    one_slot_for_the_state: (retention_and_restarts, ALWAYS, 4),
    delete_before_the_start_moves: (retention_and_restarts, ALWAYS, 4),
    truncate_without_sync: (appends_and_truncations, ALWAYS, 4),
    orderly_stop_believed: (new_starts, ALWAYS, 4),
    truncation_believed: (rewritten_history, ALWAYS, 4),
    indexes_unsynced: (rewritten_history, ALWAYS, 50),
    indexes_believed_after_a_power_cut: (rewritten_history, ALWAYS, 50),
    index_entries_outlive_their_batches: (rewritten_history, LAZY, 4),
    cleaned_segments_unsynced: (compactions, LAZY, 4),
    sources_removed_before_the_swap: (compactions, LAZY, 4),
    swapped_in_under_its_final_name: (compactions, LAZY, 4),
    swaps_forgotten: (compactions, LAZY, 4),
    swaps_unsynced: (compactions, LAZY, 4),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    script, config, outcomes_max = BUGS[plant]
    plant(monkeypatch)
    sample = 1 if script is new_starts else 0
    exploration = Exploration(script, config, outcomes_max, recovery_sample=sample)
    with pytest.raises(OracleViolation):
        exploration.run()
