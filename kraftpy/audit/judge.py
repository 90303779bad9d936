"""The rule book on a log from which most partitions were left out.

The compiled replay says which partitions may have broken a rule; their records, and all that are no
partition's, are judged here, by the rule book's own engine. What always holds: what it finds is
what LogAudit finds in the whole log, but for rules that count the partitions of a topic (COUNTING),
which are heard only about topics of which nothing was left out.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from kraftpy.audit.rules.context import History, Step
from kraftpy.audit.rules.engine import LogAudit
from kraftpy.audit.rules.rule import (
    KAFKA_DEFAULTS,
    NO_EVIDENCE,
    Defaults,
    Evidence,
    PartitionKey,
    Violation,
)
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Partition
from kraftpy.types import NO_LEADER, BrokerId, TopicId

OffsetRecord: TypeAlias = tuple[int, r.MetadataRecord]

COUNTING: Final = frozenset({35, 37})
_LEAVING: Final = (r.RegisterBrokerRecord, r.UnregisterBrokerRecord)
_BROKER_RECORDS: Final = (
    *_LEAVING,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
)


class Judge(LogAudit):
    """LogAudit for records with gaps between them, with an index of who holds what."""

    def __init__(
        self,
        *,
        defaults: Defaults = KAFKA_DEFAULTS,
        history: History | None = None,
        whole_topics: Collection[TopicId] | None = None,
    ) -> None:
        """`whole_topics`: those of which nothing was left out; None if that is all of them."""
        super().__init__(defaults=defaults, history=history)
        self._whole = whole_topics
        self._held: dict[BrokerId, set[PartitionKey]] = {}
        self._without_leader: set[PartitionKey] = set()

    def seed(self, records: Iterable[r.MetadataRecord]) -> None:
        """Begin with what these records tell: nothing of it is judged until it changes."""
        for record in records:
            self.view.replay(record)
            if isinstance(record, r.PartitionRecord):
                key = record.topic_id, record.partition_id
                partition = self.view.partition(key)
                if partition is not None:
                    self._note(key, partition)

    def judge(
        self,
        records: Sequence[OffsetRecord],
        *,
        base_offset: int,
        last_offset: int,
        epoch: int,
        evidence: Evidence = NO_EVIDENCE,
    ) -> list[Violation]:
        """What this batch broke, as far as it is here."""
        self._found = []
        self._epoch = epoch
        if self._step is None:
            self._step = Step(base_offset, epoch, evidence, self.history)
        self._step.evidence = evidence
        for _, record in records:
            if isinstance(record, _BROKER_RECORDS):
                self._step.is_about_brokers = True
                if isinstance(record, _LEAVING):
                    self._step.departing.add(record.broker_id)
        for offset, record in records:
            self._offset = offset
            self._record(record)
        self._offset = last_offset
        if self._saved is None:
            self._settle()
        return self._heard(self._found)

    def _heard(self, found: list[Violation]) -> list[Violation]:
        if self._whole is None:
            return found
        return [
            each
            for each in found
            if each.rule.number not in COUNTING or each.topic_id in self._whole
        ]

    @property
    def is_in_transaction(self) -> bool:
        return self._saved is not None

    def partitions(self) -> Iterator[tuple[PartitionKey, Partition]]:
        """All that it knows of, in order."""
        yield from sorted(self._all(), key=lambda each: each[0])

    # -- the index ----------------------------------------------------------------------------

    def _changed(
        self,
        key: PartitionKey,
        old: Partition | None,
        record: r.PartitionRecord | r.PartitionChangeRecord | None,
        new: Partition,
    ) -> None:
        self._note(key, new)
        super()._changed(key, old, record, new)

    def _note(self, key: PartitionKey, partition: Partition) -> None:
        """It only ever grows: who asks looks at the partition as it is now."""
        for broker_id in (*partition.isr, *partition.elr):
            self._held.setdefault(broker_id, set()).add(key)
        if partition.leader == NO_LEADER:
            self._without_leader.add(key)

    def _holding(self, broker_id: BrokerId) -> Iterable[PartitionKey]:
        noted = self._held.get(broker_id, set())
        found = []
        for key in list(noted):
            partition = self.view.partition(key)
            if partition is not None and broker_id in (*partition.isr, *partition.elr):
                found.append(key)
            elif self._saved is None:
                noted.discard(key)  # Within a transaction it may come back.
        return found

    def _leaderless(self) -> Iterable[PartitionKey]:
        found = []
        for key in list(self._without_leader):
            partition = self.view.partition(key)
            if partition is not None and partition.leader == NO_LEADER:
                found.append(key)
            elif self._saved is None:
                self._without_leader.discard(key)
        return found
