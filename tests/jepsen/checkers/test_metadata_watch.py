"""Every node shows pieces of one sequence, and no broker's view goes back."""

from typing import Any

from jepsen_like.checkers import metadata_watch
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script

LOG = "__cluster_metadata-0"


def judged(script: Script) -> CheckResult:
    return metadata_watch.check(script.trace())


def follow(s: Script, node: str, off: int, *batches: tuple[int, int, int], to: int) -> None:
    s.invoke(0, "follow", k=LOG, node=node, off=off)
    s.end(0, v=[list(batch) for batch in batches], off=to)


def view(s: Script, node: str, leader: Any, epoch: int) -> None:
    s.do(1, "view", node=node, gives={"t-0": [leader, epoch, [101, 102]]})


def test_pieces_of_one_sequence_are_valid() -> None:
    s = Script("watch")
    follow(s, "b101", 0, (0, 1, 77), (3, 1, 78), to=5)
    follow(s, "b102", 0, (0, 1, 77), to=3)
    follow(s, "b102", 3, (3, 1, 78), (5, 2, 79), to=6)
    follow(s, "b103", 4, (3, 1, 78), (5, 2, 79), to=6)
    view(s, "b101", 101, 4)
    view(s, "b101", 102, 5)
    view(s, "b102", 101, 4)
    view(s, "b102", -1, 5)
    assert judged(s).verdict is Verdict.VALID


def test_two_batches_at_one_offset() -> None:
    s = Script("watch")
    follow(s, "b101", 0, (0, 1, 77), to=3)
    follow(s, "b102", 0, (0, 1, 78), to=3)
    result = judged(s)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"divergent": 1}


def test_a_batch_that_one_node_left_out() -> None:
    s = Script("watch")
    follow(s, "b101", 0, (0, 1, 77), (3, 1, 78), (5, 1, 79), to=6)
    follow(s, "b102", 0, (0, 1, 77), (5, 1, 79), to=6)
    follow(s, "b103", 3, (5, 1, 79), to=6)
    assert judged(s).counts == {"gap": 2}


def test_batches_out_of_order_and_falling_epochs() -> None:
    s = Script("watch")
    follow(s, "b101", 0, (3, 1, 78), (0, 2, 77), to=5)
    assert judged(s).counts == {"gap": 1, "epoch-falls": 1}


def test_a_view_that_goes_back() -> None:
    s = Script("watch")
    view(s, "b101", 102, 5)
    view(s, "b102", 101, 4)
    assert judged(s).verdict is Verdict.VALID
    view(s, "b101", 101, 4)
    assert judged(s).counts == {"view-goes-back": 1}


def test_a_view_may_go_back_in_another_life() -> None:
    s = Script("watch")
    view(s, "b101", 102, 5)
    s.line("run", "ok", "start", node="b101")
    view(s, "b101", 101, 4)
    assert judged(s).verdict is Verdict.VALID


def test_two_leaders_in_one_epoch() -> None:
    s = Script("watch")
    view(s, "b101", 101, 5)
    view(s, "b102", 102, 5)
    assert judged(s).counts == {"two-leaders": 1}
