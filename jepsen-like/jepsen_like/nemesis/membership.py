"""Brokers that come and go. Voters are fixed in this product: membership is brokers.

A broker with an id that nobody ever had is started and registers; replicas move onto it. Later they
move away again, it stops, and its registration is taken back. All of it under load.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from jepsen_like.client import requests
from jepsen_like.client.errors import name_of
from jepsen_like.client.kafka import REASSIGN, UNREGISTER_BROKER, Definite, Indefinite
from jepsen_like.cluster.processes import Node
from jepsen_like.nemesis.base import Fault, NotNow, Situation
from jepsen_like.workloads.base import split_partition

_JOIN_S: Final = 30.0
_MOVE_S: Final = 40.0
_LOOK_S: Final = 0.3
_MOVED_MAX: Final = 3
_GUESTS_MAX: Final = 6  # Of one run: each leaves a directory behind.


class Membership:
    """One guest at a time."""

    name = "membership"

    async def begin(self, situation: Situation) -> Fault:
        cluster = situation.cluster
        guests = [node for node in cluster.brokers if node.node_id not in _hosts(situation)]
        if guests:
            raise NotNow(f"{guests[0].name} has not left yet")
        if len(cluster.nodes) - len(cluster.present) >= _GUESTS_MAX:
            raise NotNow("enough brokers have come and gone")
        if not situation.brokers_are_whole():
            raise NotNow("not every replica is in sync")
        node = cluster.add_broker()
        cluster.start(node.name)
        try:
            await _until(lambda: node.name in situation.seen.unfenced, _JOIN_S, "it did not join")
            moved = await _move_onto(situation, node)
        except NotNow:
            await _leave(situation, node)
            raise

        async def heal() -> None:
            await _leave(situation, node)

        return Fault(self.name, {"targets": [node.name], "moved": moved}, heal)


def _hosts(situation: Situation) -> list[int]:
    """The ids of those that were there from the beginning."""
    every = [node.node_id for node in situation.cluster.nodes.values() if not node.is_controller]
    return sorted(every)[: situation.cluster.options.brokers]


async def _until(holds: Callable[[], bool], timeout_s: float, why: str) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise NotNow(why) from None


async def _reassign(situation: Situation, key: str, replicas: list[int]) -> None:
    topic, index = split_partition(key)
    body = requests.reassign(topic, index, replicas, 5000)
    try:
        _, data = await situation.admin.ask_any(REASSIGN, body, flexible=True)
    except (Definite, Indefinite) as error:
        raise NotNow(f"reassign {key}: {error}") from None
    code = requests.read_reassign(data)
    if code:
        raise NotNow(f"reassign {key}: {name_of(code)}")


async def _move_onto(situation: Situation, node: Node) -> list[str]:
    """Some partitions give up one replica for the newcomer, which then must catch up. It may be the
    only one that a partition has."""
    seen, rng = situation.seen, situation.rng
    known = sorted(seen.replicas)
    if not known:
        raise NotNow("no partition is known yet")
    chosen = rng.sample(known, min(len(known), rng.randint(1, _MOVED_MAX)))
    widths = {key: len(seen.replicas[key]) for key in chosen}
    for key, width in widths.items():
        stay = rng.sample(seen.replicas[key], width - 1)
        replicas = [int(name[1:]) for name in stay]
        replicas.insert(rng.randint(0, len(replicas)), node.node_id)
        await _reassign(situation, key, replicas)
    await _until(lambda: _moved(situation, node, widths), _MOVE_S, "its replicas do not catch up")
    return chosen


def _moved(situation: Situation, node: Node, widths: Mapping[str, int]) -> bool:
    """Whether these have it, as many replicas as before, and all of them in sync."""
    seen = situation.seen
    return all(
        node.name in seen.replicas.get(key, ())
        and seen.partitions[key][1] == seen.partitions[key][2] == width
        for key, width in widths.items()
        if key in seen.partitions
    )


async def _leave(situation: Situation, node: Node) -> None:
    """Its replicas move away, it stops, and its registration is taken back."""
    cluster, seen = situation.cluster, situation.seen
    try:
        for key, replicas in sorted(seen.replicas.items()):
            if node.name in replicas:
                await _move_away(situation, key, replicas, node)
        await _until(lambda: not _has_replicas(situation, node), _MOVE_S, "its replicas stay")
    except NotNow as problem:
        raise RuntimeError(f"{node.name} cannot leave: {problem}") from None
    await asyncio.to_thread(cluster.stop, node.name)
    node.retired = True
    body = requests.unregister_broker(node.node_id)
    try:
        _, data = await situation.admin.ask_any(UNREGISTER_BROKER, body, flexible=True)
    except (Definite, Indefinite) as error:
        raise RuntimeError(f"unregister {node.name}: {error}") from None
    code = requests.read_unregister_broker(data)
    if code:
        raise RuntimeError(f"unregister {node.name}: {name_of(code)}")


async def _move_away(situation: Situation, key: str, replicas: tuple[str, ...], node: Node) -> None:
    stay = [int(name[1:]) for name in replicas if name != node.name]
    others = [each for each in _hosts(situation) if each not in stay]
    await _reassign(situation, key, [*stay, *others][: max(len(replicas), 1)])


def _has_replicas(situation: Situation, node: Node) -> bool:
    return any(node.name in replicas for replicas in situation.seen.replicas.values())
