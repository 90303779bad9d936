"""Rules about the metadata logs of the nodes: each by itself, and all of them together. Pure.

Committed is what lies below a high watermark. Nodes may differ above it: a tail that was never
committed is cut off when its owner hears of the next leader.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.rows import BatchRow, LeaderRow, LogRow, SnapshotRow, VotersRow
from kraftpy.audit.rules.rule import Violation

Broken: TypeAlias = Iterator[Violation]


def violation(
    number: int, node: int | None, offset: int, epoch: int, expected: str, actual: str
) -> Violation:
    return Violation(
        rule=RULES[number], node=node, offset=offset, epoch=epoch, expected=expected, actual=actual
    )


# -- one log ---------------------------------------------------------------------------------------


def batches_are_contiguous(batches: Iterable[BatchRow]) -> Broken:
    """A38 and the first half of A39. In the order of the log, node by node."""
    last: BatchRow | None = None
    for batch in batches:
        if last is not None and last.node == batch.node:
            if batch.base_offset != last.end_offset:
                due = f"offset {last.end_offset}"
                found = str(batch.base_offset)
                yield violation(38, batch.node, batch.base_offset, batch.epoch, due, found)
            if batch.epoch < last.epoch:
                due, found = f"epoch {last.epoch} or later", str(batch.epoch)
                yield violation(39, batch.node, batch.base_offset, batch.epoch, due, found)
        last = batch


def epochs_begin_with_their_leader(
    batches: Iterable[BatchRow], leaders: Iterable[LeaderRow]
) -> Broken:
    """The other half of A39: each epoch that a log shows from its start begins with one
    LeaderChange, and has no other."""
    changes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for change in leaders:
        if change.offset >= 0:
            changes[change.node, change.epoch].append(change.offset)
    first: dict[tuple[int, int], int] = {}
    start: dict[int, int] = {}
    for batch in batches:
        key = batch.node, batch.epoch
        first[key] = min(first.get(key, batch.base_offset), batch.base_offset)
        start[batch.node] = min(start.get(batch.node, batch.base_offset), batch.base_offset)
    for (node, epoch), offset in sorted(first.items()):
        found = sorted(changes.get((node, epoch), ()))
        is_cut = offset == start[node] and offset > 0  # The epoch may have begun before the log.
        if epoch > 0 and found[:1] != [offset] and not is_cut:
            where = str(found[0]) if found else "none"
            yield violation(39, node, offset, epoch, f"a LeaderChange at offset {offset}", where)
        for extra in found[1:]:
            yield violation(39, node, extra, epoch, "one LeaderChange in an epoch", "another")


def voters_change_one_at_a_time(
    voters: Iterable[VotersRow], leaders: Iterable[LeaderRow], watermarks: Mapping[int, int]
) -> Broken:
    """A42. `watermarks`: the offset that was committed when a set of voters was written, where that
    is known; the rules about what was committed are left to those who recorded it."""
    starts = {(row.node, row.epoch): row.offset for row in leaders if row.offset >= 0}
    last: dict[int, VotersRow] = {}
    for row in sorted(voters, key=lambda each: (each.node, each.offset)):
        before = last.get(row.node)
        last[row.node] = row
        if before is None:
            continue
        changed = before.voters ^ row.voters
        added, removed = row.voters - before.voters, before.voters - row.voters
        if len(added) > 1 or len(removed) > 1 or (added and removed):
            yield violation(
                42, row.node, row.offset, row.epoch, "one voter more or less", f"{sorted(changed)}"
            )
        committed = watermarks.get(row.offset)
        start = starts.get((row.node, row.epoch))
        if committed is None:
            continue
        if before.offset >= committed:
            due = f"voters of offset {before.offset} committed first"
            yield violation(42, row.node, row.offset, row.epoch, due, f"up to {committed}")
        elif start is not None and start >= committed:
            due = f"the epoch's own offset {start} committed first"
            yield violation(42, row.node, row.offset, row.epoch, due, f"up to {committed}")


# -- many logs -------------------------------------------------------------------------------------


def one_leader_per_epoch(leaders: Iterable[LeaderRow]) -> Broken:
    """A40, over logs and whatever else names a leader."""
    seen: dict[int, LeaderRow] = {}
    told: set[tuple[int, int]] = set()
    for row in sorted(leaders, key=lambda each: (each.epoch, each.offset < 0, each.offset)):
        first = seen.setdefault(row.epoch, row)
        if row.leader != first.leader and (row.epoch, row.leader) not in told:
            told.add((row.epoch, row.leader))
            due = f"leader {first.leader}, as on node {first.node}"
            yield violation(40, row.node, max(row.offset, 0), row.epoch, due, str(row.leader))


def logs_match(batches: Iterable[BatchRow], logs: Iterable[LogRow]) -> Broken:
    """A46: equal epochs at an offset mean equal bytes. A47: below two high watermarks all is equal.

    One pass that groups by offset; the first node's is what others are compared with.
    """
    known = list(logs)
    ends = {log.node: log.high_watermark for log in known}
    at: dict[int, list[BatchRow]] = defaultdict(list)
    for batch in batches:
        at[batch.base_offset].append(batch)
    for offset, found in sorted(at.items()):
        found.sort(key=lambda each: each.node)
        yield from _matching(offset, found, ends)
    # A log that ends below what it knew as committed is A48's.
    yield from _missing(at, {log.node: min(log.high_watermark, log.end_offset) for log in known})


def _matching(offset: int, found: list[BatchRow], ends: Mapping[int, int]) -> Broken:
    first = found[0]
    for other in found[1:]:
        same = (first.crc, first.size, first.end_offset) == (
            other.crc,
            other.size,
            other.end_offset,
        )
        if other.epoch == first.epoch and not same:
            yield violation(
                46, other.node, offset, other.epoch, f"the bytes of node {first.node}", "others"
            )
        committed = min(ends.get(first.node, -1), ends.get(other.node, -1))
        if offset < committed and (other.epoch != first.epoch or not same):
            due = f"the batch of node {first.node}, of epoch {first.epoch}"
            yield violation(
                47, other.node, offset, other.epoch, due, f"another, of epoch {other.epoch}"
            )


def _missing(at: Mapping[int, list[BatchRow]], ends: Mapping[int, int]) -> Broken:
    """Batches that a node's log passes over or spans otherwise, below what it knew as committed."""
    starts: dict[int, int] = {}
    for found in at.values():
        for batch in found:
            starts[batch.node] = min(starts.get(batch.node, batch.base_offset), batch.base_offset)
    for offset, found in sorted(at.items()):
        have = {batch.node for batch in found}
        top = max(ends.get(batch.node, -1) for batch in found)
        for node, start in sorted(starts.items()):
            if node not in have and start <= offset < min(top, ends.get(node, -1)):
                due = f"the batch of node {found[0].node}"
                yield violation(47, node, offset, found[0].epoch, due, "none at this offset")


