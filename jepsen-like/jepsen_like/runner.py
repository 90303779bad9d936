"""One run: warm-up, load with faults, heal, settle, last look, stop, collect. Judging comes after.

The run leaves a directory: history.jsonl, and what the nodes left under nodes/. The same directory
can be judged again with `python -m jepsen_like check DIRECTORY`.
"""

import asyncio
import datetime
import os
import random
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from jepsen_like.client.kafka import Address, Definite, Indefinite, KafkaClient
from jepsen_like.cluster.processes import Cluster, ClusterOptions
from jepsen_like.faults import FaultPlan, heal_everything
from jepsen_like.history import Header, HistoryWriter
from jepsen_like.lanes import Lane, Recorder
from jepsen_like.nemesis.base import Seen, Situation
from jepsen_like.observer import Observer
from jepsen_like.options import RunOptions
from jepsen_like.progress import Progress
from jepsen_like.workloads.base import TOPIC_PREFIX, Surroundings, Workload
from jepsen_like.workloads.registry import RATES, WORKLOADS

HISTORY: Final = "history.jsonl"
_START_S: Final = 90.0
_LOOK_S: Final = 0.2
_OPEN_OPS_S: Final = 35.0
# How long the load goes on for faults that never fired within its time: without, nothing is known.
_OVERTIME_S: Final = 90.0
# Between the last change and the last look: brokers hear of a change when they fetch it.
_QUIET_S: Final = 3.0


class RunFailed(Exception):
    """The run could not be made: there is nothing to judge."""


@dataclass(slots=True)
class _Places:
    """Where clients connect: by id where the harness knows it."""

    brokers: dict[int, Address] = field(default_factory=dict)
    bootstrap: list[Address] = field(default_factory=list)
    controllers: dict[int, Address] = field(default_factory=dict)
    direct_brokers: dict[int, Address] = field(default_factory=dict)
    direct_controllers: dict[int, Address] = field(default_factory=dict)


