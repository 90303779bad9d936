"""From nothing to the first acknowledged message: `make bench-start`.

The client is librdkafka with its defaults, but that it tries to connect again at once, and does not
begin anew with its bootstrap servers when it is refused, which takes it up to half a second. It is
there before the system is. The topic is made by asking for it. Everything is on loopback and begins
in an empty directory. What a system needs to make that directory a node's belongs to its start.
Memory is what the server's processes alone have (proportional set size), right after the
acknowledgement.

Processor time is told too: on a machine that does other work, it varies less than the clock.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.apache_kafka import ApacheKafka, Unavailable, available, version
from bench.quorum_processes import free_ports
from kraftpy.testing import Space, kraftpy_cluster
from kraftpy.testing.nursery import close_shared_nursery

TIMEOUT_S = 180.0
PROGRAM = "from kraftpy.cli.main import main; main()"
# In a process of its own: import, cluster and client are all part of it.
IMPORTING = """
import time
began = time.monotonic()
from bench.start import first_ack
from kraftpy.testing import kraftpy_cluster
with kraftpy_cluster() as cluster:
    first_ack(cluster.bootstrap_servers)
    print(time.monotonic() - began, cluster.pid(101))
    from bench.start import memory_mb
    print(memory_mb(cluster.pid(101)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One kind of start, measured several times."""

    name: str
    seconds: list[float]
    cpu_s: float | None = None
    memory_mb: float | None = None


def first_ack(servers: str) -> None:
    """Produce one message, and wait until it is acknowledged."""
    done = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 5,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )

    def delivered(error: Any, _message: Any) -> None:
        if error is None:
            done.set()

    producer.produce("first", b"x", on_delivery=delivered)
    deadline = time.monotonic() + TIMEOUT_S
    while not done.is_set():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{servers} has not acknowledged anything in {TIMEOUT_S:g} s")
        producer.poll(0.01)


def memory_mb(*pids: int) -> float:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / 1024


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    return time.clock_gettime((~pid << 3) | 2)


# -- the kinds ----------------------------------------------------------------------------------


def dev(rounds: int) -> Start:
    seconds, cpu, memory = [], [], []
    for _ in range(rounds):
        port = free_ports(1)[0]
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "dev", "--listen", f"127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            first_ack(f"127.0.0.1:{port}")
            seconds.append(time.monotonic() - began)
            cpu.append(cpu_s(process.pid))
            memory.append(memory_mb(process.pid))
        finally:
            process.terminate()
            process.wait()
    return Start(
        name="kraftpy dev",
        seconds=seconds,
        cpu_s=statistics.median(cpu),
        memory_mb=statistics.median(memory),
    )


def importing(rounds: int) -> Start:
    seconds, memory = [], []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTING], check=True, capture_output=True, text=True
        )
        first, second = done.stdout.splitlines()
        seconds.append(float(first.split()[0]))
        memory.append(float(second))
    name = "kraftpy.testing: import, first cluster"
    return Start(name=name, seconds=seconds, memory_mb=statistics.median(memory))


def another_cluster(rounds: int) -> Start:
    seconds, memory = [], []
    with kraftpy_cluster():
        for _ in range(rounds):
            began = time.monotonic()
            with kraftpy_cluster() as cluster:
                first_ack(cluster.bootstrap_servers)
                seconds.append(time.monotonic() - began)
                memory.append(memory_mb(cluster.pid(101)))
    name = "kraftpy.testing: another cluster"
    return Start(name=name, seconds=seconds, memory_mb=statistics.median(memory))


def larger_cluster(rounds: int) -> Start:
    seconds, memory = [], []
    with kraftpy_cluster():
        for _ in range(rounds):
            began = time.monotonic()
            with kraftpy_cluster(brokers=3, controllers=3) as cluster:
                first_ack(cluster.bootstrap_servers)
                seconds.append(time.monotonic() - began)
                memory.append(memory_mb(*(cluster.pid(node) for node in cluster.nodes)))
    name = "kraftpy.testing: 3 controllers, 3 brokers"
    return Start(name=name, seconds=seconds, memory_mb=statistics.median(memory))


def space(rounds: int) -> Start:
    seconds = []
    with kraftpy_cluster() as cluster:
        with Space(cluster) as warm:
            warm.topic()
        for _ in range(rounds):
            began = time.monotonic()
            with Space(cluster) as found:
                found.topic()
            seconds.append(time.monotonic() - began)
    return Start(name="kraftpy.testing: a topic per test, to its deletion", seconds=seconds)


def apache(rounds: int) -> Start:
    seconds, cpu, memory = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as directory:
            kafka = ApacheKafka(directory)
            try:
                began = time.monotonic()
                kafka.format()
                kafka.start()
                first_ack(kafka.bootstrap)
                seconds.append(time.monotonic() - began)
                cpu.append(cpu_s(kafka.pid(1)))
                memory.append(memory_mb(kafka.pid(1)))
            finally:
                kafka.close()
    return Start(
        name=f"Apache Kafka {version()}: format, start",
        seconds=seconds,
        cpu_s=statistics.median(cpu),
        memory_mb=statistics.median(memory),
    )


# -- telling ------------------------------------------------------------------------------------


def measured(rounds: int) -> tuple[list[Start], str]:
    """All kinds; and why one is missing."""
    kinds: list[Callable[[int], Start]] = [dev, importing, another_cluster, larger_cluster, space]
    missing = available() or ""
    if not missing:
        kinds.append(apache)
    found = []
    for kind in kinds:
        try:
            found.append(kind(rounds))
        except Unavailable as error:
            missing = str(error)
    close_shared_nursery()
    return found, missing


def as_table(starts: list[Start], missing: str) -> Table:
    table = Table(title="to the first acknowledged message", title_justify="left")
    table.add_column("what")
    for name in ("median", "best", "worst", "CPU", "memory"):
        table.add_column(name, justify="right")
    for each in starts:
        table.add_row(
            each.name,
            *(
                f"{value * 1000:,.0f} ms"
                for value in (statistics.median(each.seconds), min(each.seconds), max(each.seconds))
            ),
            "" if each.cpu_s is None else f"{each.cpu_s:.2f} s",
            "" if each.memory_mb is None else f"{each.memory_mb:,.0f} MB",
        )
    if missing:
        table.caption = f"without Apache Kafka: {missing}"
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    starts, missing = measured(arguments.rounds)
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(each) for each in starts], indent=2) + "\n")
    else:
        Console(width=120).print(as_table(starts, missing))


if __name__ == "__main__":
    main()
