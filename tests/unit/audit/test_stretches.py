"""A log replayed in stretches tells what one replay tells, wherever it is cut.

Method: every case of the rule book, and a cluster with all kinds of changes, are cut at batches by
chance; rows, what was looked at and the partitions in the end are held against one replay. Then
mistakes are planted in the summaries, and each must be seen.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraftpy.audit.lanes import Task
from kraftpy.audit.local import WHOLE, Options, audit
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.audit.rules.rule import Violation as Broken
from kraftpy.audit.snapshots import snapshots_of
from kraftpy.audit.source.directories import find_logs
from kraftpy.audit.source.pieces import Piece, plan_replay
from kraftpy.audit.source.survey import survey_logs
from kraftpy.audit.violations import violation_of
from kraftpy.metadata_log import records as r
from kraftpy.storage.record_batch import read_header
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import batches_of, evidence_of, write_segment
from tests.unit.audit.logs import Log, cluster, directory, ids

pytest.importorskip("numba", reason="the compiled loops need the audit extra")
from kraftpy.audit import stretches as s
from kraftpy.audit.kernel.columns import LEADER_EPOCH, PARTITION_EPOCH, STATE_WIDTH
from kraftpy.audit.kernel.packing import Packed, pack, unpack
from kraftpy.audit.kernel.replayer import Replayer
from kraftpy.audit.screened import judge_suspects
from kraftpy.audit.screening import screen

LOADED = (partition_logs, placement_logs, cluster_logs)
# The cases have no LeaderChange, which A39 misses.
ONLY = frozenset(f"A{number}" for number in range(1, 61) if number != 39)
OF_LOGS = {38, 39, 40, 42, 46, 47, 49, 51}  # What no replay judges.
SEEDS = range(3)


def task_of(place: Path, log: Log) -> Task:
    logs = find_logs([str(place)]).logs
    plan = plan_replay(survey_logs(logs), logs)
    assert plan is not None
    return Task(
        plan=plan,
        defaults=KAFKA_DEFAULTS,
        evidence=evidence_of(log),
        snapshots=snapshots_of(logs),
    )


def batch_pieces(task: Task) -> list[Piece]:
    """Every batch a piece of its own."""
    found = []
    for piece in task.plan.pieces:
        data = Path(piece.path).read_bytes()
        at = piece.start
        while at < piece.end:
            header = read_header(data, at)
            found.append(Piece(header.base_offset, piece.path, at, at + header.size))
            at += header.size
    return found


def cut_by_chance(pieces: list[Piece], rng: random.Random) -> list[s.Stretch]:
    cuts = sorted(rng.sample(range(1, len(pieces)), rng.randint(0, min(6, len(pieces) - 1))))
    edges = zip([0, *cuts], [*cuts, len(pieces)], strict=True)
    return [s.Stretch(n, tuple(pieces[a:b])) for n, (a, b) in enumerate(edges, s.FIRST + 1)]


def rows_of(task: Task, screened: Any) -> list[str]:
    found: list[Broken] = []
    judge_suspects(task, screened.suspects, found.extend, lambda *_: None)
    rows = [violation_of(each) for each in [*found, *screened.violations]]
    return [str(row) for row in sorted(rows, key=lambda row: row.sort_key)]


def assert_same(place: Path, log: Log, seed: int) -> None:
    task = task_of(place, log)
    rng = random.Random(seed)
    whole = audit([str(place)], Options(mode=WHOLE, evidence=evidence_of(log), rules=ONLY))
    replayed = [str(row) for row in whole.violations if row.number not in OF_LOGS]
    for _ in range(2):
        cut = cut_by_chance(batch_pieces(task), rng)
        screened = s.screen_in_stretches(task, cut, buckets=rng.randint(1, 3))
        assert rows_of(task, screened) == replayed, cut
        assert screened.looked.types == screen(task).looked.types
        assert states_behind(task, cut) == states_of(task), cut


def states_of(task: Task) -> dict[Any, Any]:
    kept: list[Replayer] = []
    screen(task, on_end=kept.append)
    return dict(kept[0].states())


def states_behind(task: Task, cut: list[s.Stretch]) -> dict[Any, Any]:
    """What composing the summaries gives behind the last stretch."""
    composer = s.Composer()
    others = [(each.number, s.others_of(task, each)) for each in cut]
    for beginning in s.beginnings(others, task.defaults):
        inside = [each for each in cut if beginning.first <= each.number <= beginning.last]
        pieces = [piece for each in inside for piece in each.pieces]
        for _, packed in s.summary_of(task, pieces, beginning).packed(1):
            composer.add(packed)
    replayer = Replayer()
    beginning = s.Beginning(0, 0, [], [])
    rows = unpack(replayer.interned, composer.partitions())
    replayer.begin_with([], rows)
    return dict(replayer.states())


@pytest.mark.parametrize(
    "case", [*BREAKING, *KEEPING], ids=lambda case: f"A{case.rule}-{case.name}"
)
def test_every_case_is_told_the_same_wherever_it_is_cut(case: Case, tmp_path: Path) -> None:
    log = case.write()
    write_segment(tmp_path, batches_of(log))
    assert_same(tmp_path, log, seed=case.rule)


# -- a cluster with all kinds of changes -----------------------------------------------------------


def busy_log(seed: int) -> Log:
    """Topics come and go, also in transactions that are aborted; replicas and directories move."""
    rng = random.Random(seed)
    log = cluster()
    live: list[TopicId] = []
    for number in range(120):
        match rng.randrange(9):
            case 0:
                live.append(_create(log, number))
            case 1 if live:
                log.write(r.RemoveTopicRecord(topic_id=live.pop(rng.randrange(len(live)))))
            case 2:
                log.write(r.ClearElrRecord(topic_name=rng.choice(["", "orders", "t3"])))
            case 3:
                _transaction(log, rng, live, number)
            case 4 if live:
                log.write(_moved(rng, rng.choice(live)))
            case 5:
                log.write(log.change(isr=ids(*rng.choice([(1, 2, 3), (1, 2), (2, 3)]))))
            case _:
                log.write(*(_changed(rng, each) for each in live), log.change(leader=BrokerId(1)))
    return log


def _create(log: Log, number: int) -> TopicId:
    topic_id = TopicId(Uuid(number.to_bytes(16, "big")))
    log.write(r.TopicRecord(name=f"t{number}", topic_id=topic_id), _partition(topic_id))
    return topic_id


def _partition(topic_id: TopicId) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=ids(1, 2, 3),
        isr=ids(1, 2, 3),
        leader=BrokerId(1),
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory(1), directory(2), directory(3)),
    )


def _changed(rng: random.Random, topic_id: TopicId) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=rng.choice([0, 0, 1]),
        isr=rng.choice(
            [
                None,
                ids(1, 2),
                ids(
                    3,
                ),
            ]
        ),
        leader=BrokerId(rng.choice([-2, -1, 2])),
        eligible_leader_replicas=rng.choice([None, ids(3), ()]),
        leader_recovery_state=rng.choice([-1, 0, 1]),
        leader_epoch=-1,
        partition_epoch=-1,
    )


def _moved(rng: random.Random, topic_id: TopicId) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=rng.choice([None, ids(2, 4), ids(4, 3, 1)]),
        adding_replicas=rng.choice([None, ids(4)]),
        directories=rng.choice([None, None, (directory(2), directory(4))]),
        leader_epoch=-1,
        partition_epoch=-1,
    )


def _transaction(log: Log, rng: random.Random, live: list[TopicId], number: int) -> None:
    """The log's own state is not rolled back: what it writes next is odd, which is fine here."""
    log.write(r.BeginTransactionRecord(name="x"))
    made = _create(log, number)
    log.write(*(_changed(rng, each) for each in live), _changed(rng, made))
    if live and rng.random() < 0.5:
        log.write(r.RemoveTopicRecord(topic_id=rng.choice(live)))
    log.write(r.AbortTransactionRecord(reason=None))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_cluster_is_told_the_same_wherever_its_log_is_cut(seed: int, tmp_path: Path) -> None:
    log = busy_log(seed)
    write_segment(tmp_path, batches_of(log))
    assert_same(tmp_path, log, seed)


