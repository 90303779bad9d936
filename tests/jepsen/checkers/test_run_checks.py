"""Checks of the run as a whole: service, processes, the worth of the cell, the audit."""

import json
import sys
from pathlib import Path

import pytest
from jepsen_like.checkers import audit, availability, cell, ids, processes
from jepsen_like.checkers.judge import Evidence, judge
from jepsen_like.verdict import Verdict

from tests.jepsen.checkers.script import Script


def served(seconds_between: float = 0.1, count: int = 100) -> Script:
    script = Script("ids", nemesis=("kill",))
    script.phase("load")
    for n in range(count):
        script.do(n % 4, "init", gives=[n, 0])
        script.wait(seconds_between)
    return script


def test_the_longest_gap_and_the_faults_in_it() -> None:
    script = served()
    script.fault("kill", 1, "b101")
    script.wait(4)
    script.do(0, "init", gives=[1000, 0])
    script.heal(1)
    script.phase("heal")
    script.wait(1.5)
    for n in range(40):
        script.do(0, "init", gives=[2000 + n, 0])
        script.wait(0.1)
    result = availability.check(script.trace())
    assert result.verdict is Verdict.VALID
    assert 4.0 < result.figures["longest_gap_s"] < 4.3
    assert result.figures["gaps"][0]["faults"] == ["kill b101"]
    assert 1.4 < result.figures["first_ok_s"] < 1.7
    assert result.figures["fault_free_rate"] == pytest.approx(10, abs=1)
    assert result.figures["full_rate_s"] == pytest.approx(1.5, abs=0.3)


def test_a_cluster_that_does_not_come_back() -> None:
    script = served()
    script.phase("heal")
    script.do(0, "init", "fail")
    result = availability.check(script.trace())
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"never-recovered": 1}


def test_nobody_asked_after_the_faults() -> None:
    script = served()
    script.phase("heal")
    assert availability.check(script.trace()).verdict is Verdict.UNKNOWN


def test_limits_that_were_set() -> None:
    script = served()
    script.wait(3)
    script.phase("heal")
    script.wait(3)
    script.do(0, "init", gives=[1000, 0])
    limits = availability.Limits(longest_gap_s=2.0, first_ok_s=2.0)
    assert availability.check(script.trace(), limits).counts == {"slow-recovery": 2}
    limits = availability.Limits(longest_gap_s=5.0, first_ok_s=5.0)
    assert availability.check(script.trace(), limits).verdict is Verdict.VALID


def test_exits_by_our_hand_are_expected_and_others_not() -> None:
    script = served()
    script.line("run", "ok", "start", node="b101")
    script.line("run", "info", "exit", node="b101", v={"code": -9, "expected": True})
    assert processes.check_exits(script.trace()).verdict is Verdict.VALID
    script.line("run", "info", "exit", node="b102", v={"code": 1, "expected": False})
    result = processes.check_exits(script.trace())
    assert result.verdict is Verdict.INVALID
    assert "b102 ended with code 1" in result.anomalies[0].message


BAD_LINES = [
    "Traceback (most recent call last):",
    'event=died error="AssertionError: no leader"',
    "Task exception was never retrieved",
    "RuntimeWarning: coroutine 'x' was never awaited",
    "Fatal Python error: Segmentation fault",
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_lines_that_should_never_be_there(line: str, tmp_path: Path) -> None:
    good = tmp_path / "b101.log"
    good.write_text("event=started\nevent=fatal reason=disk_full\n")
    files = {"b101": str(good)}
    assert processes.check_lines(files).verdict is Verdict.VALID
    bad = tmp_path / "b102.log"
    bad.write_text(f"event=started\n{line}\n")
    result = processes.check_lines({**files, "b102": str(bad)})
    assert result.verdict is Verdict.INVALID
    assert "b102, line 2" in result.anomalies[0].message
    assert processes.check_lines({"b102": str(bad)}, ["."]).verdict is Verdict.VALID


def test_a_log_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert processes.check_lines({"b1": str(tmp_path / "none")}).verdict is Verdict.UNKNOWN
    assert processes.check_lines({}).verdict is Verdict.UNKNOWN


def test_a_cell_counts_if_it_was_served_and_hurt() -> None:
    script = served(count=2)
    assert cell.check(script.trace()).reasons == ("the fault kill never fired",)
    script.line("nemesis", "invoke", "kill", v={"fault": 1})
    script.line("nemesis", "info", "kill", v={"fault": 1}, err="no such process")
    assert cell.check(script.trace()).verdict is Verdict.UNKNOWN
    script.fault("kill", 2, "b101")
    result = cell.check(script.trace())
    assert result.verdict is Verdict.VALID
    assert result.figures["faults"] == {"kill": 1}
    for _ in range(3):
        script.do(0, "init", "fail")
    result = cell.check(script.trace())
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == ("only 2 of 5 operations succeeded",)


def test_a_part_of_a_composed_fault_counts_for_it() -> None:
    script = Script("ids", nemesis=("ring",))
    script.do(0, "init", gives=[1, 0])
    told = {"fault": 1, "nemesis": "ring", "targets": ["b101"]}
    script.line("nemesis", "ok", "partition", v=told)
    assert cell.check(script.trace()).verdict is Verdict.VALID


def test_ids() -> None:
    script = Script("ids")
    script.do(0, "init", "info")
    script.do(1, "init", gives=[4, 0], node="b101")
    assert ids.check(script.trace()).verdict is Verdict.VALID
    script.do(1, "init", gives=[4, 0], node="b102")
    script.do(1, "init", gives=[-1, 0])
    assert ids.check(script.trace()).counts == {"duplicate-id": 1, "bad-id": 1}


def command(code: int, out: str = "", err: str = "") -> list[str]:
    """A stand-in for the audit, that answers as it is told."""
    program = f"import sys; print({out!r}); print({err!r}, file=sys.stderr); sys.exit({code})"
    return [sys.executable, "-c", program]


def test_the_audit_speaks_with_its_exit_code() -> None:
    violations = json.dumps({"violations": 2, "counts": {"A3": 2, "A4": 0}})
    assert audit.check(["x"], command(0)).verdict is Verdict.VALID
    result = audit.check(["x"], command(1, violations))
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"A3": 1}
    assert audit.check(["x"], command(1, "", "boom")).anomalies[0].message == "boom"
    assert audit.check(["x"], command(2, "", "no rows")).reasons == ("no rows",)
    assert audit.check(["x"], command(134)).verdict is Verdict.UNKNOWN


def test_an_audit_that_does_not_answer_is_unknown() -> None:
    assert audit.check(["x"], ["no-such-command"]).verdict is Verdict.UNKNOWN
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert audit.check(["x"], slow, timeout_s=0.1).verdict is Verdict.UNKNOWN
    assert audit.check([], command(0)).verdict is Verdict.UNKNOWN


def test_all_evidence_takes_part_in_the_verdict(tmp_path: Path) -> None:
    script = Script("ids")
    script.do(0, "init", gives=[1, 0])
    script.line("run", "ok", "start", node="b101")
    log = tmp_path / "b101.log"
    log.write_text("fine\n")
    evidence = Evidence(
        log_files={"b101": str(log)}, audit_paths=("x",), audit_command=tuple(command(0))
    )
    judgement = judge(script.history(), evidence)
    assert judgement.verdict is Verdict.VALID
    names = [result.name for result in judgement.results]
    assert names == ["ids", "cell", "availability", "process-exits", "log-lines", "audit"]
    evidence = Evidence(audit_paths=("x",), audit_command=tuple(command(1)))
    assert judge(script.history(), evidence).verdict is Verdict.INVALID
