"""Is there one order of a register's values that all reads agree with? Decided in O(n log n).

Every write has another value, so a read names the write it saw. Let pos(a) be the place of value
a in the order of writes, and cur(t) the place of the value that the register held at line t; cur
never falls, and the first value (None) has place 0. Each answer is an inequality between places:

    write of a, called at c, returned at r     cur(c) < pos(a),   pos(a) <= cur(r)
    read of a in [c, r], linearizable          cur(c) <= pos(a),  pos(a) <= cur(r)
    read of a that may be late, returned at r                     pos(a) <= cur(r)
    two late reads on one node, a before b     pos(a) <= pos(b)

Draw an edge for every "is not after". Edges lead from value to line, along the lines, and from
line to value. Values in one cycle would have one place; two values with one place is a
contradiction, and so is a cycle through a write's own strict edge (it was read before it was
written). Without either, the values sorted along the edges are an order that all agree with:
every inequality holds in it, and reads and writes can be placed in their intervals. So the answer
is exact, for any number of operations and clients, as long as values are unique and nothing but
reads and writes happens.

A write of unknown outcome takes part if its value was read, without a return. If nobody read it,
it may as well never have happened: taking it out of an order changes no read.

Cycles are the strongly connected components of the graph (Tarjan's algorithm, without recursion).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jepsen_like.checkers.trace import Call

_Node = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Values that would have to be written both before and after each other."""

    values: tuple[Any, ...]
    calls: tuple[Call, ...]


def contradictions(
    writes: Sequence[Call],
    reads: Sequence[Call],
    late_reads: Sequence[Call] = (),
    late_orders: Iterable[Sequence[Call]] = (),
) -> list[Contradiction]:
    """What no order can explain. `late_orders` are the late reads of one node's life, in order."""
    seen = {call.answer.v for call in (*reads, *late_reads)}
    edges = _edges(writes, reads, late_reads, late_orders, seen)
    by_value: dict[Any, list[Call]] = {}
    for call in (*writes, *reads, *late_reads):
        by_value.setdefault(_value(call), []).append(call)
    found = []
    for component in strongly_connected(edges):
        values = [node[1] for node in component if node[0] == "value"]
        if len(values) > 1:
            values.sort(key=lambda value: (value is not None, value))
            calls = [call for value in values for call in by_value.get(value, ())]
            calls.sort(key=lambda call: call.number)
            found.append(Contradiction(tuple(values), tuple(calls)))
    return found


def _value(call: Call) -> Any:
    return call.invoke.v if call.f == "write" else call.answer.v


class _Graph:
    """An edge says: the place of this is not after the place of that."""

    def __init__(self) -> None:
        self.edges: dict[_Node, list[_Node]] = {}
        self._lines: set[int] = set()

    def at_most(self, value: Any, line: int) -> None:
        """pos(value) <= cur(line)"""
        self._lines.add(line)
        self.edges.setdefault(("value", value), []).append(("line", line))

    def at_least(self, value: Any, line: int) -> None:
        """cur(line) <= pos(value)"""
        self._lines.add(line)
        self.edges.setdefault(("line", line), []).append(("value", value))

    def not_after(self, value: Any, other: Any) -> None:
        self.edges.setdefault(("value", value), []).append(("value", other))

    def close(self) -> dict[_Node, list[_Node]]:
        """Put the lines in a row, and give every node its list."""
        for line, next_line in pairwise(sorted(self._lines)):
            self.edges.setdefault(("line", line), []).append(("line", next_line))
        for node in [node for targets in self.edges.values() for node in targets]:
            self.edges.setdefault(node, [])
        return self.edges


def _edges(
    writes: Sequence[Call],
    reads: Sequence[Call],
    late_reads: Sequence[Call],
    late_orders: Iterable[Sequence[Call]],
    seen: set[Any],
) -> dict[_Node, list[_Node]]:
    graph = _Graph()
    graph.at_most(None, -1)  # The register began with None.
    for call in writes:
        if call.ok or call.invoke.v in seen:
            graph.at_least(call.invoke.v, call.invoke.i)
        if call.ok:
            graph.at_most(call.invoke.v, call.answer.i)
    for call in reads:
        graph.at_least(call.answer.v, call.invoke.i)
        graph.at_most(call.answer.v, call.answer.i)
    for call in late_reads:
        graph.at_most(call.answer.v, call.answer.i)
    for order in late_orders:
        for a, b in pairwise(order):
            graph.not_after(a.answer.v, b.answer.v)
    return graph.close()


def strongly_connected(edges: dict[_Node, list[_Node]]) -> list[list[_Node]]:
    """Components with more than one node."""
    index: dict[_Node, int] = {}
    low: dict[_Node, int] = {}
    on_stack: set[_Node] = set()
    stack: list[_Node] = []
    found = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(edges[successor])))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = _pop_until(stack, on_stack, node)
                    if len(component) > 1:
                        found.append(component)
    return found


def _pop_until(stack: list[_Node], on_stack: set[_Node], node: _Node) -> list[_Node]:
    component = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        component.append(top)
        if top == node:
            return component
