"""`kraftpy dev --controllers 3 --brokers 3`: a supervised cluster, and faults at a keystroke.

On a terminal a table redraws in place. Elsewhere every change is a line, and what the keys do is
done by lines of input: `kill 102`. Faults run one after the other in a thread, so that the table
goes on while a node takes its time.
"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kraftpy import __version__
from kraftpy.cli.cluster_view import Sight, changes, most_worrying, node_rows
from kraftpy.cli.cluster_watch import ClusterWatch
from kraftpy.cli.dev_table import cluster_table
from kraftpy.cli.signals import watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import SETTINGS, Settings
from kraftpy.errors import ConfigError, KraftError
from kraftpy.testing import Cluster, ClusterFailed, kraftpy_cluster
from kraftpy.testing.cluster import FIRST_BROKER
from kraftpy.testing.nursery import close_shared_nursery

_LOOK_EVERY_S: Final = 0.5
_STOP_S: Final = 15.0
_HAPPENED_SHOWN: Final = 6
_LINES_BESIDE_PARTITIONS: Final = 8
_BROKER_PORT: Final = 9092  # Brokers at even ports from here, controllers at odd ones.
_CONTROLLER_PORT: Final = 9093
_READ_BYTES: Final = 4096
_UP, _DOWN = "\x1b[A", "\x1b[B"
_ACTIONS: Final = {
    "k": "kill",
    "p": "pause",
    "c": "resume",
    "r": "restart",
    "s": "stop",
    "x": "isolate",
    "h": "heal",
}
_NOT_FOR_NODES: Final = {"logging.format", "logging.level", "data.dir"}


async def serve_cluster(settings: Settings, controllers: int, brokers: int) -> None:
    """Start the nodes, show them, and wait for a signal or `q`."""
    stopped = watch_stop_signals()
    async with _started(settings, controllers, brokers, stopped) as cluster:
        supervisor = Supervisor(cluster)
        quitting = asyncio.ensure_future(stopped.get())
        quitting.add_done_callback(lambda _: supervisor.quit())
        try:
            await supervisor.run()
        finally:
            quitting.cancel()
            await supervisor.close()
        click.echo("stopping ...")
        await asyncio.to_thread(_stop, cluster)


@contextlib.asynccontextmanager
async def _started(
    settings: Settings, controllers: int, brokers: int, stopped: "asyncio.Queue[signal.Signals]"
) -> AsyncIterator[Cluster]:
    ports = {FIRST_BROKER + n: _BROKER_PORT + 2 * n for n in range(brokers)}
    ports |= {1 + n: _CONTROLLER_PORT + 2 * n for n in range(controllers)}
    context = kraftpy_cluster(
        brokers=brokers,
        controllers=controllers,
        settings=_given(settings),
        directory=os.path.abspath(os.path.expanduser(settings.data_dir))
        if settings.data_dir
        else None,
        ports=ports,
    )
    click.echo(f"starting {controllers} controllers and {brokers} brokers ...")
    starting = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    interrupted = asyncio.ensure_future(stopped.get())
    await asyncio.wait([starting, interrupted], return_when=asyncio.FIRST_COMPLETED)
    if interrupted.done():
        await asyncio.to_thread(close_shared_nursery)
        await asyncio.gather(starting, return_exceptions=True)
        raise KeyboardInterrupt
    interrupted.cancel()
    cluster = await starting
    cluster.timeout_s = _STOP_S
    try:
        yield cluster
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
        await asyncio.to_thread(close_shared_nursery)


def _given(settings: Settings) -> dict[str, object]:
    """What the user has set, for all nodes."""
    return {
        row.key: value
        for row in SETTINGS
        if row.key not in _NOT_FOR_NODES
        and (value := getattr(settings, row.attribute)) != row.default
    }


def _stop(cluster: Cluster) -> None:
    try:
        cluster.stop_all()
    except ClusterFailed:
        cluster.kill_all()  # Without a majority of controllers nobody can hand anything over.


class Supervisor:
    """Looks, draws, and does what it is told."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watch = ClusterWatch(cluster, SystemClock())
        self._before: Sight | None = None
        self._sight: Sight | None = None
        self._chosen = cluster.brokers[0]
        self._happened: deque[str] = deque(maxlen=_HAPPENED_SHOWN)
        self._orders: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self._is_over = asyncio.Event()
        self._changed = asyncio.Event()
        self._say: Callable[[str], None] = self._happened.append

    def quit(self) -> None:
        self._is_over.set()
        self._changed.set()

    async def close(self) -> None:
        await self._watch.close()

    async def run(self) -> None:
        """Until `quit`."""
        obeying = asyncio.ensure_future(self._obey())
        try:
            if sys.stdin.isatty() and sys.stdout.isatty():
                await self._on_a_terminal()
            else:
                await self._in_lines()
        finally:
            obeying.cancel()
            await asyncio.gather(obeying, return_exceptions=True)

    # -- two ways to show it ------------------------------------------------------------------

    async def _on_a_terminal(self) -> None:
        console = Console()
        with (
            _keys(self._key),
            Live(Text("looking ..."), console=console, auto_refresh=False) as live,
        ):
            while not self._is_over.is_set():
                await self._look()
                live.update(self._table(console.height), refresh=True)
                while self._changed.is_set() and not self._is_over.is_set():
                    self._changed.clear()  # A key: show at once what it chose.
                    live.update(self._table(console.height), refresh=True)
                await self._pause()

    async def _in_lines(self) -> None:
        self._say = click.echo
        click.echo(self.describe())
        with _lines(self._line):
            while not self._is_over.is_set():
                await self._look()
                await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._changed.wait()

    async def _look(self) -> None:
        self._changed.clear()
        sight = await self._watch.look()
        for line in changes(self._sight, sight):
            self._say(line)
        self._before, self._sight = self._sight, sight

    def _table(self, height: int) -> Group:
        assert self._sight is not None
        cluster, sight = self._cluster, self._sight
        room = max(height - len(cluster.nodes) - len(self._happened) - _LINES_BESIDE_PARTITIONS, 1)
        partitions = most_worrying(sight.partitions, room)
        head = f"kraftpy {__version__}   clients connect to {cluster.bootstrap_servers}"
        if sight.active_controller is not None:
            head += f"   epoch {sight.epoch}"
        return cluster_table(
            head,
            node_rows(cluster.controllers, cluster.brokers, self._before, sight),
            {n: (cluster.address(n), self._pid(n)) for n in cluster.nodes},
            cluster.cut_off,
            self._chosen,
            partitions,
            len(sight.partitions) - len(partitions),
            list(self._happened),
        )

    def _pid(self, node: int) -> int | None:
        return self._cluster.pid(node) if self._cluster.is_running(node) else None

    def describe(self) -> str:
        """What somebody who reads lines wants to know."""
        cluster = self._cluster
        nodes = [f"  node {n:<4} at {cluster.address(n)}" for n in cluster.nodes]
        return "\n".join(
            (
                f"kraftpy {__version__}",
                *nodes,
                f"Point Kafka clients at {cluster.bootstrap_servers}",
                "Type kill, pause, resume, restart, stop or isolate and a node; heal; or quit.",
                "Press Ctrl-C to stop.",
            )
        )

    # -- orders -------------------------------------------------------------------------------

    def _key(self, key: str) -> None:
        nodes = self._cluster.nodes
        if key == "q":
            self.quit()
        elif key in (_UP, _DOWN):
            at = nodes.index(self._chosen) + (1 if key == _DOWN else -1)
            self._chosen = nodes[at % len(nodes)]
        elif key in _ACTIONS:
            self._orders.put_nowait((_ACTIONS[key], self._chosen))
        self._changed.set()

    def _line(self, line: str) -> None:
        words = line.split()
        if words in (["quit"], ["q"]):
            self.quit()
        elif words == ["heal"]:
            self._orders.put_nowait(("heal", self._chosen))
        elif len(words) == 2 and words[0] in _ACTIONS.values() and words[1].isdecimal():
            self._orders.put_nowait((words[0], int(words[1])))
        elif words:
            self._say(f"{line.strip()!r} is not an order: say, for example, kill 102")

    async def _obey(self) -> None:
        while True:
            action, node = await self._orders.get()
            arguments = () if action == "heal" else (node,)
            try:
                await asyncio.to_thread(getattr(self._cluster, action), *arguments)
            except (ValueError, KraftError) as error:
                self._say(str(error).splitlines()[0])
            else:
                self._say(f"{action} {node}: done" if arguments else "heal: done")
            self._changed.set()


# -- input --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Each key as it is pressed, without waiting for the end of a line."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)

    def read() -> None:
        text = os.read(fd, _READ_BYTES).decode(errors="ignore")
        while text:
            key = text[:3] if text[:3] in (_UP, _DOWN) else text[0]
            text = text[len(key) :]
            pressed(key)

    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _lines(typed: Callable[[str], None]) -> Iterator[None]:
    """Lines of a pipe or a terminal; a file or an end of input has nothing more to say."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    rest = ""

    def read() -> None:
        nonlocal rest
        data = os.read(fd, _READ_BYTES)
        if not data:
            loop.remove_reader(fd)
            return
        *lines, rest = (rest + data.decode(errors="replace")).split("\n")
        for line in lines:
            typed(line)

    try:
        loop.add_reader(fd, read)
    except (OSError, ValueError):  # A plain file cannot be waited for.
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(fd)


def check_sizes(settings: Settings) -> None:
    """Flags that only make sense for one process."""
    if settings.listeners or settings.controller_quorum_voters:
        raise ConfigError(
            "--listen and --voters are for one broker and one controller: several have their "
            f"ports from {_BROKER_PORT} on"
        )
