"""A broker as a state machine: what each heartbeat makes of it. Pure.

FENCED               leads nothing; it starts like this, and may be recovering its logs
UNFENCED             serves clients
CONTROLLED_SHUTDOWN  its leaders have moved away; it waits until the other brokers know
SHUTDOWN_NOW         it was told that it may stop; the image shows it as fenced

TRANSITIONS has every legal step with its trigger. A broker that is in controlled shutdown never
comes back: only a new incarnation of it does, and that starts as FENCED.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kraftpy.metadata_log.image import Broker


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerState

TRANSITIONS: Final[Mapping[BrokerState, Mapping[BrokerState, str]]] = MappingProxyType(
    {
        FENCED: {
            FENCED: "it asks to stay fenced, or has not replayed its registration",
            UNFENCED: "it asks to serve and has replayed its registration",
            SHUTDOWN_NOW: "it asks to stop: it leads nothing",
        },
        UNFENCED: {
            UNFENCED: "it is alive",
            FENCED: "it asks for it, its last directory failed, or its session expired",
            CONTROLLED_SHUTDOWN: "it asks to stop and leads partitions",
            SHUTDOWN_NOW: "it asks to stop and leads nothing, or asks to be fenced as well",
        },
        CONTROLLED_SHUTDOWN: {
            CONTROLLED_SHUTDOWN: "it still leads, or active brokers have not replayed that far",
            SHUTDOWN_NOW: "it leads nothing and every active broker knows",
            FENCED: "its session expired",
        },
        SHUTDOWN_NOW: {},
    }
)


def current_state(broker: Broker) -> BrokerState:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else UNFENCED


def next_state(
    broker: Broker,
    *,
    wants_fence: bool,
    wants_shutdown: bool,
    is_caught_up: bool,
    leads_any: Callable[[], bool],
    others_know: Callable[[], bool],
) -> BrokerState:
    """What a heartbeat makes of the broker. The last two cost a walk, so they are asked last."""
    state = current_state(broker)
    if state is FENCED:
        if wants_shutdown:
            return SHUTDOWN_NOW
        may_serve = is_caught_up and not broker.in_controlled_shutdown
        return UNFENCED if may_serve and not wants_fence else FENCED
    if state is CONTROLLED_SHUTDOWN:
        return CONTROLLED_SHUTDOWN if leads_any() or not others_know() else SHUTDOWN_NOW
    if wants_shutdown:
        return CONTROLLED_SHUTDOWN if not wants_fence and leads_any() else SHUTDOWN_NOW
    return FENCED if wants_fence else UNFENCED
