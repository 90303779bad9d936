"""Curves over a run: each from a history small enough to count by hand."""

from jepsen_like.report import curves

from tests.jepsen.checkers.script import Script


def test_rates_count_ends_by_kind() -> None:
    script = Script()
    for n in range(5):
        script.send(0, n, n)
    script.send(0, 9, type_="fail")
    script.wait(20)
    script.send(0, 10, 5)
    found = curves.rates(script.trace())
    assert found["ok"][0] == [0.0, 5.0]
    assert found["fail"][0] == [0.0, 1.0]
    assert sum(rate for _, rate in found["ok"]) == 6
    assert len(found["ok"]) == 21


def test_latency_is_from_question_to_answer() -> None:
    script = Script()
    for took in (1, 2, 3, 100):
        script.invoke(0, "end", k="t-0")
        script.wait((took - 1) / 1000)
        script.end(0, off=0)
    found = curves.latencies(script.trace())
    assert found["max"][-1][1] == 100.0
    assert found["p50"][0][1] == 2.0


def test_quantiles() -> None:
    hundred = list(range(1, 101))
    assert [curves.quantile(hundred, q) for q in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert curves.quantile([7], 0.5) == 7


def test_unseen_rises_with_an_acknowledgement_and_falls_with_the_first_read() -> None:
    script = Script()
    script.send(0, 1, 0)
    script.send(0, 2, 1)
    script.wait(3)
    script.poll(1, 0, (0, 1))
    script.wait(3)
    script.send(0, 3, 2)
    script.poll(1, 1, (1, 2), (2, 3))
    found = curves.unseen(script.trace())
    assert [0.0, 2] in found
    assert [4.0, 1] in found
    assert found[-1][1] == 2  # At its highest in that bin, before the poll.


def test_a_reader_is_late_by_the_age_of_what_it_has_still_to_read() -> None:
    script = Script()
    script.send(0, 1, 0)
    script.send(0, 2, 1)
    script.wait(5)
    script.poll(1, 0, (0, 1))
    script.poll(1, 1, (1, 2))
    found = [late for _, late in curves.realtime_lag(script.trace())]
    assert max(found) > 4.9
    fresh = Script()
    fresh.send(0, 1, 0)
    fresh.poll(1, 0, (0, 1))
    assert [late for _, late in curves.realtime_lag(fresh.trace())] == [0.0]


def test_bins_are_few() -> None:
    hour = 3_600 * curves.SECOND
    assert hour // curves.bin_ns(hour) <= curves.BINS_MAX
    assert curves.bin_ns(curves.SECOND) == curves.SECOND // 10
