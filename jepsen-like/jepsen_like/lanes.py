"""Client lanes: each has one process at a time, which asks, waits, and writes down both.

After an outcome that nobody knows the process is retired and the lane goes on with another, with
new connections: what is still on its way under the old one belongs to nobody. A lane whose
operations fail one after the other asks less often, as Kafka's clients do: else a run in which
nobody can answer for a while would count little else than questions of that while.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Final

from jepsen_like.client.codec import BadAnswer
from jepsen_like.client.kafka import Definite, Indefinite, KafkaClient
from jepsen_like.generator import Pace
from jepsen_like.history import HistoryWriter
from jepsen_like.progress import Progress
from jepsen_like.workloads.base import Ask, Process, Workload

# They change nothing, so an answer that was lost is no more than a failure.
READS: Final = frozenset(
    {"assign", "poll", "end", "read", "stale-read", "list", "final-list", "fetch", "follow", "view"}
)
_FIRST_PAUSE_S: Final = 0.05  # Kafka's reconnect.backoff.ms. It doubles with every failure.
_PAUSE_S_MAX: Final = 0.5
_OP_S_MAX: Final = 30.0
MakeClient = Callable[[], KafkaClient]


class Recorder:
    """Runs one operation and writes its two lines."""

    def __init__(self, writer: HistoryWriter, progress: Progress) -> None:
        self._writer = writer
        self._progress = progress

    async def run(self, number: int, ask: Ask) -> str:
        """The type of its end."""
        self._writer.write(time.monotonic_ns(), number, "invoke", ask.f, **ask.fields)
        try:
            async with asyncio.timeout(_OP_S_MAX):
                found = await ask.do()
        except Definite as error:
            return self._end(number, "fail", ask, {"err": str(error)})
        except (Indefinite, BadAnswer, TimeoutError) as error:
            kind = "fail" if ask.f in READS else "info"
            return self._end(number, kind, ask, {"err": str(error) or "timeout"})
        except asyncio.CancelledError:
            self._end(number, "fail" if ask.f in READS else "info", ask, {"err": "stopped"})
            raise
        return self._end(number, "ok", ask, found)

    def _end(self, number: int, kind: Any, ask: Ask, found: dict[str, Any]) -> str:
        self._progress.counts[kind] += 1
        self._writer.write(time.monotonic_ns(), number, kind, ask.f, **{**ask.fields, **found})
        return str(kind)


class Lane:
    """One after the other, processes with the numbers lane, lane + clients, ..."""

    def __init__(
        self,
        lane: int,
        clients: int,
        workload: Workload,
        recorder: Recorder,
        make_client: MakeClient,
        rate: float | None,
        rng: random.Random,
    ) -> None:
        self.number = lane
        self._clients = clients
        self._workload = workload
        self._recorder = recorder
        self._make_client = make_client
        self._pace = Pace(rate, clients, rng)
        self._rng = rng
        self._pause_s = _FIRST_PAUSE_S

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set: the operation that is open then is finished."""
        while not stop.is_set() and self._workload.has_room():
            client = self._make_client()
            try:
                await self._live(client, stop)
            finally:
                client.close()

    async def _live(self, client: KafkaClient, stop: asyncio.Event) -> None:
        process = self._workload.process(self.number, client)
        while not stop.is_set() and self._workload.has_room():
            wait_s = self._pace.wait_s(time.monotonic())
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                if not self._workload.has_room():  # Another lane has taken the last of it.
                    return
            kind = await self._recorder.run(self.number, process.next())
            await self._rest(kind)
            if kind == "info":
                self.number += self._clients
                return

    async def _rest(self, kind: str) -> None:
        if kind == "ok":
            self._pause_s = _FIRST_PAUSE_S
            return
        await asyncio.sleep(self._pause_s * self._rng.uniform(0.8, 1.2))
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)

    async def finish(self, process: Process, is_finished: Callable[[], bool]) -> None:
        """The last look, with reads only."""
        while not is_finished():
            if await self._recorder.run(self.number, process.next()) != "ok":
                await asyncio.sleep(0.2)
