"""How brokers and admins reach controllers: all is lost, late, doubled or reordered now and then.

A request to a node that is down fails at once or never, as TCP has it. Who waits for too long goes
on without an answer, and what it asked may still arrive.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.codec import build, decode, encode
from tests.sim.plan import MS

if TYPE_CHECKING:
    from tests.sim.controller.simulation import ControllerSimulation

Done = Callable[[Any], None]  # With the answer, or None if there is none.
_LATE = 0.03
_LATE_US = 2000 * MS


class _Call:
    """Somebody waits for the first answer or the end of patience."""

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done

    def end(self, response: Any) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(response)


class ClientNetwork:
    """All links between clients and voters; each client has dice of its own."""

    def __init__(self, sim: "ControllerSimulation") -> None:
        self._sim = sim
        self._rngs: dict[str, random.Random] = {}
        self._cut_until_us: dict[tuple[str, int], int] = {}
        self.is_calm = False
        self.counts = {"requests": 0, "requests lost": 0, "requests twice": 0}

    def cut(self, client: str, node_id: int, until_us: int) -> None:
        self._cut_until_us[client, node_id] = until_us

    def heal(self) -> None:
        self._cut_until_us.clear()
        self.is_calm = True

    def ask(
        self,
        client: str,
        node_id: int,
        api: tuple[int, int],
        values: dict[str, Any],
        done: Done,
        timeout_ms: int = 2000,
    ) -> None:
        """`api` is a key and a version."""
        sim, rng = self._sim, self._rng(client)
        entity: Any = request_type(*api)
        data = bytes(encode(build(entity, values)))
        call = _Call(done)
        self.counts["requests"] += 1
        sim.at(sim.now_us + timeout_ms * MS, lambda: call.end(None))
        duplicates = 0 if self.is_calm else min(sim.knobs.duplicates, 1000)
        times = 2 if rng.random() * 10_000 < duplicates else 1
        self.counts["requests twice"] += times - 1
        for _ in range(times):
            self._leg(client, node_id, lambda: self._arrive(client, node_id, api, data, call))

    def _rng(self, client: str) -> random.Random:
        if client not in self._rngs:
            self._rngs[client] = random.Random(f"{self._sim.plan.seed}/client/{client}")
        return self._rngs[client]

    def _leg(self, client: str, node_id: int, arrives: Callable[[], None]) -> None:
        sim, rng = self._sim, self._rng(client)
        delay_us = sim.knobs.delay_us + int(rng.random() ** 3 * sim.knobs.jitter_us)
        chance, late = rng.random() * 10_000, rng.random()
        if not self.is_calm and late < _LATE:
            delay_us += int(late / _LATE * _LATE_US)
        if self._is_cut(client, node_id) or (chance < sim.knobs.client_loss and not self.is_calm):
            self.counts["requests lost"] += 1
            return
        sim.at(sim.now_us + delay_us, arrives)

    def _is_cut(self, client: str, node_id: int) -> bool:
        return self._cut_until_us.get((client, node_id), 0) > self._sim.now_us

    def _arrive(
        self, client: str, node_id: int, api: tuple[int, int], data: bytes, call: _Call
    ) -> None:
        node = self._sim.nodes[node_id]
        if self._is_cut(client, node_id) or not node.is_up:
            self.counts["requests lost"] += 1
            if self._rng(client).random() < 0.5:
                call.end(None)
            return

        def reply(answer: bytes) -> None:
            entity: Any = response_type(*api)
            self._leg(client, node_id, lambda: call.end(decode(entity, answer)))

        self._sim.traced_bytes(data)
        node.take_request(*api, data, reply)
