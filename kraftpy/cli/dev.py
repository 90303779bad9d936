"""`kraftpy dev`: everything on one machine, until interrupted.

It runs one controller, the only voter of its quorum, in this process. Brokers are not there yet.
SIGINT, SIGTERM and a closed terminal end it cleanly with exit code 0; a temporary data directory
goes with it.
"""

import dataclasses
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from kraftpy import __version__
from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import first, watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.errors import ConfigError
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.quorum.node import QuorumNode, running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles

log = get_logger(__name__)

_NODE_ID: Final = 1


@click.command()
@settings_options_and(
    ("--listen", "listeners", "Where the controller listens; default 127.0.0.1:9093."),
)
def dev(settings: Settings) -> None:
    """Run a cluster on this machine until interrupted.

    Without --data-dir everything is kept in a temporary directory that is removed at the end.
    """
    run(serve(settings))


async def serve(settings: Settings) -> None:
    """Open what there is, say so, and wait for a signal."""
    stopped = watch_stop_signals()
    with data_directory(settings) as placed:
        config = NodeConfig.of(placed)
        make_directory(os.path.dirname(config.metadata_dir), "metadata.log.dir")
        async with running(config, OsFiles(), SystemClock(), random.Random()) as node:
            click.echo(describe(node, temporary=not settings.data_dir))
            log.info("dev_started", data_dir=config.data_dir, metadata_dir=config.metadata_dir)
            received = await first(stopped.get(), node.failed())
    log.info("dev_stopped", signal=getattr(received, "name", None))


@contextmanager
def data_directory(settings: Settings) -> Iterator[Settings]:
    """The settings with an existing, absolute data.dir: the one asked for or a temporary one."""
    if settings.node_id is None:
        settings = dataclasses.replace(settings, node_id=_NODE_ID)
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


def make_directory(path: str, key: str) -> None:
    """Make a directory that a setting names; what is in the way is the user's to move."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: cannot create directory {path}: {error.strerror}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: no permission to read and write in {path}")


def describe(node: QuorumNode, *, temporary: bool) -> str:
    """What a person who has just started it wants to know."""
    note = " (temporary, removed on exit)" if temporary else ""
    config = node.config
    place = f"{config.host}:{node.server.port}"
    return "\n".join(
        (
            f"kraftpy {__version__}",
            f"  data directory  {config.data_dir}{note}",
            f"  metadata log    {config.metadata_dir}",
            f"  controller      {config.node_id} at {place}",
            "  brokers         not there yet",
            f"Ask it with: kraftpy quorum status --bootstrap-controller {place}",
            f"Look inside with: kraftpy log show {config.metadata_dir}",
            "Press Ctrl-C to stop.",
        )
    )
