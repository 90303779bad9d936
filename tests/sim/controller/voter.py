"""A voter with a controller: the real ControllerLoop and Controller on the real engine.

A node has three threads: the engine's, that of the event loop in which the controller lives, and
that of the ImageKeeper. Here each has a schedule of its own, so what one tells another arrives
later: outcomes and defeats through the loop, victories by way of the keeper. What waits in a loop
keeps its order. A node that is paused stands still in all three; with a node's life all end.
"""

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from unittest import mock

from kraftpy.errors import FatalFault
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.quorum.consensus import Listener, QuorumState
from kraftpy.quorum.control.api_table import CONTROL_APIS
from kraftpy.quorum.control.decision import Values
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.controller_loop import ControllerLoop
from kraftpy.quorum.image_keeper import ImageKeeper
from kraftpy.quorum.node import Listeners
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.codec import build, decode, encode
from tests.sim.controller.attempt import Attempt
from tests.sim.node import SimNode
from tests.sim.oracles import NodeFacts
from tests.sim.plan import MS, SECOND, Knobs
from tests.sim.surroundings import SimListener

if TYPE_CHECKING:
    from tests.sim.controller.simulation import ControllerSimulation

CLUSTER_ID = Uuid(b"S" * 16)
_HURRY_US = 500
_GET_LOOP = "kraftpy.quorum.controller_loop.asyncio.get_running_loop"
Reply = Callable[[bytes], None]


