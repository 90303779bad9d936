"""Histories of a cluster that keeps its promises, of any length, from a seed.

Clients are concurrent and their operations take effect somewhere between question and answer, or,
when the answer is lost, at any time after the question, or never. Faults come and go on the side.
So every history from here must be found valid, however odd it looks; tests then plant one lie in
it and see it found.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from jepsen_like.history import Header, History, Op, OpType

MS = 1_000_000
NODES = {"c1": "127.0.0.1:1", "b101": "127.0.0.1:2", "b102": "127.0.0.1:3", "b103": "127.0.0.1:4"}


@dataclass
class _Open:
    """A call that waits for its effect, then for its answer."""

    f: str
    fields: dict[str, Any]
    effect: Callable[[], dict[str, Any]]
    answer: dict[str, Any] | None = None


@dataclass
class Sampler:
    """Runs `calls` operations of `clients` clients; subclasses say which."""

    rng: random.Random
    workload: str = "log"
    clients: int = 4
    info_share: float = 0.02
    fail_share: float = 0.02
    gap_ms: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    nemesis: tuple[str, ...] = ()
    ops: list[Op] = field(default_factory=list)
    t: int = 0
    fault: int = 0

    def __post_init__(self) -> None:
        self._lanes = list(range(self.clients))
        self._open: dict[int, _Open] = {}
        self._late: list[Callable[[], dict[str, Any]]] = []

    def line(self, p: int | str, type_: OpType, f: str, **fields: Any) -> Op:
        self.t += int(self.rng.expovariate(1.0 / self.gap_ms) * MS)
        op = Op(i=len(self.ops), t=self.t, p=p, type=type_, f=f, **fields)
        self.ops.append(op)
        return op

    def begin(self, p: int, late: bool = False) -> _Open:
        raise NotImplementedError

    def run(self, calls: int, final: bool = False) -> None:
        """`calls` operations, all answered or given up in the end."""
        while calls or self._open:
            if self._late and self.rng.random() < 0.02:
                self._late.pop(self.rng.randrange(len(self._late)))()
            idle = [p for p in self._lanes if p not in self._open]
            if calls and idle and (not self._open or self.rng.random() < 0.4):
                p = self.rng.choice(idle)
                call = self.begin(p, final)
                self._open[p] = call
                self.line(p, "invoke", call.f, **call.fields)
                calls -= 1
            else:
                self._step(self.rng.choice(list(self._open)))
        if final:
            self._late.clear()

    def _step(self, p: int) -> None:
        call = self._open[p]
        if call.answer is None:
            chance = self.rng.random()
            if chance < self.fail_share:
                self._end(p, "fail", {"err": "NOT_LEADER_OR_FOLLOWER"})
            elif chance < self.fail_share + self.info_share:
                if self.rng.random() < 0.5:
                    self._late.append(call.effect)
                self._end(p, "info", {"err": "REQUEST_TIMED_OUT"})
            else:
                call.answer = call.effect()
        else:
            self._end(p, "ok", call.answer)

    def _end(self, p: int, type_: OpType, answer: dict[str, Any]) -> None:
        call = self._open.pop(p)
        kept = {k: v for k, v in call.fields.items() if k in ("k", "v", "node")}
        self.line(p, type_, call.f, **{**kept, **answer})
        if type_ == "info":  # The process is retired; the next in its lane begins anew.
            self._lanes[self._lanes.index(p)] = p + self.clients

    def phase(self, name: str) -> None:
        self.line("run", "ok", "phase", v=name)

    def strike(self, name: str, *targets: str) -> int:
        self.fault += 1
        told = {"fault": self.fault, "targets": list(targets)}
        self.line("nemesis", "invoke", name, v=told)
        self.line("nemesis", "ok", name, v=told)
        return self.fault

    def heal(self, fault: int) -> None:
        self.line("nemesis", "ok", "heal", v={"fault": fault})

    def history(self) -> History:
        header = Header(
            workload=self.workload,
            nemesis=self.nemesis,
            seed=7,
            clients=self.clients,
            time_s=self.t / 1e9,
            nodes=NODES,
            options=self.options,
            started_at="2026-01-02T03:04:05Z",
            command="python -m tests.jepsen.sample",
        )
        return History(header, self.ops)


class LogSampler(Sampler):
    """Producers, consumers and askers of ends on a few partitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keys = [f"t-{n}" for n in range(self.options.setdefault("partitions", 2))]
        self.logs: dict[str, list[int]] = {key: [] for key in self.keys}
        self.positions: dict[tuple[int, str], int] = {}
        self.values = 0

    def begin(self, p: int, late: bool = False) -> _Open:
        key = self.rng.choice(self.keys)
        chance = 1.0 if late else self.rng.random()
        if chance < 0.6:
            self.values += 1
            return self._send(key, self.values)
        if chance < 0.65:
            return _Open("end", {"k": key}, lambda: {"off": len(self.logs[key])})
        if late:
            key = min(self.keys, key=lambda key: self.positions.get((p, key), 0))
        if (p, key) not in self.positions:
            return self._assign(p, key)
        return self._poll(p, key)

    def _send(self, key: str, value: int) -> _Open:
        def effect() -> dict[str, Any]:
            self.logs[key].append(value)
            return {"off": len(self.logs[key]) - 1, "lepoch": 3, "node": "b101"}

        return _Open("send", {"k": key, "v": value}, effect)

    def _assign(self, p: int, key: str) -> _Open:
        def effect() -> dict[str, Any]:
            self.positions[p, key] = 0
            return {"off": 0}

        return _Open("assign", {"k": key, "off": 0}, effect)

    def _poll(self, p: int, key: str) -> _Open:
        position = self.positions[p, key]

        def effect() -> dict[str, Any]:
            log = self.logs[key]
            end = min(len(log), position + self.rng.randint(0, 20))
            self.positions[p, key] = end
            records = [[offset, log[offset]] for offset in range(position, end)]
            return {"v": records, "off": end, "node": "b102"}

        return _Open("poll", {"k": key, "off": position}, effect)

    def read_all(self) -> None:
        """The final polls: one consumer reads every partition to its end."""
        self.phase("final")
        p = self._lanes[0]
        for key in self.keys:
            self.line(p, "invoke", "assign", k=key, off=0)
            self.line(p, "ok", "assign", k=key, off=0)
            log = self.logs[key]
            for start in range(0, len(log) + 500, 500):
                end = min(start + 500, len(log))
                self.line(p, "invoke", "poll", k=key, off=min(start, end))
                records = [[offset, log[offset]] for offset in range(start, end)]
                self.line(p, "ok", "poll", k=key, v=records, off=end)
        self.line("run", "ok", "final-polls", v={"complete": True, "unread": {}})


