"""Long valid histories of logs are found valid; one planted lie in them is found and named."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from jepsen_like.checkers.judge import judge
from jepsen_like.history import History, Op
from jepsen_like.verdict import Verdict

from tests.jepsen import sample

Plant = Callable[[random.Random, History], History]


def valid(seed: int) -> History:
    return sample.log_history(seed, calls=300, options={"idempotent": True})


def ends(history: History, f: str, type_: str = "ok") -> list[Op]:
    return [op for op in history.ops if op.f == f and op.type == type_]


def without(history: History, drop: Callable[[str | None, list[Any]], bool]) -> History:
    """Take records out of every poll."""
    changes = {}
    for op in ends(history, "poll"):
        kept = [record for record in op.v if not drop(op.k, record)]
        if len(kept) != len(op.v):
            changes[op.i] = {"v": kept}
    return sample.changed(history, changes)


def lose(rng: random.Random, history: History) -> History:
    """Nobody reads an acknowledged record, though all go over it."""
    send = rng.choice(ends(history, "send"))
    return without(history, lambda key, record: (key, record[0]) == (send.k, send.off))


def cut_the_end(rng: random.Random, history: History) -> History:
    """The log ends before an acknowledged record."""
    key = rng.choice(ends(history, "send")).k
    last = max(op.off or 0 for op in ends(history, "send") if op.k == key)
    history = without(history, lambda k, record: k == key and record[0] >= last)
    changes = {
        op.i: {"off": min(op.off or 0, last)}
        for op in history.ops
        if op.f == "poll" and op.k == key
    }
    return sample.changed(history, changes)


def repeat(rng: random.Random, history: History) -> History:
    """The last poll finds an earlier record again behind the end."""
    polls = [op for op in ends(history, "poll") if op.off]
    op = polls[-1]
    whole = next(o for o in polls if o.k == op.k and o.v)
    copy = [op.off, rng.choice(whole.v)[1]]
    return sample.changed(history, {op.i: {"v": [*op.v, copy], "off": (op.off or 0) + 1}})


def contradict(rng: random.Random, history: History) -> History:
    """One poll shows another value at an offset than the others."""
    op = rng.choice([op for op in ends(history, "poll") if op.v])
    records = [list(record) for record in op.v]
    rng.choice(records)[1] = -5
    return sample.changed(history, {op.i: {"v": records}})


def fail_what_was_read(rng: random.Random, history: History) -> History:
    send = rng.choice(ends(history, "send"))
    return sample.changed(history, {send.i: {"type": "fail", "off": None}})


def swap_acknowledgements(rng: random.Random, history: History) -> History:
    """Two sends of one process to one key, not concurrent, got each other's offsets."""
    sends = ends(history, "send")
    rng.shuffle(sends)
    a = sends[0]
    b = next(b for b in sends[1:] if (b.k, b.p) == (a.k, a.p))
    return sample.changed(history, {a.i: {"off": b.off}, b.i: {"off": a.off}})


def skip(rng: random.Random, history: History) -> History:
    """One poll leaves out a record that others read."""
    op = rng.choice([op for op in ends(history, "poll") if len(op.v) > 2])
    records = list(op.v)
    del records[rng.randrange(len(records))]
    return sample.changed(history, {op.i: {"v": records}})


def turn_round(rng: random.Random, history: History) -> History:
    """One poll returns two records in the wrong order."""
    op = rng.choice([op for op in ends(history, "poll") if len(op.v) > 2])
    records = list(op.v)
    place = rng.randrange(len(records) - 1)
    records[place], records[place + 1] = records[place + 1], records[place]
    return sample.changed(history, {op.i: {"v": records}})


def old_end(_: random.Random, history: History) -> History:
    op = next(op for op in reversed(ends(history, "end")) if op.off)
    history = sample.changed(history, {op.i: {"off": 0}})
    return sample.with_options(history, linearizable_ends=True)


PLANTED: list[tuple[Plant, str]] = [
    (lose, "lost-write"),
    (cut_the_end, "unseen"),
    (repeat, "duplicate"),
    (contradict, "inconsistent-offsets"),
    (contradict, "phantom"),
    (fail_what_was_read, "g1a"),
    (swap_acknowledgements, "nonmonotonic-send"),
    (swap_acknowledgements, "realtime-inversion"),
    (skip, "poll-skip"),
    (turn_round, "nonmonotonic-poll"),
    (old_end, "stale-end"),
]


@pytest.mark.parametrize("seed", range(12))
def test_a_history_without_a_lie_is_valid(seed: int) -> None:
    judgement = judge(valid(seed))
    assert judgement.verdict is Verdict.VALID, judgement.to_json()
    assert judgement.to_json()["anomalies"] == {}


@pytest.mark.parametrize(("plant", "kind"), PLANTED)
@pytest.mark.parametrize("seed", range(4))
def test_a_planted_lie_is_found(plant: Plant, kind: str, seed: int) -> None:
    judgement = judge(plant(random.Random(seed), valid(seed)))
    assert judgement.verdict is Verdict.INVALID
    assert kind in judgement.to_json()["anomalies"]


def test_every_fatal_kind_of_a_log_is_planted() -> None:
    kinds = {kind for _, kind in PLANTED}
    assert kinds >= {"lost-write", "unseen", "duplicate", "inconsistent-offsets", "g1a"}
    assert kinds >= {"nonmonotonic-poll", "nonmonotonic-send", "poll-skip", "realtime-inversion"}
