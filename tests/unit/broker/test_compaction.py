"""Compaction: nothing that counts is lost, whatever is written, committed and compacted when."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kraftpy.broker.cleaner import Throttle, begin, dirtiness, take_up
from kraftpy.broker.compaction import (
    BatchFilter,
    CompactionConfig,
    OffsetMap,
    SegmentFacts,
    assess,
    group_segments,
)
from kraftpy.storage.raw_records import delete_horizon_ms, read_raw_records, rebuild
from kraftpy.storage.record_batch import (
    CONTROL,
    Record,
    build_batch,
    iter_records,
    read_header,
)
from kraftpy.storage.replacement import CleanedSegment
from tests.unit.broker.compacted_log import DELETE_RETENTION_MS, CompactedLog, Violation

Action = tuple[str, Any]
Plant = Callable[[pytest.MonkeyPatch], None]

KEYS = [b"a", b"b", b"c", b"d", b"a key that is longer than its hash"]
pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from([b"1", b"two", None, bytes(40)]))
appends = st.tuples(
    st.lists(pairs, min_size=1, max_size=6), st.sampled_from([0, 1, 4]), st.integers(-1, 1)
)
actions = st.one_of(
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("commit"), st.sampled_from([0.5, 1.0])),
    st.tuples(st.just("compact"), st.sampled_from([1, 2, 100])),
    st.tuples(st.just("advance"), st.sampled_from([1, DELETE_RETENTION_MS])),
    st.tuples(st.just("reopen"), st.none()),
)


def follow(script: list[Action]) -> None:
    """Do what the script says, and check after each step that could break something."""
    run = CompactedLog()
    for action, argument in script:
        match action:
            case "append":
                run.append(*argument)
            case "commit":
                run.commit(argument)
            case "compact":
                run.commit()
                if run.compact(argument):
                    run.check()
            case "advance":
                run.clock.advance(argument)
            case "reopen":
                run.reopen()
                run.check()
    run.commit()
    for _ in range(4):
        run.compact()
        run.clock.advance(DELETE_RETENTION_MS // 2)
        run.check()
    kept = run.keys_in_clean_part()
    assert len(kept) == len(set(kept)), "a clean log has every key once"


FOLLOWED = given(st.lists(actions, min_size=4, max_size=25))
UNHURRIED = settings(deadline=None, suppress_health_check=list(HealthCheck))
UNSHRUNK = settings(UNHURRIED, database=None, phases=[Phase.generate], report_multiple_bugs=False)


def test_whatever_happens_the_last_record_of_every_key_is_left() -> None:
    settings(UNHURRIED, max_examples=80)(FOLLOWED(follow))()


# -- planted bugs -------------------------------------------------------------------------------


def forgets_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffsetMap, "is_last", lambda self, r: r.offset not in _offsets(self))


def _offsets(offset_map: OffsetMap) -> set[int]:
    return set(offset_map._offsets.values())


def keeps_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: OffsetMap, header: Any, records: Any) -> bool:
        for record in records:
            self._offsets.setdefault(record.key, record.offset)
        self.end_offset = header.end_offset
        return True

    monkeypatch.setattr(OffsetMap, "add", add)
    monkeypatch.setattr(
        OffsetMap, "is_last", lambda self, r: r.offset <= self._offsets.get(r.key, r.offset)
    )


def drops_tombstones_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchFilter._left
    monkeypatch.setattr(BatchFilter, "_left", lambda self, records, _: real(self, records, True))


def forgets_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchFilter.apply

    def apply(self: BatchFilter, *arguments: Any, **options: Any) -> Any:
        return real(replace(self, last_of_producers=()), *arguments, **options)

    monkeypatch.setattr(BatchFilter, "apply", apply)


def moves_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def rebuild_anew(header: Any, records: Any, **_: Any) -> bytes:
        again = header._replace(base_offset=header.base_offset + 1) if records else header
        return rebuild(again, records)

    monkeypatch.setattr("kraftpy.broker.compaction.rebuild", rebuild_anew)


def believes_a_full_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes what the map could not hold for the past."""

    def add(self: OffsetMap, header: Any, records: Any) -> bool:
        for record in records:
            if len(self._offsets) < self._entries_max:
                self._offsets[record.key] = record.offset
        self.end_offset = header.end_offset
        return True

    monkeypatch.setattr(OffsetMap, "add", add)
    monkeypatch.setattr(
        OffsetMap, "is_last", lambda self, r: r.offset >= self._offsets.get(r.key, 1 << 60)
    )


