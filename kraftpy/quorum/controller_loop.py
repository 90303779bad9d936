"""The Controller in an event loop: all that happens to it is one callback after the other there.

Leadership comes from the engine's thread. That it is lost, the controller hears at once. That it is
won, it hears by way of the ImageKeeper: when the keeper has replayed all that the engine told
before, its image and its index are complete, so nothing is loaded and nothing is raced for. Every
change of leadership has a number; a victory that took the way through the keeper while a defeat
overtook it carries an old one and is ignored.

Outcomes of proposals are settled in the engine's thread, many in one tick: they wake the loop once.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch, Consensus
from kraftpy.quorum.control.decision import ControlApi, Values
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.controller import Controller, Settled
from kraftpy.quorum.image_keeper import ImageKeeper
from kraftpy.quorum.registration import Registrar
from kraftpy.types import NO_EPOCH

log = get_logger(__name__)


class ControllerLoop:
    """One of an engine's Listeners, behind the keeper. Made in the event loop that it lives in."""

    def __init__(
        self,
        *,
        node_id: int,
        consensus: Consensus,
        keeper: ImageKeeper,
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
        on_fault: Callable[[FatalFault], None],
        registration: Any,
        registrar: Registrar,
    ) -> None:
        self._node_id = node_id
        self._keeper = keeper
        self._clock = clock
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._is_stopped = False
        self._change = 0  # Written by the engine's thread only.
        self._outcomes: deque[tuple[Settled, Future[int]]] = deque()
        self.controller = Controller(
            node_id=node_id,
            consensus=consensus,
            settings=settings,
            clock=clock,
            rng=rng,
            on_fault=on_fault,
            watch=self._watch,
            registration=registration,
        )
        self._registering = self._loop.create_task(registrar.run())

    # -- the engine's Listener: in its thread -------------------------------------------------

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self._change += 1
        if leader_id != self._node_id:
            self._soon(self._resign, leader_id, epoch)
            self._keeper.stand_by()
            return
        # In the keeper's thread; what follows the image in the log is for this node to decide.
        self._keeper.hand_over(partial(self._soon, self._lead, self._change, epoch))

    def committed(self, batches: list[CommittedBatch]) -> None:
        """Futures tell what became of this controller's proposals, the keeper of the others'."""

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """The keeper's business."""

    def failed(self, fault: FatalFault) -> None:
        """Every Future says so too."""

    def _watch(self, future: Future[int], settled: Settled) -> None:
        future.add_done_callback(lambda done: self._add_outcome(settled, done))

    def _add_outcome(self, settled: Settled, done: Future[int]) -> None:
        self._outcomes.append((settled, done))
        if len(self._outcomes) == 1:  # If there are more, the first has woken the loop.
            self._soon(self._take_outcomes)

    def _soon(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(function, *arguments)

    # -- in the event loop --------------------------------------------------------------------

    async def ask(self, api: ControlApi, message: Any) -> Values:
        """The answer to a request, as soon as it may be told."""
        answered: asyncio.Future[Values] = self._loop.create_future()

        def answer(values: Values) -> None:
            if not answered.done():  # Else whoever asked has gone; the decision stands.
                answered.set_result(values)

        self.controller.submit(api, message, answer)
        self._set_timer()
        return await answered

    def stop(self) -> None:
        """Decide nothing more, whoever leads: leadership can be handed over when nothing is on its
        way, and not while records keep coming."""
        self._is_stopped = True
        self._do(self.controller.resign, None, NO_EPOCH)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._registering.cancel()
        await asyncio.gather(self._registering, return_exceptions=True)

    def _lead(self, change: int, epoch: int, image: ClusterImage, index: PartitionIndex) -> None:
        if change == self._change and not self._is_stopped:
            self._do(self.controller.lead, epoch, image, index)

    def _resign(self, leader_id: int | None, epoch: int) -> None:
        self._do(self.controller.resign, leader_id, epoch)

    def _take_outcomes(self) -> None:
        # The engine's thread adds to it meanwhile, and wakes the loop only if it finds it empty.
        while self._outcomes:
            settled, done = self._outcomes[0]
            self._do(settled, done)
            self._outcomes.popleft()

    def _tick(self) -> None:
        self._timer = None
        self._do(self.controller.tick, self._clock.monotonic_ms())

    def _do(self, happens: Callable[..., None], *arguments: Any) -> None:
        try:
            happens(*arguments)
        except Exception as error:  # A bug, and a callback has no caller that would hear of it.
            log.critical("controller_failed", node=self._node_id, why=repr(error), exc_info=True)
            self._on_fault(FatalFault(f"unexpected: {error!r}"))
            return
        self._set_timer()

    def _set_timer(self) -> None:
        due_ms = self.controller.next_due_ms()
        if due_ms == self._timer_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = due_ms
        if due_ms is not None:
            delay_s = max(0, due_ms - self._clock.monotonic_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._tick)
