"""`kraftpy dev`: everything on one machine, until interrupted.

By default it runs one controller, the only voter of its quorum, and one broker, in this process.
With more of either, each is a process that is supervised (dev_cluster.py).

SIGINT, SIGTERM and a closed terminal end it cleanly with exit code 0; a temporary data directory
goes with it.
"""

import dataclasses
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kraftpy import __version__
from kraftpy.admin.broker_source import BrokerSource
from kraftpy.admin.start import address_of, bind, serving
from kraftpy.broker.node import BrokerNodeRunning
from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import first, watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.quorum.node import QuorumNode
from kraftpy.storage.file_layer import OsFiles
from kraftpy.testing.single import make_directory, single_running

log = get_logger(__name__)


@click.command()
@click.option(
    "--controllers", type=click.IntRange(1, 9), default=1, show_default=True, help="How many."
)
@click.option(
    "--brokers", type=click.IntRange(1, 30), default=1, show_default=True, help="How many."
)
@settings_options_and(
    ("--listen", "listeners", "Where clients connect, HOST:PORT; default 127.0.0.1:9092."),
    ("--voters", "controller.quorum.voters", "The controller's address, 1@HOST:PORT."),
)
def dev(settings: Settings, controllers: int, brokers: int) -> None:
    """Run a cluster on this machine until interrupted.

    One controller and one broker share a process. More are a process each, shown in a live table:
    kill, pause and restart them, and watch leaders and in-sync replicas move.

    Without --data-dir everything is kept in a temporary directory that is removed at the end.
    """
    if controllers == brokers == 1:
        run(serve(settings))
        return
    from kraftpy.cli.dev_cluster import check_sizes, serve_cluster

    check_sizes(settings)
    run(serve_cluster(settings, controllers, brokers))


async def serve(settings: Settings) -> None:
    """Open what there is, say so, and wait for a signal."""
    stopped = watch_stop_signals()
    with data_directory(settings) as placed:
        files, clock = OsFiles(), SystemClock()
        sockets = bind(settings.admin_listeners)
        async with (
            single_running(placed, files, clock, random.Random()) as (controller, broker),
            serving(BrokerSource(broker), sockets, files, clock),
        ):
            config = controller.config
            admin = address_of(sockets)
            click.echo(describe(controller, broker, admin, temporary=not settings.data_dir))
            log.info("dev_started", data_dir=config.data_dir, metadata_dir=config.metadata_dir)
            received = await first(stopped.get(), controller.failed(), broker.failed())
    log.info("dev_stopped", signal=getattr(received, "name", None))


@contextmanager
def data_directory(settings: Settings) -> Iterator[Settings]:
    """The settings with an existing, absolute data.dir: the one asked for or a temporary one."""
    if not settings.data_dir:
        with tempfile.TemporaryDirectory(prefix="kraftpy-dev-") as directory:
            yield dataclasses.replace(settings, data_dir=directory)
        return
    directory = absolute(settings.data_dir)
    make_directory(directory, "data.dir")
    yield dataclasses.replace(settings, data_dir=directory)


def absolute(path: str) -> str:
    """A path as a user may type it, also where no shell has replaced the `~`."""
    return os.path.abspath(os.path.expanduser(path))


def describe(
    controller: QuorumNode, broker: BrokerNodeRunning, admin: str | None, *, temporary: bool
) -> str:
    """What a person who has just started it wants to know."""
    note = " (temporary, removed on exit)" if temporary else ""
    config = controller.config
    place = f"{config.host}:{controller.server.port}"
    return "\n".join(
        (
            f"kraftpy {__version__}",
            f"  data directory  {config.data_dir}{note}",
            f"  metadata log    {config.metadata_dir}",
            f"  controller      {config.node_id} at {place}",
            f"  broker          {broker.config.broker_id} at "
            f"{broker.config.listen.host}:{broker.port}",
            *([f"  dashboard       {admin}"] if admin else []),
            f"Point Kafka clients at {broker.config.listen.host}:{broker.port}",
            f"Ask the quorum with: kraftpy quorum status --bootstrap-controller {place}",
            f"Look inside with: kraftpy log show {config.metadata_dir}",
            "Press Ctrl-C to stop.",
        )
    )
