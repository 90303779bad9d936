"""AlterPartition: a leader says who is in sync with it, and the controller holds it to it. Pure.

What always holds: only the current leader of a partition, in its current leader epoch and partition
epoch, changes its ISR; nobody joins who is fenced, shutting down, or another incarnation than the
leader has seen (KIP-841, KIP-903). A leader that asks again for what is already true is told so,
whatever partition epoch it knew: its first answer was lost (KAFKA-14144).
"""

from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.metadata_log.partition_merge import merge_partition
from kraftpy.metadata_log.records import RECOVERED, RECOVERING, PartitionChangeRecord
from kraftpy.quorum.control.activity import is_active, is_directory_online
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.elections import new_change
from kraftpy.types import BrokerId, TopicId, from_wire_uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange

_ANY_EPOCH: Final = -1  # The leader does not know a follower's epoch: it is not checked.


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a leader asks for one partition, in any version of the request."""

    partition_id: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    isr: tuple[BrokerId, ...]
    broker_epochs: tuple[int, ...]  # One per member of the ISR.


def decide_alter_partition(situation: Situation, message: Any) -> Decision:
    image = situation.image
    _check_broker(image, message.broker_id, message.broker_epoch)
    records: list[PartitionChangeRecord] = []
    seen: set[tuple[TopicId, int]] = set()
    topics = []
    for asked in message.topics:
        topic_id = TopicId(from_wire_uuid(asked.topic_id))
        topic = image.topics.get(topic_id)
        partitions = []
        for data in asked.partitions:
            proposal = _proposal(data)
            key = (topic_id, proposal.partition_id)
            twice = key in seen
            seen.add(key)
            code, partition, record = _alter(situation, topic, message.broker_id, proposal, twice)
            if record is not None:
                records.append(record)
            partitions.append(_result(proposal.partition_id, code, partition))
        topics.append({"topic_id": asked.topic_id, "partitions": partitions})
    response = {"throttle_time": NO_THROTTLE, "error_code": ErrorCode.none, "topics": topics}
    return Decision(records=records, response=response)


def _check_broker(image: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.stale_broker_epoch, f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        why = f"broker {broker_id} has epoch {broker.broker_epoch}, not {broker_epoch}"
        raise Refused(ErrorCode.stale_broker_epoch, why)


def _proposal(data: Any) -> Proposal:
    """Before version 3 a leader names members without their epochs."""
    members = getattr(data, "new_isr_with_epochs", None)
    if members is None:
        isr = tuple(data.new_isr)
        epochs = (_ANY_EPOCH,) * len(isr)
    else:
        isr = tuple(member.broker_id for member in members)
        epochs = tuple(member.broker_epoch for member in members)
    return Proposal(
        partition_id=data.partition_index,
        leader_epoch=data.leader_epoch,
        partition_epoch=data.partition_epoch,
        leader_recovery_state=data.leader_recovery_state,
        isr=isr,
        broker_epochs=epochs,
    )


def _alter(
    situation: Situation,
    topic: Topic | None,
    broker_id: BrokerId,
    proposal: Proposal,
    twice: bool,
) -> tuple[ErrorCode, Partition | None, PartitionChangeRecord | None]:
    if topic is None:
        return ErrorCode.unknown_topic_id, None, None
    partition = topic.partitions.get(proposal.partition_id)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, None, None
    if twice:
        return ErrorCode.invalid_request, None, None
    code = _stale(partition, broker_id, proposal)
    if code is ErrorCode.invalid_update_version and _is_true_already(partition, proposal):
        return ErrorCode.none, partition, None
    if code is None:
        code = _illegal(partition, proposal) or _ineligible(situation.image, partition, proposal)
    if code is not None:
        return code, None, None
    change = new_change(situation, topic, proposal.partition_id)
    change.isr = _in_replica_order(partition, proposal)
    change.leader_recovery_state = proposal.leader_recovery_state
    record = change.build()
    if record is None:
        return ErrorCode.none, partition, None
    changed = merge_partition(partition, record)
    if changed.leader != partition.leader:
        # The change completed a reassignment that removes the leader.
        return ErrorCode.new_leader_elected, None, record
    return ErrorCode.none, changed, record


def _stale(partition: Partition, broker_id: BrokerId, proposal: Proposal) -> ErrorCode | None:
    """In which way the leader knows another state of its partition than we do."""
    if (
        proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
    ):
        # It follows a newer controller than this one (KAFKA-14154).
        return ErrorCode.not_controller
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    return None


def _is_true_already(partition: Partition, proposal: Proposal) -> bool:
    return (
        sorted(proposal.isr) == sorted(partition.isr)
        and proposal.leader_recovery_state == partition.leader_recovery_state
    )


def _illegal(partition: Partition, proposal: Proposal) -> ErrorCode | None:
    """A proposal that no correct leader makes. KAFKA-15353: one with an empty ISR among them."""
    isr = set(proposal.isr)
    recovery = proposal.leader_recovery_state
    is_legal = (
        len(isr) == len(proposal.isr)
        and isr <= set(partition.replicas)
        and partition.leader in isr
        and recovery in (RECOVERED, RECOVERING)
        and not (recovery == RECOVERING and len(isr) > 1)
        and not (recovery == RECOVERING and partition.leader_recovery_state == RECOVERED)
    )
    return None if is_legal else ErrorCode.invalid_request


def _ineligible(image: ClusterImage, partition: Partition, proposal: Proposal) -> ErrorCode | None:
    """Members that may not be in an ISR now, or are not who the leader takes them for."""
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True):
        if (
            not is_active(image, member)
            or not is_directory_online(image, member, directories[member])
            or epoch not in (_ANY_EPOCH, image.brokers[member].broker_epoch)
        ):
            return ErrorCode.ineligible_replica
    return None


def _in_replica_order(partition: Partition, proposal: Proposal) -> tuple[BrokerId, ...]:
    """The same set is the same ISR: an order of its own would be a change of nothing."""
    members = set(proposal.isr)
    if members == set(partition.isr):
        return partition.isr
    return tuple(replica for replica in partition.replicas if replica in members)


def _result(partition_id: int, code: ErrorCode, partition: Partition | None) -> Values:
    if partition is None:
        values: dict[str, Any] = {
            "leader_id": 0,
            "leader_epoch": 0,
            "isr": (),
            "leader_recovery_state": RECOVERED,
            "partition_epoch": 0,
        }
    else:
        values = {
            "leader_id": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "isr": partition.isr,
            "leader_recovery_state": partition.leader_recovery_state,
            "partition_epoch": partition.partition_epoch,
        }
    return {"partition_index": partition_id, "error_code": code, **values}


def _refuse(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    return {"throttle_time": NO_THROTTLE, "error_code": error_code, "topics": ()}


APIS: Final[dict[int, ControlApi]] = {
    apis.ALTER_PARTITION: ControlApi(VersionRange(2, 3), decide_alter_partition, _refuse),
}
