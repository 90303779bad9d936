"""A run with controllers, brokers and admins: more to strike, and more to demand in the end.

After healing, brokers that live are unfenced and those that are gone are fenced; every partition
that can be led is led, with all living replicas in sync; reassignments to living brokers are done;
no metadata transaction is open; a topic can be created.
"""

from collections import deque
from collections.abc import Callable

from kraftpy.audit.rules import Defaults
from kraftpy.metadata_log.image import Partition
from kraftpy.types import NO_LEADER, BrokerId
from tests.sim.controller.oracles import ControllerOracles
from tests.sim.controller.parties import Parties
from tests.sim.controller.voter import ControllerNode, settings_of
from tests.sim.node import SimNode
from tests.sim.oracles import NodeFacts
from tests.sim.plan import LEADER, SECOND, Fault, Plan
from tests.sim.simulation import Simulation

_ANSWERED_WITHIN_US = 15 * SECOND
_LOOKS = 20  # Two seconds' worth.


class ControllerSimulation(Simulation):
    """One run of a plan that has brokers."""

    oracles: ControllerOracles
    clients: Parties
    nodes: dict[int, ControllerNode]  # type: ignore[assignment]

    def __init__(self, plan: Plan, *, tell: Callable[[str], None] | None = None) -> None:
        self.settings = settings_of(plan.knobs)
        self._ends: deque[int] = deque(maxlen=_LOOKS)
        super().__init__(plan, tell=tell)

    def make_oracles(self, facts: dict[int, NodeFacts]) -> ControllerOracles:
        defaults = Defaults(
            min_insync_replicas=self.knobs.min_insync_replicas,
            unclean_leader_election_enable=self.knobs.unclean_elections,
        )
        return ControllerOracles(facts, defaults, self.knobs.session_ms)

    def make_clients(self) -> Parties:
        return Parties(self)

    def make_node(self, node_id: int, facts: NodeFacts) -> ControllerNode:
        return ControllerNode(self, node_id, facts)

    def traced_bytes(self, data: bytes) -> None:
        self._hash.update(data)

    def more_counts(self) -> dict[str, int]:
        return {**self.clients.network.counts, **self.oracles.counts}

    # -- faults of brokers ----------------------------------------------------------------

    def _strike_broker_kill(self, fault: Fault, _node: SimNode) -> None:
        self.clients.brokers[fault.other].die(fault.for_us)

    def _strike_broker_stop(self, fault: Fault, _node: SimNode) -> None:
        self.clients.brokers[fault.other].begin_to_stop(fault.for_us)

    def _strike_broker_pause(self, fault: Fault, _node: SimNode) -> None:
        self.clients.brokers[fault.other].pause(self.now_us + fault.for_us)

    def _strike_broker_lag(self, fault: Fault, _node: SimNode) -> None:
        self.clients.brokers[fault.other].lag(self.now_us + fault.for_us)

    def _strike_broker_zombie(self, fault: Fault, _node: SimNode) -> None:
        self.clients.brokers[fault.other].come_back_beside_itself()

    def _strike_broker_cut(self, fault: Fault, node: SimNode) -> None:
        """From one voter, or from all."""
        broker, until_us = self.clients.brokers[fault.other], self.now_us + fault.for_us
        for node_id in self.nodes if fault.node == LEADER else [node.id]:
            self.clients.network.cut(broker.name, node_id, until_us)

    # -- the end --------------------------------------------------------------------------

    def heal(self) -> None:
        super().heal()
        self.clients.heal()

    def converged(self) -> bool:
        self._ends.append(self.oracles.end_offset)
        if not super().converged() or self._unwell() is not None:
            return False
        return self.clients.is_proven()

    def state(self) -> str:
        return f"{self._unwell()}; {super().state()}"

    def _unwell(self) -> str | None:
        """What keeps the cluster from being well."""
        image = self.oracles.image
        if image.transaction is not None:
            return "a transaction is open"
        alive = frozenset(each.id for each in self.clients.brokers.values() if each.is_serving)
        for broker in self.clients.brokers.values():
            found = image.brokers.get(BrokerId(broker.id))
            if broker.is_serving:
                if found is None or found.fenced or found.broker_epoch != broker.epoch:
                    return f"broker {broker.id} is alive and not unfenced"
            elif not broker.is_gone or (found is not None and not found.fenced):
                return f"broker {broker.id} is gone and not fenced"
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                problem = _problem(partition, alive)
                if problem is not None:
                    return f"{topic.name}-{number} {problem}: {partition}"
        return self._behind()

    def _behind(self) -> str | None:
        """Idle logs grow, too: all that was committed some looks ago must be replayed."""
        for node in self.nodes.values():
            if node.host is None or node.host.keeper.image.end_offset < self._ends[0]:
                return f"node {node.id} has not replayed all"
        return None

    def check_end(self) -> None:
        super().check_end()
        self.oracles.check_image()
        for attempt in self.oracles.attempts:
            node = self.nodes[attempt.node_id]
            is_due = self.now_us - attempt.asked_us > _ANSWERED_WITHIN_US
            if not attempt.is_answered and node.life == attempt.life and is_due:
                self.oracles.violate("every request is answered", str(attempt.message))


def _problem(partition: Partition, alive: frozenset[int]) -> str | None:
    candidates = partition.isr or partition.elr
    if partition.leader == NO_LEADER:
        return "is not led" if alive & set(candidates) else None
    if (alive & set(partition.replicas)) - set(partition.isr):
        return "has a living replica that is not in sync"
    target = set(partition.replicas) - set(partition.removing_replicas)
    is_moving = partition.adding_replicas or partition.removing_replicas
    return "is still being reassigned" if is_moving and target <= alive else None
