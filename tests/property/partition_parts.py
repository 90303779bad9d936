"""The parts of tests/property/partition_model.py: logs, brokers, messages and the controller.

The controller is simple but strict: every change has its epochs, and a proposal that is late, comes
from the wrong broker or names a member that is fenced or has restarted is refused.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.isr import AlterPartitionAnswer, IsrProposal
from kraftpy.broker.partition import Replica
from kraftpy.broker.reads import FetchPlan, FetchPosition
from kraftpy.metadata_log.image import Broker, Partition
from kraftpy.metadata_log.records import RECOVERED, RegisterBrokerRecord
from kraftpy.storage.epochs import LeaderEpochs
from kraftpy.testing import SimulatedFiles
from kraftpy.types import NO_LEADER, ZERO_UUID, BrokerId

FILES = SimulatedFiles()


class Violation(AssertionError):
    """A rule is broken; `rule` is its name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Entry(NamedTuple):
    epoch: int
    value: int
    chain: int


class ModelLog:
    """One record per batch, all of it in a list; the epochs are the real ones."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs(FILES, "leader-epoch-checkpoint")
        self.start_offset = 0

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    def chain(self, end_offset: int) -> int:
        return self.entries[end_offset - 1].chain if end_offset else 0

    def append(self, epoch: int, value: int) -> None:
        self.epochs.assign(epoch, self.end_offset, durably=False)
        self.entries.append(Entry(epoch, value, hash((self.chain(self.end_offset), epoch, value))))

    def truncate(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.cut_end(offset, durably=False)


@dataclass
class FetchAnswer:
    """With what the follower would learn from ListOffsets, should it have to ask."""

    position: FetchPosition
    plan: FetchPlan
    entries: list[Entry]
    log_end: int


@dataclass
class Node:
    """A broker: its replica in this life, and what outlives it."""

    broker_id: BrokerId
    replica: Replica
    log: ModelLog = field(default_factory=ModelLog)
    life: int = 0
    broker_epoch: int = 0
    alive: bool = True
    applied: int = 0
    checkpoint: int = 0
    has_lost: bool = False
    led: dict[int, int] = field(default_factory=dict)  # Leader epoch: its high watermark.
    waiting: list[tuple[int, int, int]] = field(default_factory=list)  # End, epoch, chain.


@dataclass
class Message:
    source: BrokerId
    source_life: int
    target: BrokerId  # NO_LEADER: the controller.
    target_life: int
    body: Any


class Controller:
    """What is true of the partition, and how it came to be: one entry per change."""

    def __init__(self, ids: list[BrokerId], rng: random.Random) -> None:
        self.rng = rng
        self.next_epoch = 100
        self.brokers: dict[BrokerId, Broker] = {}
        self.history: list[tuple[Partition, Mapping[BrokerId, Broker]]] = []
        for each in ids:
            self.brokers[each] = replace(self.new_broker(each), fenced=False)
        self.partition = Partition(
            replicas=tuple(ids),
            isr=tuple(ids),
            removing_replicas=(),
            adding_replicas=(),
            leader=ids[0],
            leader_recovery_state=RECOVERED,
            leader_epoch=0,
            partition_epoch=0,
            directories=(),
            elr=(),
            last_known_elr=(),
        )
        self.note()

    def new_broker(self, broker_id: BrokerId) -> Broker:
        self.next_epoch += 1
        return RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=ZERO_UUID,
            broker_epoch=self.next_epoch,
            end_points=(),
            features=(),
            rack=None,
            fenced=True,
        )

    def note(self) -> None:
        self.history.append((self.partition, dict(self.brokers)))

    def change(self, **changed: Any) -> None:
        epoch = self.partition.partition_epoch + 1
        self.partition = replace(self.partition, partition_epoch=epoch, **changed)

    def elect(self, leader: BrokerId) -> None:
        self.change(leader=leader, leader_epoch=self.partition.leader_epoch + 1)
        self.note()

    def candidates(self) -> list[BrokerId]:
        return [each for each in self.partition.isr if not self.brokers[each].fenced]

    def fence(self, broker_id: BrokerId) -> None:
        self.brokers[broker_id] = replace(self.brokers[broker_id], fenced=True)
        if broker_id in self.partition.isr:
            self._take_out(broker_id)
        self.note()

    def register(self, broker_id: BrokerId) -> int:
        self.brokers[broker_id] = self.new_broker(broker_id)
        if broker_id in self.partition.isr:
            self._take_out(broker_id)
        self.note()
        return self.brokers[broker_id].broker_epoch

    def _take_out(self, broker_id: BrokerId) -> None:
        # The last member stays, although fenced: nobody else is known to have everything.
        rest = tuple(each for each in self.partition.isr if each != broker_id)
        changed: dict[str, Any] = {"isr": rest or self.partition.isr}
        if self.partition.leader == broker_id:
            electable = [each for each in rest if not self.brokers[each].fenced]
            changed["leader"] = self.rng.choice(electable) if electable else NO_LEADER
            changed["leader_epoch"] = self.partition.leader_epoch + 1
        self.change(**changed)

    def unfence(self, broker_id: BrokerId) -> None:
        self.brokers[broker_id] = replace(self.brokers[broker_id], fenced=False)
        if self.partition.leader == NO_LEADER and broker_id in self.partition.isr:
            self.change(leader=broker_id, leader_epoch=self.partition.leader_epoch + 1)
        self.note()

    def alter(self, source: BrokerId, proposal: IsrProposal) -> AlterPartitionAnswer:
        error = self._refusal(source, proposal)
        if error is not ErrorCode.none:
            return AlterPartitionAnswer(error=error)
        isr = tuple(each.broker_id for each in proposal.isr)
        if isr != self.partition.isr:
            self.change(isr=isr)
            self.note()
        return AlterPartitionAnswer(
            error=ErrorCode.none,
            leader_epoch=self.partition.leader_epoch,
            partition_epoch=self.partition.partition_epoch,
            isr=self.partition.isr,
            leader_recovery_state=RECOVERED,
        )

    def _refusal(self, source: BrokerId, proposal: IsrProposal) -> ErrorCode:
        if proposal.leader_epoch != self.partition.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if proposal.partition_epoch != self.partition.partition_epoch:
            return ErrorCode.invalid_update_version
        if source != self.partition.leader:
            return ErrorCode.invalid_request
        for broker_id, broker_epoch in proposal.isr:
            broker = self.brokers[broker_id]
            if broker.fenced or broker_epoch not in (-1, broker.broker_epoch):
                return ErrorCode.ineligible_replica
        if self.rng.random() < 0.1:
            return ErrorCode.operation_not_attempted
        return ErrorCode.none


def demand(holds: bool, rule: str, detail: str) -> None:
    if not holds:
        raise Violation(rule, detail)
