"""Faults of files and members: bits that flip and flip back, and each fault gets its turn."""

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import pytest
from jepsen_like import faults
from jepsen_like.faults import FaultPlan
from jepsen_like.generator import Faults
from jepsen_like.history import Header, HistoryWriter
from jepsen_like.nemesis import directories, membership
from jepsen_like.nemesis.base import Fault, NotNow, Seen, Situation, nothing
from jepsen_like.progress import Progress

from tests.jepsen.test_nemesis import FakeCluster

WAIT_S = 30.0


def situation(seen: Seen | None = None) -> Situation:
    cluster: Any = FakeCluster()
    admin: Any = None
    return Situation(cluster, seen or Seen(), random.Random(3), admin)


class Reluctant:
    """Fires at its so many-th attempt."""

    def __init__(self, name: str, attempts: int) -> None:
        self.name = name
        self._left = attempts

    async def begin(self, _situation: Situation) -> Fault:
        self._left -= 1
        if self._left > 0:
            raise NotNow("not yet")
        return Fault(self.name, {"targets": []}, nothing)


def test_a_fault_that_never_fired_comes_before_those_that_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nemeses = {"easy": Reluctant("easy", 1), "hard": Reluctant("hard", 4)}
    monkeypatch.setattr(faults, "NEMESES", nemeses)
    monkeypatch.setattr(faults, "_TRY_AGAIN_S", 0.0)
    monkeypatch.setattr(Faults, "gap_s", lambda _self: 0.0)
    monkeypatch.setattr(Faults, "duration_s", lambda _self: 0.0)

    async def main() -> None:
        writer = HistoryWriter(io.StringIO(), Header(workload="log"))
        progress = Progress(io.StringIO(), quiet=True)
        plan = FaultPlan(("easy", "hard"), situation(), writer, progress, 1.0)
        assert plan.missing == ["easy", "hard"]
        task = asyncio.create_task(plan.run())
        async with asyncio.timeout(WAIT_S):
            while plan.missing:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


class Slow:
    """Is half done when the run's time is over."""

    name = "slow"

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.healed = False

    async def begin(self, _situation: Situation) -> Fault:
        self.has_begun.set()
        await self.may_end.wait()

        async def heal() -> None:
            self.healed = True

        return Fault(self.name, {"targets": []}, heal)


def test_a_fault_that_was_begun_is_ended_and_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_else(_situation: Situation) -> None:
        return

    monkeypatch.setattr(Faults, "gap_s", lambda _self: 0.0)
    monkeypatch.setattr(faults, "heal_everything", nothing_else)

    async def main() -> Slow:
        slow = Slow()
        monkeypatch.setattr(faults, "NEMESES", {"slow": slow})
        writer = HistoryWriter(io.StringIO(), Header(workload="log"))
        progress = Progress(io.StringIO(), quiet=True)
        plan = FaultPlan(("slow",), situation(), writer, progress, 1.0)
        task = asyncio.create_task(plan.run())
        await slow.has_begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        healing = asyncio.create_task(plan.heal_all())
        await asyncio.sleep(0)
        slow.may_end.set()
        async with asyncio.timeout(WAIT_S):
            await healing
        return slow

    assert asyncio.run(main()).healed


def test_one_bit_flips_and_flips_back(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / "0.log"
    path.parent.mkdir()
    path.write_bytes(bytes(100))
    hurt = directories._flip_bit(situation(), [str(path)], str(tmp_path))
    assert hurt is not None
    assert hurt["file"] == "t-0/0.log"
    assert sum(byte.bit_count() for byte in path.read_bytes()) == 1
    path.write_bytes(path.read_bytes() + b"more")
    directories._flip_back(str(tmp_path), hurt)
    assert path.read_bytes() == bytes(100) + b"more"


def test_what_the_node_has_made_anew_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(bytes(100))
    hurt = directories._flip_bit(situation(), [str(path)], str(tmp_path))
    assert hurt is not None
    path.write_bytes(b"\xff" * 100)
    directories._flip_back(str(tmp_path), hurt)
    assert path.read_bytes() == b"\xff" * 100
    path.unlink()
    directories._flip_back(str(tmp_path), hurt)
    assert not path.exists()


@pytest.mark.parametrize(("log", "may"), [("__cluster_metadata-0", True), ("jl-log-0", False)])
def test_a_broker_may_refuse_rotten_metadata_and_nothing_else(
    log: str, may: bool, tmp_path: Path
) -> None:
    """A log of data that has rotted is given to another replica, while the broker goes on."""
    now = situation(Seen(partitions={"jl-log-0": ("b101", 3, 3)}))
    cluster: Any = now.cluster
    cluster.kill = cluster.stop = cluster.start = lambda _name: True
    cluster.nodes["b101"].data_dir = str(tmp_path)
    path = tmp_path / log / "0.log"
    path.parent.mkdir()
    path.write_bytes(bytes(100))
    fault = asyncio.run(directories.bit_rot(now, ["b101"]))
    assert fault.details["file"] == f"{log}/0.log"
    assert cluster.nodes["b101"].may_exit is may


def test_no_second_voter_rots() -> None:
    now = situation()
    now.damaged.add("c1")
    with pytest.raises(NotNow, match="another controller"):
        asyncio.run(directories.bit_rot(now, ["c2"]))


def test_no_broker_rots_while_another_lacks_records() -> None:
    seen = Seen(partitions={"t-0": ("b101", 2, 3)})
    with pytest.raises(NotNow, match="do not have all"):
        asyncio.run(directories.bit_rot(situation(seen), ["b101"]))


def test_nobody_joins_while_replicas_are_out_of_sync() -> None:
    now = situation(Seen(partitions={"t-0": ("b101", 2, 3)}))
    with pytest.raises(NotNow, match="in sync"):
        asyncio.run(membership.Membership().begin(now))


@pytest.mark.parametrize(
    ("replicas", "isr", "expected"),
    [
        (("b101", "b102", "b104"), 3, True),
        (("b101", "b102", "b103"), 3, False),  # It is not there.
        (("b101", "b102", "b103", "b104"), 4, False),  # Nobody has left for it yet.
        (("b101", "b102", "b104"), 2, False),  # Somebody is behind.
    ],
)
def test_a_move_is_over_when_all_are_in_sync(
    replicas: tuple[str, ...], isr: int, expected: bool
) -> None:
    seen = Seen(partitions={"t-0": ("b101", isr, len(replicas))}, replicas={"t-0": replicas})
    node: Any = FakeCluster().nodes["b101"]
    node.name = "b104"
    assert membership._moved(situation(seen), node, {"t-0": 3}) is expected
