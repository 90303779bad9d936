"""Takes the pictures of docs/pictures: real clusters, real faults, a real browser and terminal.

    dashboard.png   a broker of three is killed, as an admin listener's page shows it
    dev.svg         the same in the live table of `kraftpy dev --controllers 3 --brokers 3`

`make pictures` runs it. It needs Chromium and tmux, writes nothing but the two files, and leaves no
process behind.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.text import Text

from tests.e2e import browser
from tests.e2e.cluster_processes import ClusterProcesses

PLACE = Path(__file__).parent / "pictures"
KRAFTPY = Path(sys.executable).parent / "kraftpy"
TOPICS = {"clicks": 12, "orders": 6, "payments": 6}
VICTIM = 102
PATIENCE_S = 120.0
WIDTH, HEIGHT = 110, 30
TROUBLE = (
    "[...document.querySelectorAll('.tile')].some(t => "
    "t.innerText.includes('under-replicated') && t.querySelector('b').innerText !== '0')"
)
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def until(condition: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{why}, after {PATIENCE_S:.0f} s")
        time.sleep(0.2)


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, n, 3) for name, n in TOPICS.items()])
    for future in made.values():
        future.result(PATIENCE_S)


class Load:
    """A producer that goes on through the fault; what is not acknowledged is tried again."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0}
        self._producer = Producer(settings)

    def send(self, count: int) -> None:
        names = sorted(TOPICS)
        for number in range(count):
            self._producer.produce(names[number % len(names)], b"x" * 200, str(number))
        self._producer.poll(0)


# -- the dashboard ------------------------------------------------------------------------------


def take_dashboard(path: Path) -> None:
    """A broker dies under a producer."""
    with tempfile.TemporaryDirectory(prefix="kraftpy-pictures-") as directory:
        sooner = ("broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500")
        more = [word for each in sooner for word in ("--set", each)]
        cluster = ClusterProcesses(directory, 3, 3, *more)
        try:
            cluster.start()
            for node in cluster.brokers:
                until(partial(_is_running, cluster, node), f"broker {node} does not run")
            asyncio.run(_photograph(cluster, path))
        finally:
            cluster.stop_in_order()


def _output(cluster: ClusterProcesses, node: int) -> str:
    return (Path(cluster.directory) / f"{node}.log").read_text(errors="replace")


def _is_running(cluster: ClusterProcesses, node: int) -> bool:
    return "now=RUNNING" in _output(cluster, node)


async def _photograph(cluster: ClusterProcesses, path: Path) -> None:
    await asyncio.to_thread(make_topics, cluster.bootstrap)
    load = Load(cluster.bootstrap)
    found = re.search(r"dashboard +(http://\S+)", _output(cluster, 1))
    assert found is not None
    async with browser.page(1280, 1340) as page:
        await page.open(found[1])
        await page.until("document.querySelectorAll('.tile').length > 3")
        for second in range(12):  # So that the lines over time have something to show.
            load.send(300)
            if second == 6:
                cluster.kill(VICTIM)
            await asyncio.sleep(1)
        await page.until(TROUBLE)
        load.send(300)
        await asyncio.sleep(2)
        await page.picture(path)


# -- the live table -----------------------------------------------------------------------------


class Terminal:
    """A tmux of our own, with one command in it."""

    def __init__(self, directory: str, command: str) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", f"{directory}/tmux"]
        self._call("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), command)

    def _call(self, *arguments: str) -> str:
        command = [*self._tmux, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def screen(self) -> str:
        """What it shows, with its colours."""
        return self._call("capture-pane", "-e", "-p")

    def shows(self, text: str) -> bool:
        return text in Text.from_ansi(self.screen()).plain

    def press(self, *keys: str) -> None:
        self._call("send-keys", *keys)

    @property
    def is_there(self) -> bool:
        command = [*self._tmux, "has-session"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def developing() -> Iterator[Terminal]:
    """`kraftpy dev` on a terminal; it is asked to stop at the end."""
    with tempfile.TemporaryDirectory(prefix="kraftpy-pictures-") as directory:
        terminal = Terminal(directory, f"{KRAFTPY} dev --controllers 3 --brokers 3 2>/dev/null")
        try:
            yield terminal
        finally:
            if terminal.is_there:
                terminal.press("q")
            until(lambda: not terminal.is_there, "kraftpy dev does not stop")


def take_dev(path: Path) -> None:
    """A broker is chosen and killed by keys."""
    with developing() as terminal:
        until(lambda: terminal.shows("records/s"), "there is no table")
        plain = Text.from_ansi(terminal.screen()).plain
        bootstrap = ",".join(re.findall(r"broker .*?(127\.0\.0\.1:\d+)", plain))
        make_topics(bootstrap)
        load = Load(bootstrap)
        until(lambda: terminal.shows("orders-0"), "the topics are not shown")
        terminal.press("Down")
        load.send(3000)
        time.sleep(2)
        terminal.press("k")

        def moved() -> bool:
            load.send(600)
            return terminal.shows(f"leader {VICTIM} ->")

        until(moved, "no leader moves")
        for _ in range(15):  # So that there is a rate to show.
            load.send(60)
            time.sleep(0.2)
        path.write_text(drawn(terminal.screen()), encoding="utf-8")


def drawn(screen: str) -> str:
    """A screen as SVG that asks no other host for a font."""
    with open("/dev/null", "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(screen.rstrip("\n")))
    svg = console.export_svg(title="kraftpy dev --controllers 3 --brokers 3", unique_id="dev")
    return FONT_FACES.sub("", svg).replace("Fira Code, monospace", "ui-monospace, monospace")


def main() -> None:
    for missing in [name for name in ("tmux", "chromium") if shutil.which(name) is None]:
        raise SystemExit(f"make pictures needs {missing}, which is not installed")
    PLACE.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or ["dev", "dashboard"]
    if "dev" in wanted:
        take_dev(PLACE / "dev.svg")
    if "dashboard" in wanted:
        take_dashboard(PLACE / "dashboard.png")


if __name__ == "__main__":
    main()