class RegisterSampler(Sampler):
    """Writers and readers of registers, and late reads from brokers that follow in order."""

    keys_max: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.workload = "register"
        self.orders: dict[str, list[int | None]] = {}
        self.applied: dict[tuple[str, str], int] = {}
        self.values = 0
        self.per_key = self.options.setdefault("ops_per_key", 100)
        self.begun = 0

    def begin(self, p: int, late: bool = False) -> _Open:
        del p, late
        self.begun += 1
        newest = self.begun // (self.per_key * 2)  # Two keys at a time; they are rotated.
        key = f"t{newest * 2 + self.rng.randint(0, 1)}/retention.ms"
        order = self.orders.setdefault(key, [None])
        chance = self.rng.random()
        if chance < 0.4:
            self.values += 1
            value = self.values

            def write() -> dict[str, Any]:
                order.append(value)
                return {}

            return _Open("write", {"k": key, "v": value}, write)
        if chance < 0.8:
            return _Open("read", {"k": key}, lambda: {"v": order[-1]})
        node = self.rng.choice(["b101", "b102"])

        def late_read() -> dict[str, Any]:
            place = self.rng.randint(self.applied.get((node, key), 0), len(order) - 1)
            self.applied[node, key] = place
            return {"v": order[place]}

        return _Open("stale-read", {"k": key, "node": node}, late_read)


def log_history(seed: int, calls: int = 200, **settings: Any) -> History:
    """A valid history of the log workload, read to its end."""
    sampler = LogSampler(random.Random(seed), **settings)
    sampler.phase("load")
    sampler.run(calls)
    sampler.phase("heal")
    sampler.run(calls // 10, final=True)
    sampler.read_all()
    sampler.phase("stop")
    return sampler.history()


def register_history(seed: int, calls: int = 200, **settings: Any) -> History:
    """A valid history of the register workload."""
    sampler = RegisterSampler(random.Random(seed), **settings)
    sampler.run(calls)
    return sampler.history()


def changed(history: History, changes: dict[int, dict[str, Any]]) -> History:
    """The same history with some fields of some lines replaced."""
    ops = [replace(op, **changes[op.i]) if op.i in changes else op for op in history.ops]
    return History(history.header, ops)


def with_options(history: History, **options: Any) -> History:
    header = replace(history.header, options={**history.header.options, **options})
    return History(header, history.ops)
