"""Clients of a group as they see themselves, and the requests of theirs that wait."""

from dataclasses import dataclass
from typing import Any


class Violation(AssertionError):
    """A rule is broken."""


class Token:
    """One request that waits; answered once."""

    def __init__(self, client: "Client", kind: str, generation: int = -1) -> None:
        self.client = client
        self.kind = kind
        self.generation = generation
        self.answer: Any = None
        self.has_waited = False


@dataclass
class Client:
    """A consumer as it sees itself."""

    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"1"), ("sticky", b"1"))
    waiting: Token | None = None
    members: tuple[Any, ...] = ()  # What it is to assign to, if it leads.
    is_synced: bool = False
    heard_ms: int = 0  # When the coordinator last heard of it, or let it wait.
    rejoined_ms: int = 0
