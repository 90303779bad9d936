"""`kraftpy broker`: a broker, until it is told to stop.

SIGTERM and SIGINT move its leaderships away and end it with exit code 0. A second signal, or one
that comes before it has found a controller, ends it at once.
"""

import asyncio
import random
import socket
from contextlib import suppress

import click

from kraftpy import __version__
from kraftpy.admin.broker_source import BrokerSource
from kraftpy.admin.start import NONE, address_of, bind, serving
from kraftpy.broker.node import BrokerNodeRunning, running
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import first, watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.storage.file_layer import OsFiles

log = get_logger(__name__)


@click.command()
@settings_options_and(
    ("--node-id", "node.id", "The number of this broker; default 101."),
    (
        "--controllers",
        "controller.quorum.bootstrap.servers",
        "Controllers, HOST:PORT,...; default 127.0.0.1:9093.",
    ),
    ("--listen", "listeners", "Where clients connect, HOST:PORT; default 127.0.0.1:9092."),
    ("--advertise", "advertised.listeners", "Where clients are told to connect, if elsewhere."),
    ("--rack", "broker.rack", "Where the broker stands."),
)
def broker(settings: Settings) -> None:
    """Run a broker that joins the quorum of its controllers and serves Kafka clients."""
    run(serve(BrokerConfig.of(settings), settings.admin_listeners))


async def serve(config: BrokerConfig, admin: str = NONE) -> None:
    """Run a broker until a signal or a fault, with its admin listener at `admin`."""
    stopped = watch_stop_signals()
    stop = asyncio.Event()
    is_serving = asyncio.Event()
    broker_task = asyncio.ensure_future(_run(config, bind(admin), is_serving, stop))
    signalled = asyncio.ensure_future(stopped.get())
    await asyncio.wait([broker_task, signalled], return_when=asyncio.FIRST_COMPLETED)
    if signalled.done():
        stop.set()
        if not is_serving.is_set():
            broker_task.cancel()
        again = asyncio.ensure_future(stopped.get())
        await asyncio.wait([broker_task, again], return_when=asyncio.FIRST_COMPLETED)
        if not broker_task.done():
            broker_task.cancel()
        again.cancel()
    signalled.cancel()
    with suppress(asyncio.CancelledError):
        await broker_task
    log.info("broker_stopped", node=config.broker_id)


async def _run(
    config: BrokerConfig,
    sockets: list[socket.socket],
    is_serving: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    files, clock = OsFiles(), SystemClock()
    async with running(config, files, clock, random.Random()) as node:
        is_serving.set()
        async with serving(BrokerSource(node), sockets, files, clock):
            click.echo(describe(node, address_of(sockets)))
            place = {"host": config.listen.host, "port": node.port}
            log.info("broker_started", node=config.broker_id, **place)
            await first(stop.wait(), node.failed())


def describe(node: BrokerNodeRunning, admin: str | None) -> str:
    """What a person who has just started it wants to know."""
    config = node.config
    return "\n".join(
        (
            f"kraftpy {__version__} broker {config.broker_id}",
            f"  listens at      {config.listen.host}:{node.port}",
            f"  data            {', '.join(config.log_dirs)}",
            f"  cluster         {node.cluster_id}",
            f"  controllers     {', '.join(map(str, config.controllers))}",
            *([f"  dashboard       {admin}"] if admin else []),
        )
    )
