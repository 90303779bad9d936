"""A replica of broker 1 with a log in memory, for the tests beside this file."""

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.effects import (
    AssignEpoch,
    Effects,
    ProposeIsr,
)
from kraftpy.broker.isr import (
    AlterPartitionAnswer,
    IsrProposal,
    Moment,
)
from kraftpy.broker.partition import Replica, ReplicaConfig
from kraftpy.broker.reads import FetchPlan, FollowerFetch
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import RECOVERED, RegisterBrokerRecord
from kraftpy.types import NO_EPOCH, ZERO_UUID, BrokerId
from tests.property.partition_parts import ModelLog

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PARTITION = Partition(
    replicas=(ONE, TWO, THREE),
    isr=(ONE, TWO, THREE),
    removing_replicas=(),
    adding_replicas=(),
    leader=ONE,
    leader_recovery_state=RECOVERED,
    leader_epoch=5,
    partition_epoch=10,
    directories=(),
    elr=(),
    last_known_elr=(),
)
BROKERS = {
    each: RegisterBrokerRecord(
        broker_id=each,
        incarnation_id=ZERO_UUID,
        broker_epoch=100 * each,
        end_points=(),
        features=(),
        rack=None,
        fenced=False,
    )
    for each in (ONE, TWO, THREE)
}
LAG_MS = 30_000


def moment(now_ms: int = 1_000, **changed: Any) -> Moment:
    """`b2={...}` changes broker 2."""
    brokers = dict(BROKERS)
    for name, fields in changed.items():
        broker_id = BrokerId(int(name[1:]))
        brokers[broker_id] = replace(brokers[broker_id], **fields)
    return Moment(now_ms, 100, brokers)


class Bench:
    """Broker 1's replica with a log of its own."""

    def __init__(self, records: int = 0, epoch: int = 4, min_isr: int = 1, mark: int = 0) -> None:
        self.log = ModelLog()
        for value in range(records):
            self.log.append(epoch, value)
        self.replica = Replica(
            ONE, self.log, ReplicaConfig(min_insync_replicas=min_isr), high_watermark=mark
        )

    def lead(self, **changed: Any) -> Effects:
        effects = self.replica.apply_metadata(replace(PARTITION, **changed), moment())
        for each in effects:
            if isinstance(each, AssignEpoch):
                self.log.epochs.assign(each.epoch, each.start_offset, durably=False)
        return effects

    def append(self, count: int = 1, now_ms: int = 1_000) -> Effects:
        for _ in range(count):
            self.log.append(self.replica.leader_epoch, 0)
        return self.replica.appended(moment(now_ms))

    def fetch(
        self,
        broker_id: BrokerId,
        offset: int,
        at: Moment | None = None,
        *,
        leader_epoch: int = 5,
        broker_epoch: int | None = None,
        last_epoch: int = NO_EPOCH,
    ) -> tuple[FetchPlan, Effects]:
        epoch = 100 * broker_id if broker_epoch is None else broker_epoch
        fetch = FollowerFetch(broker_id, epoch, leader_epoch, offset, last_epoch, 0)
        return self.replica.follower_fetch(fetch, at or moment())

    def answer(self, proposal: IsrProposal, error: ErrorCode, **said: Any) -> Effects:
        answer = AlterPartitionAnswer(error=error, **said)
        return self.replica.alter_partition_answered(proposal, answer, moment())


def proposed(effects: Effects) -> IsrProposal:
    (found,) = (each.proposal for each in effects if isinstance(each, ProposeIsr))
    return found
