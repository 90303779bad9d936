"""Measure the group coordinator beside Apache Kafka's: rebalances, commits, loading.

    python -m bench.groups [--quick] [--json] [--only-ours]

One broker that is also the controller, on loopback, with clients on bare connections. Both wait for
no further members before a first rebalance (group.initial.rebalance.delay.ms=0, as in the
server.properties that Kafka ships). The offsets of the load are of groups in one partition of
__consumer_offsets, so that one coordinator reads them all.
"""

import asyncio
import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import click
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.apache_kafka import ApacheKafka, available
from bench.broker_systems import Kraftpy, System, cpu_s, running
from bench.group_clients import (
    PATIENCE_S,
    Rebalance,
    close_all,
    commit,
    connections,
    fetch,
    until_coordinated,
)
from kraftpy.broker.groups.coordinator import name_hash

TOPIC = "offsets"
SIZES = (1, 100, 1000)
OFFSETS_PARTITIONS = 50  # Of __consumer_offsets, with both of them.
COMMITTERS = 20
PER_REQUEST = 20
COMMIT_S = 5.0
LOADED = 100_000
PARTITIONS = 100
_AT_ONCE = 10
_WIDTH = 150
# What each of them writes to its log when a coordinator has read its partition.
_TOOK = re.compile(
    r"groups_loaded.*?took_ms[=\":\s]+(\d+)"
    r"|Finished loading of metadata from __consumer_offsets\S* .*?in (\d+)ms"
)
_TELL_LOADS = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.common.runtime=info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing, measured on one system."""

    system: str
    what: str
    value: float
    unit: str
    broker_cpu_s: float
    aim: str = ""
    note: str = ""


@contextmanager
def _systems(only_ours: bool) -> Iterator[list[tuple[str, System]]]:
    with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as directory:
        found: list[tuple[str, System]] = [("kraftpy", Kraftpy(os.path.join(directory, "ours")))]
        if not only_ours and (why := available()) is None:
            theirs = os.path.join(directory, "theirs")
            os.makedirs(theirs)
            delay = {"group.initial.rebalance.delay.ms": "0"}
            kafka = ApacheKafka(theirs, properties=delay, jvm=(_TELL_LOADS,))
            found.append(("Apache Kafka", kafka))
        elif not only_ours:
            click.echo(f"without Apache Kafka: {why}", err=True)
        yield found


async def _rebalances(name: str, system: System, sizes: tuple[int, ...]) -> list[Row]:
    rows = []
    for size in sizes:
        clients = await connections(system, size)
        group = f"rebalanced-{size}"
        await until_coordinated(clients[0], group)
        before, rebalance = cpu_s(system), Rebalance(group, clients)
        took_s = await rebalance.run()
        used_s = cpu_s(system) - before
        await close_all(clients)
        aim = "under 10 s" if size == 1000 else ""
        note = f"{rebalance.generations} generations"
        what = f"first join to a stable group, {size:,} members"
        rows.append(
            Row(
                system=name,
                what=what,
                value=took_s,
                unit="s",
                broker_cpu_s=used_s,
                aim=aim,
                note=note,
            )
        )
    return rows


async def _commits(name: str, system: System, topic: str, seconds: float) -> Row:
    clients = await connections(system, COMMITTERS)
    for number, client in enumerate(clients):
        await until_coordinated(client, f"committing-{number}")
    count = 0
    end = time.perf_counter() + seconds

    async def committing(number: int) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await commit(clients[number], f"committing-{number}", topic, range(PER_REQUEST))
            count += PER_REQUEST

    before, began = cpu_s(system), time.perf_counter()
    await asyncio.gather(*(committing(number) for number in range(COMMITTERS)))
    took_s, used_s = time.perf_counter() - began, cpu_s(system) - before
    await close_all(clients)
    return Row(
        system=name,
        what=f"offsets committed, {PER_REQUEST} a request, {COMMITTERS} connections",
        value=count / took_s,
        unit="/s",
        broker_cpu_s=used_s,
        aim="20,000/s",
        note=f"{count / used_s:,.0f} per second of the broker's processor",
    )


def _loaded_groups(count: int) -> list[str]:
    """Names of groups that one coordinator has, enough for so many offsets."""
    names = (f"loaded-{number}" for number in itertools.count())
    together = (name for name in names if name_hash(name) % OFFSETS_PARTITIONS == 0)
    return list(itertools.islice(together, count // PARTITIONS))


async def _fill(system: System, groups: list[str]) -> None:
    clients = await connections(system, _AT_ONCE)
    await until_coordinated(clients[0], groups[0])

    async def filling(number: int) -> None:
        for group in groups[number::_AT_ONCE]:
            await commit(clients[number], group, TOPIC, range(PARTITIONS))

    await asyncio.gather(*(filling(number) for number in range(_AT_ONCE)))
    await close_all(clients)


async def _loaded(system: System, groups: list[str]) -> None:
    (client,) = await connections(system, 1)
    await until_coordinated(client, groups[-1])
    for group in (groups[0], groups[-1]):
        assert await fetch(client, group, TOPIC, PARTITIONS - 1) == PARTITIONS - 1
    await client.close()


def _load(name: str, system: System, count: int) -> list[Row]:
    groups = _loaded_groups(count)
    asyncio.run(_fill(system, groups))
    system.close()  # In order, so that no log needs recovery.
    written = len(system.output())
    system.start()
    system.wait_until_ready()
    began, before = time.perf_counter(), cpu_s(system)
    asyncio.run(_loaded(system, groups))
    took_s = time.perf_counter() - began
    what = f"{count:,} offsets: from a broker that answers to groups that do"
    rows = [
        Row(
            system=name,
            what=what,
            value=took_s,
            unit="s",
            broker_cpu_s=cpu_s(system) - before,
        )
    ]
    told = [int(ours or theirs) for ours, theirs in _TOOK.findall(system.output()[written:])]
    if told:
        rows.append(
            Row(
                system=name,
                what=f"{count:,} offsets: loaded by the coordinator, as it says",
                value=max(told) / 1000,
                unit="s",
                broker_cpu_s=0.0,
                aim="under 2 s",
            )
        )
    return rows


def _measured(name: str, system: System, *, quick: bool) -> Iterator[Row]:
    with running(system):
        _create_topic(system)
        yield from asyncio.run(_rebalances(name, system, SIZES[:2] if quick else SIZES))
        yield asyncio.run(_commits(name, system, TOPIC, 1.0 if quick else COMMIT_S))
        yield from _load(name, system, LOADED // 10 if quick else LOADED)


def _create_topic(system: System) -> None:
    """One to commit offsets of."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": "2"})
    for future in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)]).values():
        future.result(PATIENCE_S)


@click.command()
@click.option("--quick", is_flag=True, help="Small numbers: whether it works, not how fast.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--only-ours", is_flag=True, help="Without Apache Kafka.")
def main(quick: bool, as_json: bool, only_ours: bool) -> None:
    """Measure the group coordinator."""
    with _systems(only_ours) as systems:
        rows = [row for name, system in systems for row in _measured(name, system, quick=quick)]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(title="Group coordinators, one broker on loopback", title_justify="left")
    for column in ("what", "system", "measured", "broker's CPU", "aim", ""):
        table.add_column(column)
    for row in sorted(rows, key=lambda row: row.what):
        value = f"{row.value:,.0f}/s" if row.unit == "/s" else f"{row.value:.2f} {row.unit}"
        used = f"{row.broker_cpu_s:.2f} s" if row.broker_cpu_s else ""
        table.add_row(row.what, row.system, value, used, row.aim, row.note)
    console = Console()
    console.print(table, width=max(console.width, _WIDTH), crop=False)


if __name__ == "__main__":
    main()
