"""Rules about partitions of data: what replicas hold, against each other and the metadata. Pure.

Rows are of replicas whose brokers have been quiet long enough to catch up, or are stopped: a
replica that lags is not wrong, so only what lies below a high watermark is compared.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.node_logs import Broken
from kraftpy.audit.rules.rows import (
    AckRow,
    CommitRow,
    DataBatchRow,
    EpochRow,
    LeaderEpochRow,
    ProducerBlock,
    ReplicaLogRow,
)
from kraftpy.audit.rules.rule import PartitionKey, Violation

Isrs: TypeAlias = Mapping[PartitionKey, Iterable[int]]
_LAST = (1 << 63) - 1
_SEQUENCES = 1 << 31  # Where a producer's sequence begins at 0 again.


def _violation(
    number: int, key: PartitionKey, node: int, offset: int, epoch: int, expected: str, actual: str
) -> Violation:
    return Violation(
        rule=RULES[number],
        node=node,
        offset=offset,
        epoch=epoch,
        expected=expected,
        actual=actual,
        topic_id=key[0],
        partition=key[1],
    )


def _grouped(rows: Iterable[DataBatchRow]) -> Iterator[tuple[PartitionKey, list[DataBatchRow]]]:
    found: dict[PartitionKey, list[DataBatchRow]] = defaultdict(list)
    for row in rows:
        found[row.topic_id, row.partition].append(row)
    yield from sorted(found.items())


def acked_records_are_in_sync(
    acks: Iterable[AckRow], batches: Iterable[DataBatchRow], isrs: Isrs
) -> Broken:
    """A54: every record that was acknowledged with acks=all lies on every running member of the
    ISR and the ELR, at its offset. `isrs` has them, for partitions whose brokers are at rest."""
    held: dict[tuple[PartitionKey, int], list[tuple[int, int]]] = defaultdict(list)
    for row in batches:
        place = (row.topic_id, row.partition), row.node
        held[place].append((row.base_offset, row.end_offset))
    for spans in held.values():
        spans.sort()
    for ack in acks:
        key = ack.topic_id, ack.partition
        for node in isrs.get(key, ()):
            spans = held.get((key, node), [])
            at = bisect_right(spans, (ack.offset, _LAST)) - 1
            if at < 0 or ack.offset >= spans[at][1]:
                due = f"the acknowledged record of offset {ack.offset}"
                yield _violation(54, key, node, ack.offset, ack.epoch, due, "nothing there")


def replicas_are_equal(batches: Iterable[DataBatchRow], logs: Iterable[ReplicaLogRow]) -> Broken:
    """A55: offsets and epochs grow; below two high watermarks replicas hold the same bytes.

    Compaction takes records out of batches, one replica at a time: compacted topics are left out
    by whoever reads them."""
    ends = {(log.topic_id, log.partition, log.node): log.high_watermark for log in logs}
    for key, rows in _grouped(batches):
        rows.sort(key=lambda row: (row.node, row.base_offset))
        yield from _grow(key, rows)
        first: dict[int, DataBatchRow] = {}
        for row in rows:
            other = first.setdefault(row.base_offset, row)
            limit = min(ends.get((*key, row.node), -1), ends.get((*key, other.node), -1))
            same = (row.epoch, row.crc, row.end_offset) == (
                other.epoch,
                other.crc,
                other.end_offset,
            )
            if row.end_offset <= limit and not same:
                due = f"the batch of node {other.node}, of epoch {other.epoch}"
                found = f"another, of epoch {row.epoch}"
                yield _violation(55, key, row.node, row.base_offset, row.epoch, due, found)


def _grow(key: PartitionKey, rows: list[DataBatchRow]) -> Broken:
    last: DataBatchRow | None = None
    for row in rows:
        if last is not None and last.node == row.node:
            if row.base_offset < last.end_offset:
                due, found = f"offset {last.end_offset} or later", str(row.base_offset)
                yield _violation(55, key, row.node, row.base_offset, row.epoch, due, found)
            if row.epoch < last.epoch:
                due, found = f"epoch {last.epoch} or later", str(row.epoch)
                yield _violation(55, key, row.node, row.base_offset, row.epoch, due, found)
        last = row


def epochs_are_of_leaders(
    epochs: Iterable[EpochRow], batches: Iterable[DataBatchRow], known: Iterable[LeaderEpochRow]
) -> Broken:
    """A56: a checkpoint's entries grow, begin where their first batch does, and are epochs that the
    metadata log has had; so are those of batches. `known` has every epoch of its partitions."""
    leaders: dict[PartitionKey, dict[int, int]] = defaultdict(dict)
    for each in known:
        leaders[each.topic_id, each.partition][each.epoch] = each.leader
    firsts: dict[tuple[PartitionKey, int, int], int] = {}
    for row in batches:
        at = (row.topic_id, row.partition), row.node, row.epoch
        firsts[at] = min(firsts.get(at, row.base_offset), row.base_offset)
    last: EpochRow | None = None
    for entry in sorted(epochs, key=lambda each: (each.topic_id, each.partition, each.node)):
        key = entry.topic_id, entry.partition
        is_next = last is not None and last[:3] == entry[:3]
        if is_next and not _grows(last, entry):
            assert last is not None
            due = f"an entry beyond epoch {last.epoch} at offset {last.start_offset}"
            found = f"epoch {entry.epoch} at {entry.start_offset}"
            yield _violation(56, key, entry.node, entry.start_offset, entry.epoch, due, found)
        last = entry
        if key in leaders and entry.epoch not in leaders[key]:
            due = f"an epoch up to {max(leaders[key])}, as in the metadata"
            found = str(entry.epoch)
            yield _violation(56, key, entry.node, entry.start_offset, entry.epoch, due, found)
        first = firsts.get((key, entry.node, entry.epoch))
        if first is not None and first < entry.start_offset:
            due, found = f"a start at offset {first}, as its first batch", str(entry.start_offset)
            yield _violation(56, key, entry.node, entry.start_offset, entry.epoch, due, found)


def _grows(last: EpochRow | None, entry: EpochRow) -> bool:
    assert last is not None
    return entry.epoch > last.epoch and entry.start_offset >= last.start_offset


def acks_are_by_the_leader(acks: Iterable[AckRow], known: Iterable[LeaderEpochRow]) -> Broken:
    """A57: who acknowledged a record led the epoch that the record is stamped with."""
    leaders = {(each.topic_id, each.partition, each.epoch): each.leader for each in known}
    for ack in acks:
        leader = leaders.get((ack.topic_id, ack.partition, ack.epoch))
        if ack.epoch >= 0 and leader not in (None, ack.node):
            key = ack.topic_id, ack.partition
            due = f"an ack by broker {leader}, who led epoch {ack.epoch}"
            yield _violation(57, key, ack.node, ack.offset, ack.epoch, due, f"by {ack.node}")


def sequences_are_dense(
    batches: Iterable[DataBatchRow], blocks: Iterable[ProducerBlock] | None = None
) -> Broken:
    """A58: of each producer in each of its epochs, in a replica's log; and its id was given away.

    Retention may have taken the first ones: a gap before the first batch is none.
    """
    given = None if blocks is None else sorted(blocks)
    for key, rows in _grouped(batches):
        last: dict[tuple[int, int, int], DataBatchRow] = {}
        for row in sorted(rows, key=lambda each: (each.node, each.base_offset)):
            if row.producer_id < 0 or row.is_control:
                continue
            if given is not None and not any(b.first <= row.producer_id < b.end for b in given):
                due, found = "a producer id that was given away", str(row.producer_id)
                yield _violation(58, key, row.node, row.base_offset, row.epoch, due, found)
            before = last.get((row.node, row.producer_id, row.producer_epoch))
            last[row.node, row.producer_id, row.producer_epoch] = row
            if before is None:
                continue
            due_at = (before.base_sequence + before.records) % _SEQUENCES
            if row.base_sequence != due_at:
                due, found = f"sequence {due_at}", str(row.base_sequence)
                yield _violation(58, key, row.node, row.base_offset, row.epoch, due, found)


def commits_are_of_what_is_there(
    commits: Iterable[CommitRow], logs: Iterable[ReplicaLogRow]
) -> Broken:
    """A60: a committed offset is not beyond the partition's end, on whichever replica has most."""
    ends: dict[PartitionKey, int] = {}
    for log in logs:
        key = log.topic_id, log.partition
        ends[key] = max(ends.get(key, 0), log.end_offset)
    for commit in commits:
        key = commit.topic_id, commit.partition
        if commit.offset > ends.get(key, commit.offset):
            due = f"an offset of group {commit.group} up to {ends[key]}"
            yield _violation(60, key, -1, commit.offset, -1, due, str(commit.offset))
