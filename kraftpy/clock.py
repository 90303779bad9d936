"""The only place that asks for the time.

`now_ms` is wall time, for timestamps that people and other nodes see. `monotonic_ms` never goes
back, for timeouts and durations. Code takes a Clock as an argument, so that a test can skew one,
stop it, or step it.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a node knows of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Microseconds, for what measures and never decides."""
        return time.monotonic_ns() // 1000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass on both clocks."""
        assert by_ms >= 0
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def skew(self, by_ms: int) -> None:
        """Step the wall clock, forward or back; monotonic time does not notice."""
        self._now_ms += by_ms
