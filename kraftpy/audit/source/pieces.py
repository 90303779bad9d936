"""Which bytes to replay: one log without its damage, mended from the other nodes' logs.

The log is that of the node that is most up to date, as Raft compares logs, among those that begin
earliest. What it lacks is taken from any node that has it; what nobody has is a lost range. What
always holds: pieces hold whole batches only, their offsets grow, and every offset between the first
and the last is in a piece or in a lost range.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraftpy.audit.source.directories import LogDirectory, Snapshot
from kraftpy.audit.source.survey import Survey, SurveyRow


class Piece(NamedTuple):
    """Whole batches, one behind the other, in a file."""

    base_offset: int
    path: str
    start: int
    end: int


class Lost(NamedTuple):
    """Offsets that no node has whole."""

    offset: int
    end_offset: int


class Plan(NamedTuple):
    """What a replay reads."""

    node: int
    start_offset: int
    end_offset: int
    snapshot: Snapshot | None  # Where to begin, if the log does not begin at 0.
    pieces: tuple[Piece, ...]
    lost: tuple[Lost, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.end - piece.start for piece in self.pieces)


def plan_replay(survey: Survey, logs: Sequence[LogDirectory]) -> Plan | None:
    """None if there is nothing to replay."""
    usable = [log for log in logs if survey.nodes[log.node].batches]
    if not usable:
        return None
    first = min(survey.nodes[log.node].start_offset for log in usable)
    best = max(usable, key=lambda log: _rank(survey, log, first))
    out = survey.nodes[best.node]
    snapshot = _first_snapshot(best, logs, out.start_offset) if out.start_offset else None
    pieces, lost = _mended(best, survey)
    return Plan(best.node, out.start_offset, out.end_offset, snapshot, pieces, lost)


def _rank(survey: Survey, log: LogDirectory, first: int) -> tuple[bool, int, int, int]:
    out = survey.nodes[log.node]
    return out.start_offset == first, out.last_epoch, out.end_offset, -log.node


def _first_snapshot(
    best: LogDirectory, logs: Sequence[LogDirectory], start_offset: int
) -> Snapshot | None:
    """The oldest from which the log goes on, its own if it has one."""
    for group in ([best], logs):
        found = [s for log in group for s in log.snapshots if s.end_offset >= start_offset]
        if found:
            return min(found)
    return None


def _mended(log: LogDirectory, survey: Survey) -> tuple[tuple[Piece, ...], tuple[Lost, ...]]:
    """The log's own bytes between its damage, and others' for what is missing."""
    out = survey.nodes[log.node]
    spare: dict[int, SurveyRow] = {}
    for row in survey.odd:
        if row.damage is None and row.node != log.node:
            spare.setdefault(row.base_offset, row)
    gaps = {
        last.end_offset: row.base_offset
        for last, row in out.seams
        if row.base_offset > last.end_offset
    }
    first = min(row.base_offset for row in out.firsts.values())
    if first > log.start_offset:
        gaps[log.start_offset] = first
    pieces = _own_pieces(log, out.damaged, out.torn_bytes, gaps)
    lost: list[Lost] = []
    for start, end in sorted(gaps.items()):
        _fill(start, end, spare, pieces, lost)
    return tuple(sorted(pieces)), tuple(lost)


def _own_pieces(
    log: LogDirectory, damaged: Sequence[SurveyRow], torn_bytes: int, gaps: Mapping[int, int]
) -> list[Piece]:
    """`gaps`: where good batches end -> where the next good one begins."""
    by_path: dict[str, list[SurveyRow]] = {}
    for row in damaged:
        by_path.setdefault(row.path, []).append(row)
    pieces = []
    run = -1  # The offset that was due where a run of damage began.
    for number, segment in enumerate(log.segments):
        start, base = 0, segment.base_offset
        for row in sorted(by_path.get(segment.path, ()), key=lambda each: each.position):
            if row.position > start:
                pieces.append(Piece(base, segment.path, start, row.position))
                run = -1
            run = row.base_offset if run < 0 else run
            start, base = row.position + row.size, gaps.get(run, row.end_offset)
        is_last = number == len(log.segments) - 1
        end = segment.size - (torn_bytes if is_last else 0)
        if end > start:
            pieces.append(Piece(base, segment.path, start, end))
            run = -1
    return pieces


def _fill(
    start: int,
    end: int,
    spare: Mapping[int, SurveyRow],
    pieces: list[Piece],
    lost: list[Lost],
) -> None:
    """Batches of other nodes for [start, end)."""
    due = start
    while due < end:
        row = spare.get(due)
        if row is not None and row.end_offset <= end:
            pieces.append(Piece(due, row.path, row.position, row.position + row.size))
            due = row.end_offset
            continue
        later = [offset for offset in spare if due < offset < end]
        following = min(later, default=end)
        lost.append(Lost(due, following))
        due = following
