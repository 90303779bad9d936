"""A history: what clients asked, what they were told and which faults were there, one JSON a line.

It is the only thing that the running half gives to the judging half. A history can be written by
hand, cut with grep, and judged again years later. This module is its format, with one writer and
one reader; it knows neither clusters nor checkers.

THE FIRST LINE is the header, an object with the key "format":

    {"format": 1, "workload": "log", "nemesis": ["kill", "partition"], "seed": 7, "clients": 8,
     "time_s": 120, "nodes": {"c1": "127.0.0.1:9093", "b101": "127.0.0.1:9092"},
     "options": {"idempotent": true, "partitions": 6, ...}, "started_at": "2026-01-02T03:04:05Z",
     "command": "python -m jepsen_like run ..."}

Nodes are named c<node id> (controllers) and b<node id> (brokers). A run against somebody else's
cluster names the bootstrap servers n1, n2, ... as far as it knows them.

EVERY OTHER LINE is an operation's beginning or its end, an Op:

    i       line number, from 0, without gaps. The order of lines is the order of events.
    t       nanoseconds of the harness's monotonic clock since the run began; never falls.
    p       who: a client process (an int), "nemesis", "observer" or "run".
    type    "invoke"  about to ask
            "ok"      it happened, and this is the answer
            "fail"    it certainly did not happen and never will
            "info"    unknown: it may have happened, may still happen, or may never
    f       what, see below
    k       on what: "topic-partition", a register, a group; None if there is only one thing
    v       value or values
    off     an offset
    lepoch  the leader epoch that goes with it, where the client was told
    node    who was asked, or who answered, where known: "b101"
    err     why it failed or is unknown: Kafka's error name, or a word of the client's

What always holds:
- a client process has one operation open at a time, and the end follows its invoke; an end repeats
  f and k (and v, where the invoke had one that the answer does not replace).
- after "info" a process is retired: its id never occurs again. The next one in the same lane has
  the id `p + clients`, so that lane = p % header.clients. An invoke without an end, in a file that
  was cut short, counts as info.
- a read (poll, end, read, list, ...) never changes anything: its "fail" and "info" may be dropped.
- values of one workload are unique in a run: one value was sent, written or added at most once.

W1 "log" (and W8 "linger": the same without faults, at full rate; W2 "txn" will add its own)
    send     k=tp, v=int.               ok: off (the record's), lepoch if told, node
    assign   k=tp, off=int              ok: a consumer of this process now stands at off on k. A
                                        process polls k only after it; a new consumer starts anew
    poll     k=tp, off=position         ok: v=[[offset, value], ...] in the order given (perhaps
                                        []), off=the next position. Values are ints; what is not
                                        ours is given as it is (a string)
    end      k=tp                       ok: off = end of what can be read (ListOffsets latest)
W3 "register": one topic config is one register; all begin with None (not set)
    write    k="topic/config", v=int    ok: the quorum committed it
    cas      not in Kafka's protocol; the checker may know it
    read     k                          ok: v=int or None; from the active controller, after a
                                        commit of its epoch: must be linearizable
    stale-read  k, node                 ok: v=int or None; from a broker's cache: must be some
                                        value of the register's order, and never go back on a node
                                        as long as it runs
W4 "set": topics by name
    add      v=name                     ok: created. fail with TOPIC_ALREADY_EXISTS is never used
                                        for a name that is unique; it becomes info -> "ok" only if
                                        an attempt of this op before was of unknown outcome
    remove   v=name                     ok: deleted. A name is added once and removed at most once
    list     node                       ok: v=[names, sorted], from a broker's cache: may be late
    final-list  node                    the same after all is healed: may not be late
W5 "ids"
    init     node                       ok: v=[producer id, producer epoch]
W6 "group": k="group/tp"; one process at a time owns a k, and commits growing offsets
    commit   k, off=int, v=int          ok: the coordinator answered (v is the offset again)
    fetch    k                          ok: v=int or None (nothing committed)
W7 "watch"
    follow   k="__cluster_metadata-0", node, off=start
                                        ok: v=[[base offset, epoch, crc], ...] of the batches that
                                        this node showed from off on, off=the next offset
    view     node                       ok: v={tp: [leader, leader epoch, [isr]]} as this broker
                                        answers Metadata; epochs never fall on a broker while it
                                        runs, and two brokers agree on the leader of (tp, epoch)
    touch    v=int                      ok: something was changed in the metadata (a topic, say),
                                        so that there is something to follow

p = "nemesis": a fault is an invoke, an end, and later its heal, tied by v["fault"]
    invoke   f="kill", v={"fault": 7, "targets": ["b101"], ...}
    ok       f="kill", v={"fault": 7, ...}     it is in force from here on: it "fired"
    info     f="kill", v={"fault": 7}, err     it could not be done, or not wholly
    ok       f="heal", v={"fault": 7}          it is over. One without a heal lasts to the phase
                                               "heal", where everything is healed
p = "observer": what an onlooker saw, for the lanes of a report; never an argument of a verdict
    ok       f="quorum", v={"leader": "c1", "epoch": 4, "hw": 120}
    ok       f="partition", k=tp, lepoch, v={"leader": "b101", "isr": ["b101", "b102"]}
p = "run": the phases, and what became of the processes
    ok       f="phase", v="warmup" | "load" | "heal" | "settle" | "final" | "stop"
    ok       f="start", node                   a process of this node began to run
    info     f="exit", node, v={"code": -9, "expected": true}   it ended; expected: by our hand,
                                               or it may refuse to run (its disk was damaged)
    ok       f="cpu", v={"clients": 3.1, "proxy": 2.2, "operations": 9000}   processor seconds that
                                               the harness itself used from warm-up to settle
    ok       f="final-polls", v={"complete": true, "unread": {tp: count}}
"""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final, Literal, cast

