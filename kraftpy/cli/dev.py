"""`kraftpy dev`: everything on one machine, until interrupted.

It opens the metadata log of one node, the only voter, and bootstraps a new one. Controllers and
brokers are not there yet, so no listener is open. SIGINT, SIGTERM and a closed terminal end it
cleanly with exit code 0; a temporary data directory goes with it.
"""

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from kraftpy import __version__
from kraftpy.cli.settings import settings_options
from kraftpy.cli.signals import watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings, metadata_directory
from kraftpy.errors import ConfigError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.bootstrap import open_alone
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter
from kraftpy.storage.directory import DataDirectory
from kraftpy.storage.file_layer import OsFiles

log = get_logger(__name__)

_NODE_ID: Final = 1


@click.command()
@settings_options
def dev(settings: Settings) -> None:
    """Run a cluster on this machine until interrupted.

    Without --data-dir everything is kept in a temporary directory that is removed at the end.
    """
    asyncio.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Open what there is, say so, and wait for a signal."""
    stopped = watch_stop_signals()
    with data_directory(settings) as placed, open_metadata(placed) as (metadata_dir, image):
        click.echo(describe(placed, metadata_dir, image, temporary=not settings.data_dir))
        log.info("dev_started", data_dir=placed.data_dir, metadata_dir=metadata_dir)
        received = await stopped.get()
    log.info("dev_stopped", signal=received.name)


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


@contextmanager
def open_metadata(settings: Settings) -> Iterator[tuple[str, ClusterImage]]:
    """The metadata log's directory and the cluster in it, locked until the end."""
    files, clock = OsFiles(), SystemClock()
    directory = absolute(metadata_directory(settings))
    make_directory(directory, "metadata.log.dir" if settings.metadata_log_dir else "data.dir")
    owner = DataDirectory(files, os.path.dirname(directory))
    clean = False
    try:
        metadata_log = MetadataLog(files, directory, MetadataLogConfig.of(settings), clock)
        image = open_alone(metadata_log, _NODE_ID)
        snapshotter = Snapshotter(metadata_log, SnapshotPolicy.of(settings), clock)
        snapshotter.offer(image)
        yield directory, image
        snapshotter.close()
        metadata_log.close()
        clean = True
    finally:
        owner.close(clean=clean)


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


def describe(settings: Settings, metadata_dir: str, image: ClusterImage, *, temporary: bool) -> str:
    """What a person who has just started it wants to know."""
    note = " (temporary, removed on exit)" if temporary else ""
    return "\n".join(
        (
            f"kraftpy {__version__}",
            f"  data directory  {settings.data_dir}{note}",
            f"  metadata log    {metadata_dir}",
            f"  cluster         {len(image.brokers)} brokers, {len(image.topics)} topics "
            f"at offset {image.end_offset}, epoch {image.epoch}",
            "  listeners       none: controllers and brokers are not there yet",
            f"Look inside with: kraftpy log show {metadata_dir}",
            "Press Ctrl-C to stop.",
        )
    )
