"""Clients: they write, read and remember what they were told.

Every write has an id of its own. The outcome is acknowledged, refused for good, or unknown; a
client whose node died does not know. Now and then one writes on old knowledge, which must be
refused.
"""

import random
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from kraftpy.errors import FatalFault, NotController, OutcomeUnknown
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.records import ConfigRecord
from tests.sim.oracles import Proposal
from tests.sim.plan import MS

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.simulation import Simulation

_BROKER_RESOURCE = 4
_STALE = 0.04


class Writers(Protocol):
    """Whoever writes, as the simulation sees them."""

    @property
    def unknown(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def reads(self) -> int: ...

    @property
    def waiting(self) -> int:
        """How many wait for an answer."""
        ...

    def start(self) -> None: ...

    def quiet(self) -> None:
        """No more faults: write no more than is asked for."""
        ...

    def believe(self, node_id: int, epoch: int) -> None: ...

    def write(self, node: "SimNode", *, may_be_stale: bool = True) -> None: ...

    def lost(self, node_id: int) -> None:
        """A node died: whoever waits for it will never know."""
        ...

    def take_outcomes(self) -> None:
        """After each event."""
        ...


class Clients:
    """All of them."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.plan.seed}/clients")
        self._settled: list[tuple[Proposal, Future[Any]]] = []
        self._open: dict[str, tuple[int, Future[Any]]] = {}
        self._leader_id, self._epoch = 0, 0
        self._last_id = 0
        self._writes = True
        self.unknown = 0
        self.refused = 0
        self.reads = 0

    @property
    def waiting(self) -> int:
        return len(self._open)

    def start(self) -> None:
        self._write_later()
        self._read_later()
        for node in self._sim.nodes.values():
            self._offer_later(node)

    def quiet(self) -> None:
        self._writes = False

    def believe(self, node_id: int, epoch: int) -> None:
        """A node says that it leads."""
        if epoch >= self._epoch:
            self._leader_id, self._epoch = node_id, epoch

    def _target(self) -> "SimNode | None":
        nodes = self._sim.nodes
        node_id = self._leader_id
        if self._rng.random() < 0.15 or node_id not in nodes:
            node_id = self._rng.randint(1, len(nodes))
        engine = nodes[node_id].engine
        if engine is None or (engine.leader_id != node_id and self._rng.random() < 0.8):
            return None  # Most clients ask who leads before they send.
        return nodes[node_id]

    # -- writes ---------------------------------------------------------------------------

    def _write_later(self) -> None:
        wait_us = int(self._rng.expovariate(1 / (self._sim.knobs.write_interval_ms * MS)))
        self._sim.at(self._sim.now_us + wait_us, self._write_burst)

    def _write_burst(self) -> None:
        count = self._rng.randint(1, self._sim.knobs.burst_max)
        target = self._target()
        if target is not None and self._writes:
            for _ in range(count):
                self.write(target)
        if self._writes:
            self._write_later()

    def write(self, node: "SimNode", *, may_be_stale: bool = True) -> None:
        """One batch, as a controller on that node would propose it."""
        engine, rng = node.engine, self._rng
        assert engine is not None
        self._last_id += 1
        value = f"{self._last_id} {'x' * rng.randint(0, self._sim.knobs.value_bytes_max)}"
        records = [
            ConfigRecord(
                resource_type=_BROKER_RESOURCE,
                resource_name="",
                name=f"key-{rng.randint(0, 9)}",
                value=value if number == 0 else str(number),
            )
            for number in range(rng.choice((1, 1, 1, 3)))
        ]
        batch = record_batch(records, base_offset=0, epoch=-1, timestamp_ms=node.clock.now_ms())
        epoch, base_offset = engine.epoch, node.log_end + node.queued_records
        if may_be_stale and rng.random() < _STALE:
            epoch -= rng.choice((0, 1))
            base_offset += rng.choice((-1, 0, 1))
        proposal = Proposal(str(self._last_id), node.id, epoch, base_offset)
        self._sim.oracles.proposed[proposal.id] = proposal
        self._follow(proposal, engine.propose(batch, epoch=epoch, base_offset=base_offset))
        node.queued_records += len(records)

    # -- reads, snapshots -----------------------------------------------------------------

    def _read_later(self) -> None:
        wait_us = int(self._rng.expovariate(1 / (4 * self._sim.knobs.write_interval_ms * MS)))
        self._sim.at(self._sim.now_us + wait_us, self._read)

    def _read(self) -> None:
        node = self._target()
        if node is not None and node.engine is not None:
            epoch = node.engine.epoch
            self._last_id += 1
            acked_end = self._sim.oracles.acked_end
            barrier = Proposal(f"read-{self._last_id}", node.id, epoch, -1, acked_end)
            self._follow(barrier, node.engine.read_barrier(epoch=epoch))
        if self._writes:
            self._read_later()

    def _offer_later(self, node: "SimNode") -> None:
        wait_us = int(self._sim.knobs.offer_ms * MS * (0.5 + self._rng.random()))
        self._sim.at(self._sim.now_us + wait_us, lambda: self._offer(node))

    def _offer(self, node: "SimNode") -> None:
        if node.engine is not None:
            image = self._sim.oracles.image_at(node.facts.told_end)
            if image is not None:
                node.engine.offer_snapshot(image)
        if self._writes:
            self._offer_later(node)

    # -- outcomes -------------------------------------------------------------------------

    def _follow(self, proposal: Proposal, future: Future[Any]) -> None:
        self._open[proposal.id] = proposal.node_id, future
        future.add_done_callback(lambda done: self._settled.append((proposal, done)))

    def lost(self, node_id: int) -> None:
        """A node died: whoever waits for it will never know."""
        for found in [each for each, (asked, _) in self._open.items() if asked == node_id]:
            del self._open[found]
            self.unknown += 1

    def take_outcomes(self) -> None:
        """After each event: compare what was answered with what is true."""
        if not self._settled:
            return
        settled, self._settled = self._settled, []
        for proposal, future in settled:
            if self._open.pop(proposal.id, None) is not None:
                self._take(proposal, future)

    def _take(self, proposal: Proposal, future: Future[Any]) -> None:
        oracles, error = self._sim.oracles, future.exception(0)
        self._sim.trace("outcome", proposal.node_id, proposal.base_offset, error is None)
        if error is None and proposal.base_offset < 0:
            self.reads += 1
            oracles.read(proposal, future.result(0))
        elif error is None:
            oracles.acknowledged(proposal, future.result(0))
        elif isinstance(error, NotController):
            self.refused += 1
            oracles.refused(proposal)
        elif isinstance(error, OutcomeUnknown | FatalFault):
            self.unknown += 1
        else:
            oracles.violate("no surprises", f"{proposal}: {error!r}")
