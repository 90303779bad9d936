"""A cluster for a test: real nodes as real processes, which can be killed, paused and cut off.

Controllers have the numbers 1, 2, ...; brokers 101, 102, .... One controller and one broker share a
process, which starts soonest: what is done to one is done to both. Larger clusters have one process
per node, and links between them (links.py); clients connect to brokers directly.

Nothing is left behind: leaving the `with` block kills the processes and removes the directory, and
so does the nursery (nursery_process.py) when this process dies before that.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kraftpy.config import SETTINGS, Given, resolve
from kraftpy.errors import ConfigError
from kraftpy.testing.free_ports import cluster_id, free_ports, is_free
from kraftpy.testing.nursery import ClusterFailed, Member, Nursery, shared_nursery

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

FIRST_BROKER: Final = 101
NODES_MAX: Final = 50
_HOST: Final = "127.0.0.1"
_START_ATTEMPTS: Final = 3
_OUTPUT_SHOWN_BYTES: Final = 4000
_TAKEN: Final = os.strerror(errno.EADDRINUSE)
# Sooner than in production. Not much sooner: brokers need two seconds to give a controller up that
# is paused, and the next one must hear from them before it takes them for dead.
_DEFAULTS: Final = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
# One replica each in a cluster of one, and so on: what Kafka's defaults want needs three brokers.
_REPLICATED: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
_NODES_OWN: Final = {
    *("node.id", "data.dir", "cluster.id", "listeners", "advertised.listeners"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers"),
    *("log.dirs", "metadata.log.dir"),
}


class Cluster:
    """Made by `kraftpy_cluster`. Methods wait until what they do has been done."""

    def __init__(
        self,
        nursery: Nursery,
        *,
        brokers: int,
        controllers: int,
        settings: Mapping[str, str],
        directory: str,
        timeout_s: float,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        """`ports` are those that nodes should have if nobody else has them."""
        self.controllers = tuple(range(1, controllers + 1))
        self.brokers = tuple(range(FIRST_BROKER, FIRST_BROKER + brokers))
        self.directory = directory
        self.timeout_s = timeout_s
        self._nursery = nursery
        self._name = uuid.uuid4().hex[:8]
        self._settings = {**_DEFAULTS, **_replication(brokers), **settings}
        self._cluster_id = cluster_id(directory)
        found = dict(zip(self.nodes, free_ports(len(self.nodes)), strict=True))
        self._ports = {**found, **{n: p for n, p in (ports or {}).items() if is_free(p)}}
        self._links: dict[tuple[int, int], int] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._orders = 0
        self._admin: AdminClient | None = None

    # -- where things are ---------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[int, ...]:
        """All numbers, controllers first."""
        return (*self.controllers, *self.brokers)

    @property
    def bootstrap_servers(self) -> str:
        """What Kafka clients take as `bootstrap.servers`."""
        return ",".join(self.address(each) for each in self.brokers)

    @property
    def bootstrap_controllers(self) -> str:
        """What `kraftpy quorum status --bootstrap-controller` takes."""
        return ",".join(self.address(each) for each in self.controllers)

    def address(self, node: int) -> str:
        """HOST:PORT of a node."""
        return f"{_HOST}:{self._ports[self._known(node)]}"

    def data_dir(self, node: int) -> str:
        """What the node keeps."""
        return os.path.join(self.directory, f"node-{self._process(node)}")

    def pid(self, node: int) -> int:
        """The process of a node that runs."""
        self._wait(node, lambda member: member.pid > 0, "has not been started")
        return self._member(node).pid

    def is_running(self, node: int) -> bool:
        """Whether it has a process, paused or not."""
        self._nursery.until(lambda: True, 0.0)
        return self._member(node).is_running

    def is_paused(self, node: int) -> bool:
        """Whether it was paused and not resumed."""
        return self._member(node).is_paused

    def is_ready(self, node: int) -> bool:
        """Whether it has said so since it was started last."""
        return self._member(node).is_ready

    def exit_code(self, node: int) -> int | None:
        """How its process has ended, as subprocess tells it; None while it runs."""
        return self._member(node).exit_code

    @property
    def cut_off(self) -> frozenset[int]:
        """The nodes that nobody else reaches."""
        others = len(self.nodes) - 1
        return frozenset(n for n in self.nodes if sum(n in cut for cut in self._cuts) == others > 1)

    def output(self, node: int) -> str:
        """What the node has written to its log of events."""
        try:
            with open(self._output_path(self._process(node)), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    @property
    def admin(self) -> "AdminClient":
        """An admin client of confluent-kafka's, made when it is first asked for."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient(
                {
                    "bootstrap.servers": self.bootstrap_servers,
                    "log_level": 0,  # That nodes die here is no news.
                }
            )
        return self._admin

    # -- faults -------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """kill -9; its data stays for a `restart`."""
        self._signal(node, signal.SIGKILL)
        self._wait(node, lambda member: not member.is_running, "is still there after kill -9")

    def stop(self, node: int) -> None:
        """Ask it to end in order: a broker hands its partitions over before it does."""
        self._signal(node, signal.SIGTERM)
        self._wait(node, lambda member: not member.is_running, "does not stop")

    def pause(self, node: int) -> None:
        """Freeze the process, as a long garbage collection or a stalled disk would."""
        self._signal(node, signal.SIGSTOP)
        self._wait(node, lambda member: member.is_paused, "cannot be paused")

    def resume(self, node: int) -> None:
        """Let it go on."""
        self._signal(node, signal.SIGCONT)
        self._wait(node, lambda member: not member.is_paused, "cannot be resumed")

    def restart(self, node: int) -> None:
        """Start a node again; one that runs is stopped in order first, one that is paused killed.

        Returns when a controller listens, and when a broker may lead again.
        """
        if self.is_running(node):
            if self.is_paused(node):
                self.kill(node)
            else:
                self.stop(node)
        self.start(node)
        self.wait_ready(node)

    def partition(self, a: int, b: int) -> None:
        """Let nothing through between two nodes, in either direction, until `heal`."""
        pair = min(self._known(a), self._known(b)), max(a, b)
        if not self._links:
            raise ValueError("the nodes of this cluster share a process: there is nothing to cut")
        if a == b:
            raise ValueError(f"node {a} cannot be cut off from itself")
        self._cuts.add(pair)
        self._cut()

    def isolate(self, node: int) -> None:
        """Cut a node off from all others; clients still reach it."""
        for other in self.nodes:
            if other != node:
                self._cuts.add((min(node, other), max(node, other)))
        self.partition(node, next(each for each in self.nodes if each != node))

    def heal(self) -> None:
        """Mend all cuts: what was sent in between arrives now."""
        self._cuts.clear()
        if self._links:
            self._cut()

    def restore(self) -> None:
        """Undo all faults: heal, resume, and restart what does not run."""
        self.heal()
        for node in self.nodes:
            if self.is_running(node) and self.is_paused(node):
                self.resume(node)
        gone = [node for node in self.nodes if not self.is_running(node)]
        for node in gone:
            if not self.is_running(node):  # A node that shares its process may be back already.
                self.start(node)
        for node in gone:
            self.wait_ready(node)
        if gone:
            # librdkafka's admin client may go on for minutes waiting for a broker that it lost.
            self._admin = None

    # -- processes ----------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start a node's process without waiting for it."""
        process = self._process(node)
        before = self._nursery.members.get(self._key(process))
        if before is not None and before.is_running:
            raise ValueError(f"node {node} is running")
        self._nursery.start(
            {
                "key": self._key(process),
                "kind": self._kind(process),
                "settings": self._node_settings(process),
                "routes": self._routes(process),
                "output": self._output_path(process),
            }
        )

    def wait_ready(self, *nodes: int) -> None:
        """Wait until controllers listen and brokers may lead; without numbers, until all do."""
        for node in nodes or self.nodes:
            self._wait(node, lambda member: member.is_ready or _ended(member), "does not get ready")
            if not self._member(node).is_ready:
                raise ClusterFailed(f"node {node} has ended\n{self._shown_output(node)}")

    def start_all(self) -> None:
        """Start links and nodes, and wait for them."""
        if not self._is_single:
            self._start_links()
        for process in sorted({self._process(node) for node in self.nodes}):
            self.start(process)
        self.wait_ready()

    def stop_all(self) -> None:
        """Stop all in order, brokers first: they have controllers move what they lead."""
        for some in (self.brokers, self.controllers):
            running = [node for node in some if self.is_running(node)]
            for node in running:
                self._signal(node, signal.SIGCONT)
                self._signal(node, signal.SIGTERM)
            for node in running:
                self._wait(node, lambda member: not member.is_running, "does not stop")

    def kill_all(self) -> None:
        """End every process of the cluster at once."""
        mine = {k: m for k, m in self._nursery.members.items() if k.startswith(f"{self._name}/")}
        for key in mine:
            self._nursery.signal(key, signal.SIGKILL)
        ended = self._nursery.until(
            lambda: not any(member.is_running for member in mine.values()), self.timeout_s
        )
        if not ended:
            raise ClusterFailed("nodes are still there after kill -9")
        for key in mine:
            del self._nursery.members[key]

    # -- details ------------------------------------------------------------------------------

    @property
    def _is_single(self) -> bool:
        return len(self.nodes) == 2

    def _known(self, node: int) -> int:
        if node not in self.nodes:
            raise ValueError(f"there is no node {node}: this cluster has {self.nodes}")
        return node

    def _process(self, node: int) -> int:
        """The number that the node's process goes by."""
        return FIRST_BROKER if self._is_single else self._known(node)

    def _key(self, process: int | str) -> str:
        return f"{self._name}/{process}"

    def _kind(self, process: int) -> str:
        if self._is_single:
            return "both"
        return "controller" if process in self.controllers else "broker"

    def _member(self, node: int) -> Member:
        return self._nursery.members[self._key(self._process(self._known(node)))]

    def _output_path(self, process: int | str) -> str:
        return os.path.join(self.directory, f"{process}.log")

    def _shown_output(self, node: int) -> str:
        return self.output(node)[-_OUTPUT_SHOWN_BYTES:]

    def _signal(self, node: int, number: signal.Signals) -> None:
        if not self.is_running(node):
            raise ValueError(f"node {node} does not run")
        self._nursery.signal(self._key(self._process(node)), number)

    def _wait(self, node: int, condition: Any, complaint: str) -> None:
        if not self._nursery.until(lambda: condition(self._member(node)), self.timeout_s):
            raise ClusterFailed(f"node {node} {complaint}\n{self._shown_output(node)}")

    def _node_settings(self, process: int) -> dict[str, str]:
        voters = ",".join(f"{n}@{_HOST}:{self._ports[n]}" for n in self.controllers)
        own = {"data.dir": os.path.join(self.directory, f"node-{process}")}
        os.makedirs(own["data.dir"], exist_ok=True)
        if self._kind(process) != "broker":
            own |= {"cluster.id": self._cluster_id, "controller.quorum.voters": voters}
        if self._kind(process) != "controller":
            own |= {"listeners": self.address(process)}
        if self._kind(process) == "broker":
            own |= {"controller.quorum.bootstrap.servers": self.bootstrap_controllers}
        if not self._is_single:
            own |= {"node.id": str(process)}
        return {**self._settings, **own}

    # -- links --------------------------------------------------------------------------------

    def _start_links(self) -> None:
        pairs = [
            (source, target, self._ports[target])
            for source in self.nodes
            for target in self.nodes
            if source != target and (source in self.brokers or target in self.controllers)
        ]
        key = self._key("links")
        self._nursery.start(
            {"key": key, "kind": "links", "pairs": pairs, "output": self._output_path("links")}
        )
        member = self._nursery.members[key]
        if not self._nursery.until(lambda: member.is_ready, self.timeout_s):
            raise ClusterFailed("the links between the nodes do not get ready")
        for source, target, _ in pairs:
            self._links[source, target] = member.facts[f"{source}-{target}"]

    def _routes(self, process: int) -> list[tuple[str, int, str, int]]:
        return [
            (_HOST, self._ports[target], _HOST, port)
            for (source, target), port in self._links.items()
            if source == process
        ]

    def _cut(self) -> None:
        self._orders += 1
        order = {"number": self._orders, "cuts": sorted(self._cuts)}
        self._nursery.tell(self._key("links"), json.dumps(order))
        member = self._nursery.members[self._key("links")]
        done = self._nursery.until(
            lambda: member.facts.get("obeyed") == self._orders, self.timeout_s
        )
        if not done:
            raise ClusterFailed("the links between the nodes do not obey")


