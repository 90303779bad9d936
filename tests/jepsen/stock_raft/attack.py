"""Kills the leader of a stock pysyncobj cluster under pipelined writes, and writes down what
clients saw.

What is looked for. A follower of stock pysyncobj cuts its log at the first entry of every message
it is sent, also where it has that entry already. The leader, when the acknowledgement of an early
batch comes in, sends again from there. So:

1. the leader sends entries in many batches, and a follower has and acknowledges all of them;
2. the leader learns of the first acknowledgements, and sends again from the middle;
3. the rest of the acknowledgements come in: the entries are committed, and clients are told;
4. the follower takes the first batch that was sent again, and cuts off all behind it;
5. the leader dies. What it sent again never arrives; the other follower was stopped for a moment
   and has less. The one whose log was cut is elected, and what clients were told is gone.

No follower dies, nothing is wrong with a disk, no message overtakes another. A round is one
cluster, one fault and one history, in the format of the harness.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jepsen_like.cluster.processes import ProxyProcess
from jepsen_like.history import Header, HistoryWriter

KEY: Final = "register-0"
NODES: Final = ("A", "B", "C")
WRITERS: Final = 48
LOAD_BYTES: Final = 12_000
LINK_BYTES_PER_S: Final = 4_000_000
STEP_S: Final = 0.02
PATIENCE_S: Final = 60.0
ROOT: Final = Path(__file__).parents[3]


class RoundFailed(Exception):
    """The cluster did not come up, or not back: there is nothing to judge."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


