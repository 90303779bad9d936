"""Histories written by hand, a line at a time: what a test wants judged.

A call that is not concurrent with anything is one line of a test (`send`, `poll`, `do`); for one
that is, `invoke` and `end` stand where they happen. Every line takes one millisecond.
"""

from typing import Any

from jepsen_like.checkers.trace import Trace
from jepsen_like.history import Header, History, Op, OpType, Process

MS = 1_000_000
KEY = "t-0"


class Script:
    def __init__(self, workload: str = "log", nemesis: tuple[str, ...] = (), **options: Any):
        self._header = Header(workload=workload, nemesis=nemesis, clients=4, options=options)
        self._ops: list[Op] = []
        self._open: dict[Process, Op] = {}
        self._t = 0

    def line(self, p: Process, type_: OpType, f: str, **fields: Any) -> Op:
        self._t += MS
        op = Op(i=len(self._ops), t=self._t, p=p, type=type_, f=f, **fields)
        self._ops.append(op)
        return op

    def wait(self, seconds: float) -> None:
        self._t += int(seconds * 1000) * MS

    def invoke(self, p: int, f: str, **fields: Any) -> Op:
        self._open[p] = self.line(p, "invoke", f, **fields)
        return self._open[p]

    def end(self, p: int, type_: OpType = "ok", **fields: Any) -> Op:
        begun = self._open.pop(p)
        kept = {name: getattr(begun, name) for name in ("k", "v", "node") if name not in fields}
        return self.line(p, type_, begun.f, **kept, **fields)

    def do(self, p: int, f: str, type_: OpType = "ok", *, gives: Any = None, **fields: Any) -> Op:
        """A whole call; `gives` is the answer's value. The line that began it."""
        off = fields.pop("gives_off", None)
        begun = self.invoke(p, f, **fields)
        self.end(p, type_, off=off, **({} if gives is None else {"v": gives}))
        return begun

    def send(
        self, p: int, v: int, off: int | None = None, type_: OpType = "ok", k: str = KEY
    ) -> Op:
        return self.do(p, "send", type_, k=k, v=v, gives_off=off)

    def poll(
        self, p: int, position: int, *records: tuple[int, Any], k: str = KEY, to: int | None = None
    ) -> Op:
        end = to if to is not None else (records[-1][0] + 1 if records else position)
        begun = self.invoke(p, "poll", k=k, off=position)
        self.end(p, v=[list(record) for record in records], off=end)
        return begun

    def phase(self, name: str) -> None:
        self.line("run", "ok", "phase", v=name)

    def fault(self, name: str, number: int, *targets: str) -> None:
        self.line("nemesis", "invoke", name, v={"fault": number, "targets": list(targets)})
        self.line("nemesis", "ok", name, v={"fault": number, "targets": list(targets)})

    def heal(self, number: int) -> None:
        self.line("nemesis", "ok", "heal", v={"fault": number})

    def history(self) -> History:
        return History(self._header, list(self._ops))

    def trace(self) -> Trace:
        return Trace(self.history())
