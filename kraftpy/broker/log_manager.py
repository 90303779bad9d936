"""The logs of all partitions on a broker: found, opened, made, removed; directories that fail.

At the start every partition directory is opened by a few threads, and repaired from its recovery
point on where the last process was killed. From then on all is done in the event loop, except for
what LogKeeper gives to threads. What always holds:
- a log is used for the topic whose id its directory names, and for no other. A directory of a topic
  that is not this broker's, by the metadata that it starts with, is put aside as `-stray`.
- a directory whose disk fails is not used again by this process. Its partitions are offline, the
  others go on; when no directory is left, the process must end.
- no empty log is made for a partition that may have its records in a directory that failed.
- a log whose bytes are damaged is not used, nor changed; the controller hears that it is lost.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from kraftpy.broker.checkpoints import Partition as CheckpointKey
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.kept_logs import DirState, KeptLog, Key
from kraftpy.broker.log_dirs import LogDirs
from kraftpy.broker.log_settings import PartitionSettings, partition_settings
from kraftpy.broker.partition import Replica, ReplicaConfig
from kraftpy.broker.partition_dirs import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    PartitionDir,
    find_deleted,
    find_partition_dirs,
    put_aside,
    read_topic_id,
    write_topic_id,
)
from kraftpy.broker.producer_files import load_producers, save_producers
from kraftpy.clock import Clock
from kraftpy.config import METADATA_PARTITION, Settings
from kraftpy.describe.configs import StaticConfigs, broker_values, topic_values
from kraftpy.errors import ConfigError, CorruptRecord, DiskFault, KraftError, StorageError
from kraftpy.limits import RECOVERY_PROGRESS_EVERY
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage, ConfigResource, Partition
from kraftpy.metadata_log.records import BROKER_RESOURCE, LOST_DIRECTORY, TOPIC_RESOURCE
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.types import BrokerId, TopicId, Uuid, uuid_text

log = get_logger(__name__)

_NO_PARTITION_EPOCH: Final = 0  # A partition that nothing has happened to yet is new.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Settings of the broker, by Kafka's names and with its defaults."""

    num_recovery_threads_per_data_dir: int = 2
    replica_lag_time_max_ms: int = 30_000

    @staticmethod
    def of(settings: Settings) -> "LogManagerConfig":
        return LogManagerConfig(
            num_recovery_threads_per_data_dir=settings.num_recovery_threads_per_data_dir,
            replica_lag_time_max_ms=settings.replica_lag_time_max_ms,
        )


class Failures(Protocol):
    """Who must know of directories that fail."""

    def directory_failed(
        self, directory_id: Uuid, partitions: Sequence[HostedPartition], error: KraftError
    ) -> None:
        """Its partitions are offline from now on; the controller must be told."""
        ...

    def log_lost(self, key: Key) -> None:
        """Its bytes are damaged: another replica must lead."""
        ...

    def no_directory_left(self, error: KraftError) -> None:
        """The process has nothing left to serve."""
        ...


