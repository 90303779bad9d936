"""The nemesis of a run: makes faults one after the other, and heals each when its time is over.

What was begun is brought to its end, although the run's time is over: half of a fault, of which
nobody knows, would not be healed.
"""

import asyncio
import random
import signal
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from jepsen_like.generator import Faults
from jepsen_like.history import HistoryWriter
from jepsen_like.nemesis.base import Fault, NotNow, Situation
from jepsen_like.nemesis.registry import NEMESES
from jepsen_like.progress import Progress

_TRY_AGAIN_S = 0.5
T = TypeVar("T")


class FaultPlan:
    """Takes turns among its nemeses: each fires, whatever chance says."""

    def __init__(
        self,
        names: tuple[str, ...],
        situation: Situation,
        writer: HistoryWriter,
        progress: Progress,
        interval_s: float,
    ) -> None:
        self._names = names
        self._situation = situation
        self._writer = writer
        self._progress = progress
        self._times = Faults(interval_s, random.Random(situation.rng.getrandbits(64)))
        self._number = 0
        self._standing: dict[int, Fault] = {}
        self._fired: set[str] = set()
        self._begun: asyncio.Task[Any] | None = None

    @property
    def missing(self) -> list[str]:
        """Those that never fired yet."""
        return [name for name in self._names if name not in self._fired]

    async def run(self) -> None:
        """Until it is cancelled. Now and then a second fault meets the first."""
        turn = 0
        while True:
            await asyncio.sleep(self._times.gap_s())
            if len(self._standing) >= 2 or (self._standing and self._situation.rng.random() < 0.7):
                await self._whole(self._heal_one())
                continue
            due = self.missing or self._names
            name = due[turn % len(due)]
            turn += 1
            if not await self._whole(self._begin(name)):
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            await asyncio.sleep(self._times.duration_s())
            if self._situation.rng.random() < 0.8:
                await self._whole(self._heal_one())

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """It goes on when `run` is cancelled; `heal_all` waits for it."""
        task = asyncio.create_task(work)
        self._begun = task
        return await asyncio.shield(task)

    async def _begin(self, name: str) -> bool:
        self._number += 1
        number = self._number
        self._write("invoke", name, {"fault": number, "nemesis": name})
        try:
            fault = await NEMESES[name].begin(self._situation)
        except (NotNow, OSError, RuntimeError) as error:
            self._write("info", name, {"fault": number, "nemesis": name}, err=str(error))
            return False
        self._write("ok", fault.name, {"nemesis": name, **fault.details, "fault": number})
        self._standing[number] = fault
        self._fired.add(name)
        self._progress.faults += 1
        targets = ",".join(fault.details.get("targets", ()))
        self._progress.last_fault = f"{fault.name} {targets}"
        return True

    async def _heal_one(self) -> None:
        if self._standing:
            await self._heal(min(self._standing))

    async def _heal(self, number: int) -> None:
        fault = self._standing.pop(number)
        try:
            await fault.heal()
        except (OSError, RuntimeError) as error:
            self._write("info", "heal", {"fault": number}, err=str(error))
            return
        self._write("ok", "heal", {"fault": number})

    async def heal_all(self) -> None:
        """In order; then whatever is left: links, clocks, processes that are down or stopped."""
        if self._begun is not None:
            await asyncio.wait([self._begun])
        for number in sorted(self._standing):
            await self._heal(number)
        await heal_everything(self._situation)

    def _write(self, kind: Any, f: str, value: dict[str, Any], err: str | None = None) -> None:
        self._writer.write(time.monotonic_ns(), "nemesis", kind, f, v=value, err=err)


async def heal_everything(situation: Situation) -> None:
    """Every link, clock and process as it should be."""
    cluster = situation.cluster
    cluster.proxy.order(do="heal")
    cluster.look()
    for name, node in cluster.present.items():
        node.may_exit = False
        cluster.signal(name, signal.SIGCONT)
        if cluster.has_faulty_nodes and node.starts:
            cluster.skew(name, 0, 1.0)
        cluster.start(name)
