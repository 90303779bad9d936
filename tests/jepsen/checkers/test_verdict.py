"""Invalid beats unknown beats valid; what was not decided is never valid."""

import itertools

import pytest
from jepsen_like.checkers.judge import judge
from jepsen_like.verdict import (
    ANOMALIES_KEPT_MAX,
    Anomaly,
    CheckResult,
    Findings,
    Verdict,
    guarded,
    merge,
)

from tests.jepsen.checkers.script import Script

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


@pytest.mark.parametrize("verdicts", list(itertools.product(Verdict, repeat=3)))
def test_invalid_beats_unknown_beats_valid(verdicts: tuple[Verdict, ...]) -> None:
    expected = next(v for v in (INVALID, UNKNOWN, VALID) if v in verdicts)
    assert merge(verdicts) is expected


def test_no_checks_are_no_verdict() -> None:
    assert merge([]) is UNKNOWN


def test_exit_codes() -> None:
    assert [v.exit_code for v in (VALID, INVALID, UNKNOWN)] == [0, 1, 2]


def test_a_check_that_crashes_is_unknown_and_says_where() -> None:
    def crash() -> CheckResult:
        raise KeyError("planted")

    result = guarded("x", crash)
    assert result.verdict is UNKNOWN
    assert "KeyError" in result.reasons[0]
    assert "test_verdict.py" in result.reasons[0]


def test_a_check_of_nothing_is_unknown() -> None:
    assert Findings("x").result().verdict is UNKNOWN


def test_a_fatal_anomaly_beats_a_doubt_and_others_only_count() -> None:
    findings = Findings("x")
    findings.examined = 1
    findings.add(Anomaly(kind="odd", message="", fatal=False))
    assert findings.result().verdict is VALID
    findings.doubt("could not look")
    assert findings.result().verdict is UNKNOWN
    findings.add(Anomaly(kind="bad", message=""))
    assert findings.result().verdict is INVALID
    assert findings.result().counts == {"odd": 1, "bad": 1}


def test_all_anomalies_are_counted_and_some_kept() -> None:
    findings = Findings("x")
    for _ in range(ANOMALIES_KEPT_MAX + 5):
        findings.add(Anomaly(kind="bad", message=""))
    assert findings.result().counts == {"bad": ANOMALIES_KEPT_MAX + 5}
    assert len(findings.result().anomalies) == ANOMALIES_KEPT_MAX


@pytest.mark.parametrize("workload", ["log", "register", "set", "ids", "group", "watch", "linger"])
def test_a_run_of_nothing_is_unknown(workload: str) -> None:
    assert judge(Script(workload).history()).verdict is UNKNOWN


def test_an_unknown_workload_is_unknown() -> None:
    script = Script("juggling")
    script.do(0, "throw")
    judgement = judge(script.history())
    assert judgement.verdict is UNKNOWN
    assert "juggling" in judgement.results[0].reasons[0]


def test_a_checker_that_breaks_on_a_line_does_not_silence_the_others() -> None:
    script = Script("ids")
    script.do(0, "init", gives="not a pair of numbers")
    judgement = judge(script.history())
    assert judgement.verdict is UNKNOWN
    assert {r.name: r.verdict for r in judgement.results}["cell"] is VALID


def test_a_clean_run_is_valid_and_a_broken_one_is_not() -> None:
    script = Script("ids")
    script.do(0, "init", gives=[7, 0])
    script.do(1, "init", gives=[8, 0])
    assert judge(script.history()).verdict is VALID
    script.do(2, "init", gives=[7, 0])
    judgement = judge(script.history())
    assert judgement.verdict is INVALID
    assert judgement.to_json()["anomalies"] == {"duplicate-id": 1}
