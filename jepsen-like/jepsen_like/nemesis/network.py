"""Links between nodes, and between clients and nodes: cut, one-way, slow, reset, broken off.

A partition is a grudge: data first (which links), applied later by the proxy.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from jepsen_like.nemesis.base import Fault, NotNow, Situation, links_between, nothing

Grudge = list[tuple[str, str]]
CLIENT: Final = "client"
_LATE_RESET = 0.5


def isolate(nodes: Sequence[str], chosen: Sequence[str]) -> Grudge:
    """These see only each other. Clients still reach everyone."""
    return links_between(chosen, [each for each in nodes if each not in chosen])


def halves(nodes: Sequence[str], rng: random.Random) -> Grudge:
    shuffled = rng.sample(list(nodes), len(nodes))
    return isolate(nodes, shuffled[: len(nodes) // 2])


def ring(nodes: Sequence[str], rng: random.Random) -> Grudge:
    """Everyone sees a majority, and no two see the same one."""
    shuffled = rng.sample(list(nodes), len(nodes))
    count = len(shuffled)
    reach = (count // 2 + 1) // 2 or 1
    grudge: Grudge = []
    for i, source in enumerate(shuffled):
        for j, target in enumerate(shuffled):
            distance = min((i - j) % count, (j - i) % count)
            if distance > max(reach, 1) and source != target:
                grudge.append((source, target))
    return grudge


def bridge(nodes: Sequence[str], rng: random.Random) -> Grudge:
    """Two halves, and one node that sees both."""
    shuffled = rng.sample(list(nodes), len(nodes))
    middle = len(shuffled) // 2
    return links_between(shuffled[:middle], shuffled[middle + 1 :])


def one_way(grudge: Grudge, rng: random.Random) -> Grudge:
    """Of each pair of links one direction only, the same for all."""
    flip = rng.random() < 0.5
    return [(b, a) if flip else (a, b) for a, b in grudge[: len(grudge) // 2]]


def apply(situation: Situation, grudge: Grudge, rule: dict[str, Any]) -> None:
    situation.cluster.proxy.order(do="rule", pairs=grudge, rule=rule)


def draw(situation: Situation) -> tuple[str, Grudge]:
    """Some partition, with its name."""
    nodes, rng = situation.all_nodes, situation.rng
    match rng.choice(
        ("one", "leader", "partition-leader", "halves", "bridge", "clients", "quorum")
    ):
        case "one":
            chosen = situation.choose("one")
        case "leader":
            chosen = situation.choose("active-controller")
        case "partition-leader":
            chosen = situation.choose("partition-leader")
        case "halves":
            return "halves", halves(nodes, rng)
        case "bridge":
            return "bridge", bridge(nodes, rng)
        case "clients":
            chosen = situation.choose("one")
            return "clients " + chosen[0], links_between(chosen, [CLIENT])
        case _:
            return "brokers and quorum", links_between(situation.controllers, situation.brokers)
    if not chosen:
        raise NotNow("nobody to hit")
    # Half of the time the clients of the other side are cut off as well.
    others = [*nodes, CLIENT] if rng.random() < 0.5 else nodes
    return "isolate " + ",".join(chosen), isolate(others, chosen)


class Links:
    """A rule on some links."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def begin(self, situation: Situation) -> Fault:
        shape, grudge = self._draw(situation)
        rule = self._rule(situation.rng)
        if not grudge:
            raise NotNow("no link to hurt")
        apply(situation, grudge, rule)
        targets = sorted({source for source, _ in grudge} - {CLIENT})

        async def heal() -> None:
            apply(situation, grudge, {})
            if "hold" in rule and situation.rng.random() < _LATE_RESET:
                # Otherwise what was held is delivered now, late.
                situation.cluster.proxy.order(do="reset", pairs=grudge)

        details = {"targets": targets, "shape": shape, "links": len(grudge), "rule": rule}
        return Fault(self.name, details, heal)

    def _draw(self, situation: Situation) -> tuple[str, Grudge]:
        nodes = [*situation.all_nodes, CLIENT]
        match self.name:
            case "partition":
                return draw(situation)
            case "one-way":
                shape, grudge = draw(situation)
                return shape, one_way(grudge, situation.rng)
            case "ring":
                quorum = ring(situation.all_nodes, situation.rng)
                return "ring", quorum
            case _:
                chosen = situation.choose(situation.rng.choice(("one", "minority", "all")))
                return ",".join(chosen), links_between(chosen, nodes)

    def _rule(self, rng: random.Random) -> dict[str, Any]:
        match self.name:
            case "slow-links":
                return {"delay_ms": rng.choice((5, 30, 150)), "jitter_ms": rng.choice((5, 50, 300))}
            case "throttle":
                return {"bytes_per_s": rng.choice((2_000, 20_000, 100_000))}
            case "cut":
                return {"cut_after": rng.choice((1, 30, 2_000))}
            case "refuse":
                return {"refuse": True}
            case _:
                return {"hold": True}


class Reset:
    """Every connection of some nodes is reset, once."""

    name = "reset"

    async def begin(self, situation: Situation) -> Fault:
        chosen = situation.choose(situation.rng.choice(("one", "minority", "all")))
        pairs = links_between(chosen, [*situation.all_nodes, CLIENT])
        situation.cluster.proxy.order(do="reset", pairs=pairs)
        return Fault(self.name, {"targets": chosen}, nothing)


class Swizzle:
    """Nodes are cut off one by one, and let back in another order (FoundationDB's swizzle-clog)."""

    name = "swizzle"

    async def begin(self, situation: Situation) -> Fault:
        rng = situation.rng
        nodes = situation.all_nodes
        chosen = rng.sample(nodes, rng.randint(2, max(2, len(nodes) - 1)))
        everyone = [*nodes, CLIENT]
        for name in chosen:
            apply(situation, isolate(everyone, [name]), {"hold": True})
            await asyncio.sleep(0.2 + 0.8 * rng.random())

        async def heal() -> None:
            for name in rng.sample(chosen, len(chosen)):
                apply(situation, isolate(everyone, [name]), {})
                await asyncio.sleep(0.2 + 0.8 * rng.random())
            apply(situation, links_between(everyone, everyone), {})

        return Fault(self.name, {"targets": chosen}, heal)


NETWORK_FAULTS = (
    Links("partition"),
    Links("one-way"),
    Links("ring"),
    Links("slow-links"),
    Links("throttle"),
    Links("cut"),
    Links("refuse"),
    Reset(),
    Swizzle(),
)
