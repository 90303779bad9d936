"""The states of a classic group, and which may follow which. Pure.

Empty                no members; offsets may be kept
PreparingRebalance   members are to join again, and those that did are waiting
CompletingRebalance  all have joined; the leader is to say who gets what
Stable               every member has its assignment
Dead                 removed; a request that still reaches it must look for the group again
"""

from enum import Enum
from typing import Final


class State(Enum):
    """By Kafka's names, which clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Who leaves where to; what triggers it stands at the call of `ClassicGroup.transition_to`.
TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}
