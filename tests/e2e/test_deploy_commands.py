"""What deploy/ says, run without an engine: the image's commands in a fresh venv, compose's nodes
as processes.

Names of compose's network become ports of this machine, paths of the container directories of the
test; commands, variables and health checks stay as they are written. `make deploy-check` makes the
venv as the Dockerfile does and runs the nodes from it; `make test` runs them from its own.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.quorum_processes import free_ports
from tests.unit import deploy_checks as checks

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
FRESH = os.environ.get("DEPLOY_CHECK") == "1"
NAMED = re.compile(r"\b((?:controller|broker)-\d+):(\d+)")
EVERYWHERE = re.compile(r"0\.0\.0\.0:(\d+)")


def until(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"{why} after {PATIENCE_S} s")


def build_image(directory: Path) -> Path:
    """Carry the build stage out in a directory; the kraftpy that it leaves."""
    source = directory / "src"
    places = {"/opt/kraftpy": f"{directory}/opt", "/tmp/": f"{directory}/"}
    for what, rest in checks.instructions((ROOT / "deploy/Dockerfile").read_text()):
        if what == "COPY" and not rest.startswith("--from"):
            *names, target = rest.split()
            for name in names:
                place = source / target / name if target == "./" else source / target
                place.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-r", str(ROOT / name), str(place)], check=True)
        elif what == "RUN" and "/opt/kraftpy" in rest:
            moved = re.sub("/opt/kraftpy|/tmp/", lambda m: places[m[0]], rest)
            moved = re.sub(r"^python ", f"{sys.executable} ", moved)
            done = subprocess.run(
                moved, shell=True, cwd=source, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{moved}\n{done.stdout}\n{done.stderr}"
    return directory / "opt/bin/kraftpy"


@pytest.fixture(scope="module")
def kraftpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command: of the image if that is asked for, else the one beside this Python."""
    if FRESH:
        return build_image(tmp_path_factory.mktemp("image"))
    return Path(sys.executable).parent / "kraftpy"


@pytest.mark.skipif(not FRESH, reason="takes a fresh venv: make deploy-check")
def test_the_image_holds_the_command_and_its_default_command_serves(
    kraftpy: Path, tmp_path: Path
) -> None:
    found = dict(checks.instructions((ROOT / "deploy/Dockerfile").read_text()))
    (port, controller) = free_ports(2)
    command = [each.replace("9092", str(port)) for each in yaml.safe_load(found["CMD"])]
    command += ["--voters", f"1@127.0.0.1:{controller}"]
    environment = {"PATH": "/usr/bin:/bin", "KRAFTPY_DATA_DIR": str(tmp_path / "data")}
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([kraftpy, *command], env=environment, stdout=out, stderr=out)
    try:
        until(lambda: "dev_started" in (tmp_path / "out").read_text(), "it does not start")
        sent_and_read(f"localhost:{port}", replicas=1)
    finally:
        process.terminate()
        assert process.wait(60) == 0


class Composed:
    """compose.yaml as processes: each address that it names is a port of this machine."""

    def __init__(self, directory: Path) -> None:
        self.services = {
            name: service
            for name, service in yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())[
                "services"
            ].items()
            if service["image"].startswith("kraftpy")
        }
        self._directory = directory
        (directory / "quorum-secret").write_text("it is a secret\n")
        used = [(name, int(port)) for name in self.services for port in self._ports(name)]
        self._moved = dict(zip(used, free_ports(len(used)), strict=True))

    def _ports(self, name: str) -> list[str]:
        environment = self.services[name]["environment"]
        keys = ("KRAFTPY_LISTENERS", "KRAFTPY_ADMIN_LISTENERS")
        return [environment[key].rpartition(":")[2] for key in keys]

    def moved(self, name: str, text: str) -> str:
        """A text of a service, with the addresses and paths that it has here."""
        text = NAMED.sub(lambda m: f"127.0.0.1:{self._moved[m[1], int(m[2])]}", text)
        text = EVERYWHERE.sub(lambda m: f"0.0.0.0:{self._moved[name, int(m[1])]}", text)
        text = re.sub(r"127\.0\.0\.1:9644", f"127.0.0.1:{self._moved[name, 9644]}", text)
        return text.replace("/run/secrets", str(self._directory))

    def environment(self, name: str) -> Mapping[str, str]:
        data = self._directory / name
        given = self.services[name]["environment"].items()
        return {
            **{key: self.moved(name, value) for key, value in given},
            "PATH": os.environ["PATH"],
            "KRAFTPY_DATA_DIR": str(data),
        }

    def is_healthy(self, name: str) -> bool:
        """As the engine would find out."""
        _, program, *arguments = self.services[name]["healthcheck"]["test"]
        assert program == "python"
        command = [sys.executable, *(self.moved(name, each) for each in arguments)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
        return done.returncode == 0

    @property
    def bootstrap(self) -> str:
        advertised = [
            self.environment(name).get("KRAFTPY_ADVERTISED_LISTENERS") for name in self.services
        ]
        return ",".join(each for each in advertised if each)

    @contextmanager
    def running(self, kraftpy: Path) -> Iterator[None]:
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, service in self.services.items():
                running[name] = self._start(name, [str(kraftpy), *service["command"]])
            for name in self.services:
                until(partial(self.is_healthy, name), f"{name} is not healthy")
            yield
            brokers = [name for name in running if name.startswith("broker")]
            for some in (brokers, sorted(running.keys() - set(brokers))):
                for name in some:
                    running[name].terminate()
                assert {name: running[name].wait(60) for name in some} == dict.fromkeys(some, 0)
        finally:
            for process in running.values():
                process.kill()
                process.wait()

    def _start(self, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        with open(self._directory / f"{name}.log", "wb") as out:
            return subprocess.Popen(command, env=self.environment(name), stdout=out, stderr=out)


def sent_and_read(bootstrap: str, replicas: int) -> None:
    """One record through a topic that is made for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic("deployed", 3, replicas)], request_timeout=PATIENCE_S)
    made["deployed"].result(PATIENCE_S)
    told: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("deployed", b"it works", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [None]
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["deployed"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"it works"
    finally:
        consumer.close()


def test_the_nodes_of_compose_are_a_cluster(kraftpy: Path, tmp_path: Path) -> None:
    composed = Composed(tmp_path)
    with composed.running(kraftpy):
        sent_and_read(composed.bootstrap, replicas=3)
        described = AdminClient({"bootstrap.servers": composed.bootstrap}).list_topics(
            "deployed", 60
        )
        assert {len(p.isrs) for p in described.topics["deployed"].partitions.values()} == {3}
