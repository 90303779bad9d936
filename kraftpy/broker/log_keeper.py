"""What is done to logs now and then: checkpoints, retention, flushing, compaction, removal.

Each duty is a plain function that does one round, in the event loop; `run` calls them in their
turns and gives to a thread what only reads, writes beside a log, or syncs. What always holds:
- no record at or above the high watermark is deleted or compacted.
- a checkpoint is replaced as a whole, in one thread at a time.
- an error of the disk takes the directory offline in which it happened, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from kraftpy.broker.checkpoints import OffsetCheckpoint, Partition
from kraftpy.broker.cleaner import (
    Cleaning,
    CleaningStopped,
    Throttle,
    begin,
    dirtiness,
    take_up_next,
)
from kraftpy.broker.compaction import Counters
from kraftpy.broker.kept_logs import DirState, KeptLog, Key
from kraftpy.broker.log_manager import LogManager
from kraftpy.broker.partition_dirs import remove_tree
from kraftpy.broker.producer_files import save_producers
from kraftpy.dynamic_configs import BROKER_CONFIGS
from kraftpy.errors import ConfigError, DiskFault, StorageError
from kraftpy.logs import get_logger
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import Uuid

log = get_logger(__name__)

_INT64_MAX: Final = (1 << 63) - 1
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperConfig:
    """Kafka's settings and defaults, in their order of names."""

    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 * 1024 * 1024
    log_cleaner_io_max_bytes_per_second: float = float(_INT64_MAX)
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    # Kafka has a thread for each: flushing what is due, and removing what was deleted.
    housekeeping_interval_ms: int = 3_000

    @staticmethod
    def of(texts: Mapping[str, str]) -> "KeeperConfig":
        """From what the broker was started with and told since, by Kafka's names."""
        found = {}
        for each in fields(KeeperConfig):
            key = BROKER_CONFIGS.get(each.name.replace("_", "."))
            text = texts.get(each.name.replace("_", "."))
            if text is not None:
                with suppress(ConfigError, ValueError):
                    found[each.name] = key.parse(text) if key is not None else int(text)
        return KeeperConfig(**found)


class ReplicaDescription(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


class DirDescription(NamedTuple):
    """A directory as DescribeLogDirs tells it."""

    path: str
    directory_id: Uuid | None
    failure: str | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaDescription, ...]


