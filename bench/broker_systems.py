"""The brokers that bench.broker sets side by side: ours, and Apache Kafka's, as processes.

One broker is one process that is also the controller (`kraftpy dev`, Kafka's combined mode); more
are as many processes beside one controller. Settings are the defaults of each.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from bench.apache_kafka import ApacheKafka, ask
from bench.quorum_processes import ServerProcesses, free_ports
from kraftpy.errors import KraftError
from kraftpy.storage import Record, build_batch
from kraftpy.wire.apis import METADATA
from kraftpy.wire.produce import PRODUCE

READY_TIMEOUT_S = 120.0
ADMIN_TIMEOUT_S = 60.0
CONTROLLER = 1
FIRST_BROKER = 101
_PROGRAM = "from kraftpy.cli.main import main; main()"
_POLL_S = 0.005
_CPU_CLOCK = 2  # The kernel's number for the clock of all threads of a process.


class System(Protocol):
    """Brokers that run, or will."""

    brokers: range
    ports: dict[int, int]

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> list[int]: ...
    @property
    def ended(self) -> list[int]: ...
    def output(self) -> str: ...
    def format(self) -> None: ...
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

    def format(self) -> None:
        """They do it themselves, when they start."""

    def wait_until_ready(self) -> None:
        wait_for_brokers(self, {each: self.ports[each] for each in self.brokers})

    def close(self) -> None:
        """Brokers first: they ask the controller to move what they lead."""
        if running := [each for each in self._running if each in self.brokers]:
            self.stop(*running)
        self.stop()


def apache(directory: str, brokers: int = 1) -> ApacheKafka:
    """Apache Kafka in the same shape."""
    os.makedirs(directory, exist_ok=True)
    return ApacheKafka(directory, brokers, controllers=0 if brokers == 1 else 1)


def wait_for_brokers(system: ServerProcesses, ports: Mapping[int, int]) -> None:
    """Until each broker names as many as there are."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    for port in ports.values():
        while _brokers_named(port) != len(ports):
            if system.ended or time.monotonic() > deadline:
                what = f"ended: {system.ended}, after {READY_TIMEOUT_S:g} s at most"
                raise TimeoutError(f"not ready; {what}\n{system.output()}")
            time.sleep(_POLL_S)


def _brokers_named(port: int) -> int:
    try:
        return len(ask("127.0.0.1", port, METADATA, {"topics": []}, version=1).brokers)
    except (KraftError, OSError):
        return 0


@contextmanager
def running(system: System) -> Iterator[System]:
    try:
        system.format()
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


def first_message_s(system: System, topic: str, *, empty: bool) -> float:
    """Start it, and produce to a topic that it makes for that; the time until the answer.

    If its directory is empty, making it a node's is part of the start.

    With requests of our own: a client library waits between its attempts, for longer than some
    brokers take.
    """
    port = system.ports[system.brokers[0]]
    began = time.monotonic()
    if empty:
        system.format()
    system.start()
    while not (_is_led(port, topic) and _takes_message(port, topic)):
        if system.ended or time.monotonic() - began > READY_TIMEOUT_S:
            what = f"ended: {system.ended}, after {READY_TIMEOUT_S:g} s at most"
            raise TimeoutError(f"no message was taken; {what}\n{system.output()}")
        time.sleep(_POLL_S)
    return time.monotonic() - began


def _is_led(port: int, topic: str) -> bool:
    wanted = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    try:
        (found,) = ask("127.0.0.1", port, METADATA, wanted, version=4).topics
    except (KraftError, OSError):
        return False
    return bool(found.partitions) and found.partitions[0].leader_id >= 0


def _takes_message(port: int, topic: str) -> bool:
    value = Record(offset=0, timestamp=0, key=None, value=b"first")
    partition = {"index": 0, "records": bytes(build_batch([value]))}
    request = {
        "transactional_id": None,
        "acks": -1,
        "timeout": timedelta(seconds=30),
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    try:
        answer = ask("127.0.0.1", port, PRODUCE, request, version=7)
    except (KraftError, OSError):
        return False
    return answer.responses[0].partition_responses[0].error_code is ErrorCode.none