@contextlib.contextmanager
def kraftpy_cluster(
    brokers: int = 1,
    controllers: int = 1,
    *,
    settings: Mapping[str, object] | None = None,
    directory: str | None = None,
    timeout_s: float = 60.0,
    ports: Mapping[int, int] | None = None,
) -> Iterator[Cluster]:
    """A cluster that serves Kafka clients, for as long as the `with` block lasts.

    `settings` are for all nodes, by Kafka's names. With a `directory` the data stays, and the nodes
    are stopped in order; otherwise they are killed at the end and all is removed. `timeout_s` is
    how long any step may take before ClusterFailed says what the node wrote. `ports` are those that
    nodes should have, by number, if nobody else has them.
    """
    given = _checked(settings or {})
    if not 1 <= brokers + controllers <= NODES_MAX or brokers < 1 or controllers < 1:
        raise ConfigError(f"a cluster has at least one of both, and {NODES_MAX} nodes at most")
    nursery = shared_nursery()
    place = directory or tempfile.mkdtemp(prefix="kraftpy-test-")
    if directory is None:
        nursery.remove_at_the_end(place)
    else:
        os.makedirs(place, exist_ok=True)
    try:
        with _nodes(nursery, place, brokers, controllers, given, timeout_s, ports) as cluster:
            yield cluster
            if directory is not None:
                cluster.stop_all()
    finally:
        if directory is None:
            shutil.rmtree(place, ignore_errors=True)
            if nursery.is_alive:
                nursery.keep(place)


