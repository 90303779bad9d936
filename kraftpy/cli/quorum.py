"""`kraftpy quorum`: a controller, until it is told to stop; and what one can ask of a quorum.

SIGTERM and SIGINT hand leadership over and end the node with exit code 0. A log that is damaged,
or a disk that fails, ends it with one line and exit code 1.
"""

import random

import click

from kraftpy import __version__
from kraftpy.admin.controller_source import ControllerSource
from kraftpy.admin.start import NONE, address_of, bind, serving
from kraftpy.cli.quorum_status import status
from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import first, watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.quorum.node import QuorumNode, running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import uuid_text

log = get_logger(__name__)


@click.group(invoke_without_command=True)
@settings_options_and(
    ("--node-id", "node.id", "The number of this controller."),
    ("--voters", "controller.quorum.voters", "All controllers: 1@host:9093,2@host:9093,..."),
    ("--listen", "listeners", "Where to listen, if not at the own address among the voters."),
    ("--cluster-id", "cluster.id", "The cluster that a new directory will belong to."),
)
@click.pass_context
def quorum(context: click.Context, settings: Settings) -> None:
    """Run a controller; or ask a quorum for its status.

    Alone (`kraftpy quorum --node-id 1`) it is a quorum of one voter at 127.0.0.1:9093, which keeps
    its log in kraftpy-data/node-1.
    """
    if context.invoked_subcommand is None:
        run(serve(NodeConfig.of(settings), settings.admin_listeners))


quorum.add_command(status)


async def serve(config: NodeConfig, admin: str = NONE) -> None:
    """Run a controller until a signal or a fault, with its admin listener at `admin`."""
    stopped = watch_stop_signals()
    files, clock = OsFiles(), SystemClock()
    sockets = bind(admin)
    async with (
        running(config, files, clock, random.Random()) as node,
        serving(ControllerSource(node), sockets, files, clock),
    ):
        click.echo(describe(node, address_of(sockets)))
        place = {"host": config.host, "port": node.server.port, "dir": config.data_dir}
        log.info("quorum_started", node=config.node_id, **place)
        received = await first(stopped.get(), node.failed())
    log.info("quorum_stopped", node=config.node_id, signal=getattr(received, "name", None))


def describe(node: QuorumNode, admin: str | None) -> str:
    """What a person who has just started it wants to know."""
    config = node.config
    voters = ", ".join(map(str, config.voters))
    return "\n".join(
        (
            f"kraftpy {__version__} controller {config.node_id}",
            f"  listens at      {config.host}:{node.server.port}",
            f"  data directory  {config.data_dir}",
            f"  metadata log    {config.metadata_dir}",
            f"  cluster         {uuid_text(node.identity.cluster_id)}",
            f"  voters          {voters}",
            *([f"  dashboard       {admin}"] if admin else []),
            f"Ask it with: kraftpy quorum status --bootstrap-controller "
            f"{config.host}:{node.server.port}",
        )
    )
