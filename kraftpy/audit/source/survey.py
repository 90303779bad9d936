"""What the headers of all batches of all nodes say: how far each log goes, where logs differ, what
is damaged, who led when. The first pass of every engine; its results are small.

An engine gathers a NodeSurvey per node and the rows at offsets where nodes may differ (`odd`); the
rules about logs then judge these, and `pieces.py` decides what to replay. What always holds: where
all nodes have the same good batch, nothing is kept but counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from kraftpy.audit.rules import node_logs
from kraftpy.audit.rules.rows import BatchRow, LeaderRow, LogRow, SnapshotRow, VotersRow
from kraftpy.audit.rules.rule import Violation
from kraftpy.audit.source.batches import Found, found_batches
from kraftpy.audit.source.directories import LogDirectory, Segment
from kraftpy.audit.source.stores import Store, store_of
from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log.batches import control_records
from kraftpy.metadata_log.control_records import ControlRecord, LeaderChange, Voters

_CONTIGUOUS: Final = 38
ODD_MAX: Final = 100_000  # Rows that an engine keeps because nodes differ there.
_FAR: Final = (1 << 63) - 1
_TICK_EVERY: Final = 1000  # Batches.


class SurveyRow(NamedTuple):
    """A batch of a node and where it is. `damage` says why it cannot be used."""

    base_offset: int  # Where it is damaged beyond that: the offset that was due.
    end_offset: int
    node: int
    epoch: int
    crc: int
    size: int
    records: int
    is_control: bool
    timestamp_ms: int
    path: str
    position: int
    damage: str | None

    def as_batch(self) -> BatchRow:
        return BatchRow(
            self.node,
            self.base_offset,
            self.end_offset,
            self.epoch,
            self.crc,
            self.size,
            self.is_control,
        )


@dataclass(slots=True)
class NodeSurvey:
    """One node's log, summed up."""

    node: int
    start_offset: int = 0
    end_offset: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_timestamp_ms: int = -1
    last_timestamp_ms: int = -1
    torn_bytes: int = 0
    last_epoch: int = -1
    # By epoch: its first batch, and where its last one ends.
    firsts: dict[int, BatchRow] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    leaders: list[LeaderRow] = field(default_factory=list)
    voters: list[VotersRow] = field(default_factory=list)
    seams: list[tuple[BatchRow, BatchRow]] = field(default_factory=list)  # That do not fit.
    damaged: list[SurveyRow] = field(default_factory=list)
    first: BatchRow | None = None
    last: BatchRow | None = None
    leaders_at_ms: dict[tuple[int, int], int] = field(default_factory=dict)  # (epoch, leader).

    def add(self, later: "NodeSurvey") -> None:
        """Append the next range of the same log."""
        if self.last is not None and later.first is not None and not _fits(self.last, later.first):
            self.seams.append((self.last, later.first))
        for epoch, batch in later.firsts.items():
            self.firsts.setdefault(epoch, batch)
        self.ends.update(later.ends)
        self.leaders += later.leaders
        self.voters += later.voters
        self.seams += later.seams
        self.damaged += later.damaged
        self.leaders_at_ms = later.leaders_at_ms | self.leaders_at_ms
        self.end_offset = max(self.end_offset, later.end_offset)
        self.batches += later.batches
        self.records += later.records
        self.bytes += later.bytes
        self.torn_bytes += later.torn_bytes
        self.last_epoch = max(self.last_epoch, later.last_epoch)
        if self.first_timestamp_ms < 0:
            self.first_timestamp_ms = later.first_timestamp_ms
        self.last_timestamp_ms = max(self.last_timestamp_ms, later.last_timestamp_ms)
        self.first = self.first or later.first
        self.last = later.last or self.last


@dataclass(slots=True)
class Survey:
    """All nodes, and the rows at offsets where they may differ."""

    nodes: dict[int, NodeSurvey] = field(default_factory=dict)
    odd: list[SurveyRow] = field(default_factory=list)
    odd_left_out: int = 0


def rows_of(log: LogDirectory, store: Store | None = None) -> Iterator[tuple[SurveyRow, Found]]:
    """The batches of one log, damaged ones included."""
    store = store_of(log.path) if store is None else store
    due = log.start_offset
    for segment in log.segments:
        due = max(due, segment.base_offset)
        for found in found_batches(store, segment.path, 0, segment.size):
            row = survey_row(log.node, segment, found, due)
            due = max(due, row.end_offset)
            yield row, found


