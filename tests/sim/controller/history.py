"""What was told of a name or of a config is linearizable. Pure.

The argument. A register is the topic that has a name, or the value of a config. The log has all its
writes in one order, so its states have versions: state k is what the k-th committed write left.
Versions make the check a matter of one comparison instead of a search:
- an operation that was answered speaks of one state: a write of the one it made, a read of the one
  it saw. A state that is not committed when the answer is given has no version, which is wrong.
- if one operation was answered before another was asked, the other's state must not be an earlier
  one, and if the other is a write, it must be a later one.
Order all operations by version, each write before the reads of its state: that order is legal for a
register, and by the second rule it contradicts no real time. So the history is linearizable. Such
an order exists only if both rules hold, so nothing is called wrong that is right.

The second rule is kept as a floor: the highest version that was told so far, taken when an
operation is asked and compared when it is answered. Where a read does not say which of several
equal states it saw ("it exists"), the earliest that it may have seen is assumed: the others would
only raise the floor for those after it. Answers of unknown outcome tell nothing, and neither do
refusals: that a refused write is not in the log is checked elsewhere.
"""

from collections.abc import Callable
from typing import Any


class Register:
    """The states of one thing and how much of them was told."""

    def __init__(self) -> None:
        self._states: list[Any] = [None]
        self._by_offset: dict[int, int] = {}
        self.floor = 0

    @property
    def state(self) -> Any:
        return self._states[-1]

    def write(self, base_offset: int, state: Any) -> None:
        """A batch is committed that changes it."""
        self._by_offset[base_offset] = len(self._states)
        self._states.append(state)

    def told_write(self, base_offset: int, floor: int) -> str | None:
        """A write was acknowledged; what is wrong with that."""
        version = self._by_offset.get(base_offset)
        if version is None:
            return f"the batch at {base_offset} did not change it"
        if version <= floor:
            return f"version {version} was written when {floor} had been told"
        self.floor = max(self.floor, version)
        return None

    def told_read(self, is_seen: Callable[[Any], bool], floor: int) -> str | None:
        """A read was answered; what is wrong with that."""
        for version in range(floor, len(self._states)):
            if is_seen(self._states[version]):
                self.floor = max(self.floor, version)
                return None
        if any(map(is_seen, self._states)):
            return f"an earlier state than version {floor}, which had been told: {self._states}"
        return f"a state that was never committed, of {self._states}"
