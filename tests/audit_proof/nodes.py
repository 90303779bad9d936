"""Three nodes with all that can be wrong with their logs, snapshots and notes, among good records.

Node 1 has the whole log, node 2 lacks a batch and has another one in a place, node 3 ends early.
What they share is the good log, and in its middle a few short epochs in which something is amiss.
Each fault is told by rule, node and offset, and nothing else may be.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kraftpy.metadata_log import EMPTY, ClusterImage, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import control_batch, metadata_records, record_batch
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.snapshot_file import write_snapshot
from kraftpy.storage.audit_notes import FILE_NAME
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import read_header
from kraftpy.types import Offset, TopicId, uuid_text
from tests.audit_proof.good import Good, shifted
from tests.unit.audit.log_files import write_segment

LOG = "__cluster_metadata-0"
NODES = (1, 2, 3)
GOOD_NOTES = 1000
Found = tuple[str, int, int]  # Rule, node, offset.


@dataclass(frozen=True)
class NodesPlot:
    """Where the nodes are, and all that an audit of them finds."""

    directory: Path
    due: frozenset[Found]
    records: int
    watermarks: dict[int, int]  # What each node noted.


class Quorum:
    """The logs of three nodes, batch by batch, and what is wrong with them."""

    def __init__(self, good: Good) -> None:
        self.end_offset = good.offset
        self.batches: dict[int, list[bytes]] = {node: [good.before] for node in NODES}
        self.ends: dict[int, int] = {}  # Of those that were cut.
        self.due: set[Found] = set()
        self.watermarks: dict[int, int] = {}

    def write(self, data: bytes, others: dict[int, bytes | None] | None = None) -> int:
        """A batch on every node, but for those that have another one, or none. Its offset."""
        at = self.end_offset
        for node in NODES:
            own = (others or {}).get(node, data)
            if own is not None and node not in self.ends:
                self.batches[node].append(own)
        self.end_offset = at + read_header(data, 0).record_count
        return at

    def nothing(self, epoch: int, *, at: int | None = None, count: int = 1) -> bytes:
        """A batch of records that say nothing."""
        base = self.end_offset if at is None else at
        records = [r.NoOpRecord()] * count
        return bytes(record_batch(records, base_offset=base, epoch=epoch, timestamp_ms=0))

    def leader(self, epoch: int, leader: int, voters: Sequence[int] = NODES) -> bytes:
        record = leader_change(leader, list(voters), list(voters)[:2])
        return bytes(
            control_batch(record, base_offset=self.end_offset, epoch=epoch, timestamp_ms=0)
        )

    def tell(self, rule: int, node: int, offset: int) -> None:
        self.due.add((f"A{rule}", node, offset))

    def tell_of_all(self, rule: int, offset: int) -> None:
        for node in NODES:
            self.tell(rule, node, offset)


def _spoil(log: Quorum) -> None:
    """One fault after the other; every epoch begins with its leader, but where it should not."""
    log.write(log.leader(2, 1))
    at = log.write(log.nothing(2), {2: log.nothing(2, count=2)})
    log.write(log.nothing(2), {2: None})
    log.tell(46, 2, at)
    log.tell(47, 2, at)
    log.tell(47, 2, at + 1)
    at = log.write(log.nothing(2), {2: None})
    log.write(log.nothing(2))
    log.tell(47, 2, at)
    log.tell(38, 2, at + 1)
    log.write(log.leader(3, 2))
    log.tell_of_all(39, log.write(log.nothing(2)))
    log.tell_of_all(39, log.write(log.nothing(4)))
    at = log.write(log.leader(5, 1), {3: log.leader(5, 3)})
    for rule in (40, 46, 47):
        log.tell(rule, 3, at)
    log.tell_of_all(42, log.write(log.leader(6, 1, voters=(1, 4, 5))))
    log.tell_of_all(42, log.write(log.leader(7, 1)))
    log.ends[3] = log.end_offset
    log.write(log.nothing(7))
    log.write(log.leader(8, 3))
    log.tell(49, 3, log.ends[3])


def _image(good: Good) -> ClusterImage:
    """What the good records come to where the faults begin."""
    image, at, view = EMPTY, 0, memoryview(good.before)
    while at < len(view):
        header = read_header(view, at)
        if not header.is_control:
            records = metadata_records(header, view[at : at + header.size])
            image = replay_batch(image, records, header.base_offset, header.leader_epoch)
        at += header.size
    return replace(image, end_offset=Offset(good.offset))


def _first(image: ClusterImage) -> TopicId:
    return min(topic_id for topic_id, _ in image.topics.items())


def _lie(image: ClusterImage) -> ClusterImage:
    """With another epoch of one partition."""
    topic_id = _first(image)
    old = image.partition(topic_id, 0)
    assert old is not None
    change = r.PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=0,
        leader_epoch=old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        isr=old.isr,
    )
    other = replay_batch(image, [change], int(image.end_offset), int(image.epoch))
    return replace(other, end_offset=image.end_offset)


# -- notes -----------------------------------------------------------------------------------------


class Notes:
    """What one node notes in its only life."""

    def __init__(self, node: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self.note("start", node=node, role="controller")

    def note(self, kind: str, **fields: Any) -> None:
        line = {"kind": kind, "life": 0, "at": len(self.lines), "time_ms": 0}
        self.lines.append(line | fields)

    def sample(self, topic_id: TopicId, partition: int, watermark: int, isr: int) -> None:
        """What a broker notes of a partition that it leads."""
        self.note(
            "replica",
            topic="t",
            topic_id=uuid_text(topic_id),
            partition=partition,
            leader_epoch=0,
            partition_epoch=0,
            epoch_start_offset=0,
            high_watermark=watermark,
            end_offset=watermark,
            isr=isr,
            min_isr=2,
        )

    def write(self, directory: Path) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (directory / FILE_NAME).write_text(text)


def _noted(log: Quorum, topic_id: TopicId) -> dict[int, Notes]:
    """What the nodes know as committed, and what they should not have noted."""
    known = {node: Notes(node) for node in NODES}
    for number in range(GOOD_NOTES):
        for node in NODES:
            known[node].note("vote", epoch=number, voted=None)
            known[node].note("vote", epoch=number, voted=1)
            known[node].note("applied", offset=number, digest=f"{number:032x}")
        known[1].sample(topic_id, 2, number, isr=3)
    for node in NODES:
        # Node 3 knows one more than it has.
        end = log.ends.get(node, log.end_offset - 1) + 1
        known[node].note("high_watermark", offset=end, epoch=8)
        log.watermarks[node] = end
    log.tell(48, 3, log.ends[3])
    known[1].note("vote", epoch=GOOD_NOTES - 1, voted=2)
    log.tell(41, 1, 0)
    known[1].note("truncation", offset=5, high_watermark=9)
    log.tell(48, 1, 5)
    known[1].note("applied", offset=GOOD_NOTES, digest="aa")
    known[2].note("applied", offset=GOOD_NOTES, digest="bb")
    log.tell(52, 2, GOOD_NOTES)
    known[1].sample(topic_id, 0, 900, isr=3)
    known[1].sample(topic_id, 0, 850, isr=3)
    log.tell(53, 1, 850)
    known[1].sample(topic_id, 1, 900, isr=1)
    known[1].sample(topic_id, 1, 910, isr=1)
    log.tell(59, 1, 910)
    return known


# -- the directories -------------------------------------------------------------------------------


def write_nodes(good: Good, directory: Path) -> NodesPlot:
    log = Quorum(good)
    _spoil(log)
    behind = shifted(good.behind, log.end_offset - good.offset, epoch=8)
    for node in NODES:
        if node not in log.ends:
            log.batches[node].append(behind)
    log.end_offset += good.end_offset - good.offset
    image = _image(good)
    for node, notes in _noted(log, _first(image)).items():
        place = directory / f"node-{node}"
        write_segment(place / LOG, log.batches[node])
        (place / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
        notes.write(place)
    _write_snapshots(log, image, directory)
    return NodesPlot(directory, frozenset(log.due), good.records, log.watermarks)


def _write_snapshots(log: Quorum, image: ClusterImage, directory: Path) -> None:
    """One that is not the log, one that is, and one of what the log never had."""
    files, offset = OsFiles(), int(image.end_offset)
    write_snapshot(files, str(directory / "node-1" / LOG), _lie(image))
    log.tell(50, 1, offset)
    write_snapshot(files, str(directory / "node-2" / LOG), image)
    later = Offset(log.end_offset + 1000)
    write_snapshot(files, str(directory / "node-2" / LOG), replace(image, end_offset=later))
    log.tell(51, 2, int(later))
