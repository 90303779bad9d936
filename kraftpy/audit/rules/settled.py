"""Rules between partitions, brokers and configs: they hold whenever a step is over. Pure.

Within a step they need not: a fenced broker's partitions change before it is fenced.
"""

from typing import Final

from kraftpy.audit.rules.context import Findings, PartitionAt, PartitionCheck
from kraftpy.audit.rules.partition_changes import effective_min_isr
from kraftpy.audit.rules.rule import Finding
from kraftpy.types import NO_LEADER, BrokerId


def new_isr_is_the_active_replicas(at: PartitionAt) -> Findings:
    """Of a partition made in this step, and not changed in it again."""
    if at.old is not None or at.key not in at.step.partitions:
        return
    active = tuple(each for each in at.new.replicas if at.view.may_lead(at.new, each))
    differ = set(at.new.isr) ^ set(active)
    if at.view.is_kafka:
        differ -= set(at.step.brokers)  # In a batch of many decisions they came or went later.
    if at.new.partition_epoch == 0 and differ:
        yield Finding(f"ISR {list(active)}, the active replicas", str(list(at.new.isr)))


def leader_is_active(at: PartitionAt) -> Findings:
    leader = at.new.leader
    if leader != NO_LEADER and not at.view.may_lead(at.new, leader):
        yield Finding("an active leader", f"broker {leader}", leader)


def isr_is_active(at: PartitionAt) -> Findings:
    """Without ELR the last member stays, though fenced: it alone holds all that was committed.

    It is still there when ELR is enabled later, so with ELR a step is blamed only for its own.
    """
    isr = at.new.isr
    is_last = len(isr) == 1 and at.new.leader == NO_LEADER
    if is_last and not (at.view.elr_enabled and _was_active(at, isr[0])):
        return
    for member in isr:
        if not at.view.is_active(member):
            yield Finding("an active member of the ISR", f"broker {member}", member)


def _was_active(at: PartitionAt, broker_id: BrokerId) -> bool:
    """Before the step, which then is the one that made it inactive."""
    before = at.step.brokers.get(broker_id)
    if before is None or at.step.is_walk:
        return False
    return not before.fenced and not before.in_controlled_shutdown


def elr_is_empty_when_isr_is_whole(at: PartitionAt) -> Findings:
    """Kafka looks at it when a partition changes, and not at the others of a topic that does."""
    new = at.new
    minimum = max(effective_min_isr(at))
    if at.view.is_kafka and at.key not in at.step.partitions and not at.step.is_walk:
        return
    if len(new.isr) >= minimum and (new.elr or new.last_known_elr):
        yield Finding(
            f"no ELR, as the ISR {list(new.isr)} has {minimum} or more",
            f"{list(new.elr)} and last known {list(new.last_known_elr)}",
        )


def unclean_restart_loses_its_place(at: PartitionAt) -> Findings:
    """The last member of an ISR stays where ELR is off: nobody else is known to hold anything."""
    unclean = at.step.evidence.unclean_restarts or frozenset()
    new = at.new
    for broker_id in sorted(unclean):
        is_last = not at.view.elr_enabled and new.isr == (broker_id,)
        if (broker_id in new.isr and not is_last) or broker_id in new.elr:
            yield Finding("out of ISR and ELR after an unclean restart", "in it", broker_id)


def candidate_leads(at: PartitionAt) -> Findings:
    new = at.new
    if new.leader != NO_LEADER:
        return
    held = new.isr or (new.elr if at.view.elr_enabled else ())
    for candidate in held:
        if at.view.may_lead(new, candidate):
            yield Finding("a leader, as there is a candidate", f"broker {candidate}", candidate)
            return


def elr_needs_the_feature(at: PartitionAt) -> Findings:
    if (at.new.elr or at.new.last_known_elr) and not at.view.elr_enabled:
        yield Finding("no ELR, as the feature is off", str(list(at.new.elr)))


CHECKS: Final[tuple[tuple[int, PartitionCheck], ...]] = (
    (7, new_isr_is_the_active_replicas),
    (12, leader_is_active),
    (13, isr_is_active),
    (16, elr_is_empty_when_isr_is_whole),
    (18, unclean_restart_loses_its_place),
    (25, candidate_leads),
    (44, elr_needs_the_feature),
)
