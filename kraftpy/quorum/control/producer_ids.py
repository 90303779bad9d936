"""AllocateProducerIds: brokers get producer ids in blocks, and no id is ever given twice. Pure.

What always holds: blocks follow one another without a gap, and each begins where the log says that
the one before it ended. A block that a broker loses with its memory stays lost: ids are plenty.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import ProducerIdsRecord
from kraftpy.quorum.control.broker_epochs import current_broker
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.types import BrokerId
from kraftpy.wire.apis import ALLOCATE_PRODUCER_IDS, NO_THROTTLE, VersionRange

BLOCK_SIZE: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def decide_allocate_producer_ids(situation: Situation, message: Any) -> Decision:
    """The next block, for a broker in its present life."""
    broker_id, broker_epoch = BrokerId(message.broker_id), message.broker_epoch
    current_broker(situation.image, broker_id, broker_epoch)
    first = situation.image.next_producer_id
    if first > _PRODUCER_ID_MAX - BLOCK_SIZE:
        raise Refused(ErrorCode.unknown_server_error, "all producer ids have been given out")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision(records=(record,), response=_answer(ErrorCode.none, first, BLOCK_SIZE))


def _refuse(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    return _answer(error_code, 0, 0)


def _answer(error_code: ErrorCode, first: int, length: int) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "producer_id_start": first,
        "producer_id_len": length,
    }


APIS: Final[dict[int, ControlApi]] = {
    ALLOCATE_PRODUCER_IDS: ControlApi(VersionRange(0, 0), decide_allocate_producer_ids, _refuse),
}
