"""Is there an order of these operations that a sequential object could have answered?

The search is Wing and Gong's, with Lowe's memo and Horn and Kroening's use of one list for calls
and returns. An order is legal if it keeps real time (what returned before another was called
comes first) and if the model accepts every step.

Why it is right. The list holds the events by time. An operation may come next exactly if its call
stands before the first return in the list, since every operation whose return is still there has
not been placed, and one that returned earlier must come earlier. The search takes the first such
call that the model accepts, removes it with its return, and starts again at the head; when it
meets a return instead, nothing more can be placed before it, so the last choice was wrong and is
undone. That visits every legal order. Two searches that placed the same set of operations and
stand in the same state have the same future, so a pair of (set, state) that was entered once need
not be entered again: the memo cuts repetition, never an answer.

An operation without a return (its outcome is unknown) may have happened at any time after its
call, or never. It has no return in the list: it may be placed, and need not be. Success is a list
without returns.

Whether such an order exists is NP-complete, so the number of steps is bounded. A search that
reaches its bound answers unknown; it never guesses. The bound counts steps, not time: the same
history gives the same answer on a slow machine.

A set of operations is an `int` of bits, the list is two Python lists of neighbours.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jepsen_like.verdict import Verdict

# Takes a state and an operation; gives the state after it, or None if the answer is impossible
# there.
Step = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """An operation in time. `op` is what the model is given; without a return, it is unknown."""

    op: Any
    call_ns: int
    return_ns: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """`placed` is the longest order that was found; if invalid, `stuck` is what could not
    follow."""

    verdict: Verdict
    steps: int
    placed: tuple[int, ...] = ()
    stuck: int | None = None


def check(intervals: Sequence[Interval], initial: Hashable, step: Step, steps_max: int) -> Answer:
    """Search for a legal order. Numbers in the answer are positions in `intervals`."""
    return _Search(intervals, step, steps_max).run(initial)


class _Search:
    """Node 0 is the head. Call and return of operation i are nodes of the list, in time order."""

    def __init__(self, intervals: Sequence[Interval], step: Step, steps_max: int) -> None:
        self._intervals = intervals
        self._step = step
        self._steps_max = steps_max
        events = []
        for i, interval in enumerate(intervals):
            # At one and the same time calls come first: then the two overlap, which forbids less.
            events.append((interval.call_ns, 0, i))
            if interval.return_ns is not None:
                events.append((interval.return_ns, 1, i))
        events.sort()
        size = len(events) + 1
        self._operation: Final = [-1, *(i for _, _, i in events)]
        self._is_call: Final = [False, *(kind == 0 for _, kind, _ in events)]
        self._return_node: Final = [0] * len(intervals)  # 0: it has none.
        for node in range(1, size):
            if not self._is_call[node]:
                self._return_node[self._operation[node]] = node
        self._after: Final = [*range(1, size), 0]
        self._before: Final = [size - 1, *range(size - 1)]

    def run(self, initial: Hashable) -> Answer:
        after, is_call, operation = self._after, self._is_call, self._operation
        waiting = sum(1 for interval in self._intervals if interval.return_ns is not None)
        state: Any = initial
        placed_bits = 0
        memo = {(0, initial)}
        choices: list[tuple[int, Any]] = []  # The call node, and the state before it.
        longest: tuple[int, ...] = ()
        stuck: int | None = None
        steps = 0
        node = after[0]
        while waiting:
            steps += 1
            if steps > self._steps_max:
                return Answer(Verdict.UNKNOWN, steps - 1, longest)
            if is_call[node]:
                i = operation[node]
                new_state = self._step(state, self._intervals[i].op)
                entry = (placed_bits | 1 << i, new_state)
                if new_state is None or entry in memo:
                    node = after[node]
                    continue
                memo.add(entry)
                choices.append((node, state))
                placed_bits, state = entry
                waiting -= self._remove(i, node)
                node = after[0]
                continue
            # A return: everything that may come before it was tried.
            if stuck is None or len(choices) > len(longest):
                longest = tuple(operation[n] for n, _ in choices)
                stuck = operation[node]
            if not choices:
                return Answer(Verdict.INVALID, steps, longest, stuck)
            node, state = choices.pop()
            i = operation[node]
            placed_bits ^= 1 << i
            waiting += self._put_back(i, node)
            node = after[node]
        return Answer(Verdict.VALID, steps, tuple(operation[n] for n, _ in choices))

    def _remove(self, i: int, call_node: int) -> int:
        """Take an operation out of the list; how many returns went with it."""
        after, before = self._after, self._before
        after[before[call_node]], before[after[call_node]] = after[call_node], before[call_node]
        return_node = self._return_node[i]
        if not return_node:
            return 0
        after[before[return_node]] = after[return_node]
        before[after[return_node]] = before[return_node]
        return 1

    def _put_back(self, i: int, call_node: int) -> int:
        """Undo the last removal: each node still knows its neighbours of that time."""
        after, before = self._after, self._before
        return_node = self._return_node[i]
        if return_node:
            after[before[return_node]] = before[after[return_node]] = return_node
        after[before[call_node]] = before[after[call_node]] = call_node
        return 1 if return_node else 0
