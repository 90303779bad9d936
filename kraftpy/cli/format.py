"""`kraftpy format`: give a node's directories their identity before its first start."""

import random

import click

from kraftpy.broker.log_dirs import LogDirs
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.cli.settings import settings_options_and
from kraftpy.config import Settings
from kraftpy.errors import ConfigError
from kraftpy.quorum.node import open_directory
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.identity import Identity, load_identity
from kraftpy.types import Uuid, parse_uuid, uuid_text


@click.command("format")
@click.option("--broker", is_flag=True, help="The directories are a broker's: log.dirs.")
@settings_options_and(
    ("--node-id", "node.id", "The number of this node."),
    ("--voters", "controller.quorum.voters", "All controllers: 1@host:9093,2@host:9093,..."),
    ("--cluster-id", "cluster.id", "The cluster that the directory will belong to."),
)
def format_(settings: Settings, broker: bool) -> None:
    """Write cluster, node and directory id into a new data directory.

    `kraftpy quorum` and `kraftpy broker` do it by themselves at their first start. A directory that
    has an identity keeps it, and is refused if that is another one.
    """
    if broker:
        _format_broker(settings)
    else:
        _format_controller(settings)


def _format_controller(settings: Settings) -> None:
    config = NodeConfig.of(settings)
    files = OsFiles()
    existed = _is_formatted(files, config.data_dir)
    with open_directory(files, config, random.Random()) as identity:
        _say(config.data_dir, identity, existed=existed)


def _format_broker(settings: Settings) -> None:
    config = BrokerConfig.of(settings)
    dirs = LogDirs.open(OsFiles(), config.log_dirs, config.broker_id)
    try:
        existed = {each.path for each in dirs.dirs if each.identity is not None}
        dirs.format_new(_cluster_id(settings, dirs), random.Random())
        for each in dirs.dirs:
            assert each.identity is not None
            _say(each.path, each.identity, existed=each.path in existed)
    finally:
        dirs.put_back()


def _cluster_id(settings: Settings, dirs: LogDirs) -> Uuid:
    if not settings.cluster_id:
        if dirs.cluster_id is None:
            raise ConfigError(
                "cluster.id is not set: give --cluster-id, as the controllers have it"
            )
        return dirs.cluster_id
    try:
        return parse_uuid(settings.cluster_id)
    except ValueError as error:
        raise ConfigError(f"cluster.id: {error}") from None


def _say(path: str, identity: Identity, *, existed: bool) -> None:
    done = "has it already" if existed else "formatted"
    click.echo(
        f"{path}: {done}: cluster {uuid_text(identity.cluster_id)}, "
        f"node {identity.node_id}, directory {uuid_text(identity.directory_id)}"
    )


def _is_formatted(files: OsFiles, directory: str) -> bool:
    return files.exists(directory) and load_identity(files, directory) is not None