def survey_row(node: int, segment: Segment, found: Found, due: int) -> SurveyRow:
    header = found.header
    if header is None:
        return SurveyRow(
            due,
            due,
            node,
            -1,
            0,
            found.size,
            0,
            False,
            -1,
            segment.path,
            found.position,
            found.damage,
        )
    return SurveyRow(
        header.base_offset,
        header.end_offset,
        node,
        header.leader_epoch,
        header.crc,
        header.size,
        header.record_count,
        header.is_control,
        header.max_timestamp,
        segment.path,
        found.position,
        found.damage,
    )


class NodeWalk:
    """Sums up a node's log, or a range of it, while its batches go by."""

    def __init__(
        self,
        node: int,
        start_offset: int,
        batches: Iterator[tuple[SurveyRow, Found]],
        last_path: str | None,
    ) -> None:
        """`last_path`: the segment with which the log ends, if this is where it does."""
        self.out = NodeSurvey(node, start_offset, start_offset)
        self._batches = batches
        self._last_path = last_path

    def rows(self) -> Iterator[SurveyRow]:
        tail: list[SurveyRow] = []  # Damage that is a torn tail if nothing good follows.
        for row, found in self._batches:
            if row.damage is not None:
                tail.append(row)
                continue
            self.out.damaged += tail
            yield from tail
            tail = []
            self._good(row, found)
            yield row
        if len(tail) == 1 and tail[0].path == self._last_path:
            self.out.torn_bytes = tail[0].size
        else:
            self.out.damaged += tail
            yield from tail

    def _good(self, row: SurveyRow, found: Found) -> None:
        out = self.out
        out.batches += 1
        out.records += 0 if row.is_control else row.records
        out.bytes += row.size
        if out.first_timestamp_ms < 0:
            out.first_timestamp_ms = row.timestamp_ms
        out.last_timestamp_ms = max(out.last_timestamp_ms, row.timestamp_ms)
        out.end_offset = max(out.end_offset, row.end_offset)
        out.last_epoch = max(out.last_epoch, row.epoch)
        if row.epoch not in out.firsts:
            out.firsts[row.epoch] = row.as_batch()
        out.ends[row.epoch] = row.end_offset
        batch = row.as_batch()
        out.first = out.first or batch
        last, out.last = out.last, batch
        if last is not None and not _fits(last, batch):
            out.seams.append((last, batch))
        if row.is_control:
            note_controls(out, row, controls_of(found))


def controls_of(found: Found) -> list[ControlRecord]:
    assert found.header is not None
    try:
        return control_records(found.header, found.data)
    except RecordDecodeError:
        return []  # A control record of a kind that is not known here.


def note_controls(out: NodeSurvey, row: SurveyRow, controls: Sequence[ControlRecord]) -> None:
    for offset, control in enumerate(controls, row.base_offset):
        if isinstance(control, LeaderChange):
            out.leaders.append(LeaderRow(out.node, offset, row.epoch, control.leader_id))
            # Whoever is elected tells by whom: the voters, as they are then.
            _note_voters(out, row, offset, frozenset(each for each, _ in control.voters))
            out.leaders_at_ms.setdefault((row.epoch, control.leader_id), row.timestamp_ms)
        elif isinstance(control, Voters):
            _note_voters(out, row, offset, frozenset(each.voter_id for each in control.voters))


def _note_voters(out: NodeSurvey, row: SurveyRow, offset: int, ids: frozenset[int]) -> None:
    if ids:
        out.voters.append(VotersRow(out.node, offset, row.epoch, ids))


def _fits(last: BatchRow, row: BatchRow) -> bool:
    return row.base_offset == last.end_offset and row.epoch >= last.epoch


def survey_logs(
    logs: Sequence[LogDirectory], tick: Callable[[int, int], None] = lambda _done, _all: None
) -> Survey:
    """One pass over all logs at once, in the order of offsets. `tick` is told of bytes."""
    survey = Survey()
    walks = [NodeWalk(log.node, log.start_offset, rows_of(log), _last_path(log)) for log in logs]
    survey.nodes = {walk.out.node: walk.out for walk in walks}
    ends = {log.node: _FAR for log in logs}
    streams = merge(*(_until_end(walk, ends) for walk in walks), key=lambda row: row.base_offset)
    starts = {log.node: log.start_offset for log in logs}
    whole = sum(segment.size for log in logs for segment in log.segments)
    for number, (offset, group) in enumerate(groupby(streams, key=lambda row: row.base_offset)):
        if number % _TICK_EVERY == 0:
            tick(sum(node.bytes for node in survey.nodes.values()), whole)
        rows = list(group)
        if is_odd(offset, rows, starts, ends):
            keep_odd(survey, rows)
    return survey


