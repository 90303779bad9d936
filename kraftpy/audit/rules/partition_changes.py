"""Rules for how a partition gets from one state to the next: creation, elections, ISR, ELR. Pure.

An election is clean if the new leader held all that was committed: it was in the ISR, or in the ELR
while nobody of the ISR could lead, or it is in sync at the end of a reassignment. Any other is
unclean: it must be allowed, and marked RECOVERING.
"""

from dataclasses import replace
from typing import Final

from kraftpy.audit.rules.context import Findings, PartitionAt, PartitionCheck
from kraftpy.audit.rules.rule import Finding
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import (
    NO_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionRecord,
)
from kraftpy.types import NO_EPOCH, NO_LEADER, BrokerId


def new_replicas_are_registered(at: PartitionAt) -> Findings:
    known = () if at.old is None else at.old.replicas
    if at.record is None:
        return
    for replica in at.new.replicas:
        if replica not in known and at.view.brokers.get(replica) is None:
            yield Finding("a registered broker for a replica", f"broker {replica}", replica)


def leader_epoch_moves_with_the_leader_field(at: PartitionAt) -> Findings:
    if at.change is None:
        return
    old, record = at.change
    bumps = record.leader != NO_CHANGE
    due = old.leader_epoch + int(bumps)
    if record.leader_epoch not in (due, NO_EPOCH):
        yield Finding(f"leader epoch {due}", str(record.leader_epoch))
    removes = not set(old.replicas) <= set(at.new.replicas)
    shrinks = at.view.shrink_bumps_leader_epoch and not set(old.isr) <= set(at.new.isr)
    is_due = at.new.leader != old.leader or removes or shrinks
    if is_due and not bumps:
        yield Finding("a new leader epoch, as a replica left", "none")
    if bumps and not is_due:
        yield Finding("no new leader epoch, as leader and replicas stay", "one")


def partition_epoch_moves_by_one(at: PartitionAt) -> Findings:
    if at.change is None:
        return
    old, record = at.change
    due = old.partition_epoch + 1
    if record.partition_epoch not in (due, NO_EPOCH):
        yield Finding(f"partition epoch {due}", str(record.partition_epoch))


def new_partition_begins_at_zero(at: PartitionAt) -> Findings:
    record = at.record
    if not isinstance(record, PartitionRecord) or at.old is not None:
        return
    if record.leader_epoch or record.partition_epoch:
        yield Finding("epochs 0 and 0", f"{record.leader_epoch} and {record.partition_epoch}")
    if record.leader_recovery_state != RECOVERED:
        yield Finding("RECOVERED", "RECOVERING")
    if record.isr and record.leader != record.isr[0]:
        yield Finding(f"leader {record.isr[0]}, the first of the ISR", str(record.leader))
    if not record.isr:
        yield Finding("an ISR", "[]")
    if record.adding_replicas or record.removing_replicas:
        yield Finding("no reassignment", "one")


def change_changes_something(at: PartitionAt) -> Findings:
    if at.change is None:
        return
    old, _ = at.change
    same = replace(at.new, partition_epoch=old.partition_epoch, leader_epoch=old.leader_epoch)
    if same == old:
        yield Finding("a change", "a record that changes nothing")


def unclean_leader_is_marked(at: PartitionAt) -> Findings:
    if _is_elected(at) and not is_clean(at) and at.new.leader_recovery_state != RECOVERING:
        assert at.old is not None
        yield Finding(
            f"a leader of ISR {list(at.old.isr)} or ELR {list(at.old.elr)}, or RECOVERING",
            f"leader {at.new.leader}, RECOVERED",
            at.new.leader,
        )


def unclean_election_is_allowed(at: PartitionAt) -> Findings:
    if not _is_elected(at) or is_clean(at):
        return
    new, old = at.new, at.old
    assert old is not None
    if new.isr != (new.leader,) or new.elr:
        yield Finding(
            f"ISR [{new.leader}] and no ELR after an unclean election",
            f"{list(new.isr)} and {list(new.elr)}",
        )
    asked = at.step.evidence.unclean_elections
    was_last = at.view.elr_enabled and not old.isr and old.last_known_elr == (new.leader,)
    is_allowed = at.view.unclean_election_enabled(at.topic) or was_last
    # Who asked is not in the log: without a record of it, a request may have.
    if not is_allowed and asked is not None and at.key not in asked:
        yield Finding("unclean.leader.election.enable or a request", f"leader {new.leader}")


def recovering_follows_an_unclean_election(at: PartitionAt) -> Findings:
    if at.change is None:
        return
    old, _ = at.change
    starts = RECOVERING == at.new.leader_recovery_state != old.leader_recovery_state
    if starts and (not _is_elected(at) or is_clean(at)):
        yield Finding("RECOVERED, as no unclean election was held", "RECOVERING")