# -- planted mistakes ------------------------------------------------------------------------------


def without_epochs(packed: Packed) -> Packed:
    rows = packed.rows.copy()
    rows[:, LEADER_EPOCH : PARTITION_EPOCH + 1] = 0
    return packed._replace(rows=rows)


def without_the_first(packed: Packed) -> Packed:
    return packed._replace(rows=packed.rows[1:])


def in_another_order(packed: Packed) -> Packed:
    return packed._replace(rows=packed.rows[::-1].copy())


@pytest.mark.parametrize("mistake", [without_epochs, without_the_first, in_another_order])
def test_a_mistake_in_summaries_is_seen(
    mistake: Callable[[Packed], Packed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = busy_log(1)
    write_segment(tmp_path, batches_of(log))
    add = s.Composer.add
    monkeypatch.setattr(s.Composer, "add", lambda self, packed: add(self, mistake(packed)))
    with pytest.raises(AssertionError):
        assert_same(tmp_path, log, 1)


def test_facts_that_are_forgotten_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is fenced behind a cut has partitions that no record there speaks of."""
    case = next(case for case in BREAKING if case.rule == 13)
    log = case.write()
    write_segment(tmp_path, batches_of(log))
    task = task_of(tmp_path, log)
    pieces = batch_pieces(task)
    last = [s.Stretch(1, tuple(pieces[:-1])), s.Stretch(2, (pieces[-1],))]
    assert rows_of(task, s.screen_in_stretches(task, last))
    monkeypatch.setattr(s.Composer, "partitions", lambda self: pack(self._interned, _none()))
    assert not rows_of(task, s.screen_in_stretches(task, last))


def _none() -> Any:
    import numpy as np

    return np.zeros((0, STATE_WIDTH), np.int32)


def test_a_stretch_never_begins_within_a_transaction(tmp_path: Path) -> None:
    log = cluster()
    log.write(r.BeginTransactionRecord(name="x"))
    log.write(log.change(isr=ids(1, 2)))
    log.write(r.EndTransactionRecord())
    write_segment(tmp_path, batches_of(log))
    task = task_of(tmp_path, log)
    cut = [s.Stretch(n, (piece,)) for n, piece in enumerate(batch_pieces(task), 1)]
    others = [(each.number, s.others_of(task, each)) for each in cut]
    found = list(s.beginnings(others, replace(task.defaults)))
    assert [(each.first, each.last) for each in found][-1] == (len(cut) - 2, len(cut))
