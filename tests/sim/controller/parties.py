"""All who ask controllers: the brokers and the admins, and whom they take for active."""

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from tests.sim.controller.admins import Admins, new_topic
from tests.sim.controller.attempt import code_of
from tests.sim.controller.brokers import SimBroker
from tests.sim.controller.wire import ClientNetwork
from tests.sim.plan import MS

if TYPE_CHECKING:
    from tests.sim.controller.simulation import ControllerSimulation
    from tests.sim.node import SimNode

_ADMINS = 4
_ASTRAY = 0.15
_LOOKERS = 2
_ASK_ANOTHER = (ErrorCode.not_controller, ErrorCode.request_timed_out)
_LEAVES_FOR_GOOD = 0.4


class Parties:
    """In the place of the other mode's clients."""

    def __init__(self, sim: "ControllerSimulation") -> None:
        self.sim = sim
        self.network = ClientNetwork(sim)
        self.brokers = {
            number: SimBroker(self, number) for number in range(1, sim.knobs.brokers + 1)
        }
        self.is_quiet = False
        self.reads = 0
        self._admins = Admins(self)
        self._rng = random.Random(f"{sim.plan.seed}/parties")
        self._leader_id, self._epoch = 1, 0
        self._targets = dict.fromkeys(range(_ADMINS), 1)
        self._open = 0
        self._proofs = 0
        self._is_proven = False

    @property
    def unknown(self) -> int:
        return self.sim.oracles.unknown

    @property
    def refused(self) -> int:
        return self.sim.oracles.refusals

    @property
    def waiting(self) -> int:
        return self._open

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._ask_later()

    def quiet(self) -> None:
        self.is_quiet = True

    def heal(self) -> None:
        """Who is left comes back; one may not be."""
        self.network.heal()
        brokers = list(self.brokers.values())
        if len(brokers) > 1 and self._rng.random() < _LEAVES_FOR_GOOD:
            self._rng.choice(brokers).leave()
        for broker in brokers:
            broker.heal()

    # -- whom to ask ----------------------------------------------------------------------

    def believe(self, node_id: int, epoch: int) -> None:
        if epoch >= self._epoch:
            self._leader_id, self._epoch = node_id, epoch

    def believed(self, rng: random.Random) -> int:
        """The active controller, as far as one has heard."""
        if rng.random() < _ASTRAY:
            return rng.randint(1, self.sim.knobs.nodes)
        return self._leader_id

    # -- admins ---------------------------------------------------------------------------

    def _ask_later(self) -> None:
        wait_us = int(self._rng.expovariate(1 / (self.sim.knobs.admin_interval_ms * MS)))
        self.sim.at(self.sim.now_us + wait_us, self._ask)

    def _ask(self) -> None:
        if self.is_quiet:
            return
        number = self._rng.randrange(_ADMINS)
        asked = self._admins.request(self.sim.oracles.image, only_looks=number < _LOOKERS)
        if asked is not None:
            target, name = self._targets[number], f"admin-{number}"
            if number >= _LOOKERS and self._rng.random() < 0.5:
                target = self.believed(self._rng)  # It has heard of a new one.
            self._open += 1
            done = partial(self._answered, number)
            self.network.ask(name, target, *asked, done, timeout_ms=4000)
        self._ask_later()

    def _answered(self, number: int, response: Any) -> None:
        """Who only looks stays where it is answered, so some look at a controller of which others
        know that it is over. Writes there would show it that it is, and so are rare."""
        self._open -= 1
        is_content = response is not None and code_of(response) not in _ASK_ANOTHER
        if not (is_content and number < _LOOKERS):
            self._targets[number] = self.believed(self._rng)

    def is_proven(self) -> bool:
        """Whether a topic was created since all is well; if none is being, try it."""
        if not self._is_proven and self._open == 0:
            self._open += 1
            self._proofs += 1
            asked = new_topic(f"proof{self._proofs}")
            self.network.ask("admin-0", self._leader_id, *asked, self._proved)
        return self._is_proven

    def _proved(self, response: Any) -> None:
        self._open -= 1
        self._is_proven = response is not None and code_of(response) is ErrorCode.none

    # -- the simulation's own -------------------------------------------------------------

    def write(self, node: "SimNode", *, may_be_stale: bool = True) -> None:
        """The controller writes by itself when the log is idle."""

    def lost(self, node_id: int) -> None:
        """Whoever waits for a node waits as long as for any other."""

    def take_outcomes(self) -> None:
        """Answers find their way by themselves."""
