"""Rules that one partition keeps to at every offset, whatever happens around it. Pure."""

from collections.abc import Sequence
from typing import Final

from kraftpy.audit.rules.context import Findings, PartitionAt, PartitionCheck
from kraftpy.audit.rules.rule import Finding
from kraftpy.metadata_log.records import RECOVERING
from kraftpy.types import NO_LEADER


def replicas_are_distinct(at: PartitionAt) -> Findings:
    replicas = at.new.replicas
    if not replicas:
        yield Finding("at least one replica", "none")
    if len(set(replicas)) != len(replicas):
        yield Finding("every replica once", _list(replicas))
    if any(replica < 0 for replica in replicas):
        yield Finding("ids of brokers", _list(replicas))


def isr_is_of_replicas(at: PartitionAt) -> Findings:
    isr = at.new.isr
    if not set(isr) <= set(at.new.replicas):
        yield Finding(f"an ISR of replicas {_list(at.new.replicas)}", _list(isr))
    if len(set(isr)) != len(isr):
        yield Finding("every member of the ISR once", _list(isr))


def leader_is_in_isr(at: PartitionAt) -> Findings:
    if at.new.leader != NO_LEADER and at.new.leader not in at.new.isr:
        yield Finding(f"a leader of the ISR {_list(at.new.isr)}", str(at.new.leader))


def isr_is_empty_only_with_elr(at: PartitionAt) -> Findings:
    if not at.new.isr and not at.view.elr_enabled:
        yield Finding("an ISR, as ELR is disabled", "[]")


def recovering_leader_is_alone(at: PartitionAt) -> Findings:
    """The ISR may be empty, with ELR: the recovering leader was fenced and is eligible."""
    if at.new.leader_recovery_state == RECOVERING and len(at.new.isr) > 1:
        yield Finding("one member in the ISR of a recovering leader", _list(at.new.isr))


def elr_is_of_other_replicas(at: PartitionAt) -> Findings:
    elr = at.new.elr
    if not set(elr) <= set(at.new.replicas):
        yield Finding(f"an ELR of replicas {_list(at.new.replicas)}", _list(elr))
    if set(elr) & set(at.new.isr) or len(set(elr)) != len(elr):
        yield Finding(f"an ELR apart from the ISR {_list(at.new.isr)}", _list(elr))


def reassignment_is_of_replicas(at: PartitionAt) -> Findings:
    adding, removing = at.new.adding_replicas, at.new.removing_replicas
    for name, group in (("adding", adding), ("removing", removing)):
        if not set(group) <= set(at.new.replicas):
            yield Finding(f"{name} of replicas {_list(at.new.replicas)}", _list(group))
    if set(adding) & set(removing):
        yield Finding("no replica both added and removed", f"{_list(adding)}, {_list(removing)}")


def directories_are_one_per_replica(at: PartitionAt) -> Findings:
    if len(at.new.directories) != len(at.new.replicas):
        yield Finding(f"{len(at.new.replicas)} directories", str(len(at.new.directories)))


def _list(ids: Sequence[int]) -> str:
    return str(list(ids))


CHECKS: Final[tuple[tuple[int, PartitionCheck], ...]] = (
    (1, replicas_are_distinct),
    (2, isr_is_of_replicas),
    (3, leader_is_in_isr),
    (4, isr_is_empty_only_with_elr),
    (11, recovering_leader_is_alone),
    (15, elr_is_of_other_replicas),
    (20, reassignment_is_of_replicas),
    (33, directories_are_one_per_replica),
)
