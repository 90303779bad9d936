"""deploy/ agrees with kraftpy and with itself, and a planted mistake in each file is caught."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraftpy import __version__
from kraftpy.admin.metrics import MEANINGS
from kraftpy.config import SETTINGS
from tests.unit import deploy_checks as checks

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTROLLERS, BROKERS = "kubernetes/controllers.yaml", "kubernetes/brokers.yaml"
PAGES = ("deploy/README.md", "docs/operations.md", "docs/failure-guide.md")
SETS = re.compile(r"--set ([a-z][\w.-]*)=|^([a-z][\w-]*\.[\w.-]+) = ", re.MULTILINE)
METRIC = re.compile(r"\b(?:kafka_(?:server|controller|network)|kraftpy)_[a-z_]+\b")
Edit = Callable[[str], str]


class Deployment:
    """The files of deploy/, with one of them changed if `edit` says so."""

    def __init__(self, tmp_path: Path, name: str = "", edit: Edit | None = None) -> None:
        self._tmp_path = tmp_path
        self._name = name
        self._edit = edit
        self.secret = tmp_path / "secret"
        self.secret.write_text("it is a secret\n")

    def text(self, name: str) -> str:
        text = (DEPLOY / name).read_text(encoding="utf-8")
        if self._edit is None or name != self._name:
            return text
        edited = self._edit(text)
        assert edited != text, "the planted mistake is not in the file"
        return edited

    def yaml(self, name: str) -> Any:
        (document,) = self.documents(name)
        return document

    def documents(self, name: str) -> list[Any]:
        return list(yaml.load_all(self.text(name), Loader=yaml.CSafeLoader))

    def complaints(self) -> Iterator[str]:
        """All that is wrong in the files that have to do with the changed one, or in all."""
        groups = {
            ("compose.yaml", "prometheus/prometheus.yml"): self._compose,
            (CONTROLLERS, BROKERS): self._kubernetes,
            ("systemd",): self._units,
            ("prometheus/alerts.yml", "grafana"): self._monitoring,
            ("Dockerfile",): self._image,
        }
        for names, complaints in groups.items():
            if not self._name or self._name.startswith(names):
                yield from complaints()

    def _compose(self) -> Iterator[str]:
        compose = self.yaml("compose.yaml")
        nodes = checks.compose_nodes(compose)
        yield from checks.cluster_complaints(nodes, self.secret)
        yield from checks.compose_complaints(compose)
        yield from checks.scrape_complaints(self.yaml("prometheus/prometheus.yml"), nodes)

    def _kubernetes(self) -> Iterator[str]:
        documents = [*self.documents(CONTROLLERS), *self.documents(BROKERS)]
        pods = checks.kubernetes_nodes(documents, self._tmp_path)
        yield from checks.cluster_complaints(pods, self.secret)
        yield from checks.kubernetes_complaints(documents)

    def _units(self) -> Iterator[str]:
        for name in ("quorum", "broker"):
            (self._tmp_path / f"{name}.toml").write_text(self.text(f"systemd/{name}.toml"))
            unit = self.text(f"systemd/kraftpy-{name}.service")
            yield from checks.unit_complaints(unit)
            started = checks.start(checks.unit_node(unit, self._tmp_path), self.secret)
            if isinstance(started, str):
                yield started

    def _monitoring(self) -> Iterator[str]:
        dashboard = json.loads(self.text("grafana/kraftpy.json"))
        alerts = self.yaml("prometheus/alerts.yml")
        yield from checks.metric_complaints(checks.alert_expressions(alerts))
        yield from checks.metric_complaints(checks.dashboard_expressions(dashboard))
        yield from checks.dashboard_complaints(dashboard)

    def _image(self) -> Iterator[str]:
        yield from checks.image_complaints(self.text("Dockerfile"), __version__, ROOT)


def test_deploy_agrees_with_kraftpy_and_with_itself(tmp_path: Path) -> None:
    assert list(Deployment(tmp_path).complaints()) == []


def swap(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new, 1)


def drop(line: str) -> Edit:
    return lambda text: re.sub(rf"^.*{line}.*\n", "", text, count=1, flags=re.MULTILINE)


# (file, what is done to it, what is said of it).
PLANTED: list[tuple[str, Edit, str]] = [
    ("compose.yaml", swap("KRAFTPY_MIN_INSYNC_REPLICAS", "KRAFTPY_MIN_ISR"), "sets nothing"),
    ("compose.yaml", swap('MIN_INSYNC_REPLICAS: "2"', 'MIN_INSYNC_REPLICAS: "two"'), "two"),
    ("compose.yaml", swap('["quorum"]', '["quorum", "--voter", "x"]'), "--voter"),
    ("compose.yaml", swap('["broker"]', '["brokr"]'), "brokr"),
    ("compose.yaml", drop("KRAFTPY_QUORUM_AUTH_SECRET_FILE"), "quorum.auth.secret"),
    ("compose.yaml", drop("ADVERTISED_LISTENERS: broker-102"), "advertised.listeners"),
    (
        "compose.yaml",
        swap("RS: broker-102:", "RS: broker-101:"),
        "102",
    ),
    ("compose.yaml", swap("3@controller-3:9093", "3@controller-3:9095"), "is no controller here"),
    ("compose.yaml", swap(",3@controller-3:9093", ""), "not among the voters"),
    (
        "compose.yaml",
        swap("SERVERS: controller-1", "SERVERS: controller-4"),
        "is no controller here",
    ),
    ("compose.yaml", swap('NODE_ID: "102"', 'NODE_ID: "101"'), "101 is given twice"),
    ("compose.yaml", swap(":9644/readyz", ":9645/readyz"), "health is not asked"),
    ("compose.yaml", swap("/readyz", "/ready"), "nobody answers /ready"),
    ("compose.yaml", swap("9094:9094", "9094:9095"), "nobody listens there"),
    ("compose.yaml", swap("/run/secrets/quorum-secret", "/run/secrets/other"), "is not mounted"),
    ("compose.yaml", swap("  broker-103:\n  prom", "  prom"), "volume broker-103 is not declared"),
    (CONTROLLERS, swap("replicas: 3", "replicas: 2"), "is no controller here"),
    (CONTROLLERS, swap("Parallel", "OrderedReady"), "wait for a majority"),
    (CONTROLLERS, drop("enableServiceLinks"), "taken for settings"),
    (CONTROLLERS, swap("+ 1 ))", "+ 2 ))"), "not among the voters"),
    (
        CONTROLLERS,
        swap("{name: quorum-secret, m", "{name: secret, m"),
        "no volume",
    ),
    (CONTROLLERS, swap("/healthz", "/health"), "nobody answers /health"),
    (BROKERS, swap("+ 101 ))", "+ 1 ))"), "is given twice"),
    (BROKERS, swap("$HOSTNAME.kraftpy-broker.", "$HOSTNAME."), "advertises"),
    (
        BROKERS,
        swap("/readyz, port: admin", "/readyz, port: kafka"),
        "does not ask",
    ),
    (
        BROKERS,
        swap("value: /var/lib/kraftpy/data", "value: /data"),
        "on no volume",
    ),
    (
        BROKERS,
        swap("broker}\n  ports", "b}\n  ports"),
        "no pods",
    ),
    (BROKERS, swap("--advertise", "--advertised"), "--advertised"),
    ("systemd/kraftpy-quorum.service", drop("LoadCredential"), "is not loaded"),
    ("systemd/kraftpy-quorum.service", swap("kraftpy quorum", "kraftpy controller"), "controller"),
    ("systemd/kraftpy-broker.service", drop("RestartPrevent"), "again and again"),
    ("systemd/quorum.toml", swap("data.dir", "data.directory"), "data.directory"),
    ("systemd/broker.toml", drop("^advertised.listeners"), "advertised.listeners"),
    ("prometheus/prometheus.yml", swap('"broker-101:9644"', '"broker-101:9092"'), "not scraped"),
    ("prometheus/alerts.yml", swap("offlinepartitionscount", "offlinepartitions"), "no metric"),
    ("grafana/kraftpy.json", swap("messagesin_total", "messages_total"), "there is no metric"),
    ("grafana/kraftpy.json", swap("rate(kafka_server_broker", "avg(kafka_server_broker"), "rate"),
    ("grafana/kraftpy.json", swap('"x": 8', '"x": 7'), "lies over another"),
    ("grafana/kraftpy.json", swap('"id": 2,', '"id": 1,'), "the same id"),
    ("Dockerfile", swap("--require-hashes ", ""), "hashes"),
    ("Dockerfile", drop("USER 10001"), "runs as root"),
    ("Dockerfile", swap(f"kraftpy-{__version__}", "kraftpy-9.9.9"), "another version"),
    ("Dockerfile", swap("requirements/runtime.lock r", "requirements/run.lock r"), "there is no"),
    ("Dockerfile", swap("VOLUME /var", "VOLUME /srv"), "no volume"),
]


@pytest.mark.parametrize(("name", "edit", "said"), PLANTED)
def test_a_planted_mistake_is_caught(name: str, edit: Edit, said: str, tmp_path: Path) -> None:
    found = list(Deployment(tmp_path, name, edit).complaints())
    assert [each for each in found if said in each], found


def test_every_version_of_the_image_is_this_one() -> None:
    told = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    assert [each["newTag"] for each in told["images"]] == [__version__]
    for name in ("compose.yaml", "Dockerfile"):
        tags = re.findall(r"\bkraftpy:(\S+)", (DEPLOY / name).read_text())
        assert set(tags) == {__version__}


def unknown_names(text: str) -> set[str]:
    """Settings and metrics that a page speaks of and that do not exist."""
    told = {name for pair in SETS.findall(text) for name in pair if name}
    return (told - {setting.key for setting in SETTINGS}) | (
        set(METRIC.findall(text)) - set(MEANINGS)
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_page_speaks_of_settings_and_metrics_that_exist(page: str) -> None:
    assert unknown_names((ROOT / page).read_text(encoding="utf-8")) == set()


def test_a_page_that_speaks_of_others_is_seen() -> None:
    text = "kraftpy broker --set a.b=1\nc.d = 2\nlook at kraftpy_cluster_trouble"
    assert unknown_names(text) == {"a.b", "c.d", "kraftpy_cluster_trouble"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    units = []
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        unit = tmp_path / path.name
        unit.write_text(path.read_text().replace("/opt/kraftpy/bin/kraftpy", "/bin/true"))
        units.append(str(unit))
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "kraftpy" in line] == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kustomize_puts_the_manifests_together() -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = list(yaml.safe_load_all(done.stdout))
    assert {each["metadata"]["namespace"] for each in made} == {"kraftpy"}
    assert f"image: kraftpy:{__version__}" in done.stdout
