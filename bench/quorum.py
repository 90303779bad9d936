"""How fast the quorum commits, beside etcd, ZooKeeper and the bare disk: `make bench-quorum`.

Three servers each, on this machine and this disk, each asked in its own protocol by clients that
are alike (bench/peers_common.py). All run at once and take turns, round by round, so whatever else
the machine does hits all alike; the median of the rounds counts. The machine is shared between
clients and servers, so the processor seconds of both stand beside the wall figures.

Everyone syncs before it answers. The bare disk appends as many bytes as one of our batches has and
calls fdatasync: no quorum can be faster with one writer.
"""

import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import click
from rich.console import Console

from bench.peers_common import ANSWER_TIMEOUT_S, BATCH_RECORDS, Client, NoCommit, System
from bench.peers_etcd import Etcd
from bench.peers_kraftpy import Kraftpy, batch_of
from bench.peers_zookeeper import ZooKeeper
from bench.quorum_table import Results, as_tables, verdicts
from bench.table import progress
from kraftpy.network.loop import run

WRITERS = 64
WARM_UP_S = 1.0
PROBE_EVERY_S = 0.01
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long everything takes."""

    rounds: int
    seconds: float  # Of each measurement.
    kills: int
    writers: int = WRITERS


@dataclass(slots=True)
class Load:
    """What writers did in one measurement."""

    latencies_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0


# --- measurements ---------------------------------------------------------------------------------


async def load(system: System, writers: int, seconds: float, *, batches: bool) -> Load:
    """So many writers, each with a connection to the leader, one request after the other."""
    leader = await system.wait_for_leader()
    clients = [await system.connect(leader, number) for number in range(writers)]
    done = Load()
    try:
        cpu, server_cpu = time.process_time(), system.cpu_s()
        begin = time.perf_counter()
        until = begin + seconds
        writing = [_write(client, until, done.latencies_s, batches) for client in clients]
        async with asyncio.timeout(seconds + ANSWER_TIMEOUT_S):
            await asyncio.gather(*writing)
        done.wall_s = time.perf_counter() - begin
        done.client_cpu_s = time.process_time() - cpu
        done.server_cpu_s = system.cpu_s() - server_cpu
    finally:
        for client in clients:
            client.close()
    return done


async def _write(client: Client, until: float, latencies_s: list[float], batches: bool) -> None:
    commit = client.commit_batch if batches else client.commit
    begin = time.perf_counter()
    while begin < until:
        await commit()
        end = time.perf_counter()
        latencies_s.append(end - begin)
        begin = end


async def fail_over(system: System) -> float:
    """Kill the leader; seconds until anyone has committed a record. Everyone is back afterwards."""
    await system.wait_until_whole()
    leader = await system.wait_for_leader()
    survivors = [node_id for node_id in system.processes.node_ids if node_id != leader]
    begin = time.perf_counter()
    system.processes.kill(leader)
    committed_s = await _first_commit(system, survivors) - begin
    system.processes.start(leader)
    await system.wait_until_whole()
    return committed_s


async def _first_commit(system: System, node_ids: list[int]) -> float:
    """When the first of many attempts succeeded: one per node every few milliseconds, each on a
    connection of its own, as an earlier one may wait for something that will never come."""
    committed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    attempts: set[asyncio.Task[None]] = set()

    async def attempt(node_id: int) -> None:
        with suppress(NoCommit, OSError, TimeoutError):
            client = await system.connect(node_id, 0)
            try:
                await client.commit()
                if not committed.done():
                    committed.set_result(time.perf_counter())
            finally:
                client.close()

    try:
        async with asyncio.timeout(6 * ANSWER_TIMEOUT_S):
            while not committed.done():
                for node_id in node_ids:
                    task = asyncio.create_task(attempt(node_id))
                    attempts.add(task)
                    task.add_done_callback(attempts.discard)
                await asyncio.wait([committed], timeout=PROBE_EVERY_S)
            return committed.result()
    finally:
        for task in attempts:
            task.cancel()


def bare_disk(directory: str, seconds: float, records: int) -> list[float]:
    """How long each append of a batch took, with fdatasync."""
    data = batch_of(0, records)
    took = []
    fd = os.open(os.path.join(directory, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        begin = time.perf_counter()
        until = begin + seconds
        while begin < until:
            os.write(fd, data)
            os.fdatasync(fd)
            end = time.perf_counter()
            took.append(end - begin)
            begin = end
    finally:
        os.close(fd)
    return took


# --- one run --------------------------------------------------------------------------------------


async def measure_round(system: System, plan: Plan, results: Results) -> None:
    name = system.name
    one = await load(system, 1, plan.seconds, batches=False)
    results.add(name, "p50", percentile(one.latencies_s, 50))
    results.add(name, "p99", percentile(one.latencies_s, 99))
    _add_cpu(results, name, "one", one)
    many = await load(system, plan.writers, plan.seconds, batches=False)
    results.add(name, "commits", len(many.latencies_s) / many.wall_s)
    _add_cpu(results, name, "many", many)
    batches = await load(system, plan.writers, plan.seconds, batches=True)
    results.add(name, "records", BATCH_RECORDS * len(batches.latencies_s) / batches.wall_s)
    _add_cpu(results, name, "batches", batches)


def _add_cpu(results: Results, name: str, what: str, done: Load) -> None:
    count = max(1, len(done.latencies_s))
    results.add(name, f"{what}_client_cpu_s", done.client_cpu_s / count)
    results.add(name, f"{what}_server_cpu_s", done.server_cpu_s / count)


def measure_disk(directory: str, plan: Plan, results: Results) -> None:
    took = bare_disk(directory, plan.seconds, 1)
    results.add("fdatasync", "p50", percentile(took, 50))
    results.add("fdatasync", "p99", percentile(took, 99))
    results.add("fdatasync", "commits", len(took) / sum(took))
    took = bare_disk(directory, plan.seconds, BATCH_RECORDS)
    results.add("fdatasync", "records", BATCH_RECORDS * len(took) / sum(took))


def percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        raise SystemExit("too few commits to speak of: measure for longer")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


async def measure_all(
    systems: list[System],
    directory: str,
    plan: Plan,
    results: Results,
    begin: Callable[[str], Callable[[float], None]],
) -> None:
    """Rounds of everything, by turns; then the kills, by turns."""
    advance = begin("start and warm up")
    for number, system in enumerate(systems, 1):
        await _in_time(system, _warm_up(system, min(WARM_UP_S, plan.seconds), plan.writers))
        advance(number / len(systems))
    advance = begin("commits")
    turns = [system for _ in range(plan.rounds) for system in systems]
    for number, system in enumerate(turns, 1):
        if system is systems[0]:
            measure_disk(directory, plan, results)
        await _in_time(system, measure_round(system, plan, results))
        advance(number / len(turns))
    advance = begin("kills of the leader")
    turns = [system for _ in range(plan.kills) for system in systems]
    for number, system in enumerate(turns, 1):
        results.add(system.name, "fail_over", await _in_time(system, fail_over(system)))
        advance(number / len(turns))


async def _warm_up(system: System, seconds: float, writers: int) -> None:
    await system.wait_until_whole()
    await system.prepare()
    await load(system, writers, seconds, batches=True)
    await load(system, writers, seconds, batches=False)


async def _in_time(system: System, work: Awaitable[float | None]) -> float:
    try:
        return await work or 0.0
    except (NoCommit, TimeoutError, OSError) as error:
        output = system.processes.output()[-4000:]
        raise SystemExit(f"{system.name} did not do it: {error!r}\n{output}") from error


async def measure_systems(
    directory: str,
    plan: Plan,
    names: list[str],
    begin: Callable[[str], Callable[[float], None]],
    daemon_options: tuple[str, ...] = (),
) -> Results:
    """Start what is installed, measure it, end it."""
    results = Results()
    systems: list[System] = []
    try:
        for kind in (Kraftpy, Etcd, ZooKeeper):
            if kind.name not in names:
                continue
            missing = kind.missing()
            if missing is not None:
                results.missing[kind.name] = missing
                continue
            place = os.path.join(directory, kind.name)
            os.mkdir(place)
            systems.append(kind(place, *daemon_options) if kind is Kraftpy else kind(place))
            systems[-1].processes.start()
        await measure_all(systems, directory, plan, results, begin)
    finally:
        for system in systems:
            system.processes.stop()
    return results


# --- the command ----------------------------------------------------------------------------------


def on_disk(directory: str) -> bool:
    """Whether this directory outlives a power loss: a sync of memory would measure nothing."""
    best, kind = "", ""
    with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, place, found = line.split()[:3]
            inside = os.path.commonpath((os.path.realpath(directory), place)) == place
            if inside and len(place) >= len(best):
                best, kind = place, found
    return kind not in MEMORY_FILE_SYSTEMS


def find_place(where: str | None) -> str:
    for candidate in (where,) if where else (tempfile.gettempdir(), "/var/tmp", os.getcwd()):
        if on_disk(candidate):
            return candidate
    raise SystemExit("temporary files are kept in memory here: name a directory with --dir")


@click.command()
@click.option("--quick", is_flag=True, help="One short round and two kills.")
@click.option("--rounds", default=5, help="How often each system takes its turn.")
@click.option("--seconds", default=4.0, help="How long each measurement takes.")
@click.option("--kills", default=10, help="How often each leader is killed.")
@click.option("--writers", default=WRITERS, help="How many write at once.")
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice([Kraftpy.name, Etcd.name, ZooKeeper.name]),
    help="Measure this system, not all; may be repeated.",
)
@click.option("--profile", default=None, help="Let our controllers write cProfile files here.")
@click.option("--dir", "where", default=None, help="Write here, not where temporary files go.")
@click.option("--json", "for_machines", is_flag=True, help="Print JSON instead of tables.")
def main(
    quick: bool,
    rounds: int,
    seconds: float,
    kills: int,
    writers: int,
    names: tuple[str, ...],
    profile: str | None,
    where: str | None,
    for_machines: bool,
) -> None:
    """Measure the quorum against etcd, ZooKeeper and the bare disk."""
    plan = Plan(rounds=rounds, seconds=seconds, kills=kills, writers=writers)
    if quick:
        plan = Plan(rounds=1, seconds=min(1.0, seconds), kills=min(2, kills), writers=writers)
    chosen = list(names) or [Kraftpy.name, Etcd.name, ZooKeeper.name]
    options = () if profile is None else ("--profile", os.path.abspath(profile))
    directory = tempfile.mkdtemp(dir=find_place(where), prefix="kraftpy-bench-")
    try:
        with progress(Console(stderr=True, quiet=for_machines)) as begin:
            results = run(measure_systems(directory, plan, chosen, begin, options))
    finally:
        shutil.rmtree(directory)
    if for_machines:
        medians = results.medians()
        found = {
            "plan": asdict(plan),
            "medians": medians,
            "fail_overs_s": results.fail_overs(),
            "reached": verdicts(medians),
            "missing": results.missing,
        }
        click.echo(json.dumps(found, indent=2))
        return
    console = Console(width=None if os.isatty(1) else 160)
    for table in as_tables(results):
        console.print(table)


if __name__ == "__main__":
    main()
