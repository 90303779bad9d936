"""The memory in which large requests arrive, shared by all clients of a listener. Pure.

A connection asks for the size of a request when it knows it, and keeps the memory while it has use
for it. One that finds no room waits, and is not read from: first come, first served, so that a
large request is not overtaken for ever by small ones. Whoever has room can finish, so those who
wait get their turn; a holder that makes no progress is dealt with by its own deadline, which is
short while others wait.
"""

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Bytes that are given out and taken back."""

    def __init__(self, bytes_max: int) -> None:
        self.held = 0
        self._max = bytes_max
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def try_take(self, count: int) -> bool:
        """For what is good to have: it does not wait, and lets those who do go first."""
        if self._waiting or self.held + count > self._max:
            return False
        self.held += count
        return True

    def take(self, count: int, when_given: Callable[[], None]) -> bool:
        """Whether there is room now; if not, `when_given` is called when it has been taken."""
        if not self._waiting and self._fits(count):
            self.held += count
            return True
        self._waiting.append((count, when_given))
        return False

    def give_back(self, count: int) -> None:
        self.held -= count
        assert self.held >= 0
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, when_given = self._waiting.popleft()
            self.held += wanted
            when_given()

    def give_up(self, when_given: Callable[[], None]) -> None:
        """Wait no longer."""
        self._waiting = deque(each for each in self._waiting if each[1] != when_given)
        self.give_back(0)  # Those behind it may fit.

    def _fits(self, count: int) -> bool:
        # One request that is larger than everything must still get through, alone.
        return self.held + count <= self._max or self.held == 0
