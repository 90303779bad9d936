"""A node's data directory: who owns it, whether it was left in order, and where each log is.

What always holds: at most one process has it open; `.kafka_cleanshutdown` is there only if every
log was closed in order and nobody has opened the directory since. As in Kafka, a partition's log
is in `<topic>-<partition>`, and the marker carries the broker's epoch (KIP-966), so that a broker
can tell the controller which of its registrations ended well.
"""

import json
import os
from typing import Final

from kraftpy.errors import ConfigError, DiskFault
from kraftpy.storage.file_layer import FileLayer

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1


class DataDirectory:
    """An open data directory. Close it after its logs."""

    def __init__(self, files: FileLayer, path: str) -> None:
        """Take the lock, and the marker away; DirectoryInUse if another process has it."""
        self.path = path
        self._files = files
        try:
            files.make_directory(path)
            self._lock = files.lock(os.path.join(path, LOCK_FILE))
        except OSError as error:
            raise ConfigError(f"cannot use the data directory {path}: {error.strerror}") from None
        self._marker = os.path.join(path, CLEAN_SHUTDOWN_FILE)
        self.was_clean = files.exists(self._marker)
        self.clean_broker_epoch = self._read_marker() if self.was_clean else NO_BROKER_EPOCH
        if self.was_clean:
            try:
                files.remove(self._marker)
                # Durable before the first write: else a crash could look like an orderly stop.
                files.sync_directory(path)
            except OSError as error:
                raise DiskFault(f"cannot remove {self._marker}: {error}") from error

    def _read_marker(self) -> int:
        try:
            epoch = json.loads(self._files.read_whole(self._marker)).get("brokerEpoch")
        except (ValueError, AttributeError):
            return NO_BROKER_EPOCH  # Older markers are empty.
        return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH

    def log_directory(self, topic: str, partition: int) -> str:
        return os.path.join(self.path, f"{topic}-{partition}")

    def close(self, *, clean: bool, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Let others in. `clean` says that every log in it was closed in order."""
        try:
            if clean:
                marker = {"version": 0, "brokerEpoch": broker_epoch}
                self._files.replace(self._marker, json.dumps(marker).encode())
        except OSError as error:
            raise DiskFault(f"cannot write {self._marker}: {error}") from error
        finally:
            self._lock.close()
