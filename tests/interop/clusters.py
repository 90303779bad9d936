"""Clusters of kraftpy processes behind a recorder: `kraftpy dev`, or three brokers."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.quorum_processes import free_ports
from tests.e2e.cluster_processes import PROGRAM, ClusterProcesses
from tests.interop.recorder import Recorder

READY_S = 60
MESSAGE_BYTES_MAX = 200_000  # message.max.bytes of the clusters: big messages stay quick.
SETTINGS = ("--set", f"message.max.bytes={MESSAGE_BYTES_MAX}")


@dataclass(slots=True)
class Served:
    """A cluster as a client sees it, through the recorder."""

    bootstrap: str
    directory: Path
    recorder: Recorder
    processes: ClusterProcesses | None = None
    _names: Iterator[int] = field(default_factory=itertools.count)

    def topic(self, name: str) -> str:
        """A name that no other test uses."""
        return f"{name}-{next(self._names)}"


@contextmanager
def dev_cluster(directory: Path, recorder: Recorder, *more: str) -> Iterator[Served]:
    """`kraftpy dev` until the end."""
    (port,) = free_ports(1)
    front = recorder.front(port)
    command = [
        *(sys.executable, "-c", PROGRAM, "dev", "--listen", f"127.0.0.1:{port}"),
        *(
            "--data-dir",
            str(directory / "data"),
            "--set",
            f"advertised.listeners=127.0.0.1:{front}",
        ),
        *SETTINGS,
        *more,
    ]
    with open(directory / "dev.log", "wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out
        )
    try:
        assert process.stdout is not None
        ready = any(line.startswith(b"Point Kafka clients") for line in process.stdout)
        assert ready, (directory / "dev.log").read_text()
        yield Served(f"127.0.0.1:{front}", directory / "data", recorder)
    finally:
        process.terminate()
        process.communicate(timeout=READY_S)
    assert process.returncode == 0, (directory / "dev.log").read_text()


class FrontedCluster(ClusterProcesses):
    """Brokers that say that they are where the recorder is, each in a rack of its own."""

    def __init__(self, directory: str, recorder: Recorder, *more: str) -> None:
        super().__init__(directory, 1, 3, *SETTINGS, *more)
        self.fronts = {each: recorder.front(self.ports[each]) for each in self.brokers}

    def command(self, node_id: int) -> list[str]:
        command = super().command(node_id)
        if node_id in self.brokers:
            front = f"127.0.0.1:{self.fronts[node_id]}"
            command += ["--advertise", front, "--rack", f"rack-{node_id}"]
        return command

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{front}" for front in self.fronts.values())


@contextmanager
def three_brokers(directory: Path, recorder: Recorder, *more: str) -> Iterator[Served]:
    """One controller and brokers 101 to 103."""
    cluster = FrontedCluster(str(directory), recorder, *more)
    try:
        cluster.start()
        wait_for_brokers(cluster.bootstrap, 3)
        yield Served(cluster.bootstrap, Path(cluster.directory), recorder, cluster)
    except BaseException:
        sys.stderr.write(cluster.output())
        raise
    finally:
        cluster.stop_in_order()


def wait_for_brokers(bootstrap: str, count: int) -> None:
    """Until a client is told of so many brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "waiting", **QUIET})
    wait_for(f"{count} brokers", lambda: len(_brokers(admin)) == count)


def _brokers(admin: Any) -> list[int]:
    try:
        return list(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return []


QUIET = {"log_level": 0}  # librdkafka tells stderr of every connection that did not come about.


def wait_for(what: str, reached: Any, seconds: float = READY_S) -> Any:
    """What `reached` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := reached():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def record_path() -> str | None:
    return os.environ.get("INTEROP_RECORD")
