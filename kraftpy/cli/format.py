"""`kraftpy format`: give a controller's directory its identity before its first start."""

import random

import click

from kraftpy.cli.settings import settings_options_and
from kraftpy.config import Settings
from kraftpy.quorum.node import open_directory
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.identity import load_identity
from kraftpy.types import uuid_text


@click.command("format")
@settings_options_and(
    ("--node-id", "node.id", "The number of this controller."),
    ("--voters", "controller.quorum.voters", "All controllers: 1@host:9093,2@host:9093,..."),
    ("--cluster-id", "cluster.id", "The cluster that the directory will belong to."),
)
def format_(settings: Settings) -> None:
    """Write cluster, node and directory id into a new data directory.

    `kraftpy quorum` does it by itself at its first start. A directory that has an identity keeps
    it, and is refused if that is another one.
    """
    config = NodeConfig.of(settings)
    files = OsFiles()
    existed = _is_formatted(files, config.data_dir)
    with open_directory(files, config, random.Random()) as identity:
        done = "has it already" if existed else "formatted"
        click.echo(
            f"{config.data_dir}: {done}: cluster {uuid_text(identity.cluster_id)}, "
            f"node {identity.node_id}, directory {uuid_text(identity.directory_id)}"
        )


def _is_formatted(files: OsFiles, directory: str) -> bool:
    return files.exists(directory) and load_identity(files, directory) is not None
