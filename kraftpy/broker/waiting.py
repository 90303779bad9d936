"""Requests that cannot be answered yet: a Produce until it is replicated, a Fetch until there is
enough. They are completed by events, and by their deadline; nobody looks at them in between.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.data_plane import FetchAnswer, RespondToFetch, RespondToProduce
from kraftpy.wire.fetch import FetchRequest
from kraftpy.wire.produce import ProduceResult


class WaitingProduce:
    """One Produce request: a result for each partition, and an answer when all have one."""

    __slots__ = ("_respond", "_results", "_timer", "_unsettled", "is_done")

    def __init__(self, count: int, respond: RespondToProduce) -> None:
        self._results: list[ProduceResult | None] = [None] * count
        self._unsettled: dict[int, ProduceResult] = {}
        self._respond = respond
        self._timer: asyncio.TimerHandle | None = None
        self.is_done = False

    def finish(self, slot: int, result: ProduceResult) -> None:
        """This partition's result, for good."""
        self._results[slot] = result
        self._answer_if_complete()

    def appended(self, slot: int, result: ProduceResult) -> None:
        """Appended, but not committed yet: `result` is what it becomes once it is."""
        self._unsettled[slot] = result

    def settle(self, slot: int, code: ErrorCode) -> None:
        """What became of an append."""
        result = self._unsettled.pop(slot, None)
        if result is None:
            return  # The deadline has come before.
        if code is not ErrorCode.none:
            result = ProduceResult(error_code=code.value)
        self.finish(slot, result)

    @property
    def is_waiting(self) -> bool:
        return bool(self._unsettled)

    def expire_after(self, timeout_ms: int, loop: asyncio.AbstractEventLoop) -> None:
        """What is not committed by then may be yet, and is answered as such."""
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)

    def _expire(self) -> None:
        for slot in list(self._unsettled):
            self.settle(slot, ErrorCode.request_timed_out)

    def _answer_if_complete(self) -> None:
        results = self._results
        if self.is_done or None in results:
            return
        self.is_done = True
        if self._timer is not None:
            self._timer.cancel()
        complete: Sequence[Any] = results
        self._respond(complete)


class WaitingFetch:
    """One Fetch request that found less than it asked for."""

    __slots__ = ("_respond", "_timer", "_unwatch", "is_done", "read", "request")

    def __init__(
        self,
        request: FetchRequest,
        read: Callable[[FetchRequest], tuple[FetchAnswer, bool]],
        respond: RespondToFetch,
    ) -> None:
        self.request = request
        self.read = read
        self._respond = respond
        self._timer: asyncio.TimerHandle | None = None
        self._unwatch: Callable[[WaitingFetch], None] = lambda _self: None
        self.is_done = False

    def wait(
        self, loop: asyncio.AbstractEventLoop, unwatch: Callable[["WaitingFetch"], None]
    ) -> None:
        """Until `look_again` finds enough, the deadline, or `abandon`."""
        self._unwatch = unwatch
        self._timer = loop.call_later(self.request.max_wait_ms / 1000, self._expire)

    def look_again(self) -> None:
        """Something has changed that this fetch reads."""
        if self.is_done:
            return
        answer, is_enough = self.read(self.request)
        if is_enough:
            self._answer(answer)

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._end()

    def _expire(self) -> None:
        if not self.is_done:
            self._answer(self.read(self.request)[0])

    def _answer(self, answer: FetchAnswer) -> None:
        self._end()
        self._respond(answer)

    def _end(self) -> None:
        self.is_done = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch(self)
