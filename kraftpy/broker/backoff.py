"""How long to wait before trying again: longer each time, never twice the same. Pure."""

from typing import Final

from kraftpy.types import Rng

_FACTOR: Final = 2.0
_JITTER: Final = 0.25  # Brokers that lost the same controller must not come back together.


class Backoff:
    """The pauses of one who tries again and again."""

    def __init__(self, first_s: float, longest_s: float, rng: Rng) -> None:
        assert 0 < first_s <= longest_s
        self._first_s = first_s
        self._longest_s = longest_s
        self._rng = rng
        self._next_s = first_s

    def next_s(self) -> float:
        """The pause after one more failure."""
        pause_s = self._next_s
        self._next_s = min(pause_s * _FACTOR, self._longest_s)
        return pause_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        """It worked."""
        self._next_s = self._first_s
