"""What deploy/ must agree with: commands, settings, addresses, probes, metrics. Each check is a
function from parsed files to complaints, so that a test can plant a mistake in each.

A node's command line and environment go through kraftpy's own command, up to the moment where it
would run: whatever kraftpy would refuse is a complaint.
"""

import inspect
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kraftpy.admin.metrics import MEANINGS
from kraftpy.admin.server import AdminServer
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.cli import broker, main, quorum
from kraftpy.quorum.node_config import NodeConfig

Config = NodeConfig | BrokerConfig
Yaml = Mapping[str, Any]
SECRET_FILE = "KRAFTPY_QUORUM_AUTH_SECRET_FILE"
_METRIC = re.compile(r"\b(?:kafka|kraftpy)_\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node that a file starts."""

    name: str
    hosts: frozenset[str]  # The names that others know it by.
    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What kraftpy made of a node."""

    node: Node
    config: Config
    admin: str

    @property
    def node_id(self) -> int:
        config = self.config
        return config.node_id if isinstance(config, NodeConfig) else config.broker_id

    @property
    def listens_at(self) -> tuple[str, int]:
        config = self.config
        if isinstance(config, NodeConfig):
            return config.host, config.port
        return config.listen.host, config.listen.port


def start(node: Node, secret: Path) -> Started | str:
    """Go as far as kraftpy goes before it runs; what it refuses is told in its words."""
    seen: list[tuple[Config, str]] = []
    refused: list[str] = []

    async def serve(config: Config, admin: str) -> None:
        seen.append((config, admin))

    def run(awaited: Any) -> None:
        try:
            awaited.send(None)
        except StopIteration:
            return

    environment = {**node.environment}
    if SECRET_FILE in environment:
        environment[SECRET_FILE] = str(secret)
    with ExitStack() as patches:
        for module in (quorum, broker):
            patches.enter_context(patch.object(module, "serve", serve))
            patches.enter_context(patch.object(module, "run", run))
        patches.enter_context(patch("kraftpy.cli.settings.configure_logging"))
        patches.enter_context(patch.object(main, "_refuse", _note(refused)))
        patches.enter_context(patch.dict(os.environ, environment))
        main.run(node.arguments)
    if refused or not seen:
        return f"{node.name}: {' '.join(refused) or 'runs neither a controller nor a broker'}"
    config, admin = seen[0]
    return Started(node=node, config=config, admin=admin)


def _note(refused: list[str]) -> Any:
    def note(message: str, code: int) -> int:
        refused.append(message)
        return code

    return note


# -- what files start ---------------------------------------------------------------------------


def compose_nodes(compose: Yaml) -> list[Node]:
    """The services that run our image."""
    return [
        Node(
            name=name,
            hosts=frozenset({name}),
            arguments=service["command"],
            environment=service["environment"],
        )
        for name, service in compose["services"].items()
        if service["image"].startswith("kraftpy")
    ]


def kubernetes_nodes(documents: Sequence[Yaml], bin_directory: Path) -> list[Node]:
    """The pods of all StatefulSets; a shell works their command lines out."""
    script = bin_directory / "kraftpy"
    script.write_text('#!/bin/sh\nfor each; do printf "%s\\n" "$each"; done\n')
    script.chmod(0o755)
    found = []
    for each in documents:
        if each["kind"] != "StatefulSet":
            continue
        (container,) = each["spec"]["template"]["spec"]["containers"]
        environment = {row["name"]: row["value"] for row in container["env"] if "value" in row}
        for ordinal in range(each["spec"]["replicas"]):
            pod, service = f"{each['metadata']['name']}-{ordinal}", each["spec"]["serviceName"]
            path = f"{bin_directory}:{os.environ['PATH']}"
            given = {"PATH": path, "HOSTNAME": pod, "NAMESPACE": "kraftpy", **environment}
            done = subprocess.run(
                container["command"], env=given, capture_output=True, text=True, check=True
            )
            hosts = {f"{pod}.{service}", f"{pod}.{service}.kraftpy.svc"}
            found.append(
                Node(
                    name=pod,
                    hosts=frozenset(hosts),
                    arguments=done.stdout.splitlines(),
                    environment=environment,
                )
            )
    return found


def unit_settings(unit: str) -> dict[str, list[str]]:
    """A systemd unit's assignments, by name."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def unit_node(unit: str, directory: Path) -> Node:
    """What a systemd unit starts, with its config file from deploy/systemd."""
    settings = unit_settings(unit)
    command = settings["ExecStart"][0].replace("/etc/kraftpy", str(directory))
    environment = dict(each.split("=", 1) for each in settings.get("Environment", []))
    _, *arguments = shlex.split(command)
    name = arguments[0]
    return Node(name=name, hosts=frozenset(), arguments=arguments, environment=environment)


# -- what must hold of them ---------------------------------------------------------------------


def cluster_complaints(nodes: Sequence[Node], secret: Path) -> Iterator[str]:
    """Every node starts, has a number of its own, and is where the others look for it."""
    tried = [start(node, secret) for node in nodes]
    yield from (each for each in tried if isinstance(each, str))
    started = [each for each in tried if isinstance(each, Started)]
    numbers = [each.node_id for each in started]
    for number in sorted({n for n in numbers if numbers.count(n) > 1}):
        yield f"node.id {number} is given twice"
    controllers = {
        (host, each.listens_at[1]): each.node_id
        for each in started
        if isinstance(each.config, NodeConfig)
        for host in each.node.hosts
    }
    for each in started:
        if isinstance(each.config, NodeConfig):
            yield from _voter_complaints(each, each.config, controllers)
        else:
            yield from _broker_complaints(each, each.config, controllers)


def _voter_complaints(
    started: Started, config: NodeConfig, controllers: Mapping[tuple[str, int], int]
) -> Iterator[str]:
    for voter in config.voters:
        if controllers.get((voter.host, voter.port)) != voter.node_id:
            yield f"{started.node.name}: voter {voter} is no controller here"
    if len(config.voters) != len(set(controllers.values())):
        yield f"{started.node.name}: knows {len(config.voters)} voters"


def _broker_complaints(
    started: Started, config: BrokerConfig, controllers: Mapping[tuple[str, int], int]
) -> Iterator[str]:
    for place in config.controllers:
        if (place.host, place.port) not in controllers:
            yield f"{started.node.name}: {place} is no controller here"
    told = config.advertised or config.listen
    if told.host not in started.node.hosts or told.port != config.listen.port:
        yield f"{started.node.name}: advertises {told}, and nobody listens there"


def admin_paths() -> set[str]:
    """What an admin listener answers."""
    return set(re.findall(r'web\.get\("(/\w*)"', inspect.getsource(AdminServer)))


def compose_complaints(compose: Yaml) -> Iterator[str]:
    """Health is asked where it is answered; ports, volumes and secrets are those that exist."""
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith(".") and source not in compose["volumes"]:
                yield f"{name}: volume {source} is not declared"
        for secret in service.get("secrets", []):
            if secret not in compose["secrets"]:
                yield f"{name}: secret {secret} is not declared"
        if not service["image"].startswith("kraftpy"):
            continue
        admin = service["environment"]["KRAFTPY_ADMIN_LISTENERS"]
        yield from _health_complaints(name, " ".join(service["healthcheck"]["test"]), admin)
        listens = service["environment"]["KRAFTPY_LISTENERS"].rpartition(":")[2]
        for port in service.get("ports", []):
            if port.rpartition(":")[2] not in (listens, admin.rpartition(":")[2]):
                yield f"{name}: publishes {port}, and nobody listens there"
        secret_file = service["environment"].get(SECRET_FILE)
        mounted = [f"/run/secrets/{each}" for each in service.get("secrets", [])]
        if secret_file is not None and secret_file not in mounted:
            yield f"{name}: {secret_file} is not mounted"


def _health_complaints(name: str, test: str, admin: str) -> Iterator[str]:
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", test)
    if found is None or found[1] != admin.rpartition(":")[2]:
        yield f"{name}: health is not asked at {admin}"
    elif found[2] not in admin_paths():
        yield f"{name}: nobody answers {found[2]}"


def kubernetes_complaints(documents: Sequence[Yaml]) -> Iterator[str]:
    """Services and budgets choose pods, probes reach them, what is mounted is there."""
    sets = [each for each in documents if each["kind"] == "StatefulSet"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in sets]
    services = {each["metadata"]["name"] for each in documents if each["kind"] == "Service"}
    for each in documents:
        name = f"{each['kind']} {each['metadata']['name']}"
        selector = each["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        if not any(selector.items() <= pods.items() for pods in labels):
            yield f"{name}: chooses no pods"
    for each in sets:
        yield from _set_complaints(each, services)


def _set_complaints(stateful: Yaml, services: set[str]) -> Iterator[str]:
    name, spec = stateful["metadata"]["name"], stateful["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    if spec["serviceName"] not in services:
        yield f"{name}: there is no service {spec['serviceName']}"
    if spec.get("podManagementPolicy") != "Parallel":
        yield f"{name}: the first pod would wait for a majority that is not started"
    if pod.get("enableServiceLinks", True):
        yield f"{name}: variables of services would be taken for settings"
    volumes = {each["name"] for each in pod.get("volumes", [])}
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    for volume in sorted(mounts.keys() - volumes):
        yield f"{name}: there is no volume {volume}"
    environment = {row["name"]: row.get("value", "") for row in container["env"]}
    for key in (SECRET_FILE, "KRAFTPY_DATA_DIR"):
        path = environment.get(key)
        if path is not None and not any(path.startswith(f"{m}/") for m in mounts.values()):
            yield f"{name}: {key} is on no volume"
    yield from _port_complaints(name, container, environment)


def _port_complaints(name: str, container: Yaml, environment: Mapping[str, str]) -> Iterator[str]:
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for key in ("KRAFTPY_LISTENERS", "KRAFTPY_ADMIN_LISTENERS"):
        if int(environment[key].rpartition(":")[2]) not in ports.values():
            yield f"{name}: {key} is at no port of the container"
    admin = int(environment["KRAFTPY_ADMIN_LISTENERS"].rpartition(":")[2])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container.get(probe, {}).get("httpGet")
        if asked is None:
            continue
        if ports.get(asked["port"]) != admin:
            yield f"{name}: {probe} does not ask the admin listener"
        if asked["path"] not in admin_paths():
            yield f"{name}: nobody answers {asked['path']}"


def unit_complaints(unit: str) -> Iterator[str]:
    """A unit hands the secret on that it loads, and gives up where a person must act."""
    settings = unit_settings(unit)
    loaded = {each.split(":")[0] for each in settings.get("LoadCredential", [])}
    for assignment in settings.get("Environment", []):
        path = assignment.partition("=")[2]
        if path.startswith("%d/") and path.removeprefix("%d/") not in loaded:
            yield f"{assignment} is not loaded"
    if settings.get("RestartPreventExitStatus") != ["2"]:
        yield "a wrong setting would be tried again and again"
    if settings.get("ProtectSystem") != ["strict"]:
        yield "the whole system is open to it"


def scrape_complaints(prometheus: Yaml, nodes: Sequence[Node]) -> Iterator[str]:
    """Every node is scraped, where it answers."""
    wanted = {
        f"{node.name}:{node.environment['KRAFTPY_ADMIN_LISTENERS'].rpartition(':')[2]}"
        for node in nodes
    }
    found = {
        target
        for job in prometheus["scrape_configs"]
        for row in job["static_configs"]
        for target in row["targets"]
    }
    for target in sorted(wanted ^ found):
        yield f"{target} is {'not scraped' if target in wanted else 'no node'}"


def metric_complaints(expressions: Sequence[str]) -> Iterator[str]:
    """Only metrics that exist are asked for; counters by their rate."""
    if not expressions:
        yield "no metric is asked for"
    for expression in expressions:
        names = _METRIC.findall(expression)
        if not names and "up{" not in expression:
            yield f"asks for nothing: {expression}"
        for name in names:
            if name not in MEANINGS:
                yield f"there is no metric {name}"
            elif name.endswith("_total") and f"rate({name}" not in expression:
                yield f"{name} only grows: ask for its rate"


def dashboard_complaints(dashboard: Yaml) -> Iterator[str]:
    """Panels have numbers of their own, places on the grid, and do not overlap."""
    panels = dashboard["panels"]
    numbers = [panel["id"] for panel in panels]
    if len(set(numbers)) != len(numbers):
        yield "two panels have the same id"
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if max(x for x, _ in cells) >= 24:
            yield f"{panel['title']}: wider than the page"
        if cells & taken:
            yield f"{panel['title']}: lies over another panel"
        taken |= cells


def dashboard_expressions(dashboard: Yaml) -> list[str]:
    return [row["expr"] for panel in dashboard["panels"] for row in panel.get("targets", [])]


def alert_expressions(alerts: Yaml) -> list[str]:
    return [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]


# -- the image ----------------------------------------------------------------------------------


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """A Dockerfile as (instruction, rest), without comments, with lines joined."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (a.upper(), b.strip()) for a, _, b in (x.partition(" ") for x in joined.split("\n")) if a
    ]


def image_complaints(dockerfile: str, version: str, root: Path) -> Iterator[str]:
    """It is built from the lock, copies what is there, and runs as nobody special."""
    found = instructions(dockerfile)
    last = max(n for n, (what, _) in enumerate(found) if what == "FROM")
    runs = [rest for what, rest in found if what == "RUN"]
    for run in runs:
        if "pip install" in run and "--require-hashes" not in run and "--no-deps" not in run:
            yield f"not checked against hashes: {run}"
        if "pip install" in run and ".whl" in run and f"kraftpy-{version}-py3" not in run:
            yield f"installs another version than {version}: {run}"
    for what, rest in found:
        if what == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            yield from (f"there is no {each}" for each in sources if not (root / each).exists())
    users = [rest for what, rest in found[last:] if what == "USER"]
    if not users or users[-1].split(":")[0] in ("0", "root"):
        yield "runs as root"
    data = re.search(r"KRAFTPY_DATA_DIR=(\S+)", dockerfile)
    if data is None or ("VOLUME", data[1]) not in found[last:]:
        yield "its data is in no volume"
