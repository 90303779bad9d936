"""Topics as a set: what was added stays, what was removed is gone, on every node in order."""

from jepsen_like.checkers import sets
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script


def judged(script: Script) -> CheckResult:
    return sets.check(script.trace())


def listed(script: Script, node: str, *names: str, final: bool = False) -> None:
    script.do(3, "final-list" if final else "list", node=node, gives=sorted(names))


def clean() -> Script:
    script = Script("set")
    script.do(0, "add", v="a")
    listed(script, "b101")  # Late, and that is allowed.
    script.do(1, "add", v="b")
    script.do(2, "add", "info", v="c")
    listed(script, "b101", "a", "b")
    script.do(0, "remove", v="b")
    listed(script, "b101", "a", "b", "c")
    listed(script, "b102", "a")
    return script


def test_a_clean_history_is_valid() -> None:
    script = clean()
    listed(script, "b101", "a", "c", final=True)
    listed(script, "b102", "a", "c", final=True)
    assert judged(script).verdict is Verdict.VALID


def test_without_a_final_list_nothing_is_known() -> None:
    assert judged(clean()).verdict is Verdict.UNKNOWN


def test_what_was_added_is_lost() -> None:
    script = clean()
    listed(script, "b103", "c", final=True)
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"lost": 1}


def test_what_was_removed_is_back() -> None:
    script = clean()
    listed(script, "b103", "a", "b", final=True)
    assert judged(script).counts == {"resurrected": 1}


def test_what_may_have_been_removed_may_be_either_way() -> None:
    for names in (("a",), ()):
        script = Script("set")
        script.do(0, "add", v="a")
        script.do(1, "remove", "info", v="a")
        listed(script, "b101", *names, final=True)
        assert judged(script).verdict is Verdict.VALID


def test_a_failed_removal_is_none() -> None:
    script = Script("set")
    script.do(0, "add", v="a")
    script.do(1, "remove", "fail", v="a")
    listed(script, "b101", final=True)
    assert judged(script).counts == {"lost": 1}


def test_a_name_vanishes_on_a_node_and_comes_back() -> None:
    script = Script("set")
    script.do(0, "add", v="a")
    listed(script, "b101", "a")
    listed(script, "b101")
    listed(script, "b101", "a")
    listed(script, "b101", "a", final=True)
    assert judged(script).counts == {"vanished": 1, "resurrected": 1}


def test_another_node_or_another_life_may_be_behind() -> None:
    script = Script("set")
    script.do(0, "add", v="a")
    listed(script, "b101", "a")
    listed(script, "b102")
    script.line("run", "ok", "start", node="b101")
    listed(script, "b101")
    listed(script, "b101", "a", final=True)
    assert judged(script).verdict is Verdict.VALID


def test_names_that_nobody_added() -> None:
    script = Script("set")
    script.do(0, "add", "fail", v="a")
    listed(script, "b101", "a", "z")
    listed(script, "b101", "a", "z", "late", final=True)
    script.do(0, "add", v="late")
    result = judged(script)
    assert result.counts == {"failed-add": 1, "phantom": 2}


def test_final_lists_that_disagree_about_an_unknown_outcome_are_counted() -> None:
    script = clean()
    listed(script, "b101", "a", "c", final=True)
    listed(script, "b102", "a", final=True)
    result = judged(script)
    assert result.verdict is Verdict.VALID
    assert result.counts == {"final-differ": 1}
