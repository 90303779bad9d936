"""How fast the active controller is: `make bench-controller`.

Three controllers as an operator runs them, with real files, asked through the protocol by simulated
brokers and an admin client on the same machine:
- creation: topics in requests of a hundred, several clients at once, until all are committed;
- ISR changes: AlterPartition by many leaders at once, one partition each, one after the other;
- fencing: a broker that leads a third of all partitions is fenced; the answer comes when every
  change is committed;
- failover: kill -9 of the active controller; until the next one has accepted a request.
"""

import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.table import Table

from bench.controller_client import ControllerClient
from bench.controller_cluster import PARTITIONS_PER_TOPIC, REPLICAS, BenchCluster, check
from bench.controller_requests import alter_partition, topics
from bench.quorum import find_place
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.loop import run
from kraftpy.wire import apis

TOPICS_PER_REQUEST = 100
CREATORS = 4
LEADERS = 64
BROKERS = 6
FEW_BROKERS = 3  # Of which each leads a third.
FIRST_REQUEST_S_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    topics: int
    alter_s: float
    fenced: int  # Partitions, of which a third is led by the broker that is fenced.
    failovers: tuple[int, ...]  # Partitions of each cluster whose controller is killed.


@dataclass(slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    unit: str
    aim: str = ""
    reached: bool | None = None
    more: dict[str, float] = field(default_factory=dict)


# --- measurements -----------------------------------------------------------------------------


async def creation(cluster: BenchCluster, count: int) -> list[Figure]:
    """`count` topics of ten partitions; what a client is told last is when all are committed."""
    pending = [
        [f"topic-{number}" for number in range(first, min(first + TOPICS_PER_REQUEST, count))]
        for first in range(0, count, TOPICS_PER_REQUEST)
    ]
    before = time.perf_counter()

    async def create() -> None:
        client = ControllerClient(cluster.processes.ports)
        while pending:
            names = pending.pop()
            asked = topics(names, partitions=PARTITIONS_PER_TOPIC, replicas=REPLICAS)
            check(await client.ask(apis.CREATE_TOPICS, asked))
        await client.close()

    await asyncio.gather(*(create() for _ in range(CREATORS)))
    seconds = time.perf_counter() - before
    partitions = count * PARTITIONS_PER_TOPIC
    return [
        Figure(
            f"create {count:,} topics, {partitions:,} partitions",
            seconds,
            "s",
            "100,000 partitions in 30 s",
            partitions / seconds >= 100_000 / 30,
        ),
        Figure("records committed while creating", (count + partitions) / seconds, "records/s"),
    ]


async def isr_changes(cluster: BenchCluster, seconds: float) -> list[Figure]:
    """Each leader shrinks and expands the ISR of a partition of its own, again and again."""
    states = _led_partitions(cluster.image())
    until = time.perf_counter() + seconds
    begin = time.perf_counter()
    latencies: list[float] = []

    async def alter(topic_id: UUID, partition_id: int, found: Any) -> None:
        client = ControllerClient(cluster.processes.ports)
        epoch, full = found.partition_epoch, found.replicas
        turn = 0
        while time.perf_counter() < until:
            turn += 1
            members = full if turn % 2 == 0 else full[:2]
            asked = alter_partition(
                (found.leader, cluster.epochs[found.leader]),
                topic_id,
                partition_id,
                [(broker_id, cluster.epochs[broker_id]) for broker_id in members],
                leader_epoch=found.leader_epoch,
                partition_epoch=epoch,
            )
            before = time.perf_counter()
            answer = check(await client.ask(apis.ALTER_PARTITION, asked))
            latencies.append(time.perf_counter() - before)
            epoch = check(answer.topics[0].partitions[0]).partition_epoch
        await client.close()

    await asyncio.gather(*(alter(*next(states)) for _ in range(LEADERS)))
    elapsed = time.perf_counter() - begin
    median_ms = 1000 * statistics.median(latencies)
    return [
        Figure(
            f"AlterPartition, {LEADERS} leaders at once",
            len(latencies) / elapsed,
            "requests/s",
            more={"median_ms": median_ms},
        )
    ]


def _led_partitions(image: ClusterImage) -> Iterator[tuple[UUID, int, Any]]:
    for topic_id, topic in sorted(image.topics.items()):
        for partition_id, found in sorted(topic.partitions.items()):
            if found.leader == found.replicas[0] and len(found.isr) == REPLICAS:
                yield UUID(bytes=topic_id), partition_id, found


async def fencing(cluster: BenchCluster, partitions: int) -> list[Figure]:
    """As a session's end does it; asked for, so that the answer says when it is done."""
    victim = cluster.broker_ids[0]
    before = time.perf_counter()
    answer = await cluster.beat(victim, want_fence=True)
    seconds = time.perf_counter() - before
    if not answer.is_fenced:
        raise SystemExit("the broker is not fenced")
    return [
        Figure(
            f"fence the leader of {partitions // 3:,} of {partitions:,} partitions",
            seconds,
            "s",
            "a third of 100,000 in 5 s",
            seconds * 100_000 / max(partitions, 100_000) < 5,
        )
    ]


async def failover(cluster: BenchCluster, partitions: int) -> list[Figure]:
    """From kill -9 to the first request that is accepted, which creates a topic."""
    await cluster.create_topic("before")
    active = cluster.client.node_id
    await cluster.client.close()
    before = time.perf_counter()  # The kernel takes a while to end a process of a gigabyte.
    cluster.processes.kill(active)
    async with asyncio.timeout(FIRST_REQUEST_S_MAX):
        await cluster.create_topic("after")
    seconds = time.perf_counter() - before
    return [
        Figure(
            f"failover with {partitions:,} partitions",
            seconds,
            "s",
            "1,000,000 partitions in 3 s",
            seconds < 3,
        )
    ]


# --- all of it --------------------------------------------------------------------------------


async def measure(directory: str, plan: Plan, say: Callable[[str], None]) -> list[Figure]:
    say(f"creating {plan.topics:,} topics")
    figures = []
    cluster = BenchCluster(os.path.join(directory, "creation"), BROKERS)
    try:
        await cluster.start()
        figures += await creation(cluster, plan.topics)
        await cluster.wait_until_quiet()
        say("changing ISRs")
        figures += await isr_changes(cluster, plan.alter_s)
    finally:
        await cluster.close()
    for partitions in plan.failovers:
        say(f"writing logs with {partitions:,} partitions, and starting controllers on them")
        cluster = BenchCluster(os.path.join(directory, f"old-{partitions}"), FEW_BROKERS)
        try:
            await cluster.start()
            await cluster.restart_with(partitions)
            if partitions == plan.fenced:
                say("fencing a broker")
                figures += await fencing(cluster, partitions)
                await cluster.beat(cluster.broker_ids[0])
                await cluster.wait_until_quiet()
            say("killing the active controller")
            figures += await failover(cluster, partitions)
        finally:
            await cluster.close()
    return figures


def as_table(figures: list[Figure]) -> Table:
    table = Table(title="The active controller", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("aim")
    for figure in figures:
        digits = 0 if figure.value >= 100 else 2
        more = "".join(f", {name} {value:.2f}" for name, value in figure.more.items())
        mark = {True: " [green]reached", False: " [red]missed", None: ""}[figure.reached]
        table.add_row(
            figure.what,
            f"{figure.value:,.{digits}f} {figure.unit}{more}",
            f"{figure.aim}{mark}" if figure.aim else "",
        )
    return table


@click.command()
@click.option("--topics", "topic_count", default=10_000, help="Topics to create, of 10 partitions.")
@click.option("--seconds", default=10.0, help="How long ISRs are changed.")
@click.option("--fenced", default=100_000, help="Partitions of the cluster that a broker leaves.")
@click.option(
    "--failover",
    "failovers",
    multiple=True,
    default=(100_000, 1_000_000),
    help="Partitions of a cluster whose controller is killed; may be repeated.",
)
@click.option("--dir", "where", default=None, help="Write here, not where temporary files go.")
@click.option("--json", "for_machines", is_flag=True, help="Print JSON instead of a table.")
def main(
    topic_count: int,
    seconds: float,
    fenced: int,
    failovers: tuple[int, ...],
    where: str | None,
    for_machines: bool,
) -> None:
    """Measure creation, ISR changes, fencing and failover."""
    plan = Plan(topics=topic_count, alter_s=seconds, fenced=fenced, failovers=failovers)
    console = Console(stderr=True, quiet=for_machines)
    directory = tempfile.mkdtemp(dir=find_place(where), prefix="kraftpy-bench-")
    try:
        figures = run(measure(directory, plan, console.print))
    finally:
        shutil.rmtree(directory)
    if for_machines:
        found = {"plan": asdict(plan), "figures": [asdict(figure) for figure in figures]}
        click.echo(json.dumps(found, indent=2))
    else:
        Console().print(as_table(figures))


if __name__ == "__main__":
    main()
