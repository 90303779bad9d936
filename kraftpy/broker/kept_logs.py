"""What the log manager holds: the partitions' logs, and the states of their directories."""

from dataclasses import dataclass, field

from kraftpy.broker.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OffsetCheckpoint,
    Partition,
)
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.log_dirs import LogDir
from kraftpy.broker.log_settings import PartitionSettings
from kraftpy.broker.producer_state import ProducerStates
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.log import Log
from kraftpy.types import TopicId, Uuid

Key = tuple[TopicId, int]


class DirState:
    """One data directory while it works: its checkpoints, and what they said at the start."""

    def __init__(self, files: FileLayer, log_dir: LogDir) -> None:
        assert log_dir.identity is not None, "directories are formatted first"
        self.path = log_dir.path
        self.directory_id: Uuid = log_dir.identity.directory_id
        self.was_clean = log_dir.directory.was_clean
        self.failure: str | None = None
        self.high_watermarks = OffsetCheckpoint(files, self.path, HIGH_WATERMARKS)
        self.log_starts = OffsetCheckpoint(files, self.path, LOG_STARTS)
        self.cleaner_offsets = OffsetCheckpoint(files, self.path, CLEANER_OFFSETS)
        self.known_high_watermarks: dict[Partition, int] = {}
        self.clean_ends: dict[Partition, int] = {}  # Up to where logs are compacted.

    def load(self) -> None:
        self.known_high_watermarks = self.high_watermarks.load()
        self.clean_ends = self.cleaner_offsets.load()
        self.log_starts.load()  # Logs know it themselves; Kafka's tools read it here.

    @property
    def is_online(self) -> bool:
        return self.failure is None


@dataclass(slots=True, eq=False)
class KeptLog:
    """An open log; `hosted` once metadata says that its partition is served."""

    topic: str
    topic_id: TopicId
    index: int
    dir: DirState
    log: Log
    settings: PartitionSettings
    producers: ProducerStates
    hosted: HostedPartition | None = field(default=None)

    @property
    def key(self) -> Key:
        return self.topic_id, self.index

    @property
    def partition(self) -> Partition:
        return self.topic, self.index

    @property
    def high_watermark(self) -> int:
        if self.hosted is not None:
            return self.hosted.replica.high_watermark
        known = self.dir.known_high_watermarks.get(self.partition, 0)
        return max(self.log.start_offset, min(known, self.log.end_offset))

    @property
    def committed_end(self) -> int:
        """What is before it is decided: neither uncommitted nor of an open transaction."""
        return self.hosted.replica.last_stable_offset if self.hosted is not None else 0
