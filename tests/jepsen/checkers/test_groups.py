"""Committed offsets are not lost, and none comes from nowhere."""

from typing import Any

from jepsen_like.checkers import groups
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script

KEY = "g/t-0"


def judged(script: Script) -> CheckResult:
    return groups.check(script.trace())


def commit(s: Script, off: int, type_: Any = "ok", node: str = "b101") -> None:
    s.do(0, "commit", type_, k=KEY, off=off, v=off, node=node)


def fetch(s: Script, value: int | None, node: str = "b101") -> None:
    s.invoke(1, "fetch", k=KEY, node=node)
    s.end(1, v=value)


def test_fetches_that_follow_the_commits_are_valid() -> None:
    s = Script("group")
    fetch(s, None)
    commit(s, 5)
    fetch(s, 5)
    commit(s, 9, "info")
    fetch(s, 5)
    fetch(s, 9)
    s.phase("final")
    fetch(s, 9)
    assert judged(s).verdict is Verdict.VALID


def test_a_commit_that_is_gone_in_the_end_is_lost() -> None:
    s = Script("group")
    commit(s, 5)
    commit(s, 9)
    s.phase("final")
    fetch(s, 5, node="b102")
    result = judged(s)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"lost-commit": 1}


def test_a_node_that_forgot_what_it_acknowledged_itself() -> None:
    s = Script("group")
    commit(s, 9)
    fetch(s, None)
    s.phase("final")
    fetch(s, 9)
    assert judged(s).counts == {"lost-commit": 1}


def test_an_old_coordinator_may_be_behind_for_a_while() -> None:
    s = Script("group")
    commit(s, 5)
    commit(s, 9, node="b102")
    fetch(s, 5)
    s.phase("final")
    fetch(s, 9)
    result = judged(s)
    assert result.verdict is Verdict.VALID
    assert result.counts == {"stale-fetch": 1}


def test_offsets_that_nobody_committed() -> None:
    s = Script("group")
    commit(s, 5)
    commit(s, 7, "fail")
    fetch(s, 7)
    fetch(s, 6)
    fetch(s, 11)
    commit(s, 11)
    s.phase("final")
    fetch(s, 11)
    assert judged(s).counts == {"future-commit": 3}


def test_what_was_seen_in_the_end_does_not_go_back() -> None:
    s = Script("group")
    commit(s, 5)
    commit(s, 9, "info")
    s.phase("final")
    fetch(s, 9)
    fetch(s, 5)
    assert judged(s).counts == {"went-back": 1}


def test_without_a_fetch_in_the_end_nothing_is_known() -> None:
    s = Script("group")
    commit(s, 5)
    fetch(s, 5)
    assert judged(s).verdict is Verdict.UNKNOWN
