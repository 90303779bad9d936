"""Writes snapshots in a thread of its own, while replay goes on.

An image is immutable, so the thread needs no lock and nobody waits for it. At most one snapshot is
being written at a time. A failed one costs a WARNING and nothing else: the log still has it all,
and the next attempt makes a new file.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kraftpy.clock import Clock
from kraftpy.config import Settings
from kraftpy.errors import DiskFault
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When a snapshot is due. The defaults are Kafka's."""

    bytes_between: int = 20 * 1024**2
    interval_ms: int | None = 3_600_000

    @staticmethod
    def of(settings: Settings) -> "SnapshotPolicy":
        return SnapshotPolicy(
            bytes_between=settings.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=settings.metadata_log_max_snapshot_interval_ms or None,
        )

    def is_due(self, new_bytes: int, since_ms: int) -> bool:
        if new_bytes == 0:
            return False
        too_long = self.interval_ms is not None and since_ms >= self.interval_ms
        return new_bytes >= self.bytes_between or too_long


class Writing(Protocol):
    """A snapshot that is being written."""

    def is_alive(self) -> bool: ...

    def join(self) -> None: ...


def in_a_thread(write: Callable[[], None]) -> Writing:
    """How a snapshot is written beside everything else."""
    thread = threading.Thread(target=write, name="snapshot")
    thread.start()
    return thread


class Snapshotter:
    """Decides and writes. Its methods are for the thread that owns the log."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        policy: SnapshotPolicy,
        clock: Clock,
        begin: Callable[[Callable[[], None]], Writing] = in_a_thread,
    ) -> None:
        self._log = metadata_log
        self._policy = policy
        self._clock = clock
        self._begin = begin
        self._last_ms = clock.monotonic_ms()
        self._writing: Writing | None = None

    def offer(self, image: ClusterImage, batch_count: int | None = None) -> bool:
        """Begin a snapshot of this committed image if one is due; whether it was begun.

        Not while a metadata transaction is open: a snapshot would split it.
        """
        self.finish()
        now_ms = self._clock.monotonic_ms()
        if self._writing is not None or image.transaction is not None:
            return False
        if not self._policy.is_due(self._log.bytes_since_snapshot(), now_ms - self._last_ms):
            return False
        self._last_ms = now_ms
        self._writing = self._begin(lambda: self._write(image, batch_count))
        return True

    @property
    def is_writing(self) -> bool:
        return self._writing is not None and self._writing.is_alive()

    def _write(self, image: ClusterImage, batch_count: int | None) -> None:
        try:
            snapshot_id = self._log.write_snapshot(image, batch_count)
        except DiskFault as error:
            log.warning("snapshot_failed", end_offset=image.end_offset, reason=str(error))
        else:
            log.info("snapshot_written", snapshot=snapshot_id.file_name)

    def finish(self) -> bool:
        """If a snapshot has been written, remove what it made superfluous; whether it was so."""
        if self._writing is None or self._writing.is_alive():
            return False
        self._writing.join()
        self._writing = None
        self._log.delete_old()
        return True

    def close(self) -> None:
        """Wait for a snapshot that is being written."""
        if self._writing is not None:
            self._writing.join()
            self.finish()
