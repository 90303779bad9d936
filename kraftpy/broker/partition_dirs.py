"""The directories of partitions: what they are called, whose they are, and how they go.

`<topic>-<partition>` holds a log, and `partition.metadata` in it says which topic: one of the same
name that was deleted and created again is another topic, and its records are not these. What turns
out to be of no topic of this broker is renamed to end with `-stray` and kept for an operator; what
is deleted is renamed to end with `-delete`, which frees the name at once, and removed later.
"""

import os
import random
import re
from contextlib import suppress
from typing import Final, NamedTuple

from kraftpy.errors import StorageError
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import TopicId, Uuid, parse_uuid, uuid_text

PARTITION_METADATA: Final = "partition.metadata"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_NAME_BYTES_MAX: Final = 255


class PartitionDir(NamedTuple):
    """A directory that by its name holds a partition."""

    path: str
    topic: str
    partition: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def find_partition_dirs(files: FileLayer, directory: str, ignored: str) -> list[PartitionDir]:
    """Those in a data directory, but for the metadata log's (`ignored`)."""
    found = []
    for name in files.names(directory):
        match = _NAME.fullmatch(name)
        is_other = name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)) or name == ignored
        if match is not None and not is_other:
            found.append(PartitionDir(os.path.join(directory, name), match[1], int(match[2])))
    return found


def find_deleted(files: FileLayer, directory: str) -> list[str]:
    """What was to be removed when the last process ended."""
    names = (name for name in files.names(directory) if name.endswith(DELETE_SUFFIX))
    return [os.path.join(directory, name) for name in names]


def read_topic_id(files: FileLayer, path: str) -> TopicId | None:
    """The topic of the log in a directory; None if it does not say so."""
    file = os.path.join(path, PARTITION_METADATA)
    if not files.exists(file):
        return None
    lines = files.read_whole(file).decode(errors="replace").splitlines()
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    with suppress(ValueError, KeyError):
        if found["version"] == "0":
            return TopicId(parse_uuid(found["topic_id"]))
    return None


def write_topic_id(files: FileLayer, path: str, topic_id: TopicId) -> None:
    """In a new directory, whose log is made next: that syncs the name, and there is no old file."""
    file = files.open(os.path.join(path, PARTITION_METADATA))
    file.write(0, [f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()])
    file.sync()
    file.close()


def put_aside(files: FileLayer, path: str, suffix: str, rng: random.Random) -> str:
    """Rename a partition's directory, durably, to a name that no other has."""
    parent, name = os.path.split(path)
    ending = f".{Uuid(rng.randbytes(16)).hex()}{suffix}"
    target = os.path.join(parent, name[: _NAME_BYTES_MAX - len(ending)] + ending)
    if files.exists(target):
        raise StorageError(f"{target} is there already")
    files.rename(path, target)
    files.sync_directory(parent)
    return target


def remove_tree(files: FileLayer, path: str) -> None:
    """Remove a partition's directory and the files in it."""
    for name in files.names(path):
        files.remove(os.path.join(path, name))
    files.remove_directory(path)
    files.sync_directory(os.path.dirname(path))
