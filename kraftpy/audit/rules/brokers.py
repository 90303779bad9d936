"""Rules for brokers: epochs, incarnations, fencing, shutdown, and the order within a step. Pure."""

from collections.abc import Iterator
from typing import Final

from kraftpy.audit.rules.context import (
    BrokerAt,
    BrokerCheck,
    Findings,
    Seen,
    Step,
    StepCheck,
    StepFindings,
)
from kraftpy.audit.rules.rule import Finding
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, Uuid, uuid_text


def epoch_is_the_base_offset(at: BrokerAt) -> Findings:
    """In a metadata transaction, of the batch that begins it."""
    new = at.new
    if not isinstance(at.record, r.RegisterBrokerRecord) or new is None:
        return
    is_new = at.old is None or at.old.incarnation_id != new.incarnation_id
    due = at.step.base_offset if is_new or at.old is None else at.old.broker_epoch
    if is_new and at.view.is_kafka:
        # Its batch may begin with what was decided before: then the epoch is where this began.
        due = min(max(due, new.broker_epoch), at.offset)
    if new.broker_epoch != due:
        what = "the batch's base offset" if is_new else "of the same incarnation"
        yield Finding(f"epoch {due}, {what}", str(new.broker_epoch), at.broker_id)


def epochs_grow_and_are_unique(at: BrokerAt) -> Findings:
    if not isinstance(at.record, r.RegisterBrokerRecord) or at.new is None:
        return
    epoch = at.new.broker_epoch
    if at.old is not None and at.old.incarnation_id == at.new.incarnation_id:
        return
    history = at.step.history
    last = history.last_epochs.get(at.broker_id, -1)
    last = max(last, -1 if at.old is None else at.old.broker_epoch)
    if epoch <= last:
        yield Finding(f"an epoch beyond {last}", str(epoch), at.broker_id)
    owner = history.broker_epochs.get(epoch)
    for broker_id, broker in at.view.all_brokers():
        if broker_id != at.broker_id and broker.broker_epoch == epoch:
            owner = broker_id
    if owner not in (None, at.broker_id):
        yield Finding("an epoch of its own", f"{epoch}, that of broker {owner}", at.broker_id)


def new_incarnation_is_fenced(at: BrokerAt) -> Findings:
    if not isinstance(at.record, r.RegisterBrokerRecord) or at.new is None:
        return
    is_new = at.old is None or at.old.incarnation_id != at.new.incarnation_id
    if is_new and not at.new.fenced:
        yield Finding("a new incarnation that is fenced", "unfenced", at.broker_id)


def record_names_the_current_epoch(at: BrokerAt) -> Findings:
    match at.record:
        case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
            epoch = at.record.epoch
        case r.UnregisterBrokerRecord() | r.BrokerRegistrationChangeRecord():
            epoch = at.record.broker_epoch
        case _:
            return
    if at.old is None:
        yield Finding("a registered broker", "none", at.broker_id)
    elif at.old.broker_epoch != epoch:
        yield Finding(f"epoch {at.old.broker_epoch}", str(epoch), at.broker_id)


def unfenced_broker_has_caught_up(at: BrokerAt) -> Findings:
    caught_up = at.step.evidence.caught_up
    if caught_up is None or at.old is None or at.new is None:
        return
    if at.old.fenced and not at.new.fenced:
        offset = caught_up.get(at.broker_id)
        if offset is None or offset < at.new.broker_epoch:
            wanted = f"metadata offset {at.new.broker_epoch} or more"
            yield Finding(wanted, f"{offset}", at.broker_id)


def shutdown_ends_with_a_registration(at: BrokerAt) -> Findings:
    if at.old is None or at.new is None or not at.old.in_controlled_shutdown:
        return
    is_same = at.old.incarnation_id == at.new.incarnation_id
    if is_same and not at.new.in_controlled_shutdown:
        yield Finding("a broker in controlled shutdown", "out of it", at.broker_id)
    if is_same and at.old.fenced and not at.new.fenced:
        yield Finding("a broker that is shutting down stays fenced", "unfenced", at.broker_id)