FORMAT: Final = 1

OpType = Literal["invoke", "ok", "fail", "info"]
Process = int | str
TYPES: Final = ("invoke", "ok", "fail", "info")
_OPTIONAL: Final = ("k", "v", "off", "lepoch", "node", "err")
_OPTIONAL_SET: Final = frozenset(_OPTIONAL)


class BadHistory(ValueError):
    """A line is not what the format says."""


@dataclass(frozen=True, slots=True)
class Op:
    """One line: an operation's beginning or end."""

    i: int
    t: int
    p: Process
    type: OpType
    f: str
    k: str | None = None
    v: Any = None
    off: int | None = None
    lepoch: int | None = None
    node: str | None = None
    err: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The line as an object; fields that are None are left out."""
        line: dict[str, Any] = {
            "i": self.i,
            "t": self.t,
            "p": self.p,
            "type": self.type,
            "f": self.f,
        }
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                line[name] = value
        return line


@dataclass(frozen=True, slots=True)
class Header:
    """What was run."""

    workload: str
    nemesis: tuple[str, ...] = ()
    seed: int = 0
    clients: int = 1
    time_s: float = 0.0
    nodes: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    started_at: str = ""
    command: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "workload": self.workload,
            "nemesis": list(self.nemesis),
            "seed": self.seed,
            "clients": self.clients,
            "time_s": self.time_s,
            "nodes": self.nodes,
            "options": self.options,
            "started_at": self.started_at,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class History:
    """A header and its operations, in order."""

    header: Header
    ops: list[Op]


class HistoryWriter:
    """Appends lines from any thread, numbering them. One lock decides the order: the time is read
    under it, so that `t` never falls and an answer never stands before its question."""

    def __init__(self, file: IO[str], header: Header, start_ns: int = 0) -> None:
        self._file = file
        self._start_ns = start_ns
        self._lock = threading.Lock()
        self._count = 0
        self._last_t = 0
        file.write(_dumps(header.as_json()) + "\n")

    def write(self, now_ns: int, p: Process, type_: OpType, f: str, **fields: Any) -> None:
        """One line; `fields` are those of Op that may be left out."""
        if not _OPTIONAL_SET.issuperset(fields):
            raise TypeError(f"not fields of an operation: {sorted(fields)}")
        given = {name: value for name, value in fields.items() if value is not None}
        with self._lock:
            self._last_t = max(self._last_t, now_ns - self._start_ns)
            line = {"i": self._count, "t": self._last_t, "p": p, "type": type_, "f": f, **given}
            self._file.write(_dumps(line) + "\n")
            self._count += 1

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    @property
    def count(self) -> int:
        return self._count


_dumps: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def read_history(path: str) -> History:
    """The whole file; BadHistory names the first line that is wrong."""
    with open(path, encoding="utf-8") as file:
        return parse_history(file)


def parse_history(lines: Iterable[str]) -> History:
    """The same from lines. A last line that was cut short is left out."""
    iterator = iter(lines)
    try:
        header = _header(_object(next(iterator), 1))
    except StopIteration:
        raise BadHistory("line 1: the file is empty") from None
    return History(header, list(_ops(iterator)))


def _ops(lines: Iterator[str]) -> Iterator[Op]:
    last_t = 0
    for index, line in enumerate(lines):
        if not line.endswith("\n") and not _whole(line):
            return
        if not line.strip():
            continue
        op = _op(_object(line, index + 2), index + 2)
        if op.i != index:
            raise BadHistory(f"line {index + 2}: i is {op.i}, not {index}")
        if op.t < last_t:
            raise BadHistory(f"line {index + 2}: time goes back from {last_t} to {op.t}")
        last_t = op.t
        yield op


def _whole(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise BadHistory(f"line {number}: {error}") from None
    if not isinstance(value, dict):
        raise BadHistory(f"line {number}: not an object")
    return value


def _header(line: dict[str, Any]) -> Header:
    if line.get("format") != FORMAT:
        raise BadHistory(f"line 1: format {line.get('format')!r}; this reads {FORMAT}")
    try:
        return Header(
            workload=str(line["workload"]),
            nemesis=tuple(line.get("nemesis", ())),
            seed=int(line.get("seed", 0)),
            clients=int(line.get("clients", 1)),
            time_s=float(line.get("time_s", 0.0)),
            nodes=dict(line.get("nodes", {})),
            options=dict(line.get("options", {})),
            started_at=str(line.get("started_at", "")),
            command=str(line.get("command", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadHistory(f"line 1: {error!r}") from None


def _op(line: dict[str, Any], number: int) -> Op:
    try:
        kind = line["type"]
        if kind not in TYPES:
            raise BadHistory(f"line {number}: type {kind!r}")
        return Op(
            i=int(line["i"]),
            t=int(line["t"]),
            p=line["p"],
            type=cast(OpType, kind),
            f=str(line["f"]),
            **{name: line.get(name) for name in _OPTIONAL},
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadHistory):
            raise
        raise BadHistory(f"line {number}: {error!r}") from None


def pairs(ops: Iterable[Op]) -> Iterator[tuple[Op, Op | None]]:
    """Each client operation as (invoke, end), in the order of the invokes' ends; those that never
    ended come last, with None."""
    open_ops: dict[Process, Op] = {}
    for op in ops:
        if not isinstance(op.p, int):
            continue
        if op.type == "invoke":
            if op.p in open_ops:
                raise BadHistory(f"operation {op.i}: process {op.p} has one open already")
            open_ops[op.p] = op
        else:
            invoke = open_ops.pop(op.p, None)
            if invoke is None or invoke.f != op.f:
                raise BadHistory(f"operation {op.i}: process {op.p} did not begin {op.f!r}")
            yield invoke, op
    for invoke in open_ops.values():
        yield invoke, None
