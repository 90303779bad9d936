"""Node processes: how each is started, killed, stopped and watched; all they leave is a directory.

A node listens at a port of its own and is known to everyone by its port at the proxy. Every process
is its own process group and is ended by its id. It dies with the harness, whatever ends that.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_HOST: Final = "127.0.0.1"
# Below those that the kernel gives to connections: a node that is down must find its port again.
_PORTS: Final = range(12_000, 32_000)
_PR_SET_PDEATHSIG: Final = 1
FIRST_BROKER: Final = 101


@dataclass(slots=True)
class Node:
    """One node and where its things are."""

    name: str
    node_id: int
    is_controller: bool
    port: int
    directory: str
    proxy_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    may_exit: bool = False  # It is being hurt in a way that entitles it to stop.
    wanted: bool = False  # It should be running now.
    retired: bool = False  # It has left the cluster for good; its directory stays.
    starts: int = 0

    @property
    def data_dir(self) -> str:
        return os.path.join(self.directory, "data")

    @property
    def stderr_path(self) -> str:
        return os.path.join(self.directory, "stderr.log")

    @property
    def clock_path(self) -> str:
        return os.path.join(self.directory, "clock")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What to start."""

    directory: str
    controllers: int = 3
    brokers: int = 3
    # A program that takes `quorum` or `broker` and --set key=value. None: the test node of the
    # kraftpy that this Python finds, with a clock and a disk that can be put wrong.
    kraftpy: str | None = None
    mutant: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    seed: int = 0


DEFAULT_SETTINGS: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "60000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "6",
    "logging.format": "text",
}
_OF_BROKERS: Final = ("broker.heartbeat.interval.ms", "replica.lag.time.max.ms")


