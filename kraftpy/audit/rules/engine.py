"""The rule book at work: a log step by step, a batch between two images, or one whole image. Pure.

LogAudit follows a log of any length and remembers what images forget. `check_batch` judges what is
between two images at a cost that follows the batch; only a broker that comes or goes, or a setting
of the whole cluster, makes it look at more. `check_image` walks an image.

Cross-entity rules are judged at the end of a step: a batch, or a metadata transaction that ends.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from kraftpy.audit.rules import (
    brokers,
    cluster,
    partition_changes,
    partition_state,
    reassignments,
    settled,
    topics,
)
from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.context import BrokerAt, History, PartitionAt, RecordAt, Seen, Step
from kraftpy.audit.rules.rule import (
    KAFKA_DEFAULTS,
    NO_EVIDENCE,
    Defaults,
    Evidence,
    Finding,
    PartitionKey,
    Violation,
)
from kraftpy.audit.rules.view import CLUSTER_CONFIG, Saved, View
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import EMPTY, ClusterImage, MetadataTransaction, Partition
from kraftpy.types import NO_LEADER, BrokerId, TopicId

_CHANGE_CHECKS: Final = partition_state.CHECKS + partition_changes.CHECKS + reassignments.CHECKS
_RECORD_CHECKS: Final = topics.RECORD_CHECKS + cluster.RECORD_CHECKS
_STEP_CHECKS: Final = brokers.STEP_CHECKS + topics.STEP_CHECKS + cluster.STEP_CHECKS
_BROKER_RECORDS: Final = (
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
)
_TRANSACTION: Final = 45


class Lookup(Protocol):
    """Which partitions to look at when a broker comes or goes; else all of them are."""

    def holding(self, broker_id: BrokerId) -> Iterable[PartitionKey]: ...
    def leaderless(self) -> Iterable[PartitionKey]: ...


class LogAudit:
    """Judges the batches of one log in their order, from an image on."""

    def __init__(
        self,
        image: ClusterImage = EMPTY,
        *,
        defaults: Defaults = KAFKA_DEFAULTS,
        history: History | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        self.history = History() if history is None else history
        self._lookup = lookup
        self._found: list[Violation] = []
        self._saved: tuple[View, Saved] | None = None
        self.aborted: set[PartitionKey] = set()
        self._step: Step | None = None
        self._offset = int(image.end_offset)
        self._epoch = int(image.epoch)
        self.view = View(image, defaults)
        if image.transaction is not None:
            self._saved = (self.view, self.view.save())
            self._step = self._resumed(image, image.transaction)
            self.view = View(image.transaction.pending, defaults)

    def _resumed(self, image: ClusterImage, transaction: MetadataTransaction) -> Step:
        """The step of a transaction that began before: what it touched, but not its records."""
        step = Step(transaction.begin_offset, int(image.epoch), NO_EVIDENCE, self.history)
        for topic_id, partition_ids in transaction.changes.topics.items():
            for partition_id in partition_ids:
                key = (topic_id, partition_id)
                step.partitions[key] = image.partition(*key)
        for broker_id in transaction.changes.brokers:
            step.brokers[broker_id] = image.brokers.get(broker_id)
        step.configs |= transaction.changes.configs
        return step

    def batch(
        self,
        records: Sequence[r.MetadataRecord],
        *,
        base_offset: int,
        epoch: int,
        evidence: Evidence = NO_EVIDENCE,
    ) -> list[Violation]:
        """What this batch broke. Rules that wait for the end of a transaction speak up there."""
        self._found = []
        self._epoch = epoch
        if self._step is None:
            self._step = Step(base_offset, epoch, evidence, self.history)
        self._step.evidence = evidence
        self._step.departing |= {
            each.broker_id
            for each in records
            if isinstance(each, r.RegisterBrokerRecord | r.UnregisterBrokerRecord)
        }
        self._step.is_about_brokers |= any(isinstance(each, _BROKER_RECORDS) for each in records)
        for position, record in enumerate(records):
            self._offset = base_offset + position
            self._record(record)
        if self._saved is None:
            self._settle()
        return self._found

    # -- one record -------------------------------------------------------------------------------

    def _record(self, record: r.MetadataRecord) -> None:
        step = self._step
        assert step is not None
        if isinstance(
            record, r.BeginTransactionRecord | r.EndTransactionRecord | r.AbortTransactionRecord
        ):
            self._transaction(record)
            return
        for number, check in _RECORD_CHECKS:
            for finding in check(RecordAt(record, self.view, step)):
                self._add(number, finding, *_subject(record))
        self._remember(record)
        match record:
            case r.PartitionRecord() | r.PartitionChangeRecord():
                self._partition(record)
            case r.ClearElrRecord():
                self._clear_elr(record)
            case _ if isinstance(record, _BROKER_RECORDS):
                self._broker(record)
            case _:
                self.view.replay(record)
        step.records.append(record)

    def _transaction(self, record: r.MetadataRecord) -> None:
        is_open = self._saved is not None
        if isinstance(record, r.BeginTransactionRecord):
            if is_open:
                self._add(_TRANSACTION, Finding("no open transaction", "one begun before"))
                return
            self._saved = (self.view, self.view.save())
            return
        if not is_open:
            self._add(_TRANSACTION, Finding("an open transaction to end", "none"))
            return
        saved, self._saved = self._saved, None
        if isinstance(record, r.AbortTransactionRecord):
            assert saved is not None
            assert self._step is not None
            self.view = saved[0]
            self.view.restore(saved[1])
            step = self._step
            self.aborted |= set(step.partitions)
            self._step = Step(step.base_offset, step.epoch, step.evidence, self.history)

    def _remember(self, record: r.MetadataRecord) -> None:
        """Note what is about to be touched, as it is before."""
        step, view = self._step, self.view
        assert step is not None
        match record:
            case r.TopicRecord():
                step.topics.setdefault(record.topic_id, -1)
            case r.PartitionRecord():
                topic = view.topics.get(record.topic_id)
                count = -1 if topic is None else topic.partitions
                step.topics.setdefault(record.topic_id, count)
            case r.RemoveTopicRecord():
                self.history.removed_topics.add(record.topic_id)
                name = view.topic_name(record.topic_id)
                step.configs.add((r.TOPIC_RESOURCE, name))
                for key in view.keys_of(record.topic_id):
                    step.partitions.setdefault(key, view.partition(key))
            case r.ConfigRecord():
                step.configs.add((record.resource_type, record.resource_name))
            case r.FeatureLevelRecord():
                step.are_features_touched = True

    def _partition(self, record: r.PartitionRecord | r.PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        old = self.view.partition(key)
        self.view.replay(record)
        new = self.view.partition(key)
        if new is not None:
            self._changed(key, old, record, new)

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        for key, old, new in self.view.clear_elr(record):
            self._changed(key, old, None, new)

    def _changed(
        self,
        key: PartitionKey,
        old: Partition | None,
        record: r.PartitionRecord | r.PartitionChangeRecord | None,
        new: Partition,
    ) -> None:
        step = self._step
        assert step is not None
        step.partitions.setdefault(key, old)
        step.seen.append(Seen(len(step.records), key, old, new))
        at = PartitionAt(key, self.view.topic_name(key[0]), old, record, new, self.view, step)
        for number, check in _CHANGE_CHECKS:
            for finding in check(at):
                self._add(number, finding, *key)

    def _broker(self, record: r.MetadataRecord) -> None:
        step = self._step
        assert step is not None
        broker_id = _broker_id(record)
        old = self.view.brokers.get(broker_id)
        step.brokers.setdefault(broker_id, old)
        self.view.replay(record)
        new = self.view.brokers.get(broker_id)
        at = BrokerAt(broker_id, old, record, new, self.view, step, self._offset)
        for number, check in brokers.BROKER_CHECKS:
            for finding in check(at):
                self._add(number, finding)
        if isinstance(record, r.RegisterBrokerRecord):
            self.history.broker_epochs[record.broker_epoch] = broker_id
            self.history.last_epochs[broker_id] = record.broker_epoch

    # -- the end of a step ------------------------------------------------------------------------

    def _settle(self) -> None:
        step, self._step = self._step, None
        assert step is not None
        for number, check in _STEP_CHECKS:
            for finding, subject in check(step, self.view):
                if isinstance(subject, tuple):
                    self._add(number, finding, *subject)
                else:
                    self._add(number, finding, subject)
        for key in self._to_look_at(step):
            new = self.view.partition(key)
            if new is not None:
                self._settled(key, step.partitions.get(key, new), new, step)

    def _settled(
        self, key: PartitionKey, old: Partition | None, new: Partition, step: Step
    ) -> None:
        at = PartitionAt(key, self.view.topic_name(key[0]), old, None, new, self.view, step)
        for number, check in settled.CHECKS:
            for finding in check(at):
                self._add(number, finding, *key)
        witness = step.evidence.partition_epochs.get(key, new.partition_epoch)
        if witness != new.partition_epoch:
            self._add(6, Finding(f"partition epoch {new.partition_epoch}", str(witness)), *key)

    def _to_look_at(self, step: Step) -> list[PartitionKey]:
        """What the step touched, and what it should have."""
        keys = set(step.partitions)
        for resource_type, name in step.configs:
            topic_id = self.view.topic_ids.get(name)
            if resource_type == r.TOPIC_RESOURCE and topic_id is not None:
                keys.update(self.view.keys_of(topic_id))
        if step.are_features_touched or CLUSTER_CONFIG in step.configs:
            return sorted(self._all_keys())
        for broker_id, old in step.brokers.items():
            was = old is not None and not old.fenced and not old.in_controlled_shutdown
            if self.view.is_active(broker_id) and not was:
                keys.update(self._leaderless())
            else:
                keys.update(self._holding(broker_id))
        return sorted(keys)

    def _holding(self, broker_id: BrokerId) -> Iterable[PartitionKey]:
        if self._lookup is not None:
            return self._lookup.holding(broker_id)
        return [k for k, p in self._all() if broker_id in p.isr or broker_id in p.elr]

    def _leaderless(self) -> Iterable[PartitionKey]:
        if self._lookup is not None:
            return self._lookup.leaderless()
        return [key for key, partition in self._all() if partition.leader == NO_LEADER]

    def _all(self) -> Iterable[tuple[PartitionKey, Partition]]:
        for key in self._all_keys():
            partition = self.view.partition(key)
            if partition is not None:
                yield key, partition

    def _all_keys(self) -> set[PartitionKey]:
        topic_ids = {*self.view.base.topics, *self.view.topics.changed}
        return {key for topic_id in topic_ids for key in self.view.keys_of(topic_id)}

    def _add(
        self,
        number: int,
        finding: Finding,
        topic_id: TopicId | None = None,
        partition_id: int | None = None,
    ) -> None:
        topic = None if topic_id is None else self.view.topic_name(topic_id)
        self._found.append(
            Violation(
                rule=RULES[number],
                offset=self._offset,
                epoch=self._epoch,
                expected=finding.expected,
                actual=finding.actual,
                topic_id=topic_id,
                topic=topic,
                partition=partition_id,
                broker_id=finding.broker_id,
            )
        )


def _broker_id(record: Any) -> BrokerId:
    if isinstance(record, r.FenceBrokerRecord | r.UnfenceBrokerRecord):
        return record.id
    return record.broker_id  # type: ignore[no-any-return]


def _subject(record: r.MetadataRecord) -> tuple[TopicId | None, int | None]:
    match record:
        case r.PartitionRecord() | r.PartitionChangeRecord():
            return record.topic_id, record.partition_id
        case r.TopicRecord() | r.RemoveTopicRecord():
            return record.topic_id, None
    return None, None


def check_batch(
    before: ClusterImage,
    records: Sequence[r.MetadataRecord],
    after: ClusterImage | None = None,
    *,
    base_offset: int,
    epoch: int,
    evidence: Evidence = NO_EVIDENCE,
    defaults: Defaults = KAFKA_DEFAULTS,
    history: History | None = None,
    lookup: Lookup | None = None,
) -> list[Violation]:
    """What a batch broke, or all batches of a metadata transaction as one.

    `after` is the image that someone else made of it, as a witness of A6 and A45. `lookup` answers
    for `after`; without it a batch in which brokers come or go is compared with all partitions.
    """
    audit = LogAudit(before, defaults=defaults, history=history, lookup=lookup)
    found = audit.batch(records, base_offset=base_offset, epoch=epoch, evidence=evidence)
    if after is not None:
        found += _differences(audit, after, epoch)
    return found


def _differences(audit: LogAudit, after: ClusterImage, epoch: int) -> list[Violation]:
    found = []
    contents = after if after.transaction is None else after.transaction.pending
    for key in sorted({*audit.view.partitions.changed, *audit.aborted}):
        ours, theirs = audit.view.partition(key), contents.partition(*key)
        if ours != theirs:
            is_aborted = key not in audit.view.partitions.changed
            found.append(
                Violation(
                    rule=RULES[_TRANSACTION if is_aborted else 6],
                    offset=int(after.end_offset) - 1,
                    epoch=epoch,
                    expected=str(ours),
                    actual=str(theirs),
                    topic_id=key[0],
                    topic=audit.view.topic_name(key[0]),
                    partition=key[1],
                )
            )
    return found


def check_image(image: ClusterImage, *, defaults: Defaults = KAFKA_DEFAULTS) -> list[Violation]:
    """What is wrong with an image as it stands, whatever led to it."""
    return _ImageAudit(image, defaults).run()


class _ImageAudit(LogAudit):
    """The same rules without a step: every partition, broker, topic and config once."""

    def __init__(self, image: ClusterImage, defaults: Defaults) -> None:
        super().__init__(EMPTY, defaults=defaults)
        self.view = View(image, defaults)
        self._image = image
        self._offset, self._epoch = int(image.end_offset) - 1, int(image.epoch)

    def run(self) -> list[Violation]:
        self._found = []
        image = self._image
        step = Step(int(image.end_offset), int(image.epoch), NO_EVIDENCE, self.history)
        step.is_walk = step.are_features_touched = True
        step.brokers = dict(image.brokers)
        step.topics = {topic_id: len(topic.partitions) for topic_id, topic in image.topics.items()}
        step.configs = set(image.configs)
        for number, step_check in _STEP_CHECKS:
            for finding, subject in step_check(step, self.view):
                assert not isinstance(subject, tuple)
                self._add(number, finding, subject)
        for key, partition in sorted(self._all()):
            topic = self.view.topic_name(key[0])
            at = PartitionAt(key, topic, partition, None, partition, self.view, step)
            for number, check in partition_state.CHECKS + settled.CHECKS:
                for finding in check(at):
                    self._add(number, finding, *key)
        self._names()
        return self._found

    def _names(self) -> None:
        names = {topic.name: topic_id for topic_id, topic in self._image.topics.items()}
        if dict(self._image.topic_ids) != names or len(names) != len(self._image.topics):
            self._add(34, Finding("one live topic per name", "names and topics differ"))
