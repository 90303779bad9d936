"""What a workload is to the runner: a set-up, processes that take steps, and a last look.

A process asks one thing at a time. It says first what it is about to do (Ask), then does it; what
comes back is merged over the Ask into the line of the history. Definite and Indefinite of the
client say fail and info.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from jepsen_like.client.kafka import KafkaClient

TOPIC_PREFIX: Final = "jl-"
_REPLICAS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Ask:
    """One operation: its fields of the history, and how to do it."""

    f: str
    fields: dict[str, Any]
    do: Callable[[], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class Surroundings:
    """What a workload may know of its run."""

    clients: int
    rng: random.Random
    options: dict[str, Any] = field(default_factory=dict)
    # Node ids to names, so that lines say "b101".
    names: Callable[[int], str] = lambda node_id: f"b{node_id}"
    brokers: int = 3
    # How names of topics and groups begin. In a cluster that somebody else started there may be
    # those of an earlier run, whose values would look like the answers of this one.
    prefix: str = TOPIC_PREFIX

    @property
    def replicas(self) -> int:
        """As many as topics of a run have."""
        return min(_REPLICAS_MAX, self.brokers)

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))


class Process(Protocol):
    """One client process: chooses what to do next."""

    def next(self) -> Ask: ...


class Workload(Protocol):
    """Shared by all processes of a run."""

    def options(self) -> dict[str, Any]:
        """What the header of the history says of it."""
        ...

    async def set_up(self, client: KafkaClient) -> None:
        """Before the load; may be repeated until it gets through."""
        ...

    def process(self, number: int, client: KafkaClient) -> Process: ...

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        """After all is healed: processes that read what is there. Each takes steps until
        `is_finished` says so."""
        ...

    def is_finished(self) -> bool: ...

    def unread(self) -> dict[str, int]:
        """What the last look has not seen, by key; empty: all."""
        ...

    def has_room(self) -> bool:
        """False once it has nothing more to do."""
        ...


class Unread:
    """Of a workload that has nothing to look at in the end: each answer was judged by itself."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.rng = surroundings.rng

    def name(self, node_id: int) -> str:
        return self._surroundings.names(node_id)

    def own_rng(self) -> random.Random:
        """For one process, so that what it does depends on no other."""
        return random.Random(self.rng.getrandbits(64))

    def final_processes(self, clients: list[KafkaClient]) -> list[Process]:
        del clients
        return []

    def is_finished(self) -> bool:
        return True

    def unread(self) -> dict[str, int]:
        return {}

    def has_room(self) -> bool:
        return True


def split_partition(key: str) -> tuple[str, int]:
    """ "topic-3" as ("topic", 3)."""
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)
