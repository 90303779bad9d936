"""The simulation: one heap of events, the nodes, the network, the faults of a plan, the verdict.

Time jumps from event to event. First comes the safety phase, in which the plan's faults strike;
then everything is healed and the cluster must agree again within a minute of its time, settle what
was open, and have equal logs. Same plan, same trace, in any process.
"""

import hashlib
import heapq
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from kraftpy.metadata_log.loading import load_newest_snapshot
from kraftpy.metadata_log.verification import verify_log
from tests.sim.clients import Clients, Writers
from tests.sim.network import Network
from tests.sim.node import SimNode, make_facts
from tests.sim.oracles import NodeFacts, Oracles, Violation
from tests.sim.plan import LEADER, MS, SECOND, Fault, Plan

_PATIENCE_US = 60 * SECOND
_CHECK_US = 100 * MS
_EVENTS_PER_SECOND_MAX = 50_000
_TRACED = struct.Struct(">qqqq")


@dataclass(slots=True)
class Armed:
    """A fault that waits for a node to get into a certain state."""

    fault: Fault
    hook: str
    action: str


class Simulation:
    """One run of one plan."""

    def __init__(self, plan: Plan, *, tell: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.knobs = plan.knobs
        self.now_us = 0
        self.counts: Counter[str] = Counter()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._tell = tell
        self._armed: list[Armed] = []
        self.healed = False
        self._progressed_to = -1
        self._done = False
        self._second_ends_us = 0
        self._storm_at = 0
        facts = make_facts(self.knobs.nodes)
        self.oracles = self.make_oracles(facts)
        self.clients = self.make_clients()
        self.nodes = {node_id: self.make_node(node_id, each) for node_id, each in facts.items()}
        self.network = Network(plan.seed, self.knobs, self, self)

    # -- what a run is made of ------------------------------------------------------------

    def make_oracles(self, facts: dict[int, NodeFacts]) -> Oracles:
        return Oracles(facts)

    def make_clients(self) -> Writers:
        return Clients(self)

    def make_node(self, node_id: int, facts: NodeFacts) -> SimNode:
        return SimNode(self, node_id, facts)

    # -- events ---------------------------------------------------------------------------

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time_us, self._sequence, action))

    def trace(self, what: str, node_id: int, a: int, b: int) -> None:
        self._hash.update(what.encode())
        self._hash.update(_TRACED.pack(self.now_us, node_id, a, b))
        if self._tell is not None:
            self._tell(f"{self.now_us / SECOND:10.6f} {what:<12} node {node_id} {a} {b}")

    def more_counts(self) -> dict[str, int]:
        """What was counted outside of `counts`."""
        return {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def run(self) -> Violation | None:
        """To the end, or to the first violation."""
        for node in self.nodes.values():
            node.start()
        self.network.start()
        self.clients.start()
        for fault in self.plan.faults:
            self.at(fault.at_us, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        heal_us = self.knobs.seconds * SECOND
        self.at(heal_us, self.heal)
        self.oracles.now_us = self.now_us
        while self.oracles.violation is None and not self._done:
            self.now_us, _, action = heapq.heappop(self._heap)
            self.oracles.now_us = self.now_us
            action()
            self.clients.take_outcomes()
            self._check_storm()
        return self.oracles.violation

    def _check_storm(self) -> None:
        """Nodes that answer each other without end would also never end this run."""
        if self.now_us >= self._second_ends_us:
            self._second_ends_us = self.now_us + SECOND
            self._storm_at = self._sequence + _EVENTS_PER_SECOND_MAX
        elif self._sequence > self._storm_at:
            self.oracles.violate("no storm", f"{_EVENTS_PER_SECOND_MAX} events in a second")

    # -- what the network asks ------------------------------------------------------------

    def is_up(self, node_id: int) -> bool:
        return self.nodes[node_id].is_up

    def arrived(self, node_id: int, sender: int, data: bytes) -> None:
        self._hash.update(data)
        self.nodes[node_id].arrived(sender, data)

    def connection_changed(self, node_id: int, other: int, up: bool) -> None:
        self.nodes[node_id].arrived(other, up)

    # -- faults ---------------------------------------------------------------------------

    def leader(self) -> SimNode | None:
        leaders = {
            node.engine.core.raftCurrentTerm: node
            for node in self.nodes.values()
            if node.engine is not None and node.engine.core._isLeader()
        }
        return leaders[max(leaders)] if leaders else None

    def _node(self, node_id: int) -> SimNode:
        if node_id != LEADER:
            return self.nodes[node_id]
        return self.leader() or self.nodes[1]

    def hook(self, node: SimNode, name: str) -> None:
        """A node is in a state that faults may wait for."""
        self.counts[f"hook {name}"] += 1
        for armed in self._armed:
            wanted = armed.fault.node
            if armed.hook == name and wanted in (LEADER, node.id):
                self._armed.remove(armed)
                self.counts["hooked"] += 1
                fault = replace(armed.fault, node=node.id, kind=armed.action)
                self._hooked(node, fault)
                return

    def _hooked(self, node: SimNode, fault: Fault) -> None:
        """The node itself is in the middle of something, so it dies at one of the next effects.
        All else happens before the next event."""
        self.trace("hooked", node.id, len(fault.kind), fault.number)
        if fault.kind in ("power", "kill", "power_all", "power_majority"):
            self._die_at_effect(node, fault, power=fault.kind != "kill")
        if fault.kind not in ("power", "kill"):
            self.at(self.now_us, lambda: self._strike(fault))

    def _die_at_effect(self, node: SimNode, fault: Fault, *, power: bool) -> None:
        node.dies_by_power = power
        node.restart_after_us = fault.for_us
        node.disk.die_in(fault.number)

    def _strike(self, fault: Fault) -> None:
        if self.healed:
            return
        self.trace(fault.kind, fault.node, fault.other, fault.number)
        self.counts["faults"] += 1
        handler: Callable[[Fault, SimNode], None] = getattr(self, f"_strike_{fault.kind}")
        handler(fault, self._node(fault.node))

    def _strike_power(self, fault: Fault, node: SimNode) -> None:
        if node.is_up:
            node.restart_after_us = fault.for_us
            node.die(power=True)

    def _strike_kill(self, fault: Fault, node: SimNode) -> None:
        if node.is_up:
            node.restart_after_us = fault.for_us
            node.die(power=False)

    def _strike_kill_leader(self, fault: Fault, _node: SimNode) -> None:
        self._strike_kill(fault, self._node(LEADER))

    def _strike_stop(self, fault: Fault, node: SimNode) -> None:
        node.restart_after_us = fault.for_us
        node.stop()

    def _strike_crash_at_effect(self, fault: Fault, node: SimNode) -> None:
        self._die_at_effect(node, fault, power=fault.text == "power")

    def _strike_power_all(self, fault: Fault, _node: SimNode) -> None:
        for node in self.nodes.values():
            self._strike_power(fault, node)

    def _strike_power_majority(self, fault: Fault, node: SimNode) -> None:
        """The node and those after it, up to a majority."""
        for step in range(self.knobs.nodes // 2 + 1):
            self._strike_power(fault, self.nodes[(node.id - 1 + step) % self.knobs.nodes + 1])

    def _strike_pause(self, fault: Fault, node: SimNode) -> None:
        node.paused_until_us = self.now_us + fault.for_us

    def _strike_isolate(self, fault: Fault, node: SimNode) -> None:
        for other in self.nodes:
            if other != node.id:
                self.network.cut(node.id, other, self.now_us + fault.for_us)
                self.network.cut(other, node.id, self.now_us + fault.for_us)

    def _strike_cut(self, fault: Fault, node: SimNode) -> None:
        if fault.other != node.id:
            self.network.cut(node.id, fault.other, self.now_us + fault.for_us)
            self.network.cut(fault.other, node.id, self.now_us + fault.for_us)

    def _strike_cut_one_way(self, fault: Fault, node: SimNode) -> None:
        """All that the node sends, or all that it hears, or one link."""
        until_us = self.now_us + fault.for_us
        for other in self.nodes:
            if other == node.id or (fault.number > 8 and other != fault.other):
                continue
            if fault.number % 2:
                self.network.cut(node.id, other, until_us)
            else:
                self.network.cut(other, node.id, until_us)

    def _strike_clog(self, fault: Fault, node: SimNode) -> None:
        if fault.other != node.id:
            until_us = self.now_us + fault.for_us
            self.network.clog(node.id, fault.other, until_us, fault.number)

    def _strike_reset(self, fault: Fault, node: SimNode) -> None:
        if fault.other != node.id:
            self.network.reset(node.id, fault.other)

    def _strike_slow_disk(self, fault: Fault, node: SimNode) -> None:
        node.sync_cost_us = fault.number

        def recover() -> None:
            node.sync_cost_us = self.knobs.fsync_us

        self.at(self.now_us + fault.for_us, recover)

    def _strike_fail_sync(self, fault: Fault, node: SimNode) -> None:
        node.disk_is_bad = True
        node.restart_after_us = fault.for_us
        # Files only: a file system whose directories cannot be synced stops altogether.
        node.disk.fail_sync(fault.number, lambda path: path.rpartition("/")[2].count(".") > 0)

    def _strike_disk_full(self, fault: Fault, node: SimNode) -> None:
        node.disk_is_bad = True
        node.disk.full_at(100 * fault.number)

        def make_room() -> None:
            node.disk.capacity_bytes = None

        self.at(self.now_us + fault.for_us, make_room)

    def _strike_step_clock(self, fault: Fault, node: SimNode) -> None:
        node.clock.skew_ms += fault.number

    def _strike_resign(self, _fault: Fault, node: SimNode) -> None:
        if node.engine is not None:
            node.engine.resign()

    def _strike_hook(self, fault: Fault, _node: SimNode) -> None:
        hook, _, action = fault.text.partition(":")
        self._armed.append(Armed(fault, hook, action))

    # -- the end --------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults: from here on the cluster has to get well by itself."""
        self.healed = True
        self._armed.clear()
        self.clients.quiet()
        calm = replace(self.knobs, loss=0, duplicates=0, late=0)
        self.knobs = self.network.knobs = calm
        self.network.heal()
        for node in self.nodes.values():
            node.paused_until_us = 0
            node.sync_cost_us = self.knobs.fsync_us
            node.disk.clear_faults()
            node.disk_is_bad = False
            if node.is_up:
                node.wake()
            else:
                node.start()
        self.at(self.now_us + SECOND, self._check_convergence)

    def _check_convergence(self) -> None:
        for node in self.nodes.values():
            node.start()
        if self.converged():
            if self._progressed_to >= 0 and self.oracles.acked_end > self._progressed_to:
                self.check_end()
                self._done = True
                return
            # They agree; now they must also be able to go on.
            leader = self.leader()
            assert leader is not None
            self._progressed_to = self.oracles.acked_end
            self.clients.write(leader, may_be_stale=False)
        if self.now_us > self.plan.knobs.seconds * SECOND + _PATIENCE_US:
            self.oracles.violate("it gets well", self.state())
        self.at(self.now_us + _CHECK_US, self._check_convergence)

    def converged(self) -> bool:
        leader = self.leader()
        if leader is None or leader.engine is None or self.clients.waiting:
            return False
        due = (leader.id, leader.engine.epoch, leader.log_end, leader.log_end)
        return all(
            node.engine is not None
            and (
                node.engine.leader_id,
                node.engine.epoch,
                node.log_end,
                node.engine.high_watermark,
            )
            == due
            for node in self.nodes.values()
        )

    def state(self) -> str:
        found = [
            f"node {node.id}: leader {node.engine.leader_id} epoch {node.engine.epoch} log end "
            f"{node.log_end} high watermark {node.engine.high_watermark}"
            if node.engine is not None
            else f"node {node.id}: down"
            for node in self.nodes.values()
        ]
        return f"{self.clients.waiting} clients wait; " + "; ".join(found)

    def check_end(self) -> None:
        """Equal logs, sound directories, images that are the replay of the history."""
        oracles = self.oracles
        for node in self.nodes.values():
            assert node.engine is not None
            log = node.engine.journal.metadata_log
            for header, data in log.log.batches(log.log.start_offset):
                entry = oracles.entry_ending_at(header.end_offset)
                if entry is None or entry.data != bytes(data):
                    oracles.violate("equal logs", f"node {node.id} at {header.base_offset}")
                    return
            verdict = verify_log(node.disk, node.directory)
            if verdict.problems:
                oracles.violate("sound logs", f"node {node.id}: {verdict.problems[0]}")
            newest = load_newest_snapshot(
                node.disk, node.directory, oracles.end_offset, log.log.start_offset
            )
            if log.replay(newest, oracles.end_offset) != oracles.ledger[-1].image:
                oracles.violate("snapshot is replay", f"node {node.id}: its directory differs")
            for name, count in node.engine.guard.counts.items():
                self.counts[f"guard {name}"] += count
