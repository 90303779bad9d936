"""Producer ids for clients: taken from blocks that the controller hands out, each id once.

A block is asked for before the last one is used up, so that a client seldom waits for the
controller. A block that was asked for and whose answer was lost is never used by anyone.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.types import BrokerId
from kraftpy.wire.apis import ALLOCATE_PRODUCER_IDS, NO_THROTTLE, Request

log = get_logger(__name__)

_NO_ID: Final = -1
_REFILL_BELOW: Final = 100
_TIMEOUT_S: Final = 5.0


class ProducerIds:
    """Lives in one event loop. Close it."""

    def __init__(
        self, channel: ControllerChannel, broker_id: BrokerId, broker_epoch: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._blocks: list[range] = []
        self._asking: asyncio.Task[bool] | None = None

    async def next(self) -> int | None:
        """An id that nobody else has; None if the controller gives none at the moment."""
        while not self._left():  # Others who waited may have taken all of a block.
            refill = self._refill()
            await asyncio.wait([refill])
            if refill.cancelled() or not refill.result():
                return None
        block = self._blocks[0]
        self._blocks[:1] = [block[1:]] if len(block) > 1 else []
        if self._left() < _REFILL_BELOW:
            self._refill()
        return block[0]

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _left(self) -> int:
        return sum(map(len, self._blocks))

    def _refill(self) -> "asyncio.Task[bool]":
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._asking

    async def _ask(self) -> bool:
        """Whether there is another block."""
        request = ChannelRequest(
            api_key=ALLOCATE_PRODUCER_IDS,
            values={"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()},
            timeout_s=_TIMEOUT_S,
            repeatable=True,  # The second block is another one.
        )
        try:
            answer: Any = await self._channel.send(request)
        except KraftError as error:
            log.warning("producer_ids_unanswered", why=str(error))
            return False
        if answer.error_code is not ErrorCode.none:
            log.warning("producer_ids_refused", why=answer.error_code.name)
            return False
        start = answer.producer_id_start
        self._blocks.append(range(start, start + answer.producer_id_len))
        return True


async def init_producer_id(ids: ProducerIds, request: Request) -> bytearray:
    """A new id, also for a producer that has one: without transactions it is as good."""
    values = {
        "throttle_time": NO_THROTTLE,
        "error_code": ErrorCode.none,
        "producer_id": _NO_ID,
        "producer_epoch": -1,
    }
    if request.message.transactional_id is not None:
        values["error_code"] = ErrorCode.coordinator_not_available
        return request.response(values)
    producer_id = await ids.next()
    if producer_id is None:
        values["error_code"] = ErrorCode.coordinator_load_in_progress
    else:
        values |= {"producer_id": producer_id, "producer_epoch": 0}
    return request.response(values)
