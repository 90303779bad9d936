"""Writes snapshots in a thread of its own, while replay goes on.

An image is immutable, so the thread needs no lock and nobody waits for it. At most one snapshot is
being written at a time. A failed one costs a WARNING and nothing else: the log still has it all,
and the next attempt makes a new file.
"""

import threading
from dataclasses import dataclass

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


class Snapshotter:
    """Decides and writes. `offer` and `close` are for the thread that owns the log."""

    def __init__(self, metadata_log: MetadataLog, policy: SnapshotPolicy, clock: Clock) -> None:
        self._log = metadata_log
        self._policy = policy
        self._clock = clock
        self._last_ms = clock.monotonic_ms()
        self._thread: threading.Thread | None = None

    def offer(self, image: ClusterImage) -> bool:
        """Begin a snapshot of this committed image if one is due; whether it was begun.

        Not while a metadata transaction is open: a snapshot would split it.
        """
        now_ms = self._clock.monotonic_ms()
        if self.is_writing or image.transaction is not None:
            return False
        if not self._policy.is_due(self._log.bytes_since_snapshot(), now_ms - self._last_ms):
            return False
        self._finish()
        self._last_ms = now_ms
        self._thread = threading.Thread(target=self._write, args=(image,), name="snapshot")
        self._thread.start()
        return True

    @property
    def is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _write(self, image: ClusterImage) -> None:
        try:
            snapshot_id = self._log.write_snapshot(image)
        except DiskFault as error:
            log.warning("snapshot_failed", end_offset=image.end_offset, reason=str(error))
        else:
            log.info("snapshot_written", snapshot=snapshot_id.file_name)

    def _finish(self) -> None:
        """Wait for the thread, then remove what the new snapshot made superfluous."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._log.delete_old()

    def close(self) -> None:
        """Wait for a snapshot that is being written."""
        self._finish()
