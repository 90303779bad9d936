"""`kraftpy dev`: everything on one machine, until interrupted.

It runs one controller, the only voter of its quorum, and one broker, in this process. They talk
over the wire, as they would from two machines.

SIGINT, SIGTERM and a closed terminal end it cleanly with exit code 0; a temporary data directory
goes with it.
"""

import dataclasses
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import click

from kraftpy import __version__
from kraftpy.broker.node import BrokerNodeRunning
from kraftpy.broker.node import running as broker_running
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import first, watch_stop_signals
from kraftpy.clock import Clock, SystemClock
from kraftpy.config import Settings
from kraftpy.errors import AddressInUse, ConfigError
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.quorum.node import QuorumNode
from kraftpy.quorum.node import running as quorum_running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import FileLayer, OsFiles
from kraftpy.storage.identity import load_identity
from kraftpy.types import random_uuid, uuid_text

log = get_logger(__name__)

_NODE_ID: Final = 1
_BROKER_ID: Final = 101
_CONTROLLER_HOST: Final = "127.0.0.1"
_CONTROLLER_PORT: Final = 9093
# Nobody else can be elected, so there is nothing to wait for.
_ELECTION_TIMEOUT_MS: Final = 50


@click.command()
@settings_options_and(
    ("--listen", "listeners", "Where clients connect, HOST:PORT; default 127.0.0.1:9092."),
    ("--voters", "controller.quorum.voters", "The controller's address, 1@HOST:PORT."),
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
        files, clock, rng = OsFiles(), SystemClock(), random.Random()
        async with AsyncExitStack() as stack:
            controller = await start_controller(stack, placed, files, clock, rng)
            config = controller.config
            place = f"{config.host}:{controller.server.port}"
            broker = await stack.enter_async_context(
                broker_running(broker_config(placed, place), files, clock, rng)
            )
            await first(broker.unfenced(), broker.failed(), controller.failed())
            click.echo(describe(controller, broker, temporary=not settings.data_dir))
            log.info("dev_started", data_dir=config.data_dir, metadata_dir=config.metadata_dir)
            received = await first(stopped.get(), controller.failed(), broker.failed())
    log.info("dev_stopped", signal=getattr(received, "name", None))


async def start_controller(
    stack: AsyncExitStack,
    settings: Settings,
    files: FileLayer,
    clock: Clock,
    rng: random.Random,
) -> QuorumNode:
    """A quorum of one, at its usual port or, if that is taken and nobody insists, at any."""
    if not settings.cluster_id and load_identity(files, settings.data_dir) is None:
        # Of its own: by default all clusters with the same addresses have the same id.
        settings = dataclasses.replace(settings, cluster_id=uuid_text(random_uuid(rng)))
    if settings.controller_quorum_voters:
        config = controller_config(settings, settings.controller_quorum_voters)
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))
    try:
        config = controller_config(settings, f"{_NODE_ID}@{_CONTROLLER_HOST}:{_CONTROLLER_PORT}")
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))
    except AddressInUse:
        config = controller_config(settings, f"{_NODE_ID}@{_CONTROLLER_HOST}:{_free_port()}")
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))


def controller_config(settings: Settings, voters: str) -> NodeConfig:
    config = NodeConfig.of(
        dataclasses.replace(
            settings,
            node_id=_NODE_ID,
            controller_quorum_voters=voters,
            controller_quorum_election_timeout_ms=_ELECTION_TIMEOUT_MS,
            listeners="",
        )
    )
    make_directory(os.path.dirname(config.metadata_dir), "metadata.log.dir")
    return config


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_CONTROLLER_HOST, 0))
        found: int = probe.getsockname()[1]
        return found


def broker_config(settings: Settings, controller: str) -> BrokerConfig:
    return BrokerConfig.of(
        dataclasses.replace(
            settings,
            node_id=_BROKER_ID,
            data_dir=os.path.join(settings.data_dir, "broker"),
            metadata_log_dir="",
            controller_quorum_bootstrap_servers=controller,
            offsets_topic_replication_factor=1,
            group_initial_rebalance_delay_ms=_unless_set(
                settings, "group_initial_rebalance_delay_ms", 0
            ),
        )
    )


def _unless_set(settings: Settings, attribute: str, better: int) -> int:
    """What suits a machine of one's own better than Kafka's default, unless somebody differs."""
    value: int = getattr(settings, attribute)
    return better if value == getattr(Settings(), attribute) else value


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


def make_directory(path: str, key: str) -> None:
    """Make a directory that a setting names; what is in the way is the user's to move."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: cannot create directory {path}: {error.strerror}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: no permission to read and write in {path}")


def describe(controller: QuorumNode, broker: BrokerNodeRunning, *, temporary: bool) -> str:
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
            f"Point Kafka clients at {broker.config.listen.host}:{broker.port}",
            f"Ask the quorum with: kraftpy quorum status --bootstrap-controller {place}",
            f"Look inside with: kraftpy log show {config.metadata_dir}",
            "Press Ctrl-C to stop.",
        )
    )
