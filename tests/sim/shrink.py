"""Makes a failing plan small: fewer faults, plainer knobs, less time; the same rule must break.

The faults go by ddmin (Zeller and Hildebrandt, 2002): drop large parts first, then ever smaller
ones, until no single fault can be left out.
"""

from collections.abc import Callable
from dataclasses import asdict, replace

from tests.sim.oracles import Violation
from tests.sim.plan import SECOND, Fault, Knobs, Plan

Fails = Callable[[Plan], Violation | None]


def shrink(plan: Plan, fails: Fails, *, runs_max: int = 400) -> Plan:
    """The smallest plan found that still breaks the rule that `plan` breaks."""
    return _Shrinking(plan, fails, runs_max).best


class _Shrinking:
    def __init__(self, plan: Plan, fails: Fails, runs_max: int) -> None:
        self._fails = fails
        self._runs_left = runs_max
        found = fails(plan)
        assert found is not None, "only a plan that fails can be shrunk"
        self._rule = found.rule
        self.best = plan
        self._shorten(found)
        self._drop_faults()
        self._plain_knobs()
        self._drop_faults()

    def _try(self, plan: Plan) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        found = self._fails(plan)
        if found is None or found.rule != self._rule:
            return False
        self.best = plan
        return True

    def _shorten(self, found: Violation) -> None:
        """Nothing after the violation matters."""
        seconds = min(self.best.knobs.seconds, found.at_us // SECOND + 1)
        faults = tuple(fault for fault in self.best.faults if fault.at_us <= found.at_us)
        self._try(replace(self.best, faults=faults))
        self._try(replace(self.best, knobs=replace(self.best.knobs, seconds=seconds)))

    def _drop_faults(self) -> None:
        parts = 2
        while self.best.faults and self._runs_left:
            faults = self.best.faults
            parts = min(parts, len(faults))
            if self._drop_one_part(faults, parts):
                parts = max(parts - 1, 2)
            elif parts == len(faults):
                return
            else:
                parts *= 2

    def _drop_one_part(self, faults: tuple[Fault, ...], parts: int) -> bool:
        size = -(-len(faults) // parts)
        return any(
            self._try(replace(self.best, faults=faults[:start] + faults[start + size :]))
            for start in range(0, len(faults), size)
        )

    def _plain_knobs(self) -> None:
        for name, plain in asdict(Knobs()).items():
            knobs = self.best.knobs
            plainer = replace(knobs, **{name: plain})
            # The core refuses an election timeout that is too close to the heartbeat.
            fits = plainer.election_timeout_ms > 3 * plainer.heartbeat_ms
            if name not in ("seconds", "nodes", "brokers") and plainer != knobs and fits:
                self._try(replace(self.best, knobs=plainer))
