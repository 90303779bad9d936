"""What a rule is, what breaking it looks like, and what the log cannot say by itself. Pure.

A rule has a number (that of the catalogue, "A12"), a name that states what holds, a sentence, and a
severity. Its checks live in the other modules of this package, by what they need to see: one
partition, one change, one step. A step is one batch, or all batches of one metadata transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kraftpy.types import BrokerId, TopicId

PartitionKey: TypeAlias = tuple[TopicId, int]


class Writer(Enum):
    """Whose log it is: the two agree on what records mean, not on every custom.

    Kafka puts what it decides within some milliseconds into one batch, ends a reassignment when
    those that were added are in sync, and takes a topic's replication factor from partition 0.
    """

    KRAFTPY = "kraftpy"
    KAFKA = "kafka"


class Severity(Enum):
    """What a broken rule may cost."""

    CRITICAL = "acknowledged records may be lost, or two nodes may own one thing"
    ERROR = "the metadata contradicts itself"
    WARNING = "nothing is lost, but something is not as it should be"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    number: int
    name: str
    sentence: str
    severity: Severity
    needs: str = ""  # What must have been recorded for it to be decided.

    @property
    def code(self) -> str:
        return f"A{self.number}"


class Finding(NamedTuple):
    """What a check found wrong in what it was shown."""

    expected: str
    actual: str
    broker_id: BrokerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that was broken, where, and how."""

    rule: Rule
    offset: int  # Of the record, or of the last record of the step.
    epoch: int
    expected: str
    actual: str
    topic_id: TopicId | None = None
    topic: str | None = None
    partition: int | None = None
    broker_id: BrokerId | None = None
    node: int | None = None  # Whose directory shows it, where that matters.

    def __str__(self) -> str:
        where = [f"offset {self.offset}"]
        if self.topic is not None:
            name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
            where.append(name)
        if self.broker_id is not None:
            where.append(f"broker {self.broker_id}")
        if self.node is not None:
            where.append(f"node {self.node}")
        rule = self.rule
        return (
            f"{rule.code} {rule.name} ({', '.join(where)}): "
            f"expected {self.expected}, found {self.actual}"
        )


class IsrRequest(NamedTuple):
    """An AlterPartition as it was asked: who must be current for the ISR to grow."""

    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[BrokerId, int]  # -1: the requester did not say.


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What others recorded about a step. None: nobody recorded it, so it proves nothing."""

    # Partitions for which ElectLeaders asked for an unclean election.
    unclean_elections: frozenset[PartitionKey] | None = None
    # Brokers whose registration in this step follows an unclean shutdown.
    unclean_restarts: frozenset[BrokerId] | None = None
    isr_requests: Mapping[PartitionKey, IsrRequest] | None = None
    # The metadata offset that each broker reported when it asked to be unfenced.
    caught_up: Mapping[BrokerId, int] | None = None
    # Partition epochs that were answered to AlterPartition.
    partition_epochs: Mapping[PartitionKey, int] = field(default_factory=dict)


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the controllers were started with; a log holds only what was set in it."""

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    writer: Writer = Writer.KRAFTPY


KAFKA_DEFAULTS: Final = Defaults()