@dataclass
class Node:
    name: str
    port: int
    process: "subprocess.Popen[bytes]"

    async def ask(self, question: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
        """One question on a connection of its own; OSError if there is no answer."""
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**26)
            try:
                writer.write(json.dumps(question).encode() + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
        if not line:
            raise ConnectionResetError("no answer")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Round:
    """One cluster from start to end. `kill` off: the same without the fault."""

    directory: Path
    seed: int
    kill: bool = True
    load_s: float = 1.5
    nodes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._values = 0
        self._stopped = False
        self._processes = WRITERS
        self._writer: HistoryWriter
        self._proxy: ProxyProcess

    def _write(self, p: int | str, kind: Any, f: str, **fields: Any) -> None:
        self._writer.write(time.monotonic_ns(), p, kind, f, **fields)

    def _start_nodes(self) -> None:
        ports = free_ports(6)
        addresses = {}
        for name, port in zip(NODES, ports[3:], strict=True):
            made = self._proxy.order(do="listen", node=name, target=["127.0.0.1", port])
            addresses[name] = f"127.0.0.1:{made['port']}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for name, port, bind_port in zip(NODES, ports[:3], ports[3:], strict=True):
            partners = [address for other, address in addresses.items() if other != name]
            arguments = [str(port), f"127.0.0.1:{bind_port}", addresses[name], *partners]
            command = [sys.executable, "-m", f"{__package__}.node", *arguments]
            with (self.directory / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=log, stderr=log
                )
            self.nodes[name] = Node(name, port, process)
            self._write("run", "ok", "start", node=name)
        pids = {name: [node.process.pid] for name, node in self.nodes.items()}
        self._proxy.order(do="pids", pids=pids)
        for one, other in itertools.permutations(NODES, 2):
            self._rule(one, other, bytes_per_s=LINK_BYTES_PER_S)

    def _rule(self, one: str, other: str, **rule: Any) -> None:
        self._proxy.order(**{"do": "rule", "from": one, "to": other, "rule": rule})

    def _end_nodes(self) -> None:
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()
        self._proxy.close()

    async def run(self) -> Path:
        """The path of the history."""
        path = self.directory / "history.jsonl"
        header = Header(
            workload="log",
            nemesis=("partition", "kill") if self.kill else ("none",),
            seed=self.seed,
            clients=WRITERS,
            time_s=self.load_s,
            nodes=dict.fromkeys(NODES, "127.0.0.1"),
            options={"system": "pysyncobj 0.3.17 as shipped", "idempotent": True},
            command="make jepsen-stock",
        )
        with path.open("w", encoding="utf-8") as file:
            self._writer = HistoryWriter(file, header, time.monotonic_ns())
            self._proxy = ProxyProcess(self.seed, str(self.directory / "proxy.log"))
            try:
                self._start_nodes()
                await self._phases()
            finally:
                self._end_nodes()
        return path

    async def _phases(self) -> None:
        leader = await self._leader(set(NODES))
        self._write("run", "ok", "phase", v="load")
        writers = [asyncio.create_task(self._writer_lane(leader, n)) for n in range(WRITERS)]
        await asyncio.sleep(self.load_s * self._rng.uniform(0.5, 1.5))
        if self.kill:
            await self._strike(leader)
        self._stopped = True
        await asyncio.gather(*writers)
        self._write("run", "ok", "phase", v="heal")
        alive = {name for name in NODES if self.nodes[name].process.poll() is None}
        new_leader = await self._leader(alive)
        end = await self._append(self.nodes[new_leader.name], self._processes)
        if end is None:
            raise RoundFailed("the new leader takes no write")
        self._write("run", "ok", "phase", v="final")
        for name in sorted(alive):
            await self._read(self.nodes[name], end + 1)
        self._write("run", "ok", "phase", v="stop")

    async def _leader(self, among: set[str]) -> Node:
        """Whoever of these says that it leads, in the highest term."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found: list[tuple[int, str]] = []
            for name in sorted(among):
                with contextlib.suppress(OSError, TimeoutError):
                    status = await self.nodes[name].ask({"do": "status"})
                    if status["leader"]:
                        found.append((status["term"], name))
            if found:
                term, name = max(found)
                told = {"leader": name, "epoch": term, "hw": 0}
                self._write("observer", "ok", "quorum", v=told)
                return self.nodes[name]
            await asyncio.sleep(STEP_S)
        raise RoundFailed("nobody leads")

    async def _strike(self, leader: Node) -> None:
        """One follower is cut off, for less time than an election takes; the leader is lost."""
        followers = [name for name in NODES if name != leader.name]
        cut_off = self._rng.choice(followers)
        self._fault("partition", 1, cut_off)
        self._rule(leader.name, cut_off, hold=True)
        await asyncio.sleep(self._rng.uniform(0.15, 0.35))
        self._fault("kill", 2, leader.name)
        for follower in followers:  # What is on its way from there is lost as well.
            self._rule(leader.name, follower, hold=True)
        await asyncio.sleep(STEP_S)
        leader.process.kill()
        code = leader.process.wait()
        self._write("run", "info", "exit", node=leader.name, v={"code": code, "expected": True})
        for follower in followers:
            self._proxy.order(**{"do": "reset", "from": leader.name, "to": follower})

    def _fault(self, name: str, number: int, target: str) -> None:
        told = {"fault": number, "targets": [target]}
        self._write("nemesis", "invoke", name, v=told)
        self._write("nemesis", "ok", name, v=told)

    async def _writer_lane(self, leader: Node, process: int) -> None:
        """Appends to the leader, one after the other, until an answer fails to come."""
        while not self._stopped:
            if await self._append(leader, process) is None:
                return

    async def _append(self, node: Node, process: int) -> int | None:
        """One send of the history; the offset, if it was acknowledged."""
        self._values += 1
        value = self._values
        self._write(process, "invoke", "send", k=KEY, v=value)
        question = {"do": "append", "value": value, "bytes": LOAD_BYTES}
        try:
            answer = await node.ask(question, timeout_s=PATIENCE_S)
        except (OSError, TimeoutError, ValueError) as error:
            self._write(process, "info", "send", k=KEY, v=value, err=type(error).__name__)
            return None
        if "offset" in answer:
            offset: int = answer["offset"]
            self._write(process, "ok", "send", k=KEY, v=value, off=offset, node=node.name)
            return offset
        kind = "fail" if "refused" in answer else "info"
        self._write(process, kind, "send", k=KEY, v=value, err=str(answer), node=node.name)
        return None

    async def _read(self, node: Node, length: int) -> None:
        """All that a node has applied, once it has applied as much as it is asked for."""
        deadline = time.monotonic() + PATIENCE_S
        while (await node.ask({"do": "status"}))["length"] < length:
            if time.monotonic() > deadline:
                break  # It never gets there: the poll below shows what it has.
            await asyncio.sleep(STEP_S)
        self._processes += 1
        process, position = self._processes, 0
        self._write(process, "invoke", "assign", k=KEY, off=0)
        self._write(process, "ok", "assign", k=KEY, off=0)
        while True:
            self._write(process, "invoke", "poll", k=KEY, off=position)
            values = (await node.ask({"do": "read", "from": position}))["values"]
            records = [[position + n, value] for n, value in enumerate(values)]
            position += len(records)
            self._write(process, "ok", "poll", k=KEY, v=records, off=position, node=node.name)
            if not records:
                return
