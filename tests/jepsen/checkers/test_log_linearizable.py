"""The log's order agrees with real time: by hand, and against a judge that tries every order."""

import itertools
import random

import pytest
from jepsen_like.checkers import log_linearizable
from jepsen_like.checkers.trace import Trace
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script


def judged(script: Script) -> CheckResult:
    return log_linearizable.check(script.trace())


def test_appends_and_ends_in_order_are_valid() -> None:
    script = Script()
    script.send(0, 10, 0)
    script.do(1, "end", k="t-0", gives_off=1)
    script.send(1, 11, 1)
    script.poll(2, 0, (0, 10), (1, 11))
    assert judged(script).verdict is Verdict.VALID


def test_a_swapped_pair() -> None:
    script = Script()
    first = script.send(0, 10, 1)
    second = script.send(1, 11, 0)
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"realtime-inversion": 1}
    assert result.anomalies[0].ops == (first.i, second.i)


def test_concurrent_appends_may_land_in_either_order() -> None:
    script = Script()
    script.invoke(0, "send", k="t-0", v=10)
    script.invoke(1, "send", k="t-0", v=11)
    script.end(0, off=1)
    script.end(1, off=0)
    assert judged(script).verdict is Verdict.VALID


def test_an_unknown_append_takes_part_once_it_is_read() -> None:
    script = Script()
    script.send(0, 10, 1)
    script.invoke(1, "send", k="t-0", v=11)  # Called after offset 1 was there, read at offset 0.
    script.end(1, "info")
    assert judged(script).verdict is Verdict.VALID
    script.poll(2, 0, (0, 11), (1, 10))
    assert judged(script).counts == {"realtime-inversion": 1}


def test_a_poll_is_a_witness_too() -> None:
    script = Script()
    script.invoke(0, "send", k="t-0", v=10)
    script.poll(2, 0, (1, 10))
    script.send(1, 11, 0)
    script.end(0, off=1)
    assert judged(script).counts == {"realtime-inversion": 1}


def test_an_end_that_was_shown_before_its_records_were_sent() -> None:
    script = Script()
    script.do(2, "end", k="t-0", gives_off=1)
    script.send(0, 10, 0)
    assert judged(script).counts == {"realtime-inversion": 1}


def test_a_stale_end_is_counted_and_fatal_on_demand() -> None:
    for demanded, verdict in ((False, Verdict.VALID), (True, Verdict.INVALID)):
        script = Script(linearizable_ends=demanded)
        script.send(0, 10, 0)
        script.send(0, 11, 1)
        script.do(2, "end", k="t-0", gives_off=1)
        result = judged(script)
        assert result.verdict is verdict
        assert result.counts == {"stale-end": 1}


def test_ends_that_go_back_while_an_append_is_open() -> None:
    script = Script(linearizable_ends=True)
    script.invoke(0, "send", k="t-0", v=10)
    script.do(2, "end", k="t-0", gives_off=1)
    script.do(3, "end", k="t-0", gives_off=0)
    script.end(0, off=0)
    assert judged(script).counts == {"stale-end": 1}


def random_history(rng: random.Random) -> Script:
    """A few concurrent appends with some offsets, and ends that are often right."""
    script = Script(linearizable_ends=True)
    appends = rng.randint(1, 4)
    offsets = list(range(appends))
    rng.shuffle(offsets)
    todo = [("send", 10 + n, offsets[n]) for n in range(appends)]
    todo += [("end", 0, rng.randint(0, appends)) for _ in range(rng.randint(0, 2))]
    rng.shuffle(todo)
    waiting, process = list(todo), 0
    running: list[tuple[int, int]] = []
    while waiting or running:
        if waiting and (not running or rng.random() < 0.5):
            f, value, off = waiting.pop()
            script.invoke(process, f, k="t-0", **({"v": value} if f == "send" else {}))
            running.append((process, off))
            process += 1
        else:
            p, off = running.pop(rng.randrange(len(running)))
            script.end(p, off=off)
    return script


def brute_force(trace: Trace) -> bool:
    """Whether any order of all calls keeps real time and gives the answers that were given."""
    calls = trace.calls
    for order in itertools.permutations(calls):
        length = 0
        place = {call.number: n for n, call in enumerate(order)}
        if any(
            a.answer.i < b.invoke.i and place[a.number] > place[b.number]
            for a in calls
            for b in calls
        ):
            continue
        for call in order:
            if call.answer.off != length:
                break
            length += call.f == "send"
        else:
            return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(150):
        trace = random_history(rng).trace()
        expected = Verdict.VALID if brute_force(trace) else Verdict.INVALID
        assert log_linearizable.check(trace).verdict is expected
        seen.add(expected)
    assert len(seen) == 2, "both answers must occur"
