"""The data directories of a broker: locked, identified, and whether they were left in order.

What always holds: all that are usable belong to this broker and to one cluster, and each has an id
of its own. A directory that cannot be opened fails alone, as long as another one is usable: its
partitions are offline and the others are served. One that belongs to somebody else is a mistake of
whoever started the broker, and stops it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftpy.errors import ConfigError, DiskFault
from kraftpy.logs import get_logger
from kraftpy.storage.directory import NO_BROKER_EPOCH, DataDirectory
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.identity import Identity, check_identity, format_directory, load_identity
from kraftpy.types import Uuid, uuid_text

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A usable directory. Not formatted yet: it has no identity."""

    directory: DataDirectory
    identity: Identity | None

    @property
    def path(self) -> str:
        return self.directory.path


class LogDirs:
    """Open directories, in the order of the settings. Close them after the logs in them."""

    def __init__(
        self, files: FileLayer, node_id: int, dirs: Sequence[LogDir], failed: Mapping[str, str]
    ) -> None:
        self._files = files
        self._node_id = node_id
        self.dirs = tuple(dirs)
        self.failed = dict(failed)  # Path to reason, of those that could not be opened.

    @staticmethod
    def open(files: FileLayer, paths: Sequence[str], node_id: int) -> "LogDirs":
        """Lock them. ConfigError if none is usable or one is somebody else's."""
        if len(set(paths)) != len(paths):
            raise ConfigError("log.dirs: a directory is named twice")
        found: list[LogDir] = []
        failed: dict[str, str] = {}
        try:
            for path in paths:
                opened = _open(files, path, failed)
                if opened is not None:
                    found.append(opened)
                    _check(opened, found[0], node_id)
        except BaseException:
            for each in found:
                _put_back(each.directory)
            raise
        if not found:
            raise ConfigError(next(iter(failed.values())))
        return LogDirs(files, node_id, found, failed)

    @property
    def cluster_id(self) -> Uuid | None:
        """What formatted directories say; None if none is formatted yet."""
        return next((d.identity.cluster_id for d in self.dirs if d.identity is not None), None)

    def format_new(self, cluster_id: Uuid, rng: random.Random) -> None:
        """Give those that are new an identity; ConfigError if others are of another cluster."""
        done = []
        for each in self.dirs:
            identity = each.identity
            if identity is None:
                identity = format_directory(self._files, each.path, cluster_id, self._node_id, rng)
                log.info("directory_formatted", dir=each.path, cluster_id=uuid_text(cluster_id))
            check_identity(identity, each.path, cluster_id, self._node_id)
            done.append(LogDir(directory=each.directory, identity=identity))
        self.dirs = tuple(done)

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        """Of the usable ones, all formatted by now."""
        ids = [each.identity.directory_id for each in self.dirs if each.identity is not None]
        assert len(ids) == len(self.dirs), "format_new comes first"
        return tuple(ids)

    @property
    def previous_broker_epoch(self) -> int:
        """The registration that ended in order, in every directory; -1 if there is none.

        One directory that was not closed in order may have lost what was acknowledged.
        """
        epochs = {each.directory.clean_broker_epoch for each in self.dirs}
        if self.failed or len(epochs) != 1:
            return NO_BROKER_EPOCH
        return epochs.pop()

    def put_back(self) -> None:
        """Close them as they were found: no log in them was opened."""
        for each in self.dirs:
            _put_back(each.directory)

    def close(self, *, clean: bool, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Let others in; `clean` says that every log was closed in order."""
        fault: DiskFault | None = None
        for each in self.dirs:
            try:
                each.directory.close(clean=clean, broker_epoch=broker_epoch)
            except DiskFault as error:
                fault = error
        if fault is not None:
            raise fault


def _open(files: FileLayer, path: str, failed: dict[str, str]) -> LogDir | None:
    directory: DataDirectory | None = None
    try:
        directory = DataDirectory(files, path)
        return LogDir(directory=directory, identity=load_identity(files, path))
    except (OSError, DiskFault) as error:
        reason = f"cannot use the data directory {path}: {error}"
        if directory is not None:
            directory.close(clean=False)
    except ConfigError as error:
        if directory is not None:  # It is there, and what it says of itself makes no sense.
            _put_back(directory)
            raise
        reason = str(error)
    log.error("log_dir_failed", dir=path, reason=reason)
    failed[path] = reason
    return None


def _put_back(directory: DataDirectory) -> None:
    """Leave it as it was found: nothing in it has been touched."""
    directory.close(clean=directory.was_clean, broker_epoch=directory.clean_broker_epoch)


def _check(opened: LogDir, first: LogDir, node_id: int) -> None:
    if opened.identity is None:
        return
    cluster_id = first.identity.cluster_id if first.identity is not None else None
    check_identity(opened.identity, opened.path, cluster_id, node_id)