def leaders_hold_what_was_committed(
    leaders: Iterable[LeaderRow], logs: Iterable[LogRow], batches: Iterable[BatchRow]
) -> Broken:
    """A49: whoever leads an epoch has, in its own log, all that was committed in earlier epochs,
    with the same batches. What it holds now stands for what it held then: logs only lose tails
    that were not committed."""
    known = {log.node: log for log in logs}
    committed = max((log.high_watermark for log in known.values()), default=-1)
    ends: dict[int, dict[int, int]] = defaultdict(dict)  # Node, epoch, where its batches end.
    for batch in batches:
        if batch.end_offset <= committed:
            ends[batch.node][batch.epoch] = max(
                ends[batch.node].get(batch.epoch, 0), batch.end_offset
            )
    for row in sorted({(each.epoch, each.leader) for each in leaders}):
        epoch, leader = row
        own = known.get(leader)
        if own is None:
            continue  # Its directory is not at hand.
        need = max((e for node in ends.values() for n, e in node.items() if n < epoch), default=0)
        if own.end_offset < need:
            yield violation(
                49, leader, own.end_offset, epoch, f"all before offset {need}", "it ends earlier"
            )


def logs_begin_at_a_snapshot(logs: Iterable[LogRow], snapshots: Iterable[SnapshotRow]) -> Broken:
    """A51: what a log no longer has is in a snapshot, and no snapshot is of what the log never had:
    that would be of a tail that was not committed, and was cut off.

    Kafka removes whole segments, so a log may begin before the end of its oldest snapshot.
    """
    ends: dict[int, list[SnapshotRow]] = defaultdict(list)
    for snapshot in snapshots:
        ends[snapshot.node].append(snapshot)
    for log in logs:
        own = sorted(ends.get(log.node, ()), key=lambda each: each.end_offset)
        reaching = [s for s in own if log.start_offset <= s.end_offset <= log.end_offset]
        if log.start_offset > 0 and not reaching:
            found = f"the newest ends at {own[-1].end_offset}" if own else "none"
            due = f"a snapshot from which offset {log.start_offset} goes on"
            yield violation(51, log.node, log.start_offset, -1, due, found)
        for snapshot in own:
            if snapshot.end_offset > log.end_offset:
                due = f"snapshots of the log, which ends at {log.end_offset}"
                yield violation(
                    51, log.node, snapshot.end_offset, snapshot.epoch, due, str(snapshot.end_offset)
                )
