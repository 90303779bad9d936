"""The life of a broker as Kafka names it, and every step that is legal. Pure."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class BrokerState(IntEnum):
    """Kafka's numbers, as its metric BrokerState shows them."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


NOT_RUNNING, STARTING, RECOVERY, RUNNING, PENDING, SHUTTING_DOWN = BrokerState

TRANSITIONS: Final[Mapping[BrokerState, Mapping[BrokerState, str]]] = MappingProxyType(
    {
        NOT_RUNNING: {STARTING: "its directories are open, and it registers"},
        STARTING: {
            RECOVERY: "it has replayed its registration, but is not asked to serve yet",
            RUNNING: "it has replayed its registration, and is unfenced",
            SHUTTING_DOWN: "it is stopped before it served",
        },
        RECOVERY: {
            RUNNING: "its logs are open, and the controller has unfenced it",
            STARTING: "its registration is gone: it registers again",
            SHUTTING_DOWN: "it is stopped before it served",
        },
        RUNNING: {
            PENDING: "it is asked to stop: its leaderships are moved away",
            STARTING: "its registration is gone: it registers again",
            SHUTTING_DOWN: "it cannot go on",
        },
        PENDING: {SHUTTING_DOWN: "nothing is left to move, or it takes too long"},
        SHUTTING_DOWN: {NOT_RUNNING: "its logs and directories are closed"},
    }
)


class HeartbeatAnswer(NamedTuple):
    """What the active controller says of the broker."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def after_heartbeat(state: BrokerState, answer: HeartbeatAnswer) -> BrokerState:
    """The state that an answer leads to.

    A broker that is fenced while it runs (it was silent for too long) goes on: its next heartbeat
    asks to be unfenced, and until then others lead its partitions.
    """
    if state is STARTING and not answer.is_fenced:
        return RUNNING
    if state is STARTING and answer.is_caught_up:
        return RECOVERY
    if state is RECOVERY and not answer.is_fenced:
        return RUNNING
    if state is PENDING and answer.should_shut_down:
        return SHUTTING_DOWN
    return state


def when_asked_to_stop(state: BrokerState) -> BrokerState:
    """Only a broker that serves has something to hand over."""
    return PENDING if state is RUNNING else SHUTTING_DOWN
