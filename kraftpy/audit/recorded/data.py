"""Partitions of data in brokers' directories as rows for the rules, and what the rules say.

Only headers are read, batch by batch, with their CRCs; of `__consumer_offsets` the records, too.
Metadata says what each partition should be: whoever led it and when, who is in sync, which producer
ids were given away. Compacted topics are not compared: each replica compacts on its own. Meant for
clusters that are stopped or quiet; a replica that is being written may end with half a batch.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kraftpy.audit.recorded.history import ack_rows, read_acks
from kraftpy.audit.recorded.notes import Recorded
from kraftpy.audit.recorded.places import METADATA_LOG, Place
from kraftpy.audit.recorded.reading import LogEntries
from kraftpy.audit.rules import data_logs
from kraftpy.audit.rules.rows import (
    AckRow,
    CommitRow,
    DataBatchRow,
    EpochRow,
    LeaderEpochRow,
    ProducerBlock,
    ReplicaLogRow,
)
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, PartitionKey
from kraftpy.audit.rules.view import View
from kraftpy.broker.checkpoints import HIGH_WATERMARKS, parse_offsets
from kraftpy.broker.partition_dirs import PartitionDir, find_partition_dirs, read_topic_id
from kraftpy.errors import InvalidBatch, StorageError
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import EMPTY, Partition
from kraftpy.storage.epochs import FILE_NAME as EPOCHS_FILE
from kraftpy.storage.epochs import parse_entries
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.reader import LogReader
from kraftpy.storage.record_batch import BatchHeader, iter_records
from kraftpy.types import NO_LEADER, TopicId

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_META_FILE: Final = "meta.properties"
_CLEANUP: Final = "cleanup.policy"
_INTERNAL: Final = (_OFFSETS_TOPIC, "__transaction_state", "__share_group_state")


@dataclass(slots=True)
class MetadataFacts:
    """What the log of a node says about partitions of data."""

    view: View = field(default_factory=lambda: View(EMPTY, KAFKA_DEFAULTS))
    epochs: list[LeaderEpochRow] = field(default_factory=list)
    blocks: list[ProducerBlock] = field(default_factory=list)
    # Partitions whose epochs are known from the first on.
    whole: set[PartitionKey] = field(default_factory=set)
    # The last epoch of a partition that began with somebody who may lack what was acknowledged.
    unclean: dict[PartitionKey, int] = field(default_factory=dict)

    def take(self, record: r.MetadataRecord, *, is_past: bool) -> None:
        if isinstance(record, r.ProducerIdsRecord):
            self.blocks.append(ProducerBlock(self.view.next_producer_id, record.next_producer_id))
        if isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
            key = record.topic_id, record.partition_id
            old = self.view.partition(key)
            self.view.replay(record)
            new = self.view.partition(key)
            if new is not None and (old is None or old.leader_epoch != new.leader_epoch):
                self.epochs.append(LeaderEpochRow(*key, new.leader_epoch, new.leader))
            if old is not None and new is not None and _is_unclean(old, new):
                self.unclean[key] = new.leader_epoch
            if old is None and not is_past:
                self.whole.add(key)
            return
        if is_past and isinstance(record, r.ProducerIdsRecord):
            self.blocks.append(ProducerBlock(0, record.next_producer_id))
        self.view.replay(record)

    def keeps(self, ack: AckRow) -> bool:
        """Whether an acknowledged record must still be there: an unclean election may lose it."""
        return ack.epoch >= self.unclean.get((ack.topic_id, ack.partition), ack.epoch)

    def is_compacted(self, topic: str) -> bool:
        values = self.view.configs.get((r.TOPIC_RESOURCE, topic))
        policy = "" if values is None else values.get(_CLEANUP, "")
        return topic in _INTERNAL or "compact" in policy


def _is_unclean(old: Partition, new: Partition) -> bool:
    return new.leader not in (NO_LEADER, old.leader, *old.isr, *old.elr)


@dataclass(slots=True)
class DataRows:
    batches: list[DataBatchRow] = field(default_factory=list)
    logs: list[ReplicaLogRow] = field(default_factory=list)
    epochs: list[EpochRow] = field(default_factory=list)
    commits: list[tuple[str, str, int, int]] = field(default_factory=list)
    compacted: set[PartitionKey] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DataAudit:
    recorded: Recorded
    problems: list[str]


def check_data(
    files: FileLayer,
    places: Sequence[Place],
    history: str | None = None,
    noted: Sequence[AckRow] = (),
) -> DataAudit:
    """A55, A56, A58 and A60 over every broker's directory among the places; A54 and A57 too, with
    what brokers noted of their acknowledgements, or a history of what producers were told."""
    facts = read_facts(files, places)
    rows = DataRows()
    for place in places:
        node = _node_of(files, place.data)
        for found in find_partition_dirs(files, place.data, METADATA_LOG):
            _read_partition(files, place.data, node, found, facts, rows)
    out = Recorded()
    plain = [row for row in rows.batches if (row.topic_id, row.partition) not in rows.compacted]
    known = [row for row in facts.epochs if (row.topic_id, row.partition) in facts.whole]
    out.look(55, len(plain), data_logs.replicas_are_equal(plain, rows.logs))
    out.look(56, len(rows.epochs), data_logs.epochs_are_of_leaders(rows.epochs, plain, known))
    idempotent = sum(row.producer_id >= 0 for row in plain)
    out.look(58, idempotent, data_logs.sequences_are_dense(plain, facts.blocks or None))
    told = [] if history is None else _told(files, history, facts)
    _check_acks([*noted, *told], facts, rows, out)
    commits = list(_commits(facts, rows))
    out.look(60, len(commits), data_logs.commits_are_of_what_is_there(commits, rows.logs))
    _name_topics(out, facts)
    return DataAudit(out, rows.problems)


def _told(files: FileLayer, history: str, facts: MetadataFacts) -> list[AckRow]:
    ids = {
        name: found
        for name in facts.view.topic_ids.changed
        if (found := facts.view.topic_ids.get(name)) is not None
    }
    return list(ack_rows(read_acks(files, history), ids))


def _check_acks(
    every: Sequence[AckRow], facts: MetadataFacts, rows: DataRows, out: Recorded
) -> None:
    """Only of replicas that are at hand, and of partitions whose records are all there still."""
    here = {(log.topic_id, log.partition, log.node): log.start_offset for log in rows.logs}
    isrs = {}
    for key in {(log.topic_id, log.partition) for log in rows.logs} - rows.compacted:
        state = facts.view.partition(key)
        members = () if state is None else {*state.isr, *state.elr}
        isrs[key] = [node for node in sorted(members) if here.get((*key, node)) == 0]
    acks = [ack for ack in every if (ack.topic_id, ack.partition) in isrs and facts.keeps(ack)]
    out.look(54, len(acks), data_logs.acked_records_are_in_sync(acks, rows.batches, isrs))
    told = [ack for ack in every if ack.epoch >= 0]
    out.look(57, len(told), data_logs.acks_are_by_the_leader(told, facts.epochs))


def read_facts(files: FileLayer, places: Sequence[Place]) -> MetadataFacts:
    """From the log that goes furthest."""
    best = max(places, key=lambda place: _log_end(files, place.log))
    facts = MetadataFacts()
    for entry in LogEntries(files, best.log):
        if isinstance(entry.record, r.Record):
            facts.take(entry.record, is_past=entry.is_past)
    return facts


def _log_end(files: FileLayer, directory: str) -> int:
    try:
        reader = LogReader(files, directory)
        for _ in reader.batches():
            pass
    except (StorageError, OSError):
        return -1
    return reader.end_offset


def _node_of(files: FileLayer, directory: str) -> int:
    path = os.path.join(directory, _META_FILE)
    if files.exists(path):
        for line in files.read_whole(path).decode(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "node.id" and value.strip().lstrip("-").isdigit():
                return int(value)
    return -1


def _read_partition(
    files: FileLayer,
    data: str,
    node: int,
    found: PartitionDir,
    facts: MetadataFacts,
    rows: DataRows,
) -> None:
    topic_id = read_topic_id(files, found.path)
    if topic_id is None or facts.view.topics.get(topic_id) is None:
        return  # Of a topic that is gone, or about to be.
    key = topic_id, found.partition
    if facts.is_compacted(found.topic):
        rows.compacted.add(key)
    try:
        reader = LogReader(files, found.path, of_topic=True)
        for batch in reader.batches():
            rows.batches.append(_row(node, key, batch.header))
            if found.topic == _OFFSETS_TOPIC and not batch.header.is_control:
                rows.commits += _offset_commits(batch.data)
        _read_epochs(files, node, key, found.path, rows)
    except (StorageError, InvalidBatch, OSError) as error:
        rows.problems.append(str(error))
        return
    marks = _high_watermarks(files, data)
    mark = marks.get((found.topic, found.partition), -1)
    rows.logs.append(ReplicaLogRow(node, *key, reader.start_offset, reader.end_offset, mark))


def _row(node: int, key: PartitionKey, header: BatchHeader) -> DataBatchRow:
    return DataBatchRow(
        node,
        *key,
        header.base_offset,
        header.end_offset,
        header.leader_epoch,
        header.crc,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
        header.is_control,
    )


def _read_epochs(files: FileLayer, node: int, key: PartitionKey, path: str, rows: DataRows) -> None:
    file = os.path.join(path, EPOCHS_FILE)
    if files.exists(file):
        for epoch, start in parse_entries(files.read_whole(file)):
            rows.epochs.append(EpochRow(node, *key, epoch, start))


def _high_watermarks(files: FileLayer, directory: str) -> dict[tuple[str, int], int]:
    path = os.path.join(directory, HIGH_WATERMARKS)
    try:
        return parse_offsets(files.read_whole(path)) if files.exists(path) else {}
    except StorageError:
        return {}


# -- committed offsets -----------------------------------------------------------------------------


def _offset_commits(data: memoryview) -> Iterator[tuple[str, str, int, int]]:
    """(group, topic, partition, offset), -1 where it was removed; what is not understood is not
    an offset."""
    for record in iter_records(data):
        if record.key is None:
            continue
        try:
            version, at = struct.unpack_from(">h", record.key)[0], 2
            if version not in (0, 1):
                continue
            group, at = _string(record.key, at)
            topic, at = _string(record.key, at)
            (partition,) = struct.unpack_from(">i", record.key, at)
            offset = -1 if record.value is None else struct.unpack_from(">q", record.value, 2)[0]
        except (struct.error, UnicodeDecodeError):
            continue
        yield group, topic, partition, offset


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _commits(facts: MetadataFacts, rows: DataRows) -> Iterator[CommitRow]:
    latest = {(group, topic, number): offset for group, topic, number, offset in rows.commits}
    for (group, topic, number), offset in sorted(latest.items()):
        topic_id = facts.view.topic_ids.get(topic)
        if topic_id is not None and offset >= 0:
            yield CommitRow(group, topic_id, number, offset)


def _name_topics(out: Recorded, facts: MetadataFacts) -> None:
    out.violations = [
        replace(each, topic=facts.view.topic_name(TopicId(each.topic_id)) or None)
        if each.topic_id is not None
        else each
        for each in out.violations
    ]
