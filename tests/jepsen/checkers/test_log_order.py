"""One consumer's polls and one producer's sends keep their order."""

from jepsen_like.checkers import log_order
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script


def judged(script: Script) -> CheckResult:
    return log_order.check(script.trace())


def filled(**options: object) -> Script:
    script = Script(**options)  # type: ignore[arg-type]
    for offset in range(6):
        script.send(0, 10 + offset, offset)
    script.poll(9, 0, *((offset, 10 + offset) for offset in range(6)))
    return script


def test_a_consumer_that_reads_on_is_valid() -> None:
    script = filled()
    script.do(2, "assign", k="t-0", off=0)
    script.poll(2, 0, (0, 10), (1, 11))
    script.poll(2, 2)
    script.poll(2, 2, (2, 12), (3, 13))
    assert judged(script).verdict is Verdict.VALID


def test_a_skip_between_polls() -> None:
    script = filled()
    script.do(2, "assign", k="t-0", off=0)
    first = script.poll(2, 0, (0, 10))
    second = script.poll(2, 2, (2, 12))
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"poll-skip": 1}
    assert result.anomalies[0].ops == (first.i, second.i)
    assert result.anomalies[0].offsets == (1, 1)


def test_a_skip_within_a_poll_and_at_its_end() -> None:
    script = filled()
    script.poll(2, 0, (0, 10), (2, 12))
    script.poll(3, 0, (0, 10), to=3)
    assert judged(script).counts == {"poll-skip": 2}


def test_a_first_poll_that_does_not_begin_where_it_was_assigned() -> None:
    script = filled()
    script.do(2, "assign", k="t-0", off=1)
    script.poll(2, 3, (3, 13))
    assert judged(script).counts == {"poll-skip": 1}


def test_holes_that_nobody_reads_are_no_skip() -> None:
    script = Script()
    script.send(0, 10, 0)
    script.send(0, 12, 2)
    script.poll(2, 0, (0, 10), (2, 12), to=4)
    script.poll(3, 0, (0, 10))
    script.poll(3, 1, (2, 12))
    assert judged(script).verdict is Verdict.VALID


def test_a_consumer_that_goes_back() -> None:
    script = filled()
    script.poll(2, 0, (0, 10), (1, 11))
    script.poll(2, 1, (1, 11), (2, 12))
    assert judged(script).counts == {"nonmonotonic-poll": 1}


def test_a_poll_that_goes_back_in_itself() -> None:
    script = filled()
    script.poll(2, 0, (1, 11), (0, 10))
    assert judged(script).counts == {"nonmonotonic-poll": 1}


def test_an_assign_may_go_anywhere() -> None:
    script = filled()
    script.poll(2, 0, (0, 10), (1, 11))
    script.do(2, "assign", k="t-0", off=0)
    script.poll(2, 0, (0, 10))
    script.do(2, "assign", k="t-0", off=4)
    script.poll(2, 4, (4, 14))
    assert judged(script).verdict is Verdict.VALID


def test_keys_and_processes_are_apart() -> None:
    script = filled()
    script.send(0, 30, 0, k="t-1")
    script.poll(2, 0, (0, 10), (1, 11))
    script.poll(2, 0, (0, 30), k="t-1")
    script.poll(3, 0, (0, 10))
    assert judged(script).verdict is Verdict.VALID


def test_with_subscribe_polls_may_jump() -> None:
    script = filled(subscribe=True)
    script.poll(2, 0, (0, 10))
    script.poll(2, 3, (3, 13))
    script.poll(2, 0, (0, 10))
    result = judged(script)
    assert result.verdict is Verdict.VALID
    assert set(result.counts) == {"poll-skip", "nonmonotonic-poll"}


def test_a_later_send_with_a_lower_offset() -> None:
    script = Script()
    script.send(0, 10, 5)
    script.send(0, 11, 4)
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"nonmonotonic-send": 1}


def test_sends_of_two_processes_have_no_order_of_their_own() -> None:
    script = Script()
    script.send(0, 10, 5)
    script.send(1, 11, 4)
    script.send(0, 12, 6)
    assert judged(script).verdict is Verdict.VALID
