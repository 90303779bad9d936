"""Rules for moving replicas: how a reassignment starts, ends and is cancelled. Pure.

A record that touches replicas, adding or removing is one of three things. It starts one, if some
are left to add or to remove. It cancels one, if what was being added is gone and all else stays.
Else it ends one, be it the one under way or one that is in sync at once.
"""

from typing import Final

from kraftpy.audit.rules.context import Findings, PartitionAt, PartitionCheck
from kraftpy.audit.rules.rule import Finding
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import RECOVERING


def start_only_adds(at: PartitionAt) -> Findings:
    old, new = at.old, at.new
    if old is None or not _moves(at) or not _is_under_way(new):
        return
    if not set(old.replicas) <= set(new.replicas):
        yield Finding(f"all of {list(old.replicas)}", f"replicas {list(new.replicas)}")
    target = tuple(replica for replica in new.replicas if replica not in new.removing_replicas)
    if new.replicas[: len(target)] != target:
        yield Finding("the replicas to remove at the end", f"replicas {list(new.replicas)}")
    added = set(new.replicas) - set(old.replicas)
    if not added <= set(new.adding_replicas):
        yield Finding(f"adding {sorted(added)}", str(list(new.adding_replicas)))
    if set(new.isr) - set(old.isr):
        yield Finding(f"ISR {list(old.isr)}", str(list(new.isr)))
    if target and set(target) <= set(new.isr):
        yield Finding("the end of it, as the target is in sync", "a start")


def end_is_in_sync(at: PartitionAt) -> Findings:
    if not _ends(at) or _is_cancelled(at) or _drops_originals(at):
        return
    old, new = at.old, at.new
    assert old is not None
    needed = set(new.replicas)
    if at.view.is_kafka:
        needed &= {*old.adding_replicas, *(needed - set(old.replicas))}
    if not needed <= set(new.isr):
        yield Finding(f"ISR with all of {sorted(needed)}", str(list(new.isr)))


def cancel_restores_the_originals(at: PartitionAt) -> Findings:
    old, new = at.old, at.new
    if old is None or not _ends(at):
        return
    if _drops_originals(at):
        originals = [each for each in old.replicas if each not in old.adding_replicas]
        yield Finding(f"replicas {originals}", str(list(new.replicas)))
    elif _is_cancelled(at):
        held = {*old.isr, *old.elr} & set(new.replicas)
        if not held and new.isr and new.leader_recovery_state != RECOVERING:
            yield Finding("RECOVERING, as nobody in sync is left", "RECOVERED")


def _moves(at: PartitionAt) -> bool:
    old, new = at.old, at.new
    return old is not None and (
        (old.replicas, old.adding_replicas, old.removing_replicas)
        != (new.replicas, new.adding_replicas, new.removing_replicas)
    )


def _is_under_way(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _ends(at: PartitionAt) -> bool:
    """Not if the same replicas get another order, and so another one is preferred."""
    old, new = at.old, at.new
    if old is None or not _moves(at) or _is_under_way(new):
        return False
    return _is_under_way(old) or set(old.replicas) != set(new.replicas)


def _is_cancelled(at: PartitionAt) -> bool:
    old = at.old
    if old is None or not _is_under_way(old):
        return False
    return set(at.new.replicas) == set(old.replicas) - set(old.adding_replicas)


def _drops_originals(at: PartitionAt) -> bool:
    """Fewer than a cancel leaves, and no end either, as they are not in sync."""
    old, new = at.old, at.new
    if old is None or not _is_under_way(old) or set(new.replicas) <= set(new.isr):
        return False
    return set(new.replicas) < set(old.replicas) - set(old.adding_replicas)


CHECKS: Final[tuple[tuple[int, PartitionCheck], ...]] = (
    (21, start_only_adds),
    (22, end_is_in_sync),
    (23, cancel_restores_the_originals),
)
