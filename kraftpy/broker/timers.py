"""One timer for very many deadlines: a hierarchy of wheels, and one wake-up of the event loop.

A wheel has slots of equal width; what is due beyond its last slot goes to the next wheel, whose
slots are as wide as this wheel is long. When time reaches a slot of a higher wheel, what is in it
moves down. So setting and cancelling cost the same however many deadlines there are, which a heap
of them would not give: sessions are set again with every heartbeat.

What always holds: nothing fires early, nothing fires twice, nothing that was cancelled fires; what
fires in one turn fires in the order of its slots. A deadline is late by a tick at most, and by what
the event loop is late.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kraftpy.clock import Clock

_SLOTS: Final = 64
_LEVELS: Final = 6  # 64 ** 6 ticks: with ticks of 10 ms some twenty years.
TICK_MS: Final = 10


class Deadline:
    """Something that happens at a time, unless it is cancelled."""

    __slots__ = ("_slot", "at_tick", "call")

    def __init__(self, at_tick: int, call: Callable[[], None]) -> None:
        self.at_tick = at_tick
        self.call = call
        self._slot: dict[Deadline, None] | None = None

    @property
    def is_set(self) -> bool:
        return self._slot is not None

    def put(self, slot: dict["Deadline", None]) -> None:
        self._slot = slot
        slot[self] = None

    def cancel(self) -> None:
        """It does not happen. To cancel it again, or after it happened, changes nothing."""
        if self._slot is not None:
            del self._slot[self]
            self._slot = None


class TimingWheels:
    """The wheels alone: time is told to them. Pure."""

    def __init__(self, tick: int = 0) -> None:
        self._tick = tick  # All that is due up to here has been given out.
        self._wheels: list[list[dict[Deadline, None]]] = [
            [{} for _ in range(_SLOTS)] for _ in range(_LEVELS)
        ]

    def add(self, deadline: Deadline) -> None:
        """Due at its tick; at the next one if that has passed."""
        due = max(deadline.at_tick, self._tick + 1)
        width = 1
        for wheel in self._wheels:
            if due // width - self._tick // width < _SLOTS:
                deadline.put(wheel[due // width % _SLOTS])
                return
            width *= _SLOTS
        last = self._tick // (width // _SLOTS) + _SLOTS - 1  # As far as there are slots.
        deadline.put(self._wheels[-1][last % _SLOTS])

    def advance(self, tick: int) -> dict[Deadline, None]:
        """What is due until `tick`, in order; what is cancelled from now on leaves it."""
        due: dict[Deadline, None] = {}
        while self._tick < tick:
            following = self.next_tick()
            if following is None or following > tick:
                self._tick = tick
                break
            self._tick = following
            self._turn(due)
        return due

    def _turn(self, due: dict[Deadline, None]) -> None:
        """Time has come to a slot: of the first wheel, or of a higher one that moves down."""
        width = _SLOTS ** (_LEVELS - 1)
        for wheel in reversed(self._wheels):
            if self._tick % width == 0:
                slot = wheel[self._tick // width % _SLOTS]
                for deadline in list(slot):
                    deadline.cancel()
                    if deadline.at_tick > self._tick:
                        self.add(deadline)
                    else:
                        deadline.put(due)
            width //= _SLOTS

    def next_tick(self) -> int | None:
        """When `advance` has something to do: at the latest when the first deadline is due."""
        found: int | None = None
        width = 1
        for wheel in self._wheels:
            now = self._tick // width
            for ahead in range(1, _SLOTS):
                at = (now + ahead) * width
                if found is not None and at >= found:
                    break
                if wheel[(now + ahead) % _SLOTS]:
                    found = at
                    break
            width *= _SLOTS
        return found


class Timer:
    """The wheels in an event loop, by a clock: a single call of the loop waits for the first."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._wheels = TimingWheels(clock.monotonic_ms() // TICK_MS)
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._firing = False

    def after(self, delay_ms: int, call: Callable[[], None]) -> Deadline:
        """Have `call` made when the time has passed, not before."""
        at_ms = self._clock.monotonic_ms() + max(delay_ms, 0)
        deadline = Deadline(-(-at_ms // TICK_MS), call)
        self._wheels.add(deadline)
        if not self._firing and (self._handle is None or deadline.at_tick < self._wakes_at):
            self._wait()
        return deadline

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self) -> None:
        self.close()
        following = self._wheels.next_tick()
        if following is None:
            return
        self._wakes_at = following
        delay_ms = max(following * TICK_MS - self._clock.monotonic_ms(), 0)
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._firing = True
        try:
            due = self._wheels.advance(self._clock.monotonic_ms() // TICK_MS)
            while due:  # One at a time: what one does may cancel the next.
                deadline = next(iter(due))
                deadline.cancel()
                deadline.call()
        finally:
            self._firing = False
            self._wait()
