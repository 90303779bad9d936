"""A history, looked up: operations as whole calls, phases, faults, and when each node ran.

Every checker starts from a `Trace`, which is built once. Order is the order of lines (`i`), which
is finer than time and agrees with it: an invoke is written before its question leaves, an end
after its answer came. So `a.end.i < b.invoke.i` says that b was asked when a was already
answered, and nothing else may be concluded about their order.

A call without an end is unknown (info), as is every call that ended with info.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jepsen_like.history import Header, History, Op, pairs


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of a client, from question to answer."""

    invoke: Op
    end: Op | None

    @property
    def number(self) -> int:
        return self.invoke.i

    @property
    def f(self) -> str:
        return self.invoke.f

    @property
    def k(self) -> str | None:
        return self.invoke.k

    @property
    def p(self) -> int | str:
        return self.invoke.p

    @property
    def ok(self) -> bool:
        return self.end is not None and self.end.type == "ok"

    @property
    def failed(self) -> bool:
        return self.end is not None and self.end.type == "fail"

    @property
    def answer(self) -> Op:
        """The end of a call that has one."""
        assert self.end is not None
        return self.end

    @property
    def node(self) -> str | None:
        """Who answered, as far as anyone knows."""
        if self.end is not None and self.end.node is not None:
            return self.end.node
        return self.invoke.node


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in force: from when, to when, on what."""

    name: str
    targets: tuple[str, ...]
    begin: Op
    end: Op | None


class Trace:
    """A history with its calls and what surrounds them."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.calls = [Call(*pair) for pair in pairs(history.ops)]
        self.calls.sort(key=lambda call: call.invoke.i)
        self.memo: dict[str, Any] = {}  # What several checks need and one of them worked out.
        self._by_f: dict[str, list[Call]] = {}
        for call in self.calls:
            self._by_f.setdefault(call.f, []).append(call)

    @property
    def header(self) -> Header:
        return self.history.header

    @property
    def ops(self) -> list[Op]:
        return self.history.ops

    def option(self, name: str, default: Any = None) -> Any:
        return self.header.options.get(name, default)

    def of(self, *names: str) -> list[Call]:
        """Calls of these functions, in the order in which they were asked."""
        if len(names) == 1:
            return self._by_f.get(names[0], [])
        found = [call for name in names for call in self._by_f.get(name, ())]
        found.sort(key=lambda call: call.invoke.i)
        return found

    def ok(self, *names: str) -> list[Call]:
        return [call for call in self.of(*names) if call.ok]

    @cached_property
    def run_ops(self) -> list[Op]:
        return [op for op in self.ops if op.p == "run"]

    @cached_property
    def phases(self) -> dict[str, Op]:
        """Phase to the line where it first began."""
        found: dict[str, Op] = {}
        for op in self.run_ops:
            if op.f == "phase":
                found.setdefault(str(op.v), op)
        return found

    def in_final_phase(self, call: Call) -> bool:
        final = self.phases.get("final")
        return final is not None and call.invoke.i > final.i

    @cached_property
    def end_t(self) -> int:
        return self.ops[-1].t if self.ops else 0

    @cached_property
    def faults(self) -> list[Fault]:
        """The faults that fired. One without a heal of its own ends with the phase "heal"."""
        heals: dict[Any, Op] = {}
        fired = []
        for op in self.ops:
            if op.p != "nemesis" or op.type != "ok":
                continue
            if op.f == "heal":
                heals[fault_id(op)] = op
            else:
                fired.append(op)
        everything = self.phases.get("heal")
        return [
            Fault(op.f, targets_of(op), op, heals.get(fault_id(op), everything)) for op in fired
        ]

    @cached_property
    def _starts(self) -> dict[str, list[int]]:
        starts: dict[str, list[int]] = {}
        for op in self.run_ops:
            if op.f in ("start", "exit") and op.node is not None:
                starts.setdefault(op.node, []).append(op.i)
        return starts

    def life_of(self, node: str | None, line: int) -> int:
        """Which life of a node this line falls into: two lines with one number saw one process."""
        return bisect_right(self._starts.get(node, ()), line) if node is not None else 0


def fault_id(op: Op) -> Any:
    return op.v.get("fault", op.i) if isinstance(op.v, dict) else op.i


def targets_of(op: Op) -> tuple[str, ...]:
    targets = op.v.get("targets", ()) if isinstance(op.v, dict) else ()
    return (targets,) if isinstance(targets, str) else tuple(str(target) for target in targets)


def numbers(calls: Iterable[Call]) -> tuple[int, ...]:
    return tuple(call.number for call in calls)
