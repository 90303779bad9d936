"""Registers: the search, the quick judge and one that tries every order agree."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from jepsen_like.checkers import register_order, registers, wgl
from jepsen_like.checkers.trace import Call, Trace
from jepsen_like.history import History
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen import sample
from tests.jepsen.checkers.script import Script

KEY = "t/retention.ms"
STEPS = 100_000


def judged(script: Script) -> CheckResult:
    return registers.check(script.trace())


def script() -> Script:
    return Script("register")


def write(s: Script, p: int, v: int, type_: Any = "ok") -> None:
    s.do(p, "write", type_, k=KEY, v=v)


def read(s: Script, p: int, v: int | None, f: str = "read", **fields: Any) -> None:
    s.invoke(p, f, k=KEY, **fields)
    s.end(p, v=v)


def test_reads_after_writes_are_valid() -> None:
    s = script()
    read(s, 0, None)
    write(s, 0, 1)
    read(s, 1, 1)
    write(s, 1, 2, "info")
    read(s, 0, 1)  # The unknown write takes effect later, or never.
    read(s, 0, 2)
    assert judged(s).verdict is Verdict.VALID


def test_a_stale_read() -> None:
    s = script()
    write(s, 0, 1)
    write(s, 0, 2)
    read(s, 1, 1)
    result = judged(s)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"not-linearizable": 1}


def test_a_lost_write() -> None:
    s = script()
    write(s, 0, 1)
    read(s, 1, None)
    assert judged(s).counts == {"not-linearizable": 1}


def test_two_readers_who_saw_another_order() -> None:
    s = script()
    s.invoke(0, "write", k=KEY, v=1)
    s.invoke(1, "write", k=KEY, v=2)
    read(s, 2, 1)
    read(s, 3, 2)
    read(s, 2, 1)
    s.end(0)
    s.end(1)
    assert judged(s).counts == {"not-linearizable": 1}


def test_concurrent_writes_may_be_seen_in_either_order() -> None:
    s = script()
    s.invoke(0, "write", k=KEY, v=1)
    s.invoke(1, "write", k=KEY, v=2)
    read(s, 2, 2)
    s.end(1)
    s.end(0)
    read(s, 2, 1)
    assert judged(s).verdict is Verdict.VALID


def test_a_failed_write_that_is_read_and_one_that_nobody_wrote() -> None:
    s = script()
    write(s, 0, 1, "fail")
    read(s, 1, 1)
    assert "g1a" in judged(s).counts
    s = script()
    read(s, 1, 9)
    assert judged(s).counts["phantom"] == 1


def test_a_late_read_may_be_late_but_does_not_go_back() -> None:
    s = script()
    write(s, 0, 1)
    write(s, 0, 2)
    read(s, 1, None, "stale-read", node="b101")
    read(s, 1, 2, "stale-read", node="b101")
    read(s, 1, 1, "stale-read", node="b102")
    assert judged(s).verdict is Verdict.VALID
    read(s, 1, 1, "stale-read", node="b101")
    result = judged(s)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"goes-back": 1}


def test_a_node_that_began_anew_may_go_back() -> None:
    s = script()
    write(s, 0, 1)
    read(s, 1, 1, "stale-read", node="b101")
    s.line("run", "info", "exit", node="b101", v={"code": -9, "expected": True})
    s.line("run", "ok", "start", node="b101")
    read(s, 1, None, "stale-read", node="b101")
    assert judged(s).verdict is Verdict.VALID


def test_a_late_read_from_the_future() -> None:
    s = script()
    read(s, 1, 1, "stale-read", node="b101")
    write(s, 0, 1)
    assert judged(s).counts["phantom"] == 1


def test_keys_are_apart() -> None:
    s = script()
    write(s, 0, 1)
    s.invoke(1, "read", k="other/retention.ms")
    s.end(1, v=None)
    assert judged(s).verdict is Verdict.VALID


def test_versions_and_cas() -> None:
    s = script()
    s.do(0, "write", k=KEY, v=5, gives_off=1)
    s.do(0, "cas", k=KEY, v=[5, 6], gives_off=2)
    s.do(1, "read", k=KEY, gives=6, gives_off=2)
    assert judged(s).verdict is Verdict.VALID
    s.do(1, "read", k=KEY, gives=6, gives_off=1)
    assert judged(s).counts == {"not-linearizable": 1}
    s = script()
    s.do(0, "write", k=KEY, v=5)
    s.do(0, "cas", k=KEY, v=[4, 6])  # It said ok, but 4 was never there.
    assert judged(s).counts == {"not-linearizable": 1}


def test_out_of_steps_is_unknown_unless_the_quick_judge_knows() -> None:
    s = script()
    for n in range(8):
        s.invoke(n, "cas", k=KEY, v=[None, n])
    for n in range(8):
        s.end(n, "info")
    s.do(9, "read", k=KEY, gives=77)
    trace = s.trace()
    result = registers.check(trace, steps_per_key_max=3)
    assert result.verdict is Verdict.INVALID  # 77 came from nowhere; no search is needed for that.
    s = script()
    s.do(0, "write", k=KEY, v=1, gives_off=1)
    s.do(1, "read", k=KEY, gives=1, gives_off=1)
    result = registers.check(s.trace(), steps_per_key_max=1)
    assert result.verdict is Verdict.UNKNOWN
    assert "out of steps" in result.reasons[0]
    s = script()
    write(s, 0, 1)
    read(s, 1, 1)
    result = registers.check(s.trace(), steps_per_key_max=1)
    assert result.verdict is Verdict.VALID
    assert result.figures["keys_out_of_steps"] == 1


def test_the_bound_ends_a_search_that_would_take_for_ever() -> None:
    """Twenty unknown cas whose order nobody knows, then a read that none explains."""
    s = script()
    for n in range(20):
        s.do(n, "write", "info", k=KEY, v=n)
    for n in range(20):
        s.invoke(100 + n, "cas", k=KEY, v=[n, 100 + n])
    s.do(50, "read", k=KEY, gives=0)
    s.do(50, "read", k=KEY, gives=119, gives_off=3)
    trace = s.trace()
    reads = [call for call in trace.calls if call.f == "read"]
    changes = [call for call in trace.calls if call.f != "read"]
    assert registers.search(changes, reads, 5_000).verdict is Verdict.UNKNOWN


def small_history(rng: random.Random) -> Trace:
    """Up to seven concurrent calls whose answers are sometimes wrong."""
    s = script()
    todo: list[tuple[str, Any]] = [("write", n) for n in range(1, rng.randint(2, 4))]
    values = [None, *(v for _, v in todo)]
    todo += [("read", rng.choice(values)) for _ in range(rng.randint(1, 4))]
    rng.shuffle(todo)
    open_: list[tuple[int, str, Any]] = []
    process = 0
    while todo or open_:
        if todo and (not open_ or rng.random() < 0.5):
            f, value = todo.pop()
            s.invoke(process, f, k=KEY, **({"v": value} if f == "write" else {}))
            open_.append((process, f, value))
            process += 1
        else:
            p, f, value = open_.pop(rng.randrange(len(open_)))
            s.end(p, "info" if f == "write" and rng.random() < 0.2 else "ok", v=value)
    return s.trace()


def brute_force(calls: list[Call]) -> bool:
    """Try every order of every choice of unknown writes."""
    unknown = [call for call in calls if not call.ok]
    known = [call for call in calls if call.ok]
    for count in range(len(unknown) + 1):
        for happened in itertools.combinations(unknown, count):
            if any(explains(order) for order in itertools.permutations((*known, *happened))):
                return True
    return False


def explains(order: tuple[Call, ...]) -> bool:
    value = None
    for n, call in enumerate(order):
        if any(later.ok and later.answer.i < call.invoke.i for later in order[n + 1 :]):
            return False
        if call.f == "write":
            value = call.invoke.v
        elif call.answer.v != value:
            return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_both_judges_agree_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(120):
        trace = small_history(rng)
        writes, reads = trace.of("write"), trace.ok("read")
        expected = Verdict.VALID if brute_force(trace.calls) else Verdict.INVALID
        assert registers.search(writes, reads, STEPS).verdict is expected
        quick = register_order.contradictions(writes, reads)
        future = any(
            r.answer.i < w.invoke.i for r in reads for w in writes if w.invoke.v == r.answer.v
        )
        assert (Verdict.INVALID if quick or future else Verdict.VALID) is expected
        seen.add(expected)
    assert len(seen) == 2, "both answers must occur"


@pytest.mark.parametrize("seed", range(8))
def test_long_valid_histories_are_valid(seed: int) -> None:
    history = sample.register_history(seed, calls=800, clients=8, info_share=0.03)
    result = registers.check(Trace(history))
    assert result.verdict is Verdict.VALID, result.to_json()
    assert result.figures["keys_out_of_steps"] == 0


def stale_read(_: random.Random, history: History) -> History:
    """A read returns the value that another read, long before and before another write, saw."""
    reads = [op for op in history.ops if op.f == "read" and op.type == "ok" and op.v is not None]
    last = reads[-1]
    first = next(op for op in reads if op.k == last.k and op.v != last.v)
    return sample.changed(history, {last.i: {"v": first.v}})


def forgotten(_: random.Random, history: History) -> History:
    reads = [op for op in history.ops if op.f == "read" and op.type == "ok" and op.v is not None]
    return sample.changed(history, {reads[-1].i: {"v": None}})


def broker_goes_back(_: random.Random, history: History) -> History:
    late = [op for op in history.ops if op.f == "stale-read" and op.type == "ok" and op.v]
    last = late[-1]
    return sample.changed(history, {last.i: {"v": None}})


PLANTED: list[tuple[Callable[[random.Random, History], History], str]] = [
    (stale_read, "not-linearizable"),
    (forgotten, "not-linearizable"),
    (broker_goes_back, "goes-back"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED)
@pytest.mark.parametrize("seed", range(4))
def test_a_planted_lie_is_found(
    plant: Callable[[random.Random, History], History], kind: str, seed: int
) -> None:
    # One client, so that nothing is concurrent and every lie can be told from the truth.
    history = sample.register_history(seed, calls=150, clients=1, info_share=0.0)
    result = registers.check(Trace(plant(random.Random(seed), history)))
    assert result.verdict is Verdict.INVALID
    assert kind in result.counts


def test_the_answer_shows_how_far_it_came() -> None:
    def step(state: int, op: int) -> int | None:
        return op if op == state + 1 else None

    intervals = [wgl.Interval(op, n * 2, n * 2 + 1) for n, op in enumerate((1, 2, 9, 3))]
    answer = wgl.check(intervals, 0, step, STEPS)
    assert answer.verdict is Verdict.INVALID
    assert answer.placed == (0, 1)
    assert answer.stuck == 2
