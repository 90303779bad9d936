"""A metadata log as a controller would give it out: batches, epochs, and a snapshot of any part."""

from collections.abc import Callable, Sequence

from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.delta import replay_batch
from kraftpy.metadata_log.snapshot_file import SnapshotId, write_snapshot
from kraftpy.testing.simulated_files import SimulatedFiles
from kraftpy.types import TopicId, Uuid
from tests.unit.metadata_log.makers import config, partition, quota, register, topic


class Written:
    """A snapshot that was written at once, in the caller's thread."""

    def __init__(self, write: Callable[[], None]) -> None:
        write()

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        """It is done."""


def topic_id(number: int) -> TopicId:
    return TopicId(Uuid(number.to_bytes(16, "big")))


def life_of_a_cluster(topics: int = 12) -> list[list[MetadataRecord]]:
    """Batches in which brokers, topics, configs and quotas come and go."""
    batches: list[list[MetadataRecord]] = [[register(1), register(2)], [register(3, epoch=2)]]
    for number in range(100, 100 + topics):
        name, uuid = f"topic-{number}", topic_id(number)
        parts = [partition(index, topic_id=uuid) for index in range(3)]
        batches.append([topic(name, uuid), *parts])
        batches.append([config("retention.ms", str(number), name), quota(float(number))])
    return batches


class History:
    """Committed batches, and the image after each of them."""

    def __init__(self, batches: Sequence[Sequence[MetadataRecord]], per_epoch: int = 5) -> None:
        self.images: dict[int, ClusterImage] = {0: EMPTY}
        self.batches: dict[int, bytes] = {}  # By base offset.
        offset, image = 0, EMPTY
        for number, records in enumerate(batches):
            epoch, at_ms = 1 + number // per_epoch, 1_700_000_000_000 + number
            self.batches[offset] = bytes(
                record_batch(records, base_offset=offset, epoch=epoch, timestamp_ms=at_ms)
            )
            image = replay_batch(image, records, offset, epoch, at_ms)
            offset += len(records)
            self.images[offset] = image

    @property
    def end_offset(self) -> int:
        return max(self.images)

    def after(self, offset: int, count: int = 1 << 30) -> bytes:
        """Up to `count` batches from `offset` on, which is where one begins."""
        found = [data for base, data in sorted(self.batches.items()) if base >= offset]
        return b"".join(found[:count])

    def snapshot(self, end_offset: int) -> tuple[SnapshotId, bytes]:
        files = SimulatedFiles()
        files.make_directory("/made")
        snapshot_id = write_snapshot(files, "/made", self.images[end_offset])
        return snapshot_id, files.read_whole(f"/made/{snapshot_id.file_name}")