def isr_grows_by_the_leader(at: PartitionAt) -> Findings:
    if at.change is None:
        return
    old, _ = at.change
    joined = set(at.new.isr) - set(old.isr)
    if _is_elected(at) and not _ends_reassignment(at):
        joined.discard(at.new.leader)
    if not joined:
        return
    first = min(joined)
    led = old.leader != NO_LEADER
    if not led or (at.new.leader != old.leader and not _ends_reassignment(at)):
        yield Finding("an ISR that only a leader lets grow", f"{sorted(joined)} joined", first)
    # Kafka's batch may hold both: then it matters only for who joins.
    if at.step.is_about_brokers and (not at.view.is_kafka or joined & set(at.step.brokers)):
        yield Finding("no growth where a broker comes or goes", f"{sorted(joined)} joined", first)
    requests = at.step.evidence.isr_requests
    if requests is not None:
        yield from _unasked(at, old, sorted(joined))


def _unasked(at: PartitionAt, old: Partition, joined: list[BrokerId]) -> Findings:
    requests = at.step.evidence.isr_requests
    assert requests is not None
    request = requests.get(at.key)
    if request is None:
        yield Finding("an AlterPartition", f"{joined} joined without one", joined[0])
        return
    due = (old.leader, old.leader_epoch, old.partition_epoch)
    if request[:3] != due:
        yield Finding(f"a request by leader and epochs {due}", str(request[:3]))
    for broker_id in joined:
        epoch = request.broker_epochs.get(broker_id, -1)
        broker = at.view.brokers.get(broker_id)
        if epoch != -1 and (broker is None or broker.broker_epoch != epoch):
            yield Finding("the joiner's current epoch", str(epoch), broker_id)


def elr_keeps_who_leaves_a_short_isr(at: PartitionAt) -> Findings:
    """Without a record of who came back uncleanly, any broker that registers may have; one that
    is unregistered may be forgotten, too."""
    if at.change is None or not at.view.elr_enabled:
        return
    old, _ = at.change
    is_unclean = _is_elected(at) and not is_clean(at)
    if len(at.new.isr) >= min(effective_min_isr(at)) or is_unclean:
        return
    held = ({*old.elr, *old.isr} - {*at.new.isr}) & {*at.new.replicas}
    unclean = at.step.evidence.unclean_restarts
    kept = held - (at.step.departing if unclean is None else unclean)
    allowed = held if unclean is None else kept
    # Who is no replica any more is A15's.
    if not kept <= set(at.new.elr) & {*at.new.replicas} <= allowed:
        yield Finding(f"ELR {sorted(kept)}", str(sorted(at.new.elr)))


def last_leader_is_known(at: PartitionAt) -> Findings:
    if at.change is None or at.new.isr or not at.view.elr_enabled:
        return
    old, _ = at.change
    if old.leader != NO_LEADER and at.new.last_known_elr != (old.leader,):
        yield Finding(f"last known leader {old.leader}", str(list(at.new.last_known_elr)))
    elif old.leader == NO_LEADER and old.last_known_elr and not at.new.last_known_elr:
        yield Finding(f"last known leader {list(old.last_known_elr)}", "none")


def effective_min_isr(at: PartitionAt) -> tuple[int, ...]:
    """How many must be in sync, which are never more than there are replicas.

    Kafka counts those of partition 0, as they were when it decided: before the step or within it.
    """
    minimum = at.view.min_insync_replicas(at.topic)
    if not at.view.is_kafka:
        return (min(minimum, len(at.new.replicas)),)
    first = (at.key[0], 0)
    known = [at.step.partitions.get(first), at.view.partition(first)]
    known += [at.old, at.new] if at.key == first else []
    counts = {len(each.replicas) for each in known if each is not None} or {len(at.new.replicas)}
    return tuple(min(minimum, count) for count in sorted(counts))


# -- elections -----------------------------------------------------------------------------------


def _is_elected(at: PartitionAt) -> bool:
    return at.old is not None and at.new.leader not in (NO_LEADER, at.old.leader)


def is_clean(at: PartitionAt) -> bool:
    """Whether the new leader is known to hold all that was committed."""
    old, new = at.old, at.new
    assert old is not None
    if new.leader in old.isr:
        return True
    if new.leader in old.elr and at.view.elr_enabled and new.isr == (new.leader,):
        return True
    return _ends_reassignment(at) and new.leader in new.isr and old.leader != NO_LEADER


def _ends_reassignment(at: PartitionAt) -> bool:
    """As it was meant to: one that is cancelled goes back to other replicas."""
    old, new = at.old, at.new
    if old is None or new.adding_replicas or new.removing_replicas:
        return False
    is_one = bool(old.adding_replicas or old.removing_replicas)
    target = set(old.replicas) - set(old.removing_replicas)
    needed = set(old.adding_replicas) & target if at.view.is_kafka else target
    return is_one and set(new.replicas) == target and needed <= set(new.isr)


CHECKS: Final[tuple[tuple[int, PartitionCheck], ...]] = (
    (1, new_replicas_are_registered),
    (5, leader_epoch_moves_with_the_leader_field),
    (6, partition_epoch_moves_by_one),
    (7, new_partition_begins_at_zero),
    (8, change_changes_something),
    (9, unclean_leader_is_marked),
    (10, unclean_election_is_allowed),
    (11, recovering_follows_an_unclean_election),
    (14, isr_grows_by_the_leader),
    (17, elr_keeps_who_leaves_a_short_isr),
    (19, last_leader_is_known),
)
