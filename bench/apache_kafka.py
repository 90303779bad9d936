"""Apache Kafka 4.x as processes on loopback ports, for benchmarks and tests to set beside ours.

    if (reason := available()) is None:
        with ApacheKafka(directory) as kafka:
            client(kafka.bootstrap)

Settings are those of the server.properties that Kafka ships, and the JVM's are those of its start
script; `properties` goes on top. Combined mode (each node is a broker and a controller, as 1 to n)
unless `controllers` says how many there are beside the brokers: then those are 1 to n, and brokers
are 101 and on, as in the clusters of ours that tests run. Entering formats, starts and waits until
every broker is in every broker's metadata; leaving ends what still runs. The directory is the
caller's: everything is in it, and nothing is removed from it.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from bench.apache_kafka_jars import Unavailable, available, class_path, version
from bench.quorum_processes import ServerProcesses, free_ports
from kraftpy.errors import KraftError
from kraftpy.wire.apis import METADATA, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.frames import FrameBuffer
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame

__all__ = ["ApacheKafka", "Unavailable", "ask", "available", "class_path", "version"]

CLUSTER_ID = "kraftpyApacheKafkaAAAA"
FIRST_BROKER = 101
FORMAT_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 180.0
_POLL_S = 0.05
_ASK_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_HOST = "127.0.0.1"
# What bin/kafka-server-start.sh and bin/kafka-run-class.sh give to the JVM.
_JVM = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
# config/server.properties of the distribution, but for names, places and listeners.
_SHIPPED = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class ApacheKafka(ServerProcesses):
    """A cluster, usable as a context manager, or step by step: format, start, wait_until_ready."""

    def __init__(
        self,
        directory: str,
        brokers: int = 1,
        *,
        controllers: int = 0,
        properties: Mapping[str, str] | None = None,
        heap: str = "1G",
        jvm: tuple[str, ...] = (),
    ) -> None:
        super().__init__(directory, range(0))
        first = FIRST_BROKER if controllers else 1
        self.brokers = range(first, first + brokers)
        self.controllers = range(1, controllers + 1) if controllers else self.brokers
        self.node_ids = sorted({*self.controllers, *self.brokers})  # type: ignore[assignment]
        ports = iter(free_ports(brokers + len(self.controllers)))
        self.ports = {node_id: next(ports) for node_id in self.brokers}
        self.controller_ports = {node_id: next(ports) for node_id in self.controllers}
        self._properties = dict(properties or {})
        self._heap = heap
        self._jvm = jvm
        self._jars = os.pathsep.join(class_path())

    def __enter__(self) -> Self:
        try:
            self.format()
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- places -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return _addresses(self.ports)

    @property
    def controller_bootstrap(self) -> str:
        return _addresses(self.controller_ports)

    def pid(self, node_id: int) -> int:
        return self._running[node_id].pid

    def log_dir(self, node_id: int) -> str:
        """Where the node keeps its partitions, the metadata log's among them."""
        return os.path.join(self.directory, f"node-{node_id}")

    def properties_of(self, node_id: int) -> dict[str, str]:
        """What the node's properties file says."""
        roles = [role for role, ids in self._roles().items() if node_id in ids]
        listeners = []
        if node_id in self.ports:
            listeners.append(f"PLAINTEXT://{_HOST}:{self.ports[node_id]}")
        if node_id in self.controller_ports:
            listeners.append(f"CONTROLLER://{_HOST}:{self.controller_ports[node_id]}")
        voters = (f"{n}@{_HOST}:{port}" for n, port in self.controller_ports.items())
        copies = {
            f"{topic}.replication.factor": str(min(3, len(self.brokers)))
            for topic in _INTERNAL_TOPICS
        }
        in_sync = {
            f"{topic}.min.isr": str(min(2, len(self.brokers))) for topic in _INTERNAL_TOPICS[1:]
        }
        return {
            **_SHIPPED,
            **copies,
            **in_sync,
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": self.log_dir(node_id),
            **self._properties,
        }

    def _roles(self) -> dict[str, range]:
        return {"broker": self.brokers, "controller": self.controllers}

    # -- life ---------------------------------------------------------------------------------

    def command(self, node_id: int) -> list[str]:
        heap = (f"-Xmx{self._heap}", f"-Xms{self._heap}")
        flags = (*heap, *_JVM, *_LOGGING, *self._jvm)
        return ["java", *flags, *self._main("kafka.Kafka"), self._file(node_id)]

    def format(self) -> None:
        """Make every node's directory, as kafka-storage.sh does; they are to be empty."""
        tools = [self._format_one(node_id) for node_id in self.node_ids]
        failed = ""
        for tool in tools:
            try:
                said, _ = tool.communicate(timeout=FORMAT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                tool.kill()
                said, _ = tool.communicate()
            failed = failed or (said if tool.returncode else "")
        if failed:
            raise Unavailable(f"Kafka's storage tool fails: {failed}")

    def _format_one(self, node_id: int) -> subprocess.Popen[str]:
        with open(self._file(node_id), "w", encoding="utf-8") as file:
            lines = (f"{key}={value}\n" for key, value in self.properties_of(node_id).items())
            file.writelines(lines)
        return subprocess.Popen(
            [
                *("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", *_LOGGING),
                *self._main("kafka.tools.StorageTool"),
                *("format", "--cluster-id", CLUSTER_ID, "--config", self._file(node_id)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Until every broker names all brokers; whoever asks it then can use the cluster."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not all(self._names_all(node_id) for node_id in self.brokers):
            if (ended := self.ended) or time.monotonic() > deadline:
                what = f"nodes {ended} ended" if ended else f"not ready in {READY_TIMEOUT_S:g} s"
                raise Unavailable(f"Apache Kafka does not start: {what}\n{self.output()}")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End what still runs: brokers first, as controllers must move what they lead.

        A node that was stopped with SIGSTOP is woken up for it.
        """
        for node_id in self._running:
            self.signal(node_id, signal.SIGCONT)
        if brokers := [node_id for node_id in self._running if node_id in self.ports]:
            self.stop(*brokers)
        self.stop()

    def _names_all(self, node_id: int) -> bool:
        try:
            answer = ask(_HOST, self.ports[node_id], METADATA, {"topics": []}, version=1)
        except (KraftError, OSError):
            return False
        return {broker.node_id for broker in answer.brokers} == set(self.brokers)

    def _main(self, name: str) -> tuple[str, str, str]:
        return "-cp", self._jars, name

    def _file(self, node_id: int) -> str:
        return os.path.join(self.directory, f"{node_id}.properties")


def ask(host: str, port: int, api_key: int, values: Mapping[str, Any], *, version: int) -> Any:
    """One question on a connection of its own, in one version. OSError or KraftError if it fails.

    The first question is ApiVersions: whether the port is a Kafka's at all.
    """
    frames = FrameBuffer(_ANSWER_BYTES_MAX)
    with socket.create_connection((host, port), timeout=_ASK_TIMEOUT_S) as connection:
        _exchange(connection, frames, API_VERSIONS, 0, {})
        return _exchange(connection, frames, api_key, version, values)


def _exchange(
    connection: socket.socket,
    frames: FrameBuffer,
    api_key: int,
    version: int,
    values: Mapping[str, Any],
) -> Any:
    message: Any = build(request_type(api_key, version), values)
    connection.sendall(request_frame(message, api_key, version, 1, "kraftpy-bench"))
    while (frame := frames.next_frame()) is None:
        received = connection.recv(65_536)
        if not received:
            raise ConnectionResetError("it closed the connection")
        frames.feed(received)
    return read_response(frame, response_type(api_key, version), api_key)[1]


def _addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"{_HOST}:{port}" for port in ports.values())