class Run:
    """The parts of one run."""

    def __init__(self, options: RunOptions, progress: Progress) -> None:
        self.options = options
        self._progress = progress
        self._rng = random.Random(f"{options.seed}/{options.workload}/{','.join(options.nemesis)}")
        self._start_ns = time.monotonic_ns()
        self._prefix = TOPIC_PREFIX
        if options.against:
            self._prefix += f"{int(time.time()):x}-"
        self._cluster: Cluster | None = None
        self._places = _Places()
        self._seen = Seen()
        self._writer: HistoryWriter
        self._workload: Workload

    # -- parts ---------------------------------------------------------------------------------

    def _client(self) -> KafkaClient:
        places = self._places
        rng = random.Random(self._rng.getrandbits(64))
        return KafkaClient(places.brokers or places.bootstrap, places.controllers, rng)

    def _direct_client(self) -> KafkaClient:
        """Past the proxy, for the onlooker."""
        places = self._places
        rng = random.Random(self._rng.getrandbits(64))
        brokers = places.direct_brokers or places.bootstrap
        return KafkaClient(brokers, places.direct_controllers, rng, timeout_s=2.0, learns=False)

    def _write_run(self, kind: Any, f: str, **fields: Any) -> None:
        self._writer.write(time.monotonic_ns(), "run", kind, f, **fields)

    def _write_observed(self, f: str, fields: dict[str, Any]) -> None:
        self._writer.write(time.monotonic_ns(), "observer", "ok", f, **fields)

    def _phase(self, name: str) -> None:
        self._progress.phase = name
        self._write_run("ok", "phase", v=name)

    def _on_event(self, what: str, node: str, details: dict[str, Any]) -> None:
        if what == "start":
            self._write_run("ok", "start", node=node, v=details)
        else:
            self._write_run("info", "exit", node=node, v=details)

    def _header(self) -> Header:
        nodes: dict[str, str] = {}
        if self._cluster is not None:
            nodes = {n.name: f"127.0.0.1:{n.proxy_port}" for n in self._cluster.nodes.values()}
        else:
            places = self._places.brokers.items()
            nodes = {f"b{node_id}": f"{host}:{port}" for node_id, (host, port) in places}
        options = self.options
        more = {"mutant": options.mutant} if options.mutant else {}
        return Header(
            workload=options.workload,
            nemesis=options.nemesis or ("none",),
            seed=options.seed,
            clients=options.clients,
            time_s=options.time_s,
            nodes=nodes,
            options={**self._workload.options(), "rate": self._rate(), **more},
            started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=options.command,
        )

    def _rate(self) -> float | None:
        return self.options.rate or RATES[self.options.workload]

    # -- the run -------------------------------------------------------------------------------

    async def run(self) -> str:
        """The path of the history."""
        options = self.options
        os.makedirs(options.directory, exist_ok=True)
        path = os.path.join(options.directory, HISTORY)
        if os.path.exists(path):
            raise RunFailed(f"{options.directory} holds a run already: remove it, or name another")
        if not options.against:
            self._cluster = Cluster(self._cluster_options(), lambda *_event: None)
        try:
            await self._find_places()
            self._workload = WORKLOADS[options.workload](self._surroundings())
            with open(path, "w", encoding="utf-8") as file:
                self._writer = HistoryWriter(file, self._header(), self._start_ns)
                if self._cluster is not None:
                    self._cluster.on_event = self._on_event
                await self._phases()
        finally:
            if self._cluster is not None:
                self._cluster.on_event = lambda *_event: None  # The history is closed.
                self._cluster.close()
        return path

    def _cluster_options(self) -> ClusterOptions:
        options = self.options
        return ClusterOptions(
            directory=options.directory,
            controllers=options.controllers,
            brokers=options.brokers,
            kraftpy=options.kraftpy,
            mutant=options.mutant,
            settings=options.settings,
            seed=options.seed,
        )

    def _surroundings(self) -> Surroundings:
        options = self.options
        return Surroundings(
            clients=options.clients,
            rng=self._rng,
            options=dict(options.workload_options),
            brokers=len(self._places.brokers),
            prefix=self._prefix,
        )

    async def _find_places(self) -> None:
        places = self._places
        for text in self.options.against:
            host, _, port = text.strip().rpartition(":")
            places.bootstrap.append((host or "127.0.0.1", int(port)))
        if self._cluster is None:
            await self._meet()
            return
        for node in self._cluster.nodes.values():
            known = places.controllers if node.is_controller else places.brokers
            direct = places.direct_controllers if node.is_controller else places.direct_brokers
            known[node.node_id] = ("127.0.0.1", node.proxy_port)
            direct[node.node_id] = ("127.0.0.1", node.port)

    async def _meet(self) -> None:
        """Ask a cluster that somebody else started who is there."""
        client = self._client()
        try:
            info = await client.refresh(None)
        except Definite as error:
            raise RunFailed(f"{', '.join(self.options.against)}: {error}") from None
        finally:
            client.close()
        if not info.nodes:
            raise RunFailed(f"{', '.join(self.options.against)}: a cluster without brokers")
        self._places.brokers.update(info.nodes)

    async def _phases(self) -> None:
        options = self.options
        async with self._watched():
            await self._start()
            recorder = Recorder(self._writer, self._progress)
            rate = self._rate()
            lanes = [
                Lane(number, options.clients, self._workload, recorder, self._client, rate, rng)
                for number in range(options.clients)
                for rng in [random.Random(self._rng.getrandbits(64))]
            ]
            stop = asyncio.Event()
            self._phase("warmup")
            cpu = self._cpu_s()
            loads = [asyncio.create_task(lane.run(stop)) for lane in lanes]
            try:
                await asyncio.sleep(options.warmup_s)
                self._phase("load")
                await self._load_with_faults()
                self._phase("settle")
                await self._settle()
            finally:
                stop.set()
                await _finish(loads)
            used = {name: round(spent - cpu[name], 3) for name, spent in self._cpu_s().items()}
            self._write_run("ok", "cpu", v={**used, "operations": self._progress.total})
            await asyncio.sleep(_QUIET_S)
            await self._last_look(lanes)
            self._phase("stop")
        if self._cluster is not None:
            loop = asyncio.get_running_loop()
            codes = await loop.run_in_executor(None, self._cluster.stop_all)
            self._write_run("ok", "stopped", v=codes)

    async def _settle(self) -> None:
        """Longer than asked if nothing has succeeded by then: that a cluster never comes back can
        only be said of one that had the time to."""
        before = self._progress.counts["ok"]
        await asyncio.sleep(self.options.settle_s)
        deadline = time.monotonic() + self.options.final_s
        while self._progress.counts["ok"] == before and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)

    def _cpu_s(self) -> dict[str, float]:
        """Processor time of the harness itself, which is what a cluster does not get."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        proxy = self._cluster.proxy.cpu_s() if self._cluster is not None else 0.0
        return {"clients": usage.ru_utime + usage.ru_stime, "proxy": proxy}

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """With an onlooker, a look at the processes, and the progress line."""
        client = self._direct_client()
        controllers = sorted(self._places.direct_controllers)
        observer = Observer(client, controllers, self._prefix, self._seen, self._write_observed)
        tasks = [asyncio.create_task(observer.run()), asyncio.create_task(self._look())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            client.close()

    async def _look(self) -> None:
        while True:
            if self._cluster is not None:
                # One that stopped by itself is started again, or the rest of the run shows nothing.
                for name in self._cluster.look():
                    self._cluster.start(name)
            self._progress.show((time.monotonic_ns() - self._start_ns) / 1e9)
            self._writer.flush()
            await asyncio.sleep(_LOOK_S)

    async def _start(self) -> None:
        """Start all nodes and wait until every broker serves and the workload is set up."""
        if self._cluster is not None:
            for name in self._cluster.nodes:
                self._cluster.start(name)
        client = self._client()
        wanted = len(self._places.brokers)
        problem = "nobody answers"
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    try:
                        info = await client.refresh(None)
                        if len(info.nodes) >= wanted:
                            await self._workload.set_up(client)
                            return
                        problem = f"{len(info.nodes)} of {wanted} brokers are there"
                    except (Definite, Indefinite) as error:
                        problem = str(error)
                    await asyncio.sleep(0.3)
        except TimeoutError:
            raise RunFailed(f"not ready within {_START_S:.0f} s: {problem}") from None
        finally:
            client.close()

    async def _load_with_faults(self) -> None:
        options = self.options
        if not options.nemesis or self._cluster is None:
            await asyncio.sleep(options.time_s)
            self._phase("heal")
            return
        admin = self._client()
        situation = Situation(self._cluster, self._seen, random.Random(self._rng.random()), admin)
        plan = FaultPlan(
            options.nemesis, situation, self._writer, self._progress, options.interval_s
        )
        task = asyncio.create_task(plan.run())
        try:
            await asyncio.wait([task], timeout=options.time_s)
            overtime = time.monotonic() + _OVERTIME_S
            while plan.missing and time.monotonic() < overtime and not task.done():
                await asyncio.wait([task], timeout=_LOOK_S)
            if task.done():
                task.result()  # Only by raising: it has no end of its own.
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._phase("heal")
            await plan.heal_all()
            await heal_everything(situation)
            admin.close()

    async def _last_look(self, lanes: list[Lane]) -> None:
        self._phase("final")
        workload = self._workload
        clients = [self._client() for _ in lanes]
        try:
            processes = workload.final_processes(clients)
            looks = [
                asyncio.create_task(lane.finish(process, workload.is_finished))
                for lane, process in zip(lanes, processes, strict=False)
            ]
            if looks:
                await asyncio.wait(looks, timeout=self.options.final_s)
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
        finally:
            for client in clients:
                client.close()
        unread = workload.unread()
        self._write_run("ok", "final-polls", v={"complete": not unread, "unread": unread})


async def _finish(tasks: list["asyncio.Task[None]"]) -> None:
    """Operations that are open are waited for; those that never end are given up."""
    _, left = await asyncio.wait(tasks, timeout=_OPEN_OPS_S)
    for task in left:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def run(options: RunOptions, progress: Progress) -> str:
    """The same for whoever has no event loop."""
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        return runner.run(Run(options, progress).run())
