"""What a check is shown, by how much of the log it needs. Pure.

State: one partition, at any record. Change: one partition before and after one record. Settled: a
partition at the end of a step, when rules across entities hold too. Broker: a broker before and
after one record. Record: any record, before it is replayed. Step: all of a step.

A partition's checks need its own state, the record, and brokers, configs and features at that
offset: so they can run wherever one partition's records and those three are, key by key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kraftpy.audit.rules.rule import Evidence, Finding, PartitionKey
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log.image import Broker, ConfigResource, Partition
from kraftpy.metadata_log.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from kraftpy.types import BrokerId, TopicId

Findings: TypeAlias = Iterator[Finding]


class PartitionAt(NamedTuple):
    """A partition that was created or changed by one record, which `view` shows already."""

    key: PartitionKey
    topic: str
    old: Partition | None
    record: PartitionRecord | PartitionChangeRecord | None  # None: a ClearElrRecord, or a walk.
    new: Partition
    view: View
    step: "Step"

    @property
    def change(self) -> tuple[Partition, PartitionChangeRecord] | None:
        """The old state and the record, if this is a change of a partition that was known."""
        if self.old is None or not isinstance(self.record, PartitionChangeRecord):
            return None
        return self.old, self.record


class BrokerAt(NamedTuple):
    """A broker that a record speaks of, before and after it."""

    broker_id: BrokerId
    old: Broker | None
    record: MetadataRecord
    new: Broker | None
    view: View
    step: "Step"
    offset: int


class RecordAt(NamedTuple):
    """A record that is about to be replayed; `view` does not show it yet."""

    record: MetadataRecord
    view: View
    step: "Step"


class Seen(NamedTuple):
    """A partition's record in the course of a step."""

    position: int
    key: PartitionKey
    old: Partition | None
    new: Partition


@dataclass(slots=True)
class Step:
    """What happened between two points at which rules across entities hold."""

    base_offset: int
    epoch: int
    evidence: Evidence
    history: "History"
    records: list[MetadataRecord] = field(default_factory=list)
    # What was touched, as it was before the step.
    partitions: dict[PartitionKey, Partition | None] = field(default_factory=dict)
    brokers: dict[BrokerId, Broker | None] = field(default_factory=dict)
    topics: dict[TopicId, int] = field(default_factory=dict)  # Partitions before; -1: no topic.
    configs: set[ConfigResource] = field(default_factory=set)
    removed_topics: dict[TopicId, str] = field(default_factory=dict)
    are_features_touched: bool = False
    seen: list[Seen] = field(default_factory=list)
    # Who registers or unregisters, known before the first record: the clean-up comes before it.
    departing: set[BrokerId] = field(default_factory=set)
    is_about_brokers: bool = False
    is_walk: bool = False  # Over an image, with nothing known of how it came about.


@dataclass(slots=True)
class History:
    """What an image forgets: ids and epochs that were used once and never may be again."""

    removed_topics: set[TopicId] = field(default_factory=set)
    broker_epochs: dict[int, BrokerId] = field(default_factory=dict)
    last_epochs: dict[BrokerId, int] = field(default_factory=dict)


PartitionCheck: TypeAlias = Callable[[PartitionAt], Findings]
BrokerCheck: TypeAlias = Callable[[BrokerAt], Findings]
RecordCheck: TypeAlias = Callable[[RecordAt], Findings]
# What was found, and about which partition or topic, if about one.
StepFindings: TypeAlias = Iterator[tuple[Finding, PartitionKey | TopicId | None]]
StepCheck: TypeAlias = Callable[[Step, View], StepFindings]
