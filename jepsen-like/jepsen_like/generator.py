"""When the next operation is due, and which of several kinds it is. Chance is an argument.

Gaps are exponential, so that operations of different clients meet in every way; a client that fell
behind does not catch up by asking faster than the cluster can answer.
"""

import itertools
import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mix:
    """Kinds of operations and their weights."""

    weights: Mapping[str, float]
    _kinds: tuple[str, ...] = field(init=False)
    _shares: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        kinds = tuple(sorted(self.weights))
        object.__setattr__(self, "_kinds", kinds)
        shares = tuple(itertools.accumulate(self.weights[kind] for kind in kinds))
        object.__setattr__(self, "_shares", shares)

    def choose(self, rng: random.Random) -> str:
        return self._kinds[bisect_right(self._shares, rng.random() * self._shares[-1])]


class Pace:
    """The gaps of one client out of many that share a rate; no rate: as fast as answers come."""

    def __init__(self, rate_per_s: float | None, clients: int, rng: random.Random) -> None:
        self._mean_s = clients / rate_per_s if rate_per_s else 0.0
        self._rng = rng
        self._due_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next one."""
        if not self._mean_s:
            return 0.0
        if self._due_s is None or self._due_s < now_s - 4 * self._mean_s:
            self._due_s = now_s
        self._due_s += self._rng.expovariate(1 / self._mean_s)
        return max(0.0, self._due_s - now_s)


class Faults:
    """When faults begin and how long they last: mean gaps, now and then a very short one."""

    def __init__(self, interval_s: float, rng: random.Random) -> None:
        self._interval_s = interval_s
        self._rng = rng

    def duration_s(self) -> float:
        if self._rng.random() < 0.15:
            return 0.1 + 0.4 * self._rng.random()
        return min(3 * self._interval_s, 0.3 + self._rng.expovariate(1.5 / self._interval_s))

    def gap_s(self) -> float:
        if self._rng.random() < 0.15:
            return 0.3
        return min(3 * self._interval_s, 0.3 + self._rng.expovariate(2.5 / self._interval_s))