BUGS: list[Plant] = [
    forgets_the_last_record,
    keeps_the_first_record,
    drops_tombstones_at_once,
    forgets_producers,
    moves_records,
    believes_a_full_map,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        settings(UNSHRUNK, max_examples=300)(FOLLOWED(follow))()


# -- tombstones ---------------------------------------------------------------------------------


def with_old_tombstone() -> CompactedLog:
    run = CompactedLog()
    run.append([(b"a", b"1"), (b"b", b"1")])
    run.append([(b"a", None)])
    for _ in range(8):
        run.append([(b"c", bytes(100))])
    run.commit()
    return run


def test_a_tombstone_outlives_its_key_by_the_time_that_is_set() -> None:
    run = with_old_tombstone()
    run.clock.advance(100 * DELETE_RETENTION_MS)  # Its age alone does not count.
    assert run.compact()
    assert [(r.key, r.value) for r in run.left()][:2] == [(b"b", b"1"), (b"a", None)]
    header = next(h for h, _ in run.log.batches(0) if h.base_offset == 2)
    assert delete_horizon_ms(header) == run.clock.now_ms() + DELETE_RETENTION_MS
    for left_over, advance_ms in ((True, DELETE_RETENTION_MS - 1), (False, 1)):
        run.clock.advance(advance_ms)
        run.clean_end = None
        assert run.compact()
        assert any(record.value is None for record in run.left()) == left_over
        run.check()


def test_a_delete_horizon_changes_no_timestamp() -> None:
    run = with_old_tombstone()
    before = {record.offset: record.timestamp for record in run.left()}
    run.clock.advance(10)
    run.compact()
    run.clock.advance(1)
    run.clean_end = None
    run.compact()  # The horizon is written once and not moved again.
    assert all(before[record.offset] == record.timestamp for record in run.left())


# -- single decisions ---------------------------------------------------------------------------


def facts(*sizes: int, at_ms: int = 0) -> list[SegmentFacts]:
    return [SegmentFacts(i * 10, i * 10 + 10, size, at_ms, at_ms) for i, size in enumerate(sizes)]


def due_for(sealed: list[SegmentFacts], config: CompactionConfig, **changes: Any) -> Any:
    arguments = {"checkpoint": None, "start_offset": 0, "committed_end": 1000, "now_ms": 10_000}
    return assess(sealed, config, **{**arguments, **changes})


def test_the_dirty_ratio_decides() -> None:
    config = CompactionConfig(min_cleanable_dirty_ratio=0.5)
    due = due_for(facts(50, 50), config, checkpoint=10)
    assert due.dirty_ratio == 0.5
    assert not due.is_due(config)
    assert due_for(facts(49, 50), config, checkpoint=10).is_due(config)
    assert due_for(facts(50, 50), config).dirty_ratio == 1.0


def test_nothing_at_or_above_the_high_watermark_is_reached() -> None:
    config = CompactionConfig()
    assert due_for(facts(1, 1, 1), config, committed_end=29).end_offset == 20
    assert due_for(facts(1, 1, 1), config, committed_end=30).end_offset == 30
    assert not due_for(facts(1, 1, 1), config, committed_end=9).is_due(config)


def test_what_is_young_stays_dirty() -> None:
    config = CompactionConfig(min_compaction_lag_ms=1000)
    young = [*facts(1), SegmentFacts(10, 20, 1, 9_001, 9_001)]
    assert due_for(young, config).end_offset == 10
    assert due_for(young, config, now_ms=10_001).end_offset == 20


def test_what_waits_for_too_long_is_due_however_clean_the_log_is() -> None:
    config = CompactionConfig(max_compaction_lag_ms=1000)
    sealed = facts(1000, 1, at_ms=9_000)
    assert not due_for(sealed, config, checkpoint=10).is_due(config)
    assert due_for(sealed, config, checkpoint=10, now_ms=10_001).is_due(config)


def test_a_checkpoint_that_is_not_in_the_log_does_not_count() -> None:
    config = CompactionConfig()
    assert due_for(facts(1, 1), config, checkpoint=21).first_dirty_offset == 0
    assert due_for(facts(1, 1), config, checkpoint=5, start_offset=10).first_dirty_offset == 10


def test_small_segments_are_put_together_as_far_as_they_fit() -> None:
    assert group_segments(facts(10, 10, 10, 90, 5), 30) == [3, 1, 1]
    far = [SegmentFacts(0, 10, 1, 0, 0), SegmentFacts(10, 1 << 32, 1, 0, 0)]
    assert group_segments(far, 30) == [1, 1]
    assert group_segments([], 30) == []


def test_control_batches_stay() -> None:
    run = CompactedLog()
    control = build_batch(
        [Record(offset=0, timestamp=0, key=b"\0\0\0\1", value=bytes(6))],
        attributes=CONTROL,
        producer_id=1,
        producer_epoch=0,
    )
    run.log.append(control, epoch=1)
    run.log.append(control, epoch=1)
    run.committed_end = 0
    for _ in range(6):
        run.append([(b"\0\0\0\1", bytes(100))])
    run.commit()
    run.written = []
    before = [bytes(data) for header, data in run.log.batches(0) if header.is_control]
    assert run.compact()
    assert [bytes(data) for header, data in run.log.batches(0) if header.is_control] == before


def test_records_without_a_key_go() -> None:
    run = CompactedLog()
    base = [Record(offset=i, timestamp=0, key=None, value=b"v") for i in range(2)]
    run.log.append(build_batch(base), epoch=1)
    run.written += base
    for _ in range(6):
        run.append([(b"k", bytes(100))])
    run.commit()
    assert run.compact()
    assert all(record.key is not None for record in run.left())


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_codec_and_what_it_covers(codec: int) -> None:
    records = [
        Record(
            offset=40 + i,
            timestamp=1000 - i,
            key=b"%d" % i,
            value=b"v" * 50,
            headers=(("h", None),),
        )
        for i in range(10)
    ]
    data = build_batch(
        records, leader_epoch=3, attributes=codec, producer_id=9, producer_epoch=2, base_sequence=5
    )
    header = read_header(data)
    raw = read_raw_records(data, header)
    thinner = rebuild(header, raw[3:5], horizon_ms=123)
    found = read_header(thinner)
    assert list(iter_records(thinner)) == records[3:5]
    assert found.compression == codec
    kept = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch")
    for name in (*kept, "base_sequence"):
        assert getattr(found, name) == getattr(header, name), name
    assert found.max_timestamp == 997
    empty = read_header(rebuild(header, []))
    assert (empty.record_count, empty.compression, empty.size) == (0, 0, 61)
    assert empty.max_timestamp == header.max_timestamp


def test_a_log_that_was_cut_meanwhile_does_not_take_old_segments() -> None:
    run = with_old_tombstone()
    due = dirtiness(run.log, run.config, checkpoint=None, committed_end=run.committed_end, now_ms=0)
    cleaning = begin(run.files, run.log, run.config, due, (), 0)
    run.log.flush()
    cleaning.run(1 << 20, Throttle(run.clock, lambda: 1e18))
    assert cleaning.cleaned
    end = run.log.end_offset
    run.log.truncate_to(1)
    while run.log.end_offset < end:
        run.log.append(build_batch([Record(offset=0, timestamp=0, key=b"z", value=bytes(100))]), 2)
    run.log.flush()
    assert not take_up(run.log, cleaning)
    assert not any(name.endswith(".cleaned") for name in run.files.names(run.log.directory))
    assert all(record.key == b"z" for record in run.left())


def test_an_unfinished_replacement_is_not_part_of_the_log() -> None:
    run = with_old_tombstone()
    before = run.left()
    sealed = run.log.sealed_segments()
    unfinished = CleanedSegment(run.files, run.log.directory, sealed[:1], run.log.config.segment)
    run.reopen()
    assert run.left() == before
    assert not any(name.endswith(".cleaned") for name in run.files.names(run.log.directory))
    assert unfinished.end_offset == -1
