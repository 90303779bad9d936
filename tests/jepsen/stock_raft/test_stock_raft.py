"""Stock pysyncobj loses acknowledged writes, and the harness says so; left alone, it does not.

`make jepsen-stock` attacks it anew. The history here was recorded by it: of three nodes only the
leader died, and nothing was wrong with a disk or the order of messages.
"""

import asyncio
from pathlib import Path
from typing import cast

from jepsen_like.checkers.judge import judge
from jepsen_like.checkers.trace import Trace
from jepsen_like.cluster.links import Joined
from jepsen_like.history import read_history
from jepsen_like.verdict import Verdict

from tests.jepsen.stock_raft.attack import Round

RECORDED = Path(__file__).parent / "lost_writes.jsonl"


def test_the_recorded_attack_shows_lost_writes() -> None:
    history = read_history(str(RECORDED))
    judgement = judge(history)
    found = judgement.to_json()["anomalies"]
    assert judgement.verdict is Verdict.INVALID
    assert found["lost-write"] + found["unseen"] > 5
    trace = Trace(history)
    acknowledged = {call.invoke.v for call in trace.ok("send")}
    read = {value for call in trace.ok("poll") for _, value in call.answer.v}
    assert len(acknowledged - read) == found["lost-write"] + found["unseen"]
    assert len([op for op in trace.run_ops if op.f == "exit"]) == 1


class _ClosedSide:
    """A side of a connection that is closed, as uvloop shows it."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def get_extra_info(self, _: str) -> "_ClosedSide":
        return self

    def setsockopt(self, *_: object) -> None:
        raise ValueError("negative file descriptor")

    def abort(self) -> None:
        self.aborted = True


def test_a_link_whose_sides_are_closed_already_can_be_reset() -> None:
    """A machine that is lost takes its links with it, whoever closed first."""
    joined = Joined("A", "B")
    side = _ClosedSide()
    joined.transports.append(cast(asyncio.Transport, side))
    joined.reset()
    assert side.aborted


def test_without_a_fault_nothing_is_lost(tmp_path: Path) -> None:
    path = asyncio.run(Round(tmp_path, seed=1, kill=False, load_s=0.5).run())
    judgement = judge(read_history(str(path)))
    assert judgement.verdict is Verdict.VALID, judgement.to_json()["checks"]
    assert judgement.to_json()["anomalies"] == {}
