"""Rules for what belongs to the whole cluster: producer ids and feature levels. Pure.

Those for metadata transactions are the engine's (engine.py), which alone knows what is open.
"""

from collections.abc import Iterator
from typing import Final

from kraftpy.audit.rules.context import Findings, RecordAt, RecordCheck, Step, StepCheck
from kraftpy.audit.rules.rule import Finding
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log.records import ProducerIdsRecord

# Kafka hands out ids in blocks of this many.
PRODUCER_ID_BLOCK: Final = 1000


def producer_ids_are_given_once(at: RecordAt) -> Findings:
    record = at.record
    if not isinstance(record, ProducerIdsRecord):
        return
    due = at.view.next_producer_id + PRODUCER_ID_BLOCK
    if record.next_producer_id < due:
        yield Finding(f"next producer id {due} or more", str(record.next_producer_id))
    broker = at.view.brokers.get(record.broker_id)
    epoch = None if broker is None else broker.broker_epoch
    if epoch != record.broker_epoch:
        yield Finding(f"broker epoch {epoch}", str(record.broker_epoch), record.broker_id)


def brokers_support_the_features(step: Step, view: View) -> Iterator[tuple[Finding, None]]:
    if step.are_features_touched or step.brokers:
        for finding in unsupported_features(view):
            if step.are_features_touched or finding.broker_id in step.brokers:
                yield finding, None


def unsupported_features(view: View) -> Findings:
    """Every unfenced broker supports every level; a feature it does not name, only at level 0."""
    levels = list(view.all_features())
    for broker_id, broker in view.all_brokers():
        if broker.fenced:
            continue
        ranges = {
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in broker.features
        }
        for name, level in levels:
            low, high = ranges.get(name, (0, 0))
            if not low <= level <= high:
                yield Finding(f"support of {name} {level}", f"{low} to {high}", broker_id)


RECORD_CHECKS: Final[tuple[tuple[int, RecordCheck], ...]] = ((43, producer_ids_are_given_once),)
STEP_CHECKS: Final[tuple[tuple[int, StepCheck], ...]] = ((44, brokers_support_the_features),)
