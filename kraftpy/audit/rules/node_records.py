"""Rules about what nodes noted while they ran: votes, watermarks, truncations, images. Pure.

A node that notes nothing breaks nothing: notes are lost with a crash, and a life may be missing.
Only what was noted is compared, in the order in which one life of a node noted it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.node_logs import Broken, violation
from kraftpy.audit.rules.rows import (
    AppliedRow,
    ReplicaRow,
    TruncationRow,
    VoteRow,
    WatermarkRow,
)
from kraftpy.audit.rules.rule import PartitionKey, Violation

T = TypeVar("T", bound=Any)


def _in_order(rows: Iterable[T]) -> list[T]:
    return sorted(rows, key=lambda row: (row.node, row.life, row.at))


def votes_are_kept(votes: Iterable[VoteRow]) -> Broken:
    """A41: over all lives of a node, as it must never forget them."""
    last: VoteRow | None = None
    for row in _in_order(votes):
        if last is not None and last.node == row.node:
            if row.epoch < last.epoch:
                due = f"epoch {last.epoch} or later"
                yield violation(41, row.node, 0, row.epoch, due, str(row.epoch))
            elif row.epoch == last.epoch and last.voted is not None and row.voted != last.voted:
                due = f"the vote for {last.voted}"
                yield violation(41, row.node, 0, row.epoch, due, f"one for {row.voted}")
        last = row


def truncations_spare_what_is_committed(truncations: Iterable[TruncationRow]) -> Broken:
    """A48."""
    for row in _in_order(truncations):
        if row.offset < row.high_watermark:
            due = f"a cut at the high watermark {row.high_watermark} or later"
            yield violation(48, row.node, row.offset, -1, due, str(row.offset))


def logs_keep_what_was_committed(
    watermarks: Iterable[WatermarkRow], ends: Iterable[tuple[int, int]]
) -> Broken:
    """A48 after the fact: a node's log still goes as far as any high watermark that it noted.
    `ends`: (node, end offset of its log or newest snapshot)."""
    noted: dict[int, int] = {}
    for row in watermarks:
        noted[row.node] = max(noted.get(row.node, 0), row.high_watermark)
    for node, end in sorted(ends):
        if end < noted.get(node, 0):
            due = f"a log up to the high watermark {noted[node]}"
            yield violation(48, node, end, -1, due, f"it ends at {end}")


def images_agree(applied: Iterable[AppliedRow]) -> Broken:
    """A52: equal offsets have equal digests on all nodes; within a life offsets never fall."""
    digests: dict[int, AppliedRow] = {}
    last: AppliedRow | None = None
    for row in _in_order(applied):
        same_life = last is not None and (last.node, last.life) == (row.node, row.life)
        if last is not None and same_life and row.offset < last.offset:
            due = f"offset {last.offset} or more applied"
            yield violation(52, row.node, row.offset, -1, due, str(row.offset))
        last = row
        if not row.digest:
            continue
        first = digests.setdefault(row.offset, row)
        if row.digest != first.digest:
            due = f"the image of node {first.node}, {first.digest}"
            yield violation(52, row.node, row.offset, -1, due, row.digest)


# -- partitions of data ----------------------------------------------------------------------------


def _of_partition(number: int, row: ReplicaRow, expected: str, actual: str) -> Violation:
    return Violation(
        rule=RULES[number],
        node=row.node,
        offset=row.high_watermark,
        epoch=row.leader_epoch,
        expected=expected,
        actual=actual,
        topic_id=row.topic_id,
        partition=row.partition,
    )


def _by_partition(rows: Iterable[ReplicaRow]) -> Iterator[list[ReplicaRow]]:
    found: dict[tuple[bytes, int], list[ReplicaRow]] = defaultdict(list)
    for row in rows:
        found[row.topic_id, row.partition].append(row)
    for key in sorted(found):
        yield found[key]


def watermarks_of_leaders_grow(
    replicas: Iterable[ReplicaRow], unclean: Mapping[PartitionKey, Collection[int]] | None = None
) -> Broken:
    """A53: within a leader epoch, once it has reached the epoch's start. A follower's may fall, and
    so may that of a leader which has not heard yet what its predecessor committed.

    `unclean`: the leader epochs of each partition that began with an unclean election, at which
    what was committed may be lost; None: nobody knows them, and epochs are not compared.
    """
    for rows in _by_partition(replicas):
        last: dict[tuple[int, int], ReplicaRow] = {}
        for row in sorted(rows, key=lambda each: (each.node, each.life, each.at)):
            before = last.get((row.leader_epoch, row.node))
            last[row.leader_epoch, row.node] = row
            if before is None or before.high_watermark < row.epoch_start_offset:
                continue
            if row.high_watermark < before.high_watermark:
                due = f"a high watermark of {before.high_watermark} or more"
                yield _of_partition(53, row, due, str(row.high_watermark))
        if unclean is not None:
            key = rows[0].topic_id, rows[0].partition
            yield from _watermarks_over_epochs(rows, sorted(unclean.get(key, ())))


def _watermarks_over_epochs(rows: list[ReplicaRow], unclean: list[int]) -> Broken:
    """The true one never falls: what an epoch committed, a later one has reached once it is
    past its own start."""
    top: dict[int, int] = {}
    for row in rows:
        if row.high_watermark >= row.epoch_start_offset:
            top[row.leader_epoch] = max(top.get(row.leader_epoch, 0), row.high_watermark)
    highest, last = -1, -1
    for epoch in sorted(top):
        if any(last < each <= epoch for each in unclean):
            highest = -1
        last = epoch
        row = next(each for each in rows if each.leader_epoch == epoch)
        if row.epoch_start_offset < highest:
            due = f"an epoch that begins at {highest} or later, as that was committed"
            yield _of_partition(53, row, due, str(row.epoch_start_offset))
        highest = max(highest, top[epoch])


def watermarks_wait_for_enough(replicas: Iterable[ReplicaRow]) -> Broken:
    """A59: between two samples of one leader with the same partition epoch, in which too few are in
    sync, the high watermark stays."""
    for rows in _by_partition(replicas):
        last: ReplicaRow | None = None
        for row in sorted(rows, key=lambda each: (each.node, each.life, each.at)):
            before, last = last, row
            if before is None or before[:2] != row[:2]:
                continue
            same = (before.leader_epoch, before.partition_epoch, before.min_isr) == (
                row.leader_epoch,
                row.partition_epoch,
                row.min_isr,
            )
            if same and row.isr < row.min_isr and row.high_watermark > before.high_watermark:
                due = f"{before.high_watermark}, as {row.isr} of {row.min_isr} are in sync"
                yield _of_partition(59, row, due, str(row.high_watermark))