class LogKeeper:
    """The duties. One object, in the event loop."""

    def __init__(self, manager: LogManager, config: KeeperConfig) -> None:
        self.config = config
        self.counters = Counters()
        self.cleanings = 0
        self._manager = manager
        self._files = manager.files
        self._clock = manager.clock
        self._throttle = Throttle(
            self._clock, lambda: self.config.log_cleaner_io_max_bytes_per_second
        )
        self._uncleanable: set[Key] = set()  # Their compaction failed: not tried again.

    # -- checkpoints ------------------------------------------------------------------------

    def checkpoint_high_watermarks(self) -> None:
        for where in self._manager.online_dirs():
            self._fail_if(where, _write(where, *self._high_watermarks(where)))

    def checkpoint_starts(self) -> None:
        """Where logs begin, and what is known of their producers."""
        for where in self._manager.online_dirs():
            self._fail_if(where, _write(where, *self._log_starts(where)))
        for kept in self._logs():
            with self._manager.watched(kept):
                if kept.hosted is not None:
                    save_producers(self._files, kept.log, kept.hosted.producers)

    def _high_watermarks(self, where: DirState) -> tuple[OffsetCheckpoint, dict[Partition, int]]:
        return where.high_watermarks, self._manager.high_watermarks(where)

    def _log_starts(self, where: DirState) -> tuple[OffsetCheckpoint, dict[Partition, int]]:
        """As in Kafka, only those that the first segment's name does not tell."""
        return where.log_starts, {
            kept.partition: kept.log.start_offset
            for kept in self._logs(where)
            if kept.log.start_offset > kept.log.segment_bases[0]
        }

    def _fail_if(self, where: DirState, fault: DiskFault | None) -> None:
        """In the event loop, whatever thread met the fault."""
        if fault is not None:
            self._manager.fail_directory(where, fault)

    def _logs(self, where: DirState | None = None) -> list[KeptLog]:
        """As of now: one that fails leaves the table meanwhile."""
        every = self._manager.kept.values()
        return [kept for kept in every if where is None or kept.dir is where]

    # -- retention --------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Delete segments that are too old or too much; how many there were."""
        return sum(self.apply_retention_to(kept) for kept in self._logs())

    def apply_retention_to(self, kept: KeptLog) -> int:
        with self._manager.watched(kept):
            count = kept.log.delete_old_segments(upto=kept.high_watermark)
            if count:
                log.info(
                    "segments_deleted",
                    partition=f"{kept.topic}-{kept.index}",
                    count=count,
                    log_start_offset=kept.log.start_offset,
                )
            return count
        return 0

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for kept in self._logs():
            if kept.hosted is not None:
                kept.hosted.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # -- flushing ---------------------------------------------------------------------------

    def flush_due(self) -> None:
        """Flush the logs whose settings say so, and those that began a new segment since."""
        self._fail_all(_flush(self._logs()))

    def _fail_all(self, faults: list[tuple[DirState, DiskFault]]) -> None:
        for where, fault in faults:
            self._manager.fail_directory(where, fault)

    # -- compaction -------------------------------------------------------------------------

    def clean_one(self) -> bool:
        """Compact the dirtiest log, here and now; False if none is dirty enough."""
        chosen = self.choose()
        if chosen is None:
            return False
        kept, cleaning = chosen
        error = self.work(kept, cleaning)
        while self.finish(kept, cleaning, error):
            pass
        return True

    def choose(self) -> tuple[KeptLog, Cleaning] | None:
        """The log that is compacted next."""
        now_ms = self._clock.now_ms()
        best = None
        for kept in self._logs():
            config = kept.settings.compaction
            if config is None or kept.hosted is None or kept.key in self._uncleanable:
                continue
            due = dirtiness(
                kept.log,
                config,
                checkpoint=kept.dir.clean_ends.get(kept.partition),
                committed_end=kept.committed_end,
                now_ms=now_ms,
            )
            if due.is_due(config) and (best is None or due.dirty_ratio > best[1].dirty_ratio):
                best = kept, due, config
        if best is None:
            return None
        kept, due, config = best
        assert kept.hosted is not None
        last_offsets = [
            producer.batches[-1].last_offset
            for producer in kept.hosted.producers.producers.values()
            if producer.batches
        ]
        return kept, begin(self._files, kept.log, config, due, last_offsets, now_ms)

    def work(self, kept: KeptLog, cleaning: Cleaning) -> Exception | None:
        """For a thread; what went wrong."""
        try:
            kept.log.flush()  # Only what is synced is replaced: recovery takes it for whole.
            cleaning.run(self.config.log_cleaner_dedupe_buffer_size, self._throttle)
        except (CleaningStopped, StorageError, DiskFault) as error:
            return error
        return None

    def finish(self, kept: KeptLog, cleaning: Cleaning, error: Exception | None) -> bool:
        """Take up one segment of the result, in the event loop; whether there is more of it."""
        if self._manager.kept.get(kept.key) is not kept:
            return False  # Deleted or offline meanwhile, and with it all that was written.
        with self._manager.watched(kept):
            if error is None:
                if cleaning.cleaned and not take_up_next(kept.log, cleaning):
                    return False
                if not cleaning.cleaned:
                    self._note(kept, cleaning)
                return bool(cleaning.cleaned)
            cleaning.discard()
            if isinstance(error, DiskFault):
                raise error
        if isinstance(error, StorageError):
            self._uncleanable.add(kept.key)
            log.error("cleaning_failed", dir=kept.log.directory, reason=str(error))
        return False

    def _note(self, kept: KeptLog, cleaning: Cleaning) -> None:
        where = kept.dir
        where.clean_ends[kept.partition] = cleaning.end_offset
        where.cleaner_offsets.write(where.clean_ends)
        self.cleanings += 1
        done, total = cleaning.counters, self.counters
        for name in done.__slots__:
            setattr(total, name, getattr(total, name) + getattr(done, name))
        log.info(
            "log_compacted",
            partition=f"{kept.topic}-{kept.index}",
            clean_upto=cleaning.end_offset,
            bytes_before=done.bytes_read,
            bytes_after=done.bytes_written,
        )

    # -- removal ----------------------------------------------------------------------------

    def remove_doomed(self) -> None:
        """Remove directories of deleted partitions whose time has come."""
        _remove_trees(self._files, self._due_for_removal())

    def _due_for_removal(self) -> list[str]:
        now_ms = self._clock.monotonic_ms()
        every, self._manager.doomed = self._manager.doomed, []
        self._manager.doomed = [each for each in every if each[0] > now_ms]
        return [path for due_ms, where, path in every if due_ms <= now_ms and where.is_online]

    # -- DescribeLogDirs --------------------------------------------------------------------

    def describe(self) -> list[DirDescription]:
        found = [self._describe(where) for where in self._manager.dirs]
        for path, reason in sorted(self._manager.failed_at_start.items()):
            found.append(DirDescription(path, None, reason, -1, -1, ()))
        return found

    def _describe(self, where: DirState) -> DirDescription:
        total, usable = -1, -1
        if where.is_online:
            try:
                total, usable = self._files.space(where.path)
            except OSError as error:
                self._manager.fail_directory(where, DiskFault(f"{where.path}: {error}"))
        replicas = tuple(
            ReplicaDescription(
                kept.topic,
                kept.index,
                kept.log.size_bytes,
                max(0, kept.high_watermark - kept.log.end_offset),
            )
            for kept in sorted(self._logs(where), key=lambda kept: kept.partition)
        )
        return DirDescription(
            where.path, where.directory_id, where.failure, total, usable, replicas
        )

    # -- in their turns ---------------------------------------------------------------------

    async def run(self) -> None:
        """All duties, for as long as the broker runs; cancel it to end."""
        config = self.config
        try:
            async with asyncio.TaskGroup() as group:
                for interval_ms, duty in (
                    (config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint),
                    (config.log_flush_start_offset_checkpoint_interval_ms, self._checkpoint_starts),
                    (config.log_retention_check_interval_ms, self._retention),
                    (config.housekeeping_interval_ms, self._flush_and_remove),
                ):
                    group.create_task(self._repeat(interval_ms, duty))
                group.create_task(self._clean())
        finally:
            self._throttle.stopping.set()

    async def _repeat(self, interval_ms: int, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(min(interval_ms, _DAY_MS) / 1000)  # More is never, as well.
            await duty()

    async def _checkpoint(self) -> None:
        for where in self._manager.online_dirs():
            checkpoint, offsets = self._high_watermarks(where)
            self._fail_if(where, await asyncio.to_thread(_write, where, checkpoint, offsets))

    async def _checkpoint_starts(self) -> None:
        self.checkpoint_starts()

    async def _retention(self) -> None:
        for kept in self._logs():
            if self._manager.kept.get(kept.key) is kept:
                self.apply_retention_to(kept)
            await asyncio.sleep(0)  # Others first: a segment's removal may take a while.
        self.expire_producers()

    async def _flush_and_remove(self) -> None:
        self._fail_all(await asyncio.to_thread(_flush, self._logs()))
        await asyncio.to_thread(_remove_trees, self._files, self._due_for_removal())

    async def _clean(self) -> None:
        while True:
            chosen = self.choose()
            if chosen is None:
                await asyncio.sleep(min(self.config.log_cleaner_backoff_ms, _DAY_MS) / 1000)
                continue
            kept, cleaning = chosen
            error = await asyncio.to_thread(self.work, kept, cleaning)
            while self.finish(kept, cleaning, error):
                await asyncio.sleep(0)  # Each takes two syncs: others first.


# -- for threads: what these are given belongs to them, and faults are told, not handled ----------


def _write(
    where: DirState, checkpoint: OffsetCheckpoint, offsets: dict[Partition, int]
) -> DiskFault | None:
    try:
        checkpoint.write(offsets)
    except OSError as error:
        return DiskFault(f"cannot write a checkpoint in {where.path}: {error}")
    return None


def _flush(logs: Sequence[KeptLog]) -> list[tuple[DirState, DiskFault]]:
    """Logs let themselves be flushed beside their appends.

    A log that began a new segment is flushed too, as in Kafka: after a crash only what is behind
    the recovery point is read, and without this that would be all of it.
    """
    faults = []
    for kept in logs:
        try:
            if kept.log.flushed_end_offset < kept.log.segment_bases[-1]:
                kept.log.flush()
            else:
                kept.log.flush_if_due()
        except DiskFault as fault:
            faults.append((kept.dir, fault))
    return faults


def _remove_trees(files: FileLayer, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            remove_tree(files, path)
        except OSError as error:
            # Nothing depends on it: the next start tries again.
            log.warning("partition_not_removed", dir=path, reason=str(error))
