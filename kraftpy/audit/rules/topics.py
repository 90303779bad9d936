"""Rules for topics and what belongs to them: ids, names, partition ids, deletion. Pure."""

from typing import Final

from kraftpy.audit.rules.context import (
    Findings,
    RecordAt,
    RecordCheck,
    Step,
    StepCheck,
    StepFindings,
)
from kraftpy.audit.rules.rule import Finding
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import records as r
from kraftpy.types import uuid_text


def partition_lives_once(at: RecordAt) -> Findings:
    """NonExistent, then online or offline in turns, then NonExistent for good."""
    record, view = at.record, at.view
    match record:
        case r.PartitionRecord():
            if view.topics.get(record.topic_id) is None:
                yield Finding("a partition of a live topic", uuid_text(record.topic_id))
            elif view.partition((record.topic_id, record.partition_id)) is not None:
                yield Finding("a partition that does not exist yet", "one that does")
        case r.PartitionChangeRecord():
            if view.partition((record.topic_id, record.partition_id)) is None:
                yield Finding("a change of a live partition", "one that does not exist")
        case r.RemoveTopicRecord():
            if view.topics.get(record.topic_id) is None:
                yield Finding("removal of a live topic", uuid_text(record.topic_id))
        case r.ClearElrRecord():
            if record.topic_name and view.topic_ids.get(record.topic_name) is None:
                yield Finding("a live topic", record.topic_name)


def topic_ids_and_names_are_unique(at: RecordAt) -> Findings:
    record = at.record
    if not isinstance(record, r.TopicRecord):
        return
    if at.view.topic_ids.get(record.name) is not None:
        yield Finding("a name that is free", record.name)
    if at.view.topics.get(record.topic_id) is not None:
        yield Finding("a topic id of its own", f"{uuid_text(record.topic_id)}, in use")
    elif record.topic_id in at.step.history.removed_topics:
        yield Finding("a topic id never used before", uuid_text(record.topic_id))


RECORD_CHECKS: Final[tuple[tuple[int, RecordCheck], ...]] = (
    (24, partition_lives_once),
    (34, topic_ids_and_names_are_unique),
)


def partition_ids_are_dense(step: Step, view: View) -> StepFindings:
    for topic_id, before in sorted(step.topics.items()):
        topic = view.topics.get(topic_id)
        if topic is None:
            continue
        if topic.highest + 1 != topic.partitions:
            found = f"{topic.partitions} of them, up to {topic.highest}"
            yield Finding("partition ids from 0 without a gap", found), topic_id
        if topic.partitions < before:
            yield Finding(f"{before} partitions or more", str(topic.partitions)), topic_id


def deleted_topic_leaves_nothing(step: Step, view: View) -> StepFindings:
    for resource_type, name in sorted(step.configs):
        is_set = bool(view.configs.get((resource_type, name)))
        if resource_type == r.TOPIC_RESOURCE and is_set and view.topic_ids.get(name) is None:
            yield Finding("configs of live topics only", f"configs of {name}"), None


def topic_is_created_whole(step: Step, view: View) -> StepFindings:
    for topic_id, before in sorted(step.topics.items()):
        topic = view.topics.get(topic_id)
        if before == -1 and topic is not None and not topic.partitions:
            yield Finding("a topic and its partitions in one batch", "none of them"), topic_id


STEP_CHECKS: Final[tuple[tuple[int, StepCheck], ...]] = (
    (35, partition_ids_are_dense),
    (36, deleted_topic_leaves_nothing),
    (37, topic_is_created_whole),
)
