"""Offsets of all partitions in a directory, in Kafka's text format, replaced as a whole.

`replication-offset-checkpoint` has high watermarks, `log-start-offset-checkpoint` where logs begin
whose first records were deleted, `cleaner-offset-checkpoint` up to where logs are compacted. All of
them may be old after a crash, and lines of partitions that are gone do no harm. One that cannot be
read is as good as none: high watermarks are then learned from the leader, and logs compacted anew.
"""

import os
from collections.abc import Mapping
from typing import Final

from kraftpy.errors import StorageError
from kraftpy.logs import get_logger
from kraftpy.storage.file_layer import FileLayer

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"
Partition = tuple[str, int]

log = get_logger(__name__)


def format_offsets(offsets: Mapping[Partition, int]) -> bytes:
    """The file: a version, a count, and a line for each partition."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(content: bytes) -> dict[Partition, int]:
    """What `format_offsets` wrote; StorageError if it is anything else."""
    try:
        version, count, *lines = content.decode().splitlines()
        if version != _VERSION or len(lines) != int(count):
            raise ValueError
        fields = [line.split(" ") for line in lines]
        offsets = {(topic, int(index)): int(offset) for topic, index, offset in fields}
        if len(offsets) != len(lines) or any(offset < 0 for offset in offsets.values()):
            raise ValueError
    except ValueError:
        raise StorageError("a checkpoint of offsets is malformed") from None
    return offsets


class OffsetCheckpoint:
    """One of these files. `write` may run in any thread, one at a time."""

    def __init__(self, files: FileLayer, directory: str, name: str) -> None:
        self._files = files
        self._path = os.path.join(directory, name)
        self._written: bytes | None = None

    def load(self) -> dict[Partition, int]:
        if not self._files.exists(self._path):
            return {}
        content = self._files.read_whole(self._path)
        try:
            offsets = parse_offsets(content)
        except StorageError as error:
            log.warning("checkpoint_ignored", file=self._path, reason=str(error))
            return {}
        self._written = content
        return offsets

    def write(self, offsets: Mapping[Partition, int]) -> bool:
        """Replace the file, durably, if it says anything else; whether it did."""
        content = format_offsets(offsets)
        if content == self._written:
            return False
        self._files.replace(self._path, content)
        self._written = content
        return True