class SimTimer:
    """What asyncio calls a TimerHandle."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimLoop:
    """The event loop of one life of a node, as far as a ControllerLoop uses one."""

    def __init__(self, node: "ControllerNode") -> None:
        self._node = node
        self._life = node.life
        self._rng = random.Random(f"{node.sim.plan.seed}/loop/{node.id}/{node.life}")
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._last_us = 0

    def call_soon_threadsafe(self, function: Callable[..., None], *arguments: Any) -> None:
        sim, node = self._node.sim, self._node
        delay_us = int(self._rng.random() ** 3 * sim.knobs.loop_delay_us)
        self._last_us = max(self._last_us, sim.now_us + node.cost_us + delay_us)
        self._waiting.append((function, arguments))
        sim.at(self._last_us, lambda: self._run(self._next))

    def call_later(self, delay_s: float, function: Callable[[], None]) -> SimTimer:
        timer = SimTimer()

        def fire() -> None:
            if not timer.is_cancelled:
                function()

        sim = self._node.sim
        sim.at(sim.now_us + int(delay_s * SECOND), lambda: self._run(fire))
        return timer

    def create_task(self, _coroutine: Any) -> None:
        """A controller here does not register itself with others."""

    def _next(self) -> None:
        function, arguments = self._waiting.popleft()
        function(*arguments)

    def _run(self, action: Callable[[], None]) -> None:
        self._node.in_thread(self._life, action)


class SimKeeper(ImageKeeper):
    """The ImageKeeper without its thread: what it was told is taken a while later."""

    def __init__(self, node: "ControllerNode", consensus: "WatchedConsensus") -> None:
        with mock.patch("kraftpy.quorum.image_keeper.threading.Thread"):
            super().__init__(
                node.disk,
                node.directory,
                consensus,  # type: ignore[arg-type]
                node.clock,
                node.controller_failed,
            )
        self._node = node
        self._life = node.life
        self._rng = random.Random(f"{node.sim.plan.seed}/keeper/{node.id}/{node.life}")
        self._waiting: list[Any] = []
        # In the place of the queue and the event by which others wake the thread.
        self._told = self._hurry = self  # type: ignore[assignment]

    def put(self, told: Any) -> None:
        self._waiting.append(told)
        self._take_within(self._node.sim.knobs.replay_delay_ms * MS)

    def set(self) -> None:
        self._take_within(_HURRY_US)

    def _take_within(self, delay_us: int) -> None:
        sim, node = self._node.sim, self._node
        at_us = sim.now_us + node.cost_us + int(self._rng.random() * delay_us)
        sim.at(at_us, lambda: node.in_thread(self._life, self._take_waiting))

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._take_all(waiting)
            self._node.sim.oracles.replayed(self._node.id, self.image)


class WatchedConsensus:
    """The engine as a controller sees it; the oracles see what becomes of what it decided."""

    def __init__(self, node: "ControllerNode") -> None:
        self._node = node
        assert node.engine is not None
        self._engine = node.engine

    def propose(self, batch: bytearray, *, epoch: int, base_offset: int) -> Future[int]:
        node = self._node
        decided = node.sim.oracles.decided(node, bytes(batch), epoch, base_offset)
        future = self._engine.propose(batch, epoch=epoch, base_offset=base_offset)
        future.add_done_callback(lambda done: node.sim.oracles.settled(decided, done))
        return future

    def read_barrier(self, *, epoch: int) -> Future[int]:
        node = self._node
        barrier = node.sim.oracles.barrier(node.id, epoch)
        future = self._engine.read_barrier(epoch=epoch)
        future.add_done_callback(lambda done: node.sim.oracles.read_settled(barrier, done))
        return future

    def resign(self) -> Future[None]:
        return self._engine.resign()

    def offer_snapshot(self, image: ClusterImage) -> None:
        self._engine.offer_snapshot(image)

    def state(self) -> QuorumState:
        return self._engine.state()


class _NoRegistrar:
    def run(self) -> None:
        """What the loop would make a task of."""


class SimControllerLoop(ControllerLoop):
    """One life of a controller. The oracles hear what it leads with and what it answers."""

    def __init__(self, node: "ControllerNode", loop: SimLoop) -> None:
        self.node = node
        self.attempt: Attempt | None = None  # Being decided.
        self.led_ms = 0
        self.contact_ms: dict[int, int] = {}
        sim = node.sim
        consensus = WatchedConsensus(node)
        self.keeper = SimKeeper(node, consensus)
        with mock.patch(_GET_LOOP, return_value=loop):
            super().__init__(
                node_id=node.id,
                consensus=consensus,  # type: ignore[arg-type]
                keeper=self.keeper,
                settings=sim.settings,
                clock=node.clock,
                rng=random.Random(f"{sim.plan.seed}/decisions/{node.id}/{node.life}"),
                on_fault=node.controller_failed,
                registration=None,
                registrar=_NoRegistrar(),  # type: ignore[arg-type]
            )
        self.loop = loop

    def _lead(self, change: int, epoch: int, image: ClusterImage, index: PartitionIndex) -> None:
        if change == self._change:
            self.led_ms = self._clock.monotonic_ms()
            self.contact_ms.clear()
            self.node.sim.oracles.begins_to_lead(self.node.id, epoch, image, index)
            self.node.sim.counts["tenures"] += 1
        super()._lead(change, epoch, image, index)

    def take(self, api_key: int, version: int, data: bytes, reply: Reply) -> None:
        """A request has come: it waits its turn like everything else in the loop."""
        self._soon(self._do, lambda: self._submit(api_key, version, data, reply))

    def _submit(self, api_key: int, version: int, data: bytes, reply: Reply) -> None:
        oracles = self.node.sim.oracles
        message: Any = decode(request_type(api_key, version), data)
        attempt = oracles.asked(self.node, api_key, message)
        if api_key == apis.BROKER_HEARTBEAT:
            self._note_contact(message)

        def answer(values: Values) -> None:
            entity: Any = response_type(api_key, version)
            encoded = bytes(encode(build(entity, values)))
            oracles.answered(attempt, decode(entity, encoded))
            reply(encoded)

        self.attempt = attempt
        try:
            self.controller.submit(CONTROL_APIS[api_key], message, answer)
        finally:
            self.attempt = None

    def _note_contact(self, message: Any) -> None:
        image = self.controller.image
        broker = None if image is None else image.brokers.get(BrokerId(message.broker_id))
        if broker is not None and broker.broker_epoch == message.broker_epoch:
            self.contact_ms[message.broker_id] = self._clock.monotonic_ms()

    def silent_ms(self, broker_id: int) -> int:
        """For how long this controller, since it leads, has not heard of a broker."""
        heard_ms = self.contact_ms.get(broker_id, self.led_ms)
        return self._clock.monotonic_ms() - max(heard_ms, self.led_ms)


class ControllerNode(SimNode):
    """A voter whose controller listens."""

    sim: "ControllerSimulation"

    def __init__(self, sim: "ControllerSimulation", node_id: int, facts: NodeFacts) -> None:
        super().__init__(sim, node_id, facts)
        self.host: SimControllerLoop | None = None

    def listener(self) -> Listener:
        self.host = SimControllerLoop(self, SimLoop(self))
        return Listeners(SimListener(self), self.host.keeper, self.host)

    def die(self, *, power: bool) -> None:
        self.host = None
        super().die(power=power)

    def in_thread(self, life: int, action: Callable[[], None]) -> None:
        """Run what another thread of this life has to do, as soon as the process runs."""
        if life != self.life or self.engine is None:
            return
        if self.paused_until_us > self.sim.now_us:
            self.sim.at(self.paused_until_us, lambda: self.in_thread(life, action))
        else:
            self.aside(life, action)

    def take_request(self, api_key: int, version: int, data: bytes, reply: Reply) -> None:
        assert self.host is not None
        self.host.take(api_key, version, data, reply)

    def controller_failed(self, fault: FatalFault) -> None:
        self.sim.oracles.violate("no controller fails", f"node {self.id}: {fault}")


def settings_of(knobs: Knobs) -> ControllerSettings:
    """Kafka's, but for times that fit a run of some seconds."""
    return ControllerSettings(
        cluster_id=CLUSTER_ID,
        voter_ids=tuple(BrokerId(node_id) for node_id in range(1, knobs.nodes + 1)),
        min_insync_replicas=knobs.min_insync_replicas,
        unclean_leader_election_enable=knobs.unclean_elections,
        broker_session_timeout_ms=knobs.session_ms,
        metadata_max_idle_interval_ms=knobs.idle_ms,
        unclean_leader_election_interval_ms=3000,
        leader_imbalance_check_interval_ms=2000,
    )