def free_port(taken: set[int]) -> int:
    """One that nobody uses and that no connection will be given."""
    start = (os.getpid() * 37 + time.monotonic_ns() // 1000) % len(_PORTS)
    for step in range(len(_PORTS)):
        port = _PORTS[(start + step * 7) % len(_PORTS)]
        if port in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        taken.add(port)
        return port
    raise RuntimeError("no port is free")


class ProxyProcess:
    """The proxy, and orders to it."""

    def __init__(self, seed: int, stderr_path: str) -> None:
        with open(stderr_path, "ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jepsen_like.cluster.proxy", str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call of the kernel, no locks.
            )

    def order(self, **order: Any) -> dict[str, Any]:
        """Have it done; RuntimeError if it was refused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"ok": False, "why": "it is gone"}
        if not answer["ok"]:
            raise RuntimeError(f"the proxy refused {order}: {answer['why']}")
        return answer

    def cpu_s(self) -> float:
        """Processor time that it has used so far."""
        try:
            with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


class Cluster:
    """All nodes. Methods return at once, unless they say otherwise."""

    def __init__(
        self, options: ClusterOptions, on_event: Callable[[str, str, dict[str, Any]], None]
    ) -> None:
        """`on_event(what, node, details)` hears of starts and exits."""
        self.options = options
        self.on_event = on_event
        self._lock = threading.RLock()
        self._sockets = tempfile.mkdtemp(prefix="jl-")
        os.makedirs(options.directory, exist_ok=True)
        self.proxy = ProxyProcess(options.seed, os.path.join(options.directory, "proxy.log"))
        self._taken: set[int] = set()
        self.nodes: dict[str, Node] = {}
        for number in range(1, options.controllers + 1):
            self._add(f"c{number}", number, is_controller=True)
        for number in range(FIRST_BROKER, FIRST_BROKER + options.brokers):
            self._add(f"b{number}", number, is_controller=False)
        self.cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"

    def _add(self, name: str, node_id: int, *, is_controller: bool) -> Node:
        port = free_port(self._taken)
        directory = os.path.join(self.options.directory, "nodes", name)
        os.makedirs(directory, exist_ok=True)
        node = Node(name, node_id, is_controller, port, directory)
        node.proxy_port = self.proxy.order(do="listen", node=name, target=[_HOST, port])["port"]
        self.nodes[name] = node
        return node

    def add_broker(self) -> Node:
        """One with an id that nobody ever had, not started yet."""
        node_id = 1 + max(node.node_id for node in self.nodes.values())
        return self._add(f"b{node_id}", node_id, is_controller=False)

    @property
    def present(self) -> dict[str, Node]:
        """Those that have not left for good."""
        return {name: node for name, node in self.nodes.items() if not node.retired}

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if not (node.is_controller or node.retired)]

    @property
    def has_faulty_nodes(self) -> bool:
        """Whether clocks and disks of nodes can be put wrong."""
        return self.options.kraftpy is None

    # -- starting ------------------------------------------------------------------------------

    def command(self, node: Node) -> list[str]:
        role = "quorum" if node.is_controller else "broker"
        words = [*self._program(node), role]
        for key, value in self.settings(node).items():
            words += ["--set", f"{key}={value}"]
        return words + self._switches(node)

    def _program(self, node: Node) -> Sequence[str]:
        del node
        if self.options.kraftpy is not None:
            return self.options.kraftpy.split()
        return (sys.executable, "-m", "kraftpy.testing.node")

    def _switches(self, node: Node) -> list[str]:
        if not self.has_faulty_nodes:
            return []
        graveyard = os.path.join(node.directory, "graveyard")
        words = ["--clock-file", node.clock_path, "--graveyard", graveyard]
        words += ["--fault-socket", self._socket_path(node)]
        return [*words, "--mutant", self.options.mutant] if self.options.mutant else words

    def _socket_path(self, node: Node) -> str:
        return os.path.join(self._sockets, node.name)

    def settings(self, node: Node) -> dict[str, str]:
        settings = {**DEFAULT_SETTINGS, **self.options.settings}
        if node.is_controller:
            settings = {k: v for k, v in settings.items() if k not in _OF_BROKERS}
        settings |= {
            "node.id": str(node.node_id),
            "data.dir": node.data_dir,
            "listeners": f"{_HOST}:{node.port}",
        }
        if node.is_controller:
            voters = (f"{each.node_id}@{_HOST}:{each.proxy_port}" for each in self.controllers)
            settings |= {
                "controller.quorum.voters": ",".join(voters),
                "cluster.id": self.cluster_id,
            }
        else:
            places = (f"{_HOST}:{each.proxy_port}" for each in self.controllers)
            settings |= {
                "controller.quorum.bootstrap.servers": ",".join(places),
                "advertised.listeners": f"{_HOST}:{node.proxy_port}",
            }
        return settings

    def start(self, name: str) -> None:
        node = self.nodes[name]
        if node.retired:
            return
        node.wanted = True
        if node.is_running:
            return
        self.look()
        with open(node.stderr_path, "ab") as stderr:
            node.process = subprocess.Popen(
                self.command(node),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env=_environment(),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call of the kernel, no locks.
            )
        node.starts += 1
        self.on_event("start", name, {"start": node.starts})
        self._tell_pids()

    def _tell_pids(self) -> None:
        pids = {
            name: [node.process.pid]
            for name, node in self.nodes.items()
            if node.process is not None and node.is_running
        }
        self.proxy.order(do="pids", pids=pids)

    # -- ending --------------------------------------------------------------------------------

    def signal(self, name: str, number: signal.Signals) -> bool:
        process = self.nodes[name].process
        if process is None or process.poll() is not None:
            return False
        os.killpg(process.pid, number)
        return True

    def kill(self, name: str) -> bool:
        """SIGKILL, and wait until it is gone. For any thread."""
        node = self.nodes[name]
        node.wanted = False
        process = node.process
        done = self.signal(name, signal.SIGKILL)
        if process is not None:
            process.wait()
        self.look()
        return done

    def stop(self, name: str, timeout_s: float = 20.0) -> bool:
        """SIGTERM, and wait until it is gone; SIGKILL if it does not go. For any thread."""
        node = self.nodes[name]
        node.wanted = False
        process = node.process
        self.signal(name, signal.SIGCONT)
        done = self.signal(name, signal.SIGTERM)
        if process is not None:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return self.kill(name)
        self.look()
        return done

    def look(self) -> list[str]:
        """Notice processes that have ended; those that did so by themselves."""
        surprising = []
        with self._lock:
            for node in self.nodes.values():
                if node.process is None or (code := node.process.poll()) is None:
                    continue
                node.process = None
                expected = not node.wanted or node.may_exit
                self.on_event("exit", node.name, {"code": code, "expected": expected})
                if not expected:
                    surprising.append(node.name)
        return surprising

    def stop_all(self, timeout_s: float = 30.0) -> dict[str, int]:
        """SIGTERM, brokers first; the exit codes. Who does not go is killed: -9."""
        codes: dict[str, int] = {}
        for group in (self.brokers, self.controllers):
            for node in group:
                node.wanted = False
                self.signal(node.name, signal.SIGCONT)
                self.signal(node.name, signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            for node in group:
                process = node.process  # Another thread may notice its end, and forget it.
                if process is None:
                    continue
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.signal(node.name, signal.SIGKILL)
                    process.wait()
                codes[node.name] = process.returncode
        self.look()
        return codes

    def close(self) -> None:
        """Leave no process behind."""
        for name, node in self.nodes.items():
            if node.is_running:
                self.kill(name)
        self.proxy.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    # -- what test nodes let be done ------------------------------------------------------------

    def ask_faults(self, name: str, timeout_s: float = 3.0, **asked: Any) -> dict[str, Any]:
        """An order to a test node's disk; OSError if it cannot be reached."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout_s)
            sock.connect(self._socket_path(self.nodes[name]))
            sock.sendall(json.dumps(asked).encode() + b"\n")
            line = sock.makefile("rb").readline()
        if not line:
            raise ConnectionError("no answer")
        answer: dict[str, Any] = json.loads(line)
        if not answer.get("ok"):
            raise RuntimeError(f"{name} refused {asked}: {answer.get('why')}")
        return answer

    def lose_power(self, name: str, loss: str, seed: int) -> bool:
        """Take back what was not synced, and end the process; whether that was done."""
        node = self.nodes[name]
        node.wanted = False
        process = node.process
        with contextlib.suppress(OSError):  # It dies in the middle of the answer, as it should.
            self.ask_faults(name, do="lose_power", loss=loss, seed=seed)
        if process is None:
            return False
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill(name)
            return False
        self.look()
        return code == -signal.SIGKILL

    def skew(self, name: str, offset_ms: int, rate: float) -> None:
        """Put a node's clock wrong, by so much and at that rate."""
        with open(self.nodes[name].clock_path, "r+b") as file:
            file.write(struct.pack(">qd", offset_ms, rate))


def _environment() -> dict[str, str]:
    """With this package, and whatever this Python finds, on the path."""
    paths = [path for path in sys.path if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
