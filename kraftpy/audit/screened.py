"""One log replayed by the compiled loops and judged by the rule book, in one process."""

from kraftpy.audit.kernel.replayer import Replayer, Suspects
from kraftpy.audit.lanes import Found, Lane, Looked, Task
from kraftpy.audit.rules.rule import Violation as Broken
from kraftpy.audit.screening import extract, screen
from kraftpy.audit.snapshots import others_in, snapshot_bytes
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.violations import Progress


def replay_screened(task: Task, found: Found, progress: Progress) -> Looked:
    """Compiled loops first; then the rule book, for suspects once more from the beginning."""
    end = task.plan.end_offset
    first: list[Broken] = []
    lane = Lane(task, first.extend, whole_topics=frozenset())
    _seed_others(task, lane)
    kept: list[Replayer] = []
    screened = screen(
        task,
        on_batch=lane.batch,
        tick=lambda offset: progress("replay", offset, end),
        on_end=kept.append,
    )
    lane.finish()
    if screened.suspects:
        first.clear()
        lane = judge_suspects(task, screened.suspects, found, progress)
    found(first)
    found(screened.violations)
    looked = screened.looked
    if task.keeps_end:
        looked.ended = lane.ended(kept[0].states)
    looked.entities += lane.looked.entities
    looked.unchecked += lane.looked.unchecked
    return looked


def judge_suspects(task: Task, suspects: Suspects, found: Found, progress: Progress) -> Lane:
    """The rule book over what is no partition's and what is a suspect's, from the beginning."""
    lane = Lane(task, found, whole_topics=suspects.topics)
    _seed_suspects(task, lane, suspects)
    for chunk in chunks(task.plan, start_offset=task.start_offset):
        for extracted in extract(chunk.data, suspects):
            lane.batch(*extracted)
        progress("judge", chunk.end_offset, task.plan.end_offset)
    lane.finish()
    return lane


def _seed_others(task: Task, lane: Lane) -> None:
    if task.plan.snapshot is not None:
        lane.seed(others_in(snapshot_bytes(task.plan.snapshot)))


def _seed_suspects(task: Task, lane: Lane, suspects: Suspects) -> None:
    if task.plan.snapshot is None:
        return
    data = snapshot_bytes(task.plan.snapshot)
    lane.seed(record for each in extract(data, suspects) for _, record in each.records)