class LogManager:
    """What kraftpy.broker.replica_manager calls Logs."""

    def __init__(
        self,
        files: FileLayer,
        dirs: LogDirs,
        *,
        broker_id: BrokerId,
        static: StaticConfigs,
        config: LogManagerConfig,
        clock: Clock,
        rng: random.Random,
        failures: Failures,
    ) -> None:
        self.files = files
        self.clock = clock
        self.config = config
        self.dirs = [DirState(files, each) for each in dirs.dirs]
        self.failed_at_start = dict(dirs.failed)
        self.kept: dict[Key, KeptLog] = {}
        self.doomed: list[tuple[int, DirState, str]] = []  # When to remove which directory.
        self._broker_id = broker_id
        self._static = static
        self._rng = rng
        self._failures = failures
        self._unusable: dict[Key, StorageError] = {}  # Logs whose bytes are damaged.
        self._untold: list[tuple[Uuid, KraftError]] = []  # Directories that failed at the start.
        self._is_open = False

    @property
    def _threads(self) -> int:
        return self.config.num_recovery_threads_per_data_dir * max(1, len(self.dirs))

    def online_dirs(self) -> list[DirState]:
        return [each for each in self.dirs if each.is_online]

    def directory_of(self, key: Key) -> Uuid | None:
        """The id of the directory that has this partition's log; a damaged one is in none."""
        kept = self.kept.get(key)
        if kept is None:
            return LOST_DIRECTORY if key in self._unusable else None
        return kept.dir.directory_id

    # -- opening at the start ---------------------------------------------------------------

    def open_all(self, image: ClusterImage) -> None:
        """Open what the directories hold and the metadata knows. Blocks: for a thread.

        Directories that fail meanwhile are told of by `opened`, in the event loop.
        """
        found: list[tuple[DirState, PartitionDir, TopicId]] = []
        for each in self.dirs:
            with self._watched(each):
                each.load()
                self.doomed += [(0, each, path) for path in find_deleted(self.files, each.path)]
                found += [(each, *own) for own in self._own_dirs(each, image)]
        self._refuse_duplicates(found)
        began_ms = self.clock.monotonic_ms()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="log-recovery") as pool:
            opening = [
                (where, at, topic_id, pool.submit(self._open, where, at, topic_id, image))
                for where, at, topic_id in found
            ]
            for done, (where, at, topic_id, future) in enumerate(opening, start=1):
                self._take(where, at, topic_id, future)
                if done % RECOVERY_PROGRESS_EVERY == 0:
                    log.info("logs_opening", opened=done, of=len(opening))
        log.info(
            "logs_opened",
            count=len(self.kept),
            unusable=len(self._unusable),
            ms=self.clock.monotonic_ms() - began_ms,
        )

    def opened(self) -> None:
        """All that could be opened is. From now on failures are told as they happen."""
        self._is_open = True
        for directory_id, error in self._untold:
            self._failures.directory_failed(directory_id, (), error)
        if self._untold and not self.online_dirs():
            self._failures.no_directory_left(self._untold[-1][1])
        self._untold.clear()

    def _own_dirs(
        self, where: DirState, image: ClusterImage
    ) -> Iterator[tuple[PartitionDir, TopicId]]:
        for at in find_partition_dirs(self.files, where.path, METADATA_PARTITION):
            topic_id = read_topic_id(self.files, at.path)
            partition = None if topic_id is None else image.partition(topic_id, at.partition)
            if topic_id is not None and partition and self._broker_id in partition.replicas:
                yield at, topic_id
            else:
                self._put_stray(at.path, topic_id)

    def _put_stray(self, path: str, topic_id: TopicId | None) -> None:
        target = put_aside(self.files, path, STRAY_SUFFIX, self._rng)
        shown = None if topic_id is None else uuid_text(topic_id)
        log.warning("stray_partition", dir=path, kept_as=target, topic_id=shown)

    def _refuse_duplicates(self, found: Iterable[tuple[DirState, PartitionDir, TopicId]]) -> None:
        seen: dict[Key, str] = {}
        for _, at, topic_id in found:
            other = seen.setdefault((topic_id, at.partition), at.path)
            if other != at.path:
                raise ConfigError(f"{at.name} is both in {other} and in {at.path}: remove one")

    def _open(
        self, where: DirState, at: PartitionDir, topic_id: TopicId, image: ClusterImage
    ) -> KeptLog:
        """In any thread: nothing here is shared."""
        settings = self._settings(image, at.topic)
        opened = Log.open(self.files, at.path, settings.log, self.clock)
        producers = load_producers(self.files, opened)
        return KeptLog(at.topic, topic_id, at.partition, where, opened, settings, producers)

    def _take(
        self, where: DirState, at: PartitionDir, topic_id: TopicId, future: "Future[KeptLog]"
    ) -> None:
        key = (topic_id, at.partition)
        try:
            with self._watched(where):
                self.kept[key] = future.result()
        except CorruptRecord as error:
            log.error("log_unusable", partition=at.name, reason=str(error))
            self._unusable[key] = error
        if not where.is_online:
            self.kept.pop(key, None)

    # -- making -----------------------------------------------------------------------------

    async def prepare(self, image: ClusterImage, changes: Changes) -> None:
        """Make the logs of new partitions, in threads, before `changes` are published.

        Each takes a few syncs, and a topic may have thousands of them: in the event loop they
        would keep heartbeats from leaving. What cannot be made here is tried again by `host`,
        which also says why.
        """
        wanted = self._missing(image, changes)
        if wanted:
            for kept in await asyncio.to_thread(self._make_many, wanted, image):
                if kept.dir.is_online:
                    self.kept.setdefault(kept.key, kept)

    def _missing(
        self, image: ClusterImage, changes: Changes
    ) -> list[tuple[DirState, PartitionDir, TopicId]]:
        found = []
        counts = self._counts()
        for topic_id, indexes in changes.topics.items():
            topic = image.topics[topic_id]
            for index in sorted(indexes):
                partition = topic.partitions.get(index)
                key = (topic_id, index)
                if partition is None or key in self.kept or key in self._unusable:
                    continue
                if self._broker_id not in partition.replicas:
                    continue
                where = next(iter(self._candidates(partition, counts)), None)
                if where is not None:
                    counts[id(where)] += 1
                    found.append((where, PartitionDir("", topic.name, index), topic_id))
        return found

    def _make_many(
        self, wanted: Sequence[tuple[DirState, PartitionDir, TopicId]], image: ClusterImage
    ) -> list[KeptLog]:
        """In a thread, and with more of them: syncs of several logs go together."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="log-make") as pool:
            making = [pool.submit(self._make_in, *each, image) for each in wanted]
        failed = (OSError, DiskFault, StorageError)
        return [each.result() for each in making if not isinstance(each.exception(), failed)]

    # -- hosting ----------------------------------------------------------------------------

    def host(
        self, topic: str, topic_id: TopicId, index: int, image: ClusterImage
    ) -> HostedPartition:
        """Open the partition's log, or make one. DiskFault or StorageError if that cannot be."""
        key = (topic_id, index)
        if key in self._unusable:
            raise self._unusable[key]
        kept = self.kept.get(key)
        if kept is None:
            kept = self._make(PartitionDir("", topic, index), topic_id, image)
            self.kept[key] = kept
        replica = Replica(
            self._broker_id,
            kept.log,
            self._replica_config(kept.settings),
            high_watermark=kept.high_watermark,
        )
        kept.hosted = HostedPartition(
            topic, topic_id, index, kept.log, replica, kept.producers, kept.settings.append
        )
        return kept.hosted

    def _make(self, named: PartitionDir, topic_id: TopicId, image: ClusterImage) -> KeptLog:
        partition = image.partition(topic_id, named.partition)
        assert partition is not None, "metadata speaks of it"
        for where in self._candidates(partition, self._counts()):
            with self._watched(where):
                return self._make_in(where, named, topic_id, image)
        raise DiskFault(f"{named.name}: the directory that it belongs to is offline")

    def _make_in(
        self, where: DirState, named: PartitionDir, topic_id: TopicId, image: ClusterImage
    ) -> KeptLog:
        """In any thread."""
        at = named._replace(path=os.path.join(where.path, named.name))
        found = read_topic_id(self.files, at.path) if self.files.exists(at.path) else None
        if found != topic_id:  # Else an attempt that was given up has left it.
            if self.files.exists(at.path):
                self._put_stray(at.path, found)
            self.files.make_directory(at.path)
            write_topic_id(self.files, at.path, topic_id)
        return self._open(where, at, topic_id, image)

    def _counts(self) -> dict[int, int]:
        """How many logs each usable directory has."""
        counts = {id(each): 0 for each in self.online_dirs()}
        for kept in self.kept.values():
            counts[id(kept.dir)] += 1
        return counts

    def _candidates(self, partition: Partition, counts: Mapping[int, int]) -> list[DirState]:
        """Where a new log may be made, the best first: the emptiest, unless metadata says."""
        assigned = partition.directories[partition.replicas.index(self._broker_id)]
        named = [each for each in self.dirs if each.directory_id == assigned]
        if named:
            return [each for each in named if each.is_online]
        online = self.online_dirs()
        is_new = partition.partition_epoch == _NO_PARTITION_EPOCH
        if not is_new and (self.failed_at_start or len(online) < len(self.dirs)):
            return []  # Its records may be in the one that failed.
        return sorted(online, key=lambda each: counts[id(each)])

    def remove(self, partition: HostedPartition) -> None:
        """Its files are not needed any more: out of the way now, removed after a while."""
        kept = self.kept.pop((partition.topic_id, partition.index), None)
        self._unusable.pop((partition.topic_id, partition.index), None)
        if kept is None or not kept.dir.is_online:
            return
        kept.dir.clean_ends.pop(kept.partition, None)
        kept.dir.known_high_watermarks.pop(kept.partition, None)
        with self._watched(kept.dir):
            path = put_aside(self.files, kept.log.directory, DELETE_SUFFIX, self._rng)
            due_ms = self.clock.monotonic_ms() + kept.settings.file_delete_delay_ms
            self.doomed.append((due_ms, kept.dir, path))

    # -- settings ---------------------------------------------------------------------------

    def _settings(self, image: ClusterImage, topic: str) -> PartitionSettings:
        texts = topic_values(image, self._static, self._broker_id, topic)
        return partition_settings(texts, jitter=self._rng.random())

    def _replica_config(self, settings: PartitionSettings) -> ReplicaConfig:
        return ReplicaConfig(
            min_insync_replicas=settings.min_insync_replicas,
            replica_lag_time_max_ms=self.config.replica_lag_time_max_ms,
        )

    def broker_values(self, image: ClusterImage) -> dict[str, str]:
        """This broker's own configs, for KeeperConfig."""
        return broker_values(image, self._static, self._broker_id)

    def configs_changed(self, image: ClusterImage, changed: Iterable[ConfigResource]) -> None:
        """Apply new configs to the open logs that they concern."""
        resources = set(changed)
        every = any(kind == BROKER_RESOURCE for kind, _ in resources)
        for kept in self.kept.values():
            if every or (TOPIC_RESOURCE, kept.topic) in resources:
                kept.settings = self._settings(image, kept.topic)
                kept.log.configure(kept.settings.log)
                if kept.hosted is not None:
                    kept.hosted.replica.config = self._replica_config(kept.settings)
                    kept.hosted.accepts = kept.settings.append

    # -- what happens to logs ---------------------------------------------------------------

    def high_watermark_moved(self, partition: HostedPartition) -> None:
        """Nothing to do at once: the next checkpoint asks the partition itself."""

    def allows_deletion(self, partition: HostedPartition) -> bool:
        """Whether records may be deleted by offset: not from a log that is only compacted."""
        kept = self.kept.get((partition.topic_id, partition.index))
        return kept is None or kept.settings.is_deleted or kept.settings.compaction is None

    def rebuild_producers(self, partition: HostedPartition) -> None:
        """The log was cut: what is known of producers must follow."""
        kept = self.kept.get((partition.topic_id, partition.index))
        if kept is None:
            return
        try:
            kept.producers = partition.producers = load_producers(self.files, kept.log)
        except OSError as error:
            raise DiskFault(f"{partition}: {error}") from error
        clean_end = kept.dir.clean_ends.get(kept.partition)
        if clean_end is not None:
            kept.dir.clean_ends[kept.partition] = min(clean_end, kept.log.end_offset)

    def failed(self, partition: HostedPartition, error: KraftError) -> None:
        """A write or read of its log failed: the disk's fault is its directory's."""
        kept = self.kept.get((partition.topic_id, partition.index))
        if kept is None:
            return
        if isinstance(error, DiskFault):
            self.fail_directory(kept.dir, error)
        else:
            del self.kept[kept.key]
            self._unusable[kept.key] = StorageError(str(error))
            self._failures.log_lost(kept.key)

    def fail_directory(self, where: DirState, error: KraftError) -> None:
        """From now on it is as if it were not there."""
        if not where.is_online:
            return
        where.failure = str(error)
        gone = [kept for kept in self.kept.values() if kept.dir is where]
        for kept in gone:
            del self.kept[kept.key]
        log.error("log_dir_failed", dir=where.path, partitions=len(gone), reason=str(error))
        if not self._is_open:
            self._untold.append((where.directory_id, error))
            return
        hosted = [kept.hosted for kept in gone if kept.hosted is not None]
        self._failures.directory_failed(where.directory_id, hosted, error)
        if not self.online_dirs():
            self._failures.no_directory_left(error)

    def _watched(self, where: DirState) -> "WatchedDir":
        return WatchedDir(where, self.fail_directory)

    def watched(self, kept: KeptLog) -> "WatchedDir":
        """For work on a log: an error of the disk is its directory's and goes no further."""
        return self._watched(kept.dir)

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> bool:
        """Close every log, and note high watermarks; whether all went in order. Blocks."""
        self._is_open = False
        with ThreadPoolExecutor(self._threads, thread_name_prefix="log-close") as pool:
            closing = [(kept, pool.submit(self._close, kept)) for kept in self.kept.values()]
            for kept, future in closing:
                with self._watched(kept.dir):
                    future.result()
        for where in self.online_dirs():
            with self._watched(where):
                where.high_watermarks.write(self.high_watermarks(where))
        return not self._unusable and len(self.online_dirs()) == len(self.dirs)

    def high_watermarks(self, where: DirState) -> dict[CheckpointKey, int]:
        """Of the partitions in one directory, for its checkpoint."""
        logs = (kept for kept in self.kept.values() if kept.dir is where)
        return {kept.partition: kept.high_watermark for kept in logs}

    def _close(self, kept: KeptLog) -> None:
        producers = kept.hosted.producers if kept.hosted is not None else kept.producers
        kept.log.close()
        save_producers(self.files, kept.log, producers)


class WatchedDir:
    """A piece of work in a directory: errors of the disk take it offline, others pass."""

    def __init__(self, where: DirState, fail: Callable[[DirState, KraftError], None]) -> None:
        self._where = where
        self._fail = fail

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, DiskFault):
            self._fail(self._where, error)
            return True
        if isinstance(error, OSError):
            self._fail(self._where, DiskFault(f"{self._where.path}: {error}"))
            return True
        return False