@contextlib.contextmanager
def _nodes(
    nursery: Nursery,
    directory: str,
    brokers: int,
    controllers: int,
    settings: dict[str, str],
    timeout_s: float,
    ports: Mapping[int, int] | None,
) -> Iterator[Cluster]:
    """Nodes that are ready. Somebody else may take a port at any moment: then others are tried."""
    for attempt in range(_START_ATTEMPTS):
        cluster = Cluster(
            nursery,
            brokers=brokers,
            controllers=controllers,
            settings=settings,
            directory=directory,
            timeout_s=timeout_s,
            ports=ports if attempt == 0 else None,
        )
        try:
            try:
                cluster.start_all()
            except ClusterFailed as error:
                if _TAKEN not in str(error) or attempt == _START_ATTEMPTS - 1:
                    raise
                continue
            yield cluster
            return
        finally:
            if nursery.is_alive:
                cluster.kill_all()


def _checked(settings: Mapping[str, object]) -> dict[str, str]:
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
    for key in sorted(_NODES_OWN & texts.keys()):
        raise ConfigError(f"{key} differs from node to node, so the cluster sets it itself")
    resolve([Given(key, text, "settings") for key, text in texts.items()], [], [])
    return texts


def _replication(brokers: int) -> dict[str, str]:
    known = {setting.key for setting in SETTINGS}
    return {key: str(min(brokers, 3)) for key in _REPLICATED if key in known}


def _ended(member: Member) -> bool:
    return member.exit_code is not None
