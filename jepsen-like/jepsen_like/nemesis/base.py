"""A fault begins, lasts, and is healed; a nemesis knows how to make one. Targets are chosen late.

Faults leave a cluster that can recover: what must not happen together (two brokers that lose what
they had not synced, while Kafka's promise is replication and not fsync) is held apart here, by
`Situation.brokers_are_whole`.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from jepsen_like.client.kafka import KafkaClient
from jepsen_like.cluster.processes import Cluster

TARGETS: Final = (
    "one",
    "minority",
    "majority",
    "all",
    "active-controller",
    "partition-leader",
    "broker",
    "controller",
)


@dataclass(slots=True)
class Seen:
    """What the observer saw last."""

    active_controller: str | None = None
    # Partition to (leader, ISR size, replicas); names, not ids.
    partitions: dict[str, tuple[str | None, int, int]] = field(default_factory=dict)
    # Partition to its replicas, the preferred leader first.
    replicas: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unfenced: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Situation:
    """All that a nemesis may use."""

    cluster: Cluster
    seen: Seen
    rng: random.Random
    admin: KafkaClient
    # Controllers whose files have rotted: at most one at a time.
    damaged: set[str] = field(default_factory=set)

    @property
    def controllers(self) -> list[str]:
        return [node.name for node in self.cluster.controllers]

    @property
    def brokers(self) -> list[str]:
        return [node.name for node in self.cluster.brokers]

    @property
    def all_nodes(self) -> list[str]:
        return list(self.cluster.present)

    def brokers_are_whole(self) -> bool:
        """Whether every partition has all its replicas in sync, and every broker runs."""
        running = all(node.is_running for node in self.cluster.brokers)
        in_sync = all(
            isr == replicas and leader for leader, isr, replicas in self.seen.partitions.values()
        )
        return running and bool(self.seen.partitions) and in_sync

    def choose(self, target: str) -> list[str]:
        """The nodes of a target; possibly none, where nobody is known to lead."""
        rng = self.rng
        match target:
            case "one":
                return [rng.choice(self.all_nodes)]
            case "broker":
                return [rng.choice(self.brokers)]
            case "controller":
                return [rng.choice(self.controllers)]
            case "minority":
                return rng.sample(self.controllers, (len(self.controllers) - 1) // 2) + rng.sample(
                    self.brokers, (len(self.brokers) - 1) // 2
                )
            case "majority":
                return rng.sample(self.controllers, len(self.controllers) // 2 + 1) + rng.sample(
                    self.brokers, len(self.brokers) // 2 + 1
                )
            case "all":
                return self.all_nodes
            case "active-controller":
                active = self.seen.active_controller
                return [active] if active else []
            case "partition-leader":
                leaders = sorted({each[0] for each in self.seen.partitions.values() if each[0]})
                return [rng.choice(leaders)] if leaders else []
            case other:
                raise ValueError(f"no such target: {other}")


class NotNow(Exception):
    """The fault cannot be done at the moment; it did not fire."""


Heal = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One that is in force: what it says of itself, and how it ends."""

    name: str
    details: dict[str, Any]
    heal: Heal


class Nemesis(Protocol):
    """Makes faults of one kind."""

    @property
    def name(self) -> str: ...

    async def begin(self, situation: Situation) -> Fault:
        """Put one in force; NotNow if that is not possible."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """A nemesis out of a function, with the targets that it draws from."""

    name: str
    make: Callable[[Situation, list[str]], Awaitable[Fault]]
    targets: Sequence[str] = ("one",)

    async def begin(self, situation: Situation) -> Fault:
        targets = situation.choose(situation.rng.choice(self.targets))
        if not targets:
            raise NotNow("nobody to hit")
        return await self.make(situation, targets)


async def nothing() -> None:
    """Heals what ends by itself."""


def links_between(left: Iterable[str], right: Iterable[str]) -> list[tuple[str, str]]:
    """Every directed link from one group to the other and back."""
    pairs = [(a, b) for a in left for b in right if a != b]
    return pairs + [(b, a) for a, b in pairs]
