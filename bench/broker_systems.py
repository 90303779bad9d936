"""The brokers that bench.broker sets side by side: ours, and Apache Kafka's, as processes.

One broker is one process that is also the controller (`kraftpy dev`, Kafka's combined mode); more
are as many processes beside one controller. Settings are the defaults of each.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.apache_kafka import ApacheKafka, ask
from bench.quorum_processes import ServerProcesses, free_ports
from kraftpy.errors import KraftError
from kraftpy.wire.apis import METADATA

READY_TIMEOUT_S = 120.0
ADMIN_TIMEOUT_S = 60.0
CONTROLLER = 1
FIRST_BROKER = 101
_PROGRAM = "from kraftpy.cli.main import main; main()"
_POLL_S = 0.02
_CPU_CLOCK = 2  # The kernel's number for the clock of all threads of a process.
# A client that tries again as fast as it may: what is measured is the broker's start, not its wait.
_IMPATIENT = {
    "reconnect.backoff.ms": "5",
    "reconnect.backoff.max.ms": "10",
    "retry.backoff.ms": "5",
    "topic.metadata.refresh.fast.interval.ms": "5",
    "linger.ms": "0",
    "log_level": "2",
}


class System(Protocol):
    """Brokers that run, or will."""

    brokers: range

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> list[int]: ...
    def start(self, *node_ids: int) -> None: ...
    def pid(self, node_id: int) -> int: ...
    def wait_until_ready(self) -> None: ...
    def close(self) -> None: ...


class Kraftpy(ServerProcesses):
    """Ours. Close it."""

    def __init__(self, directory: str, brokers: int = 1) -> None:
        self.brokers = range(FIRST_BROKER, FIRST_BROKER + brokers)
        super().__init__(directory, self.brokers)
        os.makedirs(directory, exist_ok=True)
        if brokers > 1:
            self.node_ids = [CONTROLLER, *self.brokers]  # type: ignore[assignment]
        ports = free_ports(brokers + 1)
        self.ports = dict(zip((CONTROLLER, *self.brokers), ports, strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[each]}" for each in self.brokers)

    def pid(self, node_id: int) -> int:
        return self._running[node_id].pid

    def command(self, node_id: int) -> list[str]:
        run = [sys.executable, "-c", _PROGRAM]
        controller = f"127.0.0.1:{self.ports[CONTROLLER]}"
        listen = ("--listen", f"127.0.0.1:{self.ports[node_id]}")
        data = ("--data-dir", os.path.join(self.directory, f"node-{node_id}"))
        if len(self.brokers) == 1:
            return [*run, "dev", "--voters", f"1@{controller}", *listen, *data]
        number = ("--node-id", str(node_id))
        if node_id == CONTROLLER:
            return [*run, "quorum", "--voters", f"1@{controller}", *number, *data]
        return [*run, "broker", "--controllers", controller, *number, *listen, *data]

    def wait_until_ready(self) -> None:
        wait_for_brokers(self, {each: self.ports[each] for each in self.brokers})

    def close(self) -> None:
        """Brokers first: they ask the controller to move what they lead."""
        if running := [each for each in self._running if each in self.brokers]:
            self.stop(*running)
        self.stop()


def apache(directory: str, brokers: int = 1) -> ApacheKafka:
    """Apache Kafka in the same shape, its directories made."""
    os.makedirs(directory, exist_ok=True)
    kafka = ApacheKafka(directory, brokers, controllers=0 if brokers == 1 else 1)
    kafka.format()
    return kafka


def wait_for_brokers(system: ServerProcesses, ports: Mapping[int, int]) -> None:
    """Until each broker names as many as there are."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    for port in ports.values():
        while _brokers_named(port) != len(ports):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready in {READY_TIMEOUT_S:g} s\n{system.output()}")
            time.sleep(_POLL_S)


def _brokers_named(port: int) -> int:
    try:
        return len(ask("127.0.0.1", port, METADATA, {"topics": []}, version=1).brokers)
    except (KraftError, OSError):
        return 0


@contextmanager
def running(system: System) -> Iterator[System]:
    try:
        system.start()
        system.wait_until_ready()
        yield system
    finally:
        system.close()


# -- topics -----------------------------------------------------------------------------------


@contextmanager
def topic_on(system: System, name: str, partitions: int) -> Iterator[str]:
    """A topic with a replica on every broker, deleted at the end: disks are finite."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": "2"})
    new = NewTopic(name, num_partitions=partitions, replication_factor=len(system.brokers))
    _wait(admin.create_topics([new]))
    try:
        yield name
    finally:
        _wait(admin.delete_topics([name]))


def _wait(futures: Mapping[str, Any]) -> None:
    for future in futures.values():
        future.result(ADMIN_TIMEOUT_S)


# -- what a process used ----------------------------------------------------------------------


def cpu_s(system: System) -> float:
    """Processor seconds of all its processes so far, to the nanosecond."""
    return sum(time.clock_gettime((~pid << 3) | _CPU_CLOCK) for pid in system.pids)


def rss_bytes(system: System) -> int:
    """Resident memory of its brokers now, on average."""
    pids = [system.pid(each) for each in system.brokers]
    return sum(_rss(pid) for pid in pids) // len(pids)


def _rss(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no memory")


def first_message_s(system: System, topic: str) -> float:
    """Start it, and produce to a topic that it makes for that; the time until the answer."""
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    began = time.monotonic()
    system.start()
    producer = Producer({"bootstrap.servers": system.bootstrap, **_IMPATIENT})
    producer.produce(topic, b"first", on_delivery=delivered)
    left = producer.flush(READY_TIMEOUT_S)
    took = time.monotonic() - began
    if left or failed:
        raise TimeoutError(f"the first message was not acknowledged: {failed}")
    return took