def _until_end(walk: NodeWalk, ends: dict[int, int]) -> Iterator[SurveyRow]:
    """Its rows; then nothing more is due of it."""
    yield from walk.rows()
    ends[walk.out.node] = walk.out.end_offset


def _last_path(log: LogDirectory) -> str | None:
    return log.segments[-1].path if log.segments else None


def is_odd(
    offset: int, rows: Sequence[SurveyRow], starts: Mapping[int, int], ends: Mapping[int, int]
) -> bool:
    """Whether nodes that should have the same batch here have not."""
    first = rows[0]
    if any(row.damage is not None or _sight(row) != _sight(first) for row in rows):
        return True
    due = sum(1 for node, start in starts.items() if start <= offset < ends[node])
    return len(rows) != due


def _sight(row: SurveyRow) -> tuple[int, int, int, int]:
    return row.epoch, row.crc, row.size, row.end_offset


def keep_odd(survey: Survey, rows: Sequence[SurveyRow]) -> None:
    if len(survey.odd) + len(rows) <= ODD_MAX:
        survey.odd += rows
    else:
        survey.odd_left_out += len(rows)


# -- judging ---------------------------------------------------------------------------------------


def log_rows(
    survey: Survey, logs: Sequence[LogDirectory], watermarks: Mapping[int, int] | None = None
) -> list[LogRow]:
    """How far each log goes. What a snapshot covers was committed, whoever noted it or not."""
    noted = watermarks or {}
    rows = []
    for log in logs:
        out = survey.nodes[log.node]
        covered = [s.end_offset for s in log.snapshots if s.end_offset <= out.end_offset]
        known = max((noted.get(log.node, -1), *covered))
        rows.append(LogRow(log.node, out.start_offset, out.end_offset, known))
    return rows


def judge_survey(
    survey: Survey, logs: Sequence[LogDirectory], watermarks: Mapping[int, int] | None = None
) -> Iterator[Violation]:
    """A38 to A40, A42, A46, A47, A49 and A51."""
    nodes = list(survey.nodes.values())
    ends = log_rows(survey, logs, watermarks)
    leaders = [row for node in nodes for row in node.leaders]
    firsts = [row for node in nodes for row in node.firsts.values()]
    for node in nodes:
        for seam in node.seams:
            found = node_logs.batches_are_contiguous(seam)
            # What lies there and cannot be read is told as damage, and is no gap.
            yield from (each for each in found if not (_is_gap(each) and _over_damage(node, *seam)))
    yield from node_logs.epochs_begin_with_their_leader(firsts, leaders)
    voters = [row for node in nodes for row in node.voters]
    yield from node_logs.voters_change_one_at_a_time(voters, leaders, {})
    yield from node_logs.one_leader_per_epoch(leaders)
    odd = [row.as_batch() for row in survey.odd if row.damage is None]
    starts = [min(node.firsts.values(), key=_base) for node in nodes if node.firsts]
    known = {row[:2] for row in odd}
    yield from node_logs.logs_match(odd + [row for row in starts if row[:2] not in known], ends)
    lasts = [
        BatchRow(node.node, end - 1, end, epoch, 0, 0)
        for node in nodes
        for epoch, end in node.ends.items()
    ]
    yield from node_logs.leaders_hold_what_was_committed(leaders, ends, lasts)
    snapshots = [
        SnapshotRow(log.node, s.end_offset, s.epoch) for log in logs for s in log.snapshots
    ]
    yield from node_logs.logs_begin_at_a_snapshot(ends, snapshots)


def _is_gap(broken: Violation) -> bool:
    return broken.rule.number == _CONTIGUOUS


def _over_damage(node: NodeSurvey, last: BatchRow, row: BatchRow) -> bool:
    return any(last.end_offset <= each.base_offset < row.base_offset for each in node.damaged)


def _base(row: BatchRow) -> int:
    return row.base_offset
