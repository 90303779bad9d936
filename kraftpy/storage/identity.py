"""Whose directory it is: `meta.properties`, in Kafka's format.

Every data directory of a node names its cluster, its node and itself: a directory that was mixed up
or replaced is noticed before anything is read from it.
"""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftpy.errors import ConfigError
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import Uuid, parse_uuid, random_uuid, uuid_text

META_FILE: Final = "meta.properties"
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a data directory says of itself."""

    cluster_id: Uuid
    node_id: int
    directory_id: Uuid


def load_identity(files: FileLayer, directory: str) -> Identity | None:
    """The identity of a formatted directory; None if it has none."""
    path = os.path.join(directory, META_FILE)
    if not files.exists(path):
        return None
    found = _parse(files.read_whole(path).decode(errors="replace"))
    try:
        if found["version"] != _VERSION:
            raise ValueError(f"version is {found['version']}, not {_VERSION}")
        return Identity(
            cluster_id=parse_uuid(found["cluster.id"]),
            node_id=int(found["node.id"]),
            directory_id=parse_uuid(found["directory.id"]),
        )
    except KeyError as error:
        raise ConfigError(f"{path}: {error.args[0]} is missing") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parse(text: str) -> Mapping[str, str]:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def format_directory(
    files: FileLayer, directory: str, cluster_id: Uuid, node_id: int, rng: random.Random
) -> Identity:
    """Give an empty directory its identity, durably. ConfigError if it is not empty."""
    files.make_directory(directory)
    strangers = [name for name in files.names(directory) if not name.startswith(".")]
    if strangers:
        raise ConfigError(f"{directory} is not empty: it holds {strangers[0]}")
    identity = Identity(cluster_id=cluster_id, node_id=node_id, directory_id=random_uuid(rng))
    lines = (
        f"version={_VERSION}",
        f"cluster.id={uuid_text(identity.cluster_id)}",
        f"node.id={identity.node_id}",
        f"directory.id={uuid_text(identity.directory_id)}",
    )
    content = "\n".join(lines) + "\n"
    files.replace(os.path.join(directory, META_FILE), content.encode())
    return identity


def check_identity(
    identity: Identity, directory: str, cluster_id: Uuid | None, node_id: int
) -> None:
    """ConfigError if a directory belongs to another node or cluster than it is started as."""
    if identity.node_id != node_id:
        raise ConfigError(f"{directory} belongs to node {identity.node_id}, not to node {node_id}")
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise ConfigError(
            f"{directory} belongs to cluster {uuid_text(identity.cluster_id)}, "
            f"not to cluster {uuid_text(cluster_id)}"
        )
