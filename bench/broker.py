"""The broker beside librdkafka's mock cluster and Apache Kafka: `make bench-broker`.

The load is librdkafka, the client that most languages use. Its mock cluster answers inside the
client and keeps nothing: what the client alone can do at best. Systems take turns within a round,
and figures are medians over rounds; on a shared machine only ratios within a round and processor
seconds per GB are worth comparing with another day's. MB and GB are of record values.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import click
from rich.console import Console

from bench.apache_kafka import available, version
from bench.broker_load import MOCK as MOCK_SETTINGS
from bench.broker_load import NO_BOOTSTRAP, Generator, Load, generator
from bench.broker_systems import (
    Kraftpy,
    System,
    apache,
    cpu_s,
    first_message_s,
    rss_bytes,
    running,
    topic_on,
)
from bench.broker_table import (
    APACHE,
    LOADED,
    MOCK,
    OURS,
    START_AGAIN,
    START_EMPTY,
    TITLES,
    Results,
    as_json,
    as_tables,
    case_name,
)
from bench.table import MEGABYTE

PARTITIONS = 4  # What the mock cluster gives to a topic.
SIZES = (100, 1024)
BATCHES = (16_384, MEGABYTE)
REPLICAS = 3
GAP_US = 5_000
REPLICATED_SHARE = 4  # Every byte is written three times and read twice: less of them will do.


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How much is done."""

    rounds: int
    megabytes: int  # Of each case; half of it for records of 100 B, which the client is slow at.
    latencies: int
    starts: int
    sizes: tuple[int, ...] = SIZES
    batches: tuple[int, ...] = BATCHES
    replicated: bool = True

    def records(self, record_bytes: int) -> int:
        share = 2 if record_bytes < 1000 else 1
        return max(self.megabytes * MEGABYTE // record_bytes // share, 100)


FULL = Length(rounds=5, megabytes=300, latencies=600, starts=3)
QUICK = Length(rounds=1, megabytes=60, latencies=200, starts=1)
Report = Callable[[str], None]


class Bench:
    """One run over all systems that are there."""

    def __init__(self, directory: str, length: Length, load: Generator, report: Report) -> None:
        self.results = Results()
        self._directory = directory
        self._length = length
        self._load = load
        self._report = report
        self._topics = 0

    def run(self, kinds: list[str]) -> None:
        self._starts([kind for kind in kinds if kind != MOCK])
        self._one_broker(kinds)
        if self._length.replicated:
            self._replicated([kind for kind in kinds if kind != MOCK])

    def _place(self) -> str:
        return tempfile.mkdtemp(dir=self._directory)

    def _make(self, kind: str, brokers: int) -> System:
        return Kraftpy(self._place(), brokers) if kind == OURS else apache(self._place(), brokers)

    # -- start-up -----------------------------------------------------------------------------

    def _starts(self, kinds: list[str]) -> None:
        """From an empty directory to the first acknowledged message; and from a full one."""
        for number in range(self._length.starts):
            for kind in kinds:
                self._report(f"start {number + 1} of {TITLES[kind]}")
                system = self._make(kind, 1)
                for case, empty in ((START_EMPTY, True), (START_AGAIN, False)):
                    try:
                        took = first_message_s(system, "first", empty=empty)
                        self.results.add(kind, case, first_s=took, rss=rss_bytes(system))
                    finally:
                        system.close()

    # -- one broker ---------------------------------------------------------------------------

    def _one_broker(self, kinds: list[str]) -> None:
        with ExitStack() as stack:
            systems = {
                kind: None if kind == MOCK else stack.enter_context(running(self._make(kind, 1)))
                for kind in kinds
            }
            self._warm_up(systems)
            for number in range(self._length.rounds):
                self._report(f"round {number + 1}: one broker")
                for size in self._length.sizes:
                    for batch in self._length.batches:
                        for kind, system in systems.items():
                            self._case(kind, system, size, batch)
                for kind, system in systems.items():
                    self._latency(kind, system, "latency, RF 1")
            for kind, system in systems.items():
                if system is not None:
                    self.results.add(kind, LOADED, rss=rss_bytes(system))

    def _warm_up(self, systems: dict[str, System | None]) -> None:
        """What is compiled while it runs is compiled before it counts."""
        kept, self.results = self.results, Results()
        warm = replace(self._length, megabytes=max(self._length.megabytes // 2, 1))
        length, self._length = self._length, warm
        for kind, system in systems.items():
            self._report(f"warming up {TITLES[kind]}")
            for batch in self._length.batches:
                self._case(kind, system, self._length.sizes[-1], batch)
        self.results, self._length = kept, length

    def _case(self, kind: str, system: System | None, size: int, batch: int) -> None:
        count = self._length.records(size)
        settings = {"batch.size": str(batch)}
        name = case_name("produce", size, batch)
        if system is None:
            found = self._load.produce(
                NO_BOOTSTRAP, "mock", size, count, {**settings, **MOCK_SETTINGS}
            )
            self.results.add(kind, name, mb_s=mb_s(found), records_s=found.records / found.seconds)
            return
        with topic_on(system, self._topic(), PARTITIONS) as topic:
            boot = system.bootstrap
            self._measure(
                kind, name, system, lambda: self._load.produce(boot, topic, size, count, settings)
            )
            name = case_name("consume", size, batch)
            self._measure(kind, name, system, lambda: self._load.consume(boot, topic, size, count))

    def _measure(self, kind: str, name: str, system: System, run: Callable[[], Load]) -> None:
        used = cpu_s(system)
        found = run()
        used = cpu_s(system) - used
        self.results.add(
            kind,
            name,
            mb_s=mb_s(found),
            records_s=found.records / found.seconds,
            cpu_s_gb=used / found.bytes * 1e9,
        )

    def _latency(self, kind: str, system: System | None, name: str) -> None:
        count = self._length.latencies
        if system is None:
            found = self._load.latency(NO_BOOTSTRAP, "mock", count, GAP_US, MOCK_SETTINGS)
        else:
            with topic_on(system, self._topic(), 1) as topic:
                found = self._load.latency(system.bootstrap, topic, count, GAP_US, {})
        self.results.add(kind, name, p50=found.p50_s, p99=found.p99_s)

    def _topic(self) -> str:
        self._topics += 1
        return f"bench-{self._topics}"

    # -- three brokers ------------------------------------------------------------------------

    def _replicated(self, kinds: list[str]) -> None:
        with ExitStack() as stack:
            systems = {
                kind: stack.enter_context(running(self._make(kind, REPLICAS))) for kind in kinds
            }
            self._report(f"warming up {REPLICAS} brokers")
            kept, self.results = self.results, Results()
            self._replicated_round(systems)
            self.results = kept
            for number in range(self._length.rounds):
                self._report(f"round {number + 1}: {REPLICAS} brokers")
                self._replicated_round(systems)

    def _replicated_round(self, systems: dict[str, System]) -> None:
        for batch in self._length.batches:
            for kind, system in systems.items():
                self._replicated_case(kind, system, batch)
        for kind, system in systems.items():
            self._latency(kind, system, "latency, RF 3")

    def _replicated_case(self, kind: str, system: System, batch: int) -> None:
        size = SIZES[-1]
        count = max(self._length.records(size) // REPLICATED_SHARE, 100)
        name = case_name("RF 3 produce", size, batch)
        with topic_on(system, self._topic(), REPLICAS) as topic:
            settings = {"batch.size": str(batch)}
            self._measure(
                kind,
                name,
                system,
                lambda: self._load.produce(system.bootstrap, topic, size, count, settings),
            )


def mb_s(found: Load) -> float:
    return found.bytes / found.seconds / MEGABYTE


def kinds_here(only: tuple[str, ...], results: Results) -> list[str]:
    """Who takes part; who cannot is missing, with the reason."""
    kinds = [kind for kind in TITLES if not only or kind in only]
    if APACHE in kinds and (why := available()) is not None:
        results.missing[APACHE] = why
        kinds.remove(APACHE)
    return kinds


@click.command()
@click.option("--quick", is_flag=True, help="One short round: under a minute without Kafka's JVM.")
@click.option("--smallest", is_flag=True, help="Only to see that it runs.")
@click.option("--rounds", type=int, help="How many.")
@click.option("--megabytes", type=int, help="Of each case.")
@click.option("--only", multiple=True, type=click.Choice(list(TITLES)), help="Leave out the rest.")
@click.option("--json", "for_machines", is_flag=True, help="For machines.")
def main(
    quick: bool,
    smallest: bool,
    rounds: int | None,
    megabytes: int | None,
    only: tuple[str, ...],
    for_machines: bool,
) -> None:
    """Measure the broker."""
    console = Console(stderr=True)
    length = QUICK if quick or smallest else FULL
    if smallest:
        length = replace(length, megabytes=1, latencies=20, sizes=(1024,), batches=(16_384,))
    length = replace(
        length, rounds=rounds or length.rounds, megabytes=megabytes or length.megabytes
    )
    directory = tempfile.mkdtemp(prefix="bench-broker-")
    try:
        load = generator(directory)
        bench = Bench(directory, length, load, console.print)
        kinds = kinds_here(only, bench.results)
        bench.run(kinds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if for_machines:
        click.echo(json.dumps(as_json(bench.results), indent=2))
        return
    out = Console()
    peer = f"; Apache Kafka {version()}" if APACHE in kinds else ""
    out.print(f"Load: {load.name}{peer}; {os.cpu_count()} processors; {length.rounds} rounds\n")
    for table in as_tables(bench.results):
        out.print(table)
        out.print()


if __name__ == "__main__":
    main()
