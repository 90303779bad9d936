"""A log does what a list of batches does, whatever is asked of it and however it is stopped.

Method: any sequence of appends, cuts, retention, restarts, kills and power cuts, on a disk in
memory, beside the plain model in tests/unit/storage. After each step the log shows exactly the
model's state, by every way of reading; after a crash, a state that the ledger allows. Segments are
so small that batches roll them by size, by age and by the size of their index.

PROPERTY_EXAMPLES is how many lives are tried.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kraftpy.storage.epochs import FILE_NAME as EPOCHS_FILE
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import BatchHeader, read_header
from kraftpy.storage.segment import SegmentConfig
from kraftpy.testing import PowerLoss, SimulatedFiles
from tests.unit.storage.log_driver import DIRECTORY, Driver, check_after_crash
from tests.unit.storage.log_model import (
    BASE_MS,
    Ledger,
    batch_of,
    check_equal,
    demand,
    place_all,
)

EXAMPLES_MAX = int(os.environ.get("PROPERTY_EXAMPLES", "200"))
STEPS_MAX = 30

# Seldom in order, sometimes far ahead: then the segment rolls by age.
TIMESTAMPS = st.integers(0, 300).map(lambda ms: BASE_MS + ms) | st.integers(0, 200_000).map(
    lambda ms: BASE_MS + ms
)
BATCHES = st.builds(
    batch_of,
    st.lists(TIMESTAMPS, min_size=1, max_size=3),
    st.sampled_from([b"", bytes(40), bytes(200), bytes(1200)]),
    st.sampled_from([0, 0, 0, 4]),
)
REQUESTS = st.lists(st.lists(BATCHES, min_size=1, max_size=3), min_size=1, max_size=3)
SEGMENTS = st.builds(
    SegmentConfig,
    segment_bytes=st.sampled_from([500, 900, 100_000]),
    segment_ms=st.sampled_from([1_000, 10**9]),
    index_interval_bytes=st.sampled_from([0, 150, 4096]),
    index_bytes_max=st.sampled_from([40, 10_000]),
)
CONFIGS = st.builds(
    LogConfig,
    segment=SEGMENTS,
    flush_interval_messages=st.sampled_from([None, 1, 5]),
    retention_bytes=st.sampled_from([None, 600]),
    retention_ms=st.sampled_from([None, 3_600_000]),
    verify_all=st.booleans(),
)
FRACTIONS = st.floats(0, 1)


@dataclass(frozen=True)
class Stop:
    """How the machine will go down: at which effect from now, and what is left of the rest."""

    effects: int
    torn_bytes: int
    power_seed: int | None  # None: only the process is killed.


STOPS = st.builds(
    Stop,
    effects=st.integers(1, 25),
    torn_bytes=st.integers(0, 300),
    power_seed=st.none() | st.integers(0, 2**32),
)


@dataclass(frozen=True)
class Damage:
    """Harm to a file that can be made anew: which one, by its suffix, where in it, and how."""

    suffix: str
    which: float
    place: float
    kind: str

    def strike(self, files: SimulatedFiles) -> None:
        paths = [path for path in files.contents() if path.endswith(self.suffix)]
        if not paths:
            return
        path = paths[round(self.which * (len(paths) - 1))]
        size = len(files.contents()[path])
        at = int(self.place * size)
        if self.kind == "remove":
            files.remove(path)
        elif self.kind == "cut":
            files.open(path).truncate(at)
        elif self.kind == "garbage":
            files.open(path).write(at, [b"\xa5" * 24])
        elif self.suffix != EPOCHS_FILE and size:
            # Text has no checksum: a digit of the checkpoint could change and still make sense.
            files.corrupt(path, min(at, size - 1), 1 << int(self.which * 7))


DAMAGES = st.builds(
    Damage,
    suffix=st.sampled_from([".index", ".timeindex", EPOCHS_FILE]),
    which=FRACTIONS,
    place=FRACTIONS,
    kind=st.sampled_from(["remove", "cut", "garbage", "flip", "flip"]),
)


class LogMachine(RuleBasedStateMachine):
    """One log over its life. `run` is the log with its ledger; it is open between the steps."""

    @initialize(config=CONFIGS, requests=st.lists(REQUESTS, max_size=5))
    def create(self, config: LogConfig, requests: list[list[list[bytearray]]]) -> None:
        self.files = SimulatedFiles()
        self.run = Driver(self.files, config)
        self.run.open()
        self.epoch = 0
        self.stop: Stop | None = None
        for each in requests:
            self.epoch += 1
            self.run.append(*each, epoch=self.epoch)

    # -- changes --------------------------------------------------------------------------

    @rule(requests=REQUESTS, epochs=st.integers(0, 2))
    def append(self, requests: list[list[bytearray]], epochs: int) -> None:
        self.epoch += epochs
        self._do(lambda: self.run.append(*requests, epoch=self.epoch))

    @rule(first=st.lists(BATCHES, max_size=2), second=st.lists(BATCHES, min_size=1, max_size=2))
    def append_replicated(self, first: list[bytearray], second: list[bytearray]) -> None:
        """The epoch changes in the middle of what a leader sends."""
        entries = place_all(first, self.run.end_offset, self.epoch)
        self.epoch += 1
        offset = entries[-1].end_offset if entries else self.run.end_offset
        entries += place_all(second, offset, self.epoch)
        self._do(lambda: self.run.append_replicated(entries))

    @rule()
    def flush(self) -> None:
        self._do(self.run.flush)

    @rule(place=FRACTIONS)
    def truncate_to(self, place: float) -> None:
        self._do(lambda: self.run.truncate_to(self._offset(place)))

    @rule(epoch=st.integers(-1, 12), place=FRACTIONS)
    def truncate_by_epoch(self, epoch: int, place: float) -> None:
        """As a follower does when its leader says where its own epoch ends."""
        state, leader_end = self.run.ledger.state, self._offset(place)
        own_epoch, own_end = state.end_offset_for(epoch)
        if own_epoch == -1:
            target = leader_end
        else:
            target = min(own_end, leader_end) if own_epoch == epoch else own_end

        def truncate() -> None:
            cut = self.run.ledger.truncating(target)
            log = self.run.log
            parted = log.epochs.divergence(epoch, leader_end, log.end_offset)
            found = log.truncate_to(max(parted, log.start_offset))
            demand(found == cut.end_offset, f"truncated to {found}, not to {cut.end_offset}")
            self.run.ledger.became(cut)

        self._do(truncate)

    @rule(place=FRACTIONS)
    def move_start_offset(self, place: float) -> None:
        self._do(lambda: self.run.move_start_offset(self._offset(place)))

    @rule(pass_ms=st.sampled_from([0, 0, 3_700_000]), place=st.none() | FRACTIONS)
    def delete_old_segments(self, pass_ms: int, place: float | None) -> None:
        self.run.clock.advance(pass_ms)
        upto = None if place is None else self._offset(place)
        expected = self._count_deletable(upto)

        def delete() -> None:
            count = self.run.delete_old_segments(upto)
            demand(count == expected, f"{count} segments went, not {expected}")

        self._do(delete)

    @rule(by=st.integers(-20, 20))
    def start_anew(self, by: int) -> None:
        self._do(lambda: self.run.start_anew_at(max(0, self.run.end_offset + by)))

    def _offset(self, place: float) -> int:
        state = self.run.ledger.state
        return state.start_offset + round(place * (state.end_offset - state.start_offset))

    def _count_deletable(self, upto: int | None) -> int:
        """How many segments retention must remove, worked out from the bytes of the files."""
        log, config, now_ms = self.run.log, self.run.config, self.run.clock.now_ms()
        ends = [*log.segment_bases[1:], log.end_offset]
        contents = [self._segment_bytes(base) for base in log.segment_bases]
        limit = log.end_offset if upto is None else upto
        for count, (data, end) in enumerate(zip(contents, ends, strict=True)):
            left = sum(len(each) for each in contents[count + 1 :])
            too_much = config.retention_bytes is not None and left >= config.retention_bytes
            times = [header.max_timestamp for header in headers_in(data)]
            too_old = config.retention_ms is not None and bool(times)
            too_old = too_old and now_ms - max(times) > (config.retention_ms or 0)
            may_go = too_much or too_old or end <= log.start_offset
            if end > limit or not data or not may_go:
                return count
        return len(ends)

    def _segment_bytes(self, base: int) -> bytes:
        return self.files.contents()[f"{DIRECTORY}/{base:020d}.log"]

    # -- stops ----------------------------------------------------------------------------

    @precondition(lambda self: self.stop is None)
    @rule(stop=STOPS)
    def plan_a_stop(self, stop: Stop) -> None:
        """The machine dies in one of the next steps, in the middle of what it does."""
        self.stop = stop
        self.files.crash_at = len(self.files.boundaries) + stop.effects
        self.files.torn_bytes = stop.torn_bytes

    def _do(self, change: Callable[[], object]) -> None:
        try:
            change()
        except PowerLoss:
            assert self.stop is not None
            self._restart_after(self.stop.power_seed)

    @rule(power_seed=st.none() | st.integers(0, 2**32))
    def stop_between_steps(self, power_seed: int | None) -> None:
        self._restart_after(power_seed)

    def _restart_after(self, power_seed: int | None) -> None:
        """What is left is what the ledger allows; then it is the new truth."""
        if power_seed is None:
            disk = self.files.process_crash()
        else:
            disk = self.files.random_outcome(random.Random(power_seed))
        # On a copy: it goes on working, and would be found again after yet another power cut.
        check_after_crash(disk.clone(), self.run.ledger, self.run.config)
        run = Driver(disk, self.run.config, clock=self.run.clock)
        run.open()
        run.ledger = Ledger(self.run.ledger.check(run.log))
        self.files, self.run, self.stop = disk, run, None

    @rule(damages=st.lists(DAMAGES, max_size=3))
    def restart_in_order(self, damages: list[Damage]) -> None:
        """Closed and opened, with indexes and epochs damaged in between: they are made anew."""

        def restart() -> None:
            self.run.close()
            for damage in damages:
                damage.strike(self.files)
            self.run.open()

        self._do(restart)

    # -- what holds -----------------------------------------------------------------------

    @invariant()
    def the_log_is_the_model(self) -> None:
        check_equal(self.run.log, self.run.ledger.state)
        demand(self.run.log.flushed_end_offset <= self.run.end_offset, "flushed the future")

    @rule(place=FRACTIONS, end=FRACTIONS, bytes_max=st.integers(0, 3_000), whole=st.booleans())
    def read(self, place: float, end: float, bytes_max: int, whole: bool) -> None:
        """Whole batches of one segment, before the end, as many as fit."""
        offset, end_offset = self._offset(place), self._offset(end)
        found = self.run.log.read(
            offset, bytes_max, end_offset=end_offset, first_batch_whole=whole
        ).read()
        later_bases = [base for base in self.run.log.segment_bases if base > offset]
        segment_end = min(later_bases, default=self.run.end_offset)
        due = b""
        for entry in self.run.ledger.state.visible:
            if entry.end_offset <= offset or entry.end_offset > min(end_offset, segment_end):
                continue
            if len(due) + len(entry.data) > bytes_max and not (whole and not due):
                break
            due += entry.data
        demand(found == due, f"{len(found)} bytes from {offset}, not {len(due)}")

    @rule(epoch=st.integers(-1, 15))
    def ask_for_the_end_of_an_epoch(self, epoch: int) -> None:
        found = self.run.log.epochs.end_offset_for(epoch, self.run.log.end_offset)
        demand(found == self.run.ledger.state.end_offset_for(epoch), f"epoch {epoch}: {found}")


def headers_in(data: bytes) -> Iterator[BatchHeader]:
    at = 0
    while at < len(data):
        header = read_header(data, at)
        yield header
        at += header.size


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Torn tails are logged, and there are many here."""
    with structlog.testing.capture_logs():
        yield


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=EXAMPLES_MAX,
    stateful_step_count=STEPS_MAX,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
