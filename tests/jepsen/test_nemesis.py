"""Whom a fault hits, and which links a grudge cuts: data first, applied later."""

import random
from typing import Any

import pytest
from jepsen_like.cluster.processes import ClusterOptions
from jepsen_like.nemesis import network
from jepsen_like.nemesis.base import Seen, Situation
from jepsen_like.nemesis.registry import NEMESES, parse

NODES = ["c1", "c2", "c3", "b101", "b102", "b103"]


class FakeNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.node_id = int(name[1:])
        self.is_controller = name.startswith("c")
        self.is_running = True


class FakeCluster:
    """Only what choosing looks at."""

    def __init__(self) -> None:
        self.nodes = {name: FakeNode(name) for name in NODES}
        self.options = ClusterOptions(directory="")

    @property
    def present(self) -> dict[str, FakeNode]:
        return self.nodes

    @property
    def controllers(self) -> list[FakeNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[FakeNode]:
        return [node for node in self.nodes.values() if not node.is_controller]


def situation(seen: Seen | None = None) -> Situation:
    cluster: Any = FakeCluster()
    admin: Any = None
    return Situation(cluster, seen or Seen(), random.Random(3), admin)


def test_targets_are_as_many_as_their_name_says() -> None:
    now = situation()
    for _ in range(20):
        assert len(now.choose("one")) == 1
        assert [n[0] for n in sorted(now.choose("minority"))] == ["b", "c"]
        assert [n[0] for n in sorted(now.choose("majority"))] == ["b", "b", "c", "c"]
    assert now.choose("all") == NODES


def test_leaders_are_those_that_were_seen() -> None:
    seen = Seen(active_controller="c2", partitions={"t-0": ("b103", 3, 3), "t-1": (None, 1, 3)})
    assert situation(seen).choose("active-controller") == ["c2"]
    assert situation(seen).choose("partition-leader") == ["b103"]
    assert situation().choose("active-controller") == []
    assert situation().choose("partition-leader") == []


def test_brokers_are_whole_only_if_all_is_in_sync_and_running() -> None:
    assert not situation().brokers_are_whole(), "nothing was seen yet"
    assert situation(Seen(partitions={"t-0": ("b101", 3, 3)})).brokers_are_whole()
    assert not situation(Seen(partitions={"t-0": ("b101", 2, 3)})).brokers_are_whole()
    assert not situation(Seen(partitions={"t-0": (None, 3, 3)})).brokers_are_whole()
    one_down = situation(Seen(partitions={"t-0": ("b101", 3, 3)}))
    one_down.cluster.nodes["b102"].is_running = False  # type: ignore[misc]
    assert not one_down.brokers_are_whole()


def test_an_isolated_node_is_cut_off_both_ways() -> None:
    grudge = network.isolate(NODES, ["b101"])
    assert len(grudge) == 10
    assert ("b101", "c1") in grudge
    assert ("c1", "b101") in grudge
    assert not [pair for pair in grudge if "b101" not in pair]


def test_one_way_leaves_the_other_way_open() -> None:
    whole = network.isolate(NODES, ["b101"])
    for seed in range(5):
        half = network.one_way(whole, random.Random(seed))
        assert len(half) == 5
        assert not [pair for pair in half if pair[::-1] in half]


@pytest.mark.parametrize("seed", range(5))
def test_in_a_ring_everyone_sees_some_and_nobody_all(seed: int) -> None:
    grudge = network.ring(NODES, random.Random(seed))
    for node in NODES:
        lost = {target for source, target in grudge if source == node}
        assert 1 <= len(lost) <= 3
    assert all(pair[::-1] in grudge for pair in grudge)


def test_a_bridge_sees_both_halves() -> None:
    grudge = network.bridge(NODES, random.Random(1))
    touched = {node for pair in grudge for node in pair}
    assert len(touched) == len(NODES) - 1


def test_names_are_checked() -> None:
    assert parse("kill, partition") == ["kill", "partition"]
    assert parse("none") == []
    with pytest.raises(ValueError, match="no such nemesis: earthquake"):
        parse("kill,earthquake")


def test_every_nemesis_of_the_matrix_exists() -> None:
    from jepsen_like.matrix import MATRIX, SMOKE
    from jepsen_like.workloads.registry import RATES, WORKLOADS

    for cell in (*MATRIX, *SMOKE):
        assert set(cell.nemesis) <= set(NEMESES)
        assert cell.workload in WORKLOADS
    assert set(RATES) == set(WORKLOADS)
    assert len({cell.name for cell in MATRIX}) == len(MATRIX)
