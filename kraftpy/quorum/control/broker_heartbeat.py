"""BrokerHeartbeat: what a broker reports, what it wants, and what becomes of it. Pure.

broker_state.py says which state follows; this module turns the step into records. Failed
directories come first and the step is decided on the image after them: in one heartbeat a broker
may report a failure and ask to be unfenced, and must not be elected where it just failed.

The contact itself is no part of the decision: whoever receives a heartbeat notes it at once
(Heartbeats.contact). Most heartbeats decide nothing and have no records, so their answers need not
wait for a proof that this controller still leads: a broker that is told something old asks again.
"""

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.image import Broker
from kraftpy.metadata_log.records import BrokerRegistrationChangeRecord
from kraftpy.quorum.control.broker_epochs import current_broker
from kraftpy.quorum.control.broker_state import TRANSITIONS, BrokerState, current_state, next_state
from kraftpy.quorum.control.decision import ControlApi, Decision, Situation, Values
from kraftpy.quorum.control.fencing import (
    Records,
    begin_controlled_shutdown,
    fence_broker,
    leave_directories,
    unfence_broker,
)
from kraftpy.types import BrokerId, Uuid, from_wire_uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange

_STEPS: Final[dict[BrokerState, Callable[..., Records]]] = {
    BrokerState.FENCED: fence_broker,
    BrokerState.SHUTDOWN_NOW: fence_broker,
    BrokerState.UNFENCED: unfence_broker,
    BrokerState.CONTROLLED_SHUTDOWN: begin_controlled_shutdown,
}


def decide_heartbeat(situation: Situation, message: Any) -> Decision:
    """The next state of the broker, and the partition changes that it implies."""
    broker_id, image = BrokerId(message.broker_id), situation.image
    broker = current_broker(image, broker_id, message.broker_epoch)
    is_caught_up = message.current_metadata_offset >= _registration_offset(situation, broker)
    lost = _lost_directories(broker, message)
    has_lost_all = bool(lost) and len(lost) == len(broker.log_dirs)
    state = next_state(
        broker,
        wants_fence=message.want_fence or has_lost_all,
        wants_shutdown=message.want_shut_down,
        is_caught_up=is_caught_up,
        leads_any=lambda: situation.index.leads_any(broker_id),
        others_know=lambda: situation.heartbeats.may_finish_shutdown(broker_id),
    )
    assert state in TRANSITIONS[current_state(broker)]
    # A registration without directories would mean that all are usable. Who has none left is
    # fenced instead, which moves everything away, and stays so as long as it says that.
    records = _directory_records(situation, broker, message, [] if has_lost_all else lost)
    if state is not current_state(broker):
        seen = replay_all(image, records) if records else image
        records = (*records, *_STEPS[state](situation, broker, image=seen))
    response = _answer(ErrorCode.none, state, is_caught_up)
    return Decision(records=records, response=response, own=True)


def _registration_offset(situation: Situation, broker: Broker) -> int:
    """What it must have replayed to serve: its own registration, and nothing that came later, or
    on a busy log it would never catch up (KAFKA-13959)."""
    offset = situation.heartbeats.registration_offset(broker.broker_id)
    return broker.broker_epoch if offset is None else offset


# -- directories ------------------------------------------------------------------------------


def _lost_directories(broker: Broker, message: Any) -> list[Uuid]:
    """Registered directories that are reported as failed, in the order of the registration."""
    reported = {from_wire_uuid(each) for each in getattr(message, "offline_log_dirs", ())}
    return [each for each in broker.log_dirs if each in reported]


def _directory_records(
    situation: Situation, broker: Broker, message: Any, lost: list[Uuid]
) -> Records:
    log_dirs = tuple(each for each in broker.log_dirs if each not in lost)
    cordoned = _cordoned(broker, message, log_dirs)
    if log_dirs == broker.log_dirs and cordoned == broker.cordoned_log_dirs:
        return ()
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        log_dirs=None if log_dirs == broker.log_dirs else log_dirs,
        cordoned_log_dirs=None if cordoned == broker.cordoned_log_dirs else cordoned,
    )
    return (*leave_directories(situation, broker, lost), change)


def _cordoned(broker: Broker, message: Any, log_dirs: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    """KIP-1066: directories that get no new replicas. A broker that starts does not know yet."""
    reported = getattr(message, "cordoned_log_dirs", None)
    named = broker.cordoned_log_dirs if reported is None else map(from_wire_uuid, reported)
    return tuple(sorted({*named}.intersection(log_dirs)))


# -- answers ----------------------------------------------------------------------------------


def _answer(error_code: ErrorCode, state: BrokerState, is_caught_up: bool) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "is_caught_up": is_caught_up,
        "is_fenced": state.is_fenced,
        "should_shut_down": state is BrokerState.SHUTDOWN_NOW,
    }


def _refuse(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    """Kafka's defaults: who is told nothing takes itself for fenced and goes on running."""
    return _answer(error_code, BrokerState.FENCED, is_caught_up=False)


APIS: Final[dict[int, ControlApi]] = {
    apis.BROKER_HEARTBEAT: ControlApi(VersionRange(0, 2), decide_heartbeat, _refuse, current=False),
}
