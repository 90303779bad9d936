"""Requests to the active controller, whoever that is: one connection, found again when it fails.

Three ways to end, and callers may rely on which it was:
- an answer: what the active controller decided. It may be a refusal, which is definite.
- Unreachable: nothing was sent, or only to controllers that denied to be active. Nothing happened.
- OutcomeUnknown: it was sent and no answer came. It may have happened, or happen yet.
NOT_CONTROLLER, a lost connection and silence lead to a new search. A request that may be repeated
(its second time does no harm) is sent again then; any other only if the answer was NOT_CONTROLLER.

Requests follow each other on the connection without waiting. A controller takes them one by one, so
who waits long behind another is a matter of the controller's, and the deadline counts all of it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.backoff import Backoff
from kraftpy.broker.controller_finder import ActiveController, ControllerFinder
from kraftpy.errors import KraftError, OutcomeUnknown, Unreachable
from kraftpy.limits import CHANNEL_REQUESTS_MAX
from kraftpy.network.client import WireClient
from kraftpy.types import Rng
from kraftpy.wire.apis import api_name, mentions

_CONNECT_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.02
_PAUSE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRequest:
    """What is asked, and how it may be asked."""

    api_key: int
    values: Mapping[str, Any]
    timeout_s: float  # For all attempts together.
    attempt_s: float = 2.0  # Silence for longer means that this controller has failed.
    repeatable: bool = False
    version_max: int | None = None


@dataclass(slots=True, eq=False)
class _Link:
    """A connection, and how many still wait on it."""

    controller: ActiveController
    client: WireClient
    waiting: int = 0
    retired: bool = False


@dataclass(slots=True)
class _Progress:
    """What has become of one request so far."""

    in_flight: bool = False
    was_lost: bool = False  # An attempt was sent, and nobody knows what came of it.
    why: str = "no active controller was found"
    backoff: Backoff = field(kw_only=True)

    def error(self, what: str) -> KraftError:
        if self.in_flight or self.was_lost:
            return OutcomeUnknown(f"{what} may have been done: {self.why}")
        return Unreachable(f"{what} was not done: {self.why}")


class ControllerChannel:
    """Lives in one event loop. Close it."""

    def __init__(self, finder: ControllerFinder, rng: Rng) -> None:
        self._finder = finder
        self._rng = rng
        self._link: _Link | None = None
        self._linking: asyncio.Task[None] | None = None
        self._failed: ActiveController | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return self._waiting

    async def send(self, request: ChannelRequest) -> Any:
        """The active controller's answer; else Unreachable or OutcomeUnknown, see above."""
        what = api_name(request.api_key)
        if self._waiting >= CHANNEL_REQUESTS_MAX:
            raise Unreachable(f"{what} was not done: {self._waiting} requests wait already")
        progress = _Progress(backoff=Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, self._rng))
        self._waiting += 1
        try:
            async with asyncio.timeout(request.timeout_s):
                while (answer := await self._attempt(request, progress)) is None:
                    await asyncio.sleep(progress.backoff.next_s())
                return answer
        except TimeoutError:
            raise progress.error(what) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Whoever waits hears that the connection was closed."""
        self._is_closed = True
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.gather(self._linking, return_exceptions=True)
        if self._link is not None:
            self._hang_up(self._link)
        await asyncio.gather(*self._closing)

    # -- one attempt --------------------------------------------------------------------------

    async def _attempt(self, request: ChannelRequest, progress: _Progress) -> Any | None:
        """The answer, or None if it is worth another try."""
        link = await self._linked()
        if link is None:
            progress.why = "the channel to the controller is closed"
            raise progress.error(api_name(request.api_key))
        if request.api_key not in link.client.versions:
            progress.why = f"{link.client.place} does not serve it"
            raise progress.error(api_name(request.api_key))
        link.waiting += 1
        progress.in_flight = True
        try:
            async with asyncio.timeout(request.attempt_s):
                answer = await link.client.ask(
                    request.api_key,
                    request.values,
                    version_max=request.version_max,
                    wait_s=request.attempt_s,
                )
        except (TimeoutError, KraftError) as error:
            progress.why = str(error) or f"{link.client.place} is silent"
            self._hang_up(link)
            self._lost(request, progress)
            return None
        finally:
            link.waiting -= 1
            self._let_go(link)
        progress.in_flight = False
        if _says(answer, ErrorCode.not_controller):
            progress.why = f"{link.client.place} is not the active controller"
            self._retire(link)
            return None
        if _says(answer, ErrorCode.request_timed_out):
            progress.why = f"{link.client.place} lost its place before it was committed"
            self._lost(request, progress)
            return None
        return answer

    def _lost(self, request: ChannelRequest, progress: _Progress) -> None:
        progress.in_flight = False
        progress.was_lost = True
        if self._is_closed or not request.repeatable:
            raise progress.error(api_name(request.api_key))

    # -- the connection -----------------------------------------------------------------------

    async def _linked(self) -> _Link | None:
        """The connection to the active controller, None once the channel is closed.

        There is one search for all that wait for it, and who gives up does not end it.
        """
        while not self._is_closed:
            link, newest = self._link, self._finder.newest
            if link is not None and newest is not None and link.controller.epoch < newest.epoch:
                self._retire(link)  # Somebody else has found a newer one.
            elif link is not None and link.client.is_broken:
                self._hang_up(link)
            elif link is not None:
                return link
            if self._linking is None:
                self._linking = asyncio.create_task(self._connect())
            await asyncio.wait([self._linking])
        return None

    async def _connect(self) -> None:
        try:
            backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, self._rng)
            while True:
                controller = await self._finder.find(self._failed)
                try:
                    client = await WireClient.connect(*controller.place, timeout_s=_CONNECT_S)
                except KraftError:
                    self._failed = controller
                    await asyncio.sleep(backoff.next_s())
                    continue
                self._link = _Link(controller, client)
                return
        finally:
            self._linking = None

    def _retire(self, link: _Link) -> None:
        """No new requests on it; those that wait may still be answered."""
        self._failed = link.controller
        link.retired = True
        if self._link is link:
            self._link = None
        self._let_go(link)

    def _hang_up(self, link: _Link) -> None:
        self._retire(link)
        self._close(link)

    def _let_go(self, link: _Link) -> None:
        if link.retired and link.waiting == 0:
            self._close(link)

    def _close(self, link: _Link) -> None:
        task = asyncio.create_task(link.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _says(answer: Any, error_code: ErrorCode) -> bool:
    """Whether the whole request ended with this error.

    Where an answer has no place for that, every part of it says so. Where it has one, errors of
    parts are the caller's: the other parts may have been done.
    """
    found = getattr(answer, "error_code", None)
    return mentions(answer, error_code) if found is None else found is error_code
