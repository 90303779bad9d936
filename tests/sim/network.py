"""The simulated network: a connection per pair of nodes, a delay per directed link.

In order mode is TCP as it is: what was sent on a connection arrives in order or the connection
breaks, and after the first loss nothing more of it arrives. In hard mode messages overtake each
other, are lost one by one and arrive twice. In both, what was on its way on a broken connection
may arrive on the next one, by the knob `late`.
"""

import random
from collections.abc import Callable
from typing import Protocol

from tests.sim.plan import MS, Knobs

_RECONNECT_US = 40 * MS
_NOTICE_US = 400 * MS  # How long a broken connection goes unnoticed, at most.
_LATE_US = 1500 * MS


class Schedule(Protocol):
    """The part of the simulation that a network needs."""

    now_us: int

    def at(self, time_us: int, action: Callable[[], None]) -> None: ...


class Ends(Protocol):
    """The nodes."""

    def is_up(self, node_id: int) -> bool: ...

    def arrived(self, node_id: int, sender: int, data: bytes) -> None: ...

    def connection_changed(self, node_id: int, other: int, up: bool) -> None: ...


class _Link:
    """One direction of a pair."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.last_arrival_us = 0
        self.broken = False  # Something was lost: nothing later may arrive on this connection.
        self.cut_until_us = 0
        self.clog_until_us = 0
        self.clog_us = 0


class Network:
    """All links."""

    def __init__(self, seed: int, knobs: Knobs, schedule: Schedule, ends: Ends) -> None:
        self.knobs = knobs
        self._schedule = schedule
        self._ends = ends
        self._nodes = range(1, knobs.nodes + 1)
        self._links = {
            (a, b): _Link(random.Random(f"{seed}/link/{a}/{b}"))
            for a in self._nodes
            for b in self._nodes
            if a != b
        }
        self._connections: dict[tuple[int, int], int] = {}
        self._last_connection = 0
        self.counts = {"messages": 0, "lost": 0, "late": 0, "twice": 0, "resets": 0}

    def start(self) -> None:
        for a in self._nodes:
            for b in range(a + 1, self.knobs.nodes + 1):
                self._maintain(a, b)

    # -- connections ----------------------------------------------------------------------

    def _maintain(self, a: int, b: int) -> None:
        """A pair tries to connect again and again."""
        schedule, there, back = self._schedule, self._links[a, b], self._links[b, a]
        now_us = schedule.now_us
        both_up = self._ends.is_up(a) and self._ends.is_up(b)
        cut = max(there.cut_until_us, back.cut_until_us) > now_us
        if (a, b) not in self._connections and both_up and not cut:
            self._last_connection += 1
            self._connections[a, b] = self._last_connection
            there.broken = back.broken = False
            there.last_arrival_us = back.last_arrival_us = 0
            self._ends.connection_changed(a, b, True)
            self._ends.connection_changed(b, a, True)
        wait_us = _RECONNECT_US + there.rng.randrange(_RECONNECT_US)
        schedule.at(now_us + wait_us, lambda: self._maintain(a, b))

    def reset(self, a: int, b: int) -> None:
        """Both ends learn that the connection is gone."""
        pair = min(a, b), max(a, b)
        if self._connections.pop(pair, None) is None:
            return
        self.counts["resets"] += 1
        for node_id, other in (pair, pair[::-1]):
            if self._ends.is_up(node_id):
                self._ends.connection_changed(node_id, other, False)

    def went_down(self, node_id: int, *, noticed_at_once: bool) -> None:
        """A node is gone; if its machine is, the others find out later."""
        for other in self._nodes:
            if other == node_id:
                continue
            if noticed_at_once:
                self.reset(node_id, other)
            else:
                self._break(node_id, other)
                self._break(other, node_id)

    def _break(self, a: int, b: int) -> None:
        link, pair = self._links[a, b], (min(a, b), max(a, b))
        connection = self._connections.get(pair)
        if connection is None or link.broken:
            return
        link.broken = True

        def give_up() -> None:
            if self._connections.get(pair) == connection:
                self.reset(a, b)

        notice_us = link.rng.randrange(_NOTICE_US)
        self._schedule.at(self._schedule.now_us + notice_us, give_up)

    # -- faults ---------------------------------------------------------------------------

    def cut(self, a: int, b: int, until_us: int) -> None:
        link = self._links[a, b]
        link.cut_until_us = max(link.cut_until_us, until_us)

    def clog(self, a: int, b: int, until_us: int, delay_us: int) -> None:
        link = self._links[a, b]
        link.clog_until_us, link.clog_us = until_us, delay_us

    def heal(self) -> None:
        for link in self._links.values():
            link.cut_until_us = link.clog_until_us = 0

    # -- messages -------------------------------------------------------------------------

    def send(self, a: int, b: int, data: bytes, at_us: int) -> None:
        """A message leaves at `at_us`, which may be a little later than now."""
        knobs, link = self.knobs, self._links[a, b]
        rng = link.rng
        self.counts["messages"] += 1
        connection = self._connections.get((min(a, b), max(a, b)))
        delay_us = knobs.delay_us + int(rng.random() ** 3 * knobs.jitter_us)
        chance = rng.random() * 10_000
        again = rng.random() * 10_000
        if connection is None or (link.broken and not knobs.unordered):
            self.counts["lost"] += 1
            return
        if link.cut_until_us > at_us or chance < knobs.loss:
            self.counts["lost"] += 1
            if not knobs.unordered or link.cut_until_us > at_us:
                self._break(a, b)
            return
        arrival_us = at_us + delay_us
        if link.clog_until_us > at_us:
            arrival_us += link.clog_us
        if not knobs.unordered:
            arrival_us = max(arrival_us, link.last_arrival_us + 1)
            link.last_arrival_us = arrival_us
        self._deliver_at(arrival_us, a, b, data, connection)
        if again < knobs.duplicates:
            self.counts["twice"] += 1
            late_us = arrival_us + int(rng.random() ** 2 * _LATE_US)
            self._deliver_at(late_us, a, b, data, connection)

    def _deliver_at(self, time_us: int, a: int, b: int, data: bytes, connection: int) -> None:
        self._schedule.at(time_us, lambda: self._deliver(a, b, data, connection))

    def _deliver(self, a: int, b: int, data: bytes, connection: int) -> None:
        link = self._links[a, b]
        if self._connections.get((min(a, b), max(a, b))) != connection:
            if link.rng.random() * 10_000 >= self.knobs.late:
                self.counts["lost"] += 1
                return
            self.counts["late"] += 1
        if not self._ends.is_up(b) or link.cut_until_us > self._schedule.now_us:
            self.counts["lost"] += 1
            self._break(a, b)
            return
        self._ends.arrived(b, a, data)
