"""Stock pysyncobj loses acknowledged writes, and the harness says so; left alone, it does not.

`make jepsen-stock` attacks it anew. The history here was recorded by it: of three nodes only the
leader died, and nothing was wrong with a disk or the order of messages.
"""

import asyncio
import socket
from pathlib import Path

from jepsen_like.checkers.judge import judge
from jepsen_like.checkers.trace import Trace
from jepsen_like.cluster.processes import ProxyProcess
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


def test_a_link_whose_sides_are_closed_already_can_be_reset(tmp_path: Path) -> None:
    """The proxy resets what a machine that is lost had open, whoever closed first."""
    proxy = ProxyProcess(1, str(tmp_path / "proxy.log"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            target = ["127.0.0.1", server.getsockname()[1]]
            port = proxy.order(do="listen", node="A", target=target)["port"]
            with socket.create_connection(("127.0.0.1", port)):
                accepted, _ = server.accept()
            for _ in range(20):
                proxy.order(**{"do": "reset", "from": "client", "to": "A"})
            accepted.close()
    finally:
        proxy.close()


def test_without_a_fault_nothing_is_lost(tmp_path: Path) -> None:
    path = asyncio.run(Round(tmp_path, seed=1, kill=False, load_s=0.5).run())
    judgement = judge(read_history(str(path)))
    assert judgement.verdict is Verdict.VALID, judgement.to_json()["checks"]
    assert judgement.to_json()["anomalies"] == {}
