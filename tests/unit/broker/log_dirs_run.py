"""A broker's logs on simulated disks, with metadata of a few topics: started, killed, again."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.kept_logs import Key
from kraftpy.broker.log_dirs import LogDirs
from kraftpy.broker.log_keeper import KeeperConfig, LogKeeper
from kraftpy.broker.log_manager import LogManager, LogManagerConfig
from kraftpy.clock import ManualClock
from kraftpy.errors import KraftError
from kraftpy.metadata_log import EMPTY, ClusterDelta, ClusterImage
from kraftpy.metadata_log import records as r
from kraftpy.storage.record_batch import Record, build_batch
from kraftpy.testing import SimulatedFiles
from kraftpy.types import BrokerId, TopicId, Uuid

BROKER = BrokerId(1)
CLUSTER_ID = Uuid(b"C" * 16)
PATHS = ("/disk1", "/disk2")


def topic_id(name: str, incarnation: int = 0) -> TopicId:
    return TopicId(Uuid(name.encode().ljust(15, b"_")[:15] + bytes([incarnation])))


def image_of(
    topics: Mapping[str, int],
    *,
    configs: Mapping[tuple[int, str, str], str] | None = None,
    incarnations: Mapping[str, int] | None = None,
    directories: Mapping[tuple[str, int], Uuid] | None = None,
    partition_epoch: int = 0,
) -> ClusterImage:
    """Topics with so many partitions, all on this broker."""
    delta = ClusterDelta(EMPTY)
    found: list[r.MetadataRecord] = []
    for name, count in topics.items():
        known = topic_id(name, (incarnations or {}).get(name, 0))
        found.append(r.TopicRecord(name=name, topic_id=known))
        for index in range(count):
            where = (directories or {}).get((name, index), r.UNASSIGNED_DIRECTORY)
            found.append(
                r.PartitionRecord(
                    topic_id=known,
                    partition_id=index,
                    replicas=(BROKER,),
                    isr=(BROKER,),
                    leader=BROKER,
                    leader_epoch=0,
                    partition_epoch=partition_epoch,
                    directories=(where,),
                )
            )
    for (kind, resource, key), value in (configs or {}).items():
        found.append(
            r.ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value)
        )
    end_offset = delta.replay_all(found, EMPTY.end_offset)
    return delta.image(end_offset, 1)


@dataclass
class Failures:
    """What was told about directories."""

    failed: list[tuple[Uuid, list[str]]] = field(default_factory=list)
    none_left: int = 0
    lost: list[Key] = field(default_factory=list)

    def log_lost(self, key: Key) -> None:
        self.lost.append(key)

    def directory_failed(
        self, directory_id: Uuid, partitions: Sequence[HostedPartition], error: KraftError
    ) -> None:
        assert str(error)
        self.failed.append((directory_id, sorted(map(str, partitions))))

    def no_directory_left(self, _error: KraftError) -> None:
        self.none_left += 1


class Broker:
    """The logs of one process."""

    def __init__(
        self,
        files: SimulatedFiles,
        image: ClusterImage,
        *,
        paths: Sequence[str] = PATHS,
        clock: ManualClock | None = None,
        static: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.files = files
        self.image = image
        self.clock = clock or ManualClock()
        self.failures = Failures()
        self.rng = random.Random(len(files.boundaries))
        self.dirs = LogDirs.open(files, paths, BROKER)
        self.dirs.format_new(CLUSTER_ID, self.rng)
        self.manager = LogManager(
            files,
            self.dirs,
            broker_id=BROKER,
            static=static,
            config=LogManagerConfig(),
            clock=self.clock,
            rng=self.rng,
            failures=self.failures,
        )
        self.keeper = LogKeeper(self.manager, KeeperConfig())
        self.manager.open_all(image)
        self.manager.opened()

    def host(self, topic: str, index: int = 0) -> HostedPartition:
        known = self.image.topic_ids[topic]
        return self.manager.host(topic, known, index, self.image)

    def host_all(self) -> list[HostedPartition]:
        return [
            self.host(topic.name, index)
            for topic in sorted(self.image.topics.values(), key=lambda topic: topic.name)
            for index in sorted(topic.partitions)
        ]

    def stop(self) -> bool:
        clean = self.manager.close()
        self.dirs.close(clean=clean, broker_epoch=7)
        return clean

    def killed(self) -> SimulatedFiles:
        """The disks after kill -9."""
        return self.files.process_crash()

    def names(self, path: str) -> list[str]:
        return [name for name in self.files.names(path) if "-" in name and "checkpoint" not in name]


def batch(*keys: bytes, value: bytes | None = b"v", at_ms: int = 0, **fields: int) -> bytearray:
    records = [
        Record(offset=i, timestamp=at_ms, key=key, value=value) for i, key in enumerate(keys)
    ]
    return build_batch(records, **fields)


def fill(partition: HostedPartition, *batches: bytearray, commit: bool = True) -> None:
    """Append as a leader does, and commit."""
    for each in batches:
        partition.producers.append(
            partition.log.check(each).place(partition.log.end_offset, 0)[0][0]
        )
        partition.log.append(each, 0)
    if commit:
        partition.replica.high_watermark = partition.log.end_offset