BROKER_CHECKS: Final[tuple[tuple[int, BrokerCheck], ...]] = (
    (26, epoch_is_the_base_offset),
    (27, epochs_grow_and_are_unique),
    (28, new_incarnation_is_fenced),
    (29, record_names_the_current_epoch),
    (31, unfenced_broker_has_caught_up),
    (32, shutdown_ends_with_a_registration),
)


# -- over a step -----------------------------------------------------------------------------------


def changes_are_in_order(step: Step, _view: View) -> StepFindings:
    """Who goes, goes from its partitions first; who comes, comes before it is elected; who begins
    to shut down is marked first, so that no prefix elects it again."""
    for position, broker_id, what in _turns(step):
        for seen in step.seen:
            if what in ("fenced", "registered", "unregistered"):
                is_late = seen.position > position and _leaves(seen, broker_id)
                if is_late:
                    yield Finding("changes before it is " + what, "after", broker_id), seen.key
            elif what == "shutting down":
                if seen.position < position and _leaves(seen, broker_id):
                    yield Finding("the mark before its changes", "after", broker_id), seen.key
            elif seen.position < position and _gains(seen, broker_id):
                yield Finding("changes after it is unfenced", "before", broker_id), seen.key


def _turns(step: Step) -> Iterator[tuple[int, BrokerId, str]]:
    for position, record in enumerate(step.records):
        match record:
            case r.FenceBrokerRecord():
                yield position, record.id, "fenced"
            case r.UnfenceBrokerRecord():
                yield position, record.id, "unfenced"
            case r.RegisterBrokerRecord():
                yield position, record.broker_id, "registered"
            case r.UnregisterBrokerRecord():
                yield position, record.broker_id, "unregistered"
            case r.BrokerRegistrationChangeRecord(fenced=r.FENCE):
                yield position, record.broker_id, "fenced"
            case r.BrokerRegistrationChangeRecord(fenced=r.UNFENCE):
                yield position, record.broker_id, "unfenced"
            case r.BrokerRegistrationChangeRecord(in_controlled_shutdown=r.SHUTTING_DOWN):
                yield position, record.broker_id, "shutting down"


def _leaves(seen: Seen, broker_id: BrokerId) -> bool:
    if seen.old is None:
        return False
    left_isr = broker_id in seen.old.isr and broker_id not in seen.new.isr
    return left_isr or (seen.old.leader == broker_id != seen.new.leader)


def _gains(seen: Seen, broker_id: BrokerId) -> bool:
    if seen.old is None:
        return False
    joined = broker_id in seen.new.isr and broker_id not in seen.old.isr
    return joined or (seen.new.leader == broker_id != seen.old.leader)


def fenced_after_shutdown_leads_nothing(step: Step, view: View) -> StepFindings:
    for broker_id, old in sorted(step.brokers.items()):
        new = view.brokers.get(broker_id)
        if old is None or new is None or old.incarnation_id != new.incarnation_id:
            continue
        if old.in_controlled_shutdown and not old.fenced and new.fenced:
            for key, partition in sorted(step.partitions.items()):
                if partition is not None and partition.leader == broker_id:
                    yield Finding("a broker that leads nothing", "it led", broker_id), key


def log_directories_have_one_broker(step: Step, view: View) -> StepFindings:
    if step.brokers:
        for finding in shared_log_directories(view):
            if finding.broker_id in step.brokers:
                yield finding, None


def shared_log_directories(view: View) -> Findings:
    owners: dict[Uuid, list[BrokerId]] = {}
    for broker_id, broker in view.all_brokers():
        for directory in broker.log_dirs:
            owners.setdefault(directory, []).append(broker_id)
    for directory, found in owners.items():
        for broker_id in found if len(found) > 1 else ():
            where = f"{uuid_text(directory)} of brokers {found}"
            yield Finding("a log directory of one broker", where, broker_id)


STEP_CHECKS: Final[tuple[tuple[int, StepCheck], ...]] = (
    (30, changes_are_in_order),
    (32, fenced_after_shutdown_leads_nothing),
    (33, log_directories_have_one_broker),
)
