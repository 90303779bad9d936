"""A request that reached a controller, and what the controller decided. Values with an end.

Everything is said of attempts and not of what clients see: a request counts from the moment in
which a controller takes it, its answer from the moment in which it is given, whether it arrives or
not. That is a shorter time than any client could measure, so what holds here holds for clients.
"""

from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage
from tests.sim.oracles import Proposal


@dataclass(slots=True, eq=False)
class Attempt:
    """One request at one controller. A client that asks again makes another one."""

    number: int
    api_key: int
    message: Any
    node_id: int
    life: int
    asked_us: int
    floor: int = 0  # The least state of its register that it may speak of; see history.py.
    decided: list["Decided"] = field(default_factory=list)
    is_answered: bool = False


@dataclass(slots=True, eq=False)
class Decided:
    """One batch that a controller proposed."""

    proposal: Proposal
    data: bytes
    attempt: Attempt | None  # None: the controller decided by itself.
    image: ClusterImage  # The speculative one after all batches of the decision.


def code_of(response: Any) -> ErrorCode:
    """What the answer as a whole says; requests here are about one thing."""
    code = getattr(response, "error_code", None)
    if code is not None:
        return code  # type: ignore[no-any-return]
    for name in ("topics", "responses", "results", "entries"):
        for each in getattr(response, name, ()):
            return each.error_code  # type: ignore[no-any-return]
    return ErrorCode.none
