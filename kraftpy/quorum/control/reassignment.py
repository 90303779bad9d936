"""Moving replicas: AlterPartitionReassignments and what is under way. Pure.

A reassignment adds the new replicas beside the old ones; when all replicas of the target are in
sync, the others are gone (partition_change.py completes it, with whatever change brings it there).
A new target replaces one that is under way. To cancel is to drop what was being added.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.metadata_log.records import PartitionChangeRecord
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.elections import new_change
from kraftpy.quorum.control.partition_change import Election
from kraftpy.quorum.control.topic_settings import unclean_election_enabled
from kraftpy.types import BrokerId
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange


def decide_alter_reassignments(situation: Situation, message: Any) -> Decision:
    records: list[PartitionChangeRecord] = []
    seen: set[tuple[str, int]] = set()
    responses = []
    may_resize = getattr(message, "allow_replication_factor_change", True)
    for asked in message.topics:
        partitions = []
        for each in asked.partitions:
            key = (asked.name, each.partition_index)
            code, why = ErrorCode.none, None
            try:
                if key in seen:
                    raise Refused(ErrorCode.invalid_request, "the partition is named twice")
                seen.add(key)
                record = _alter(situation, *key, each.replicas, may_resize)
                if record is not None:
                    records.append(record)
            except Refused as refused:
                code, why = refused.error_code, str(refused)
            partitions.append(_result(each.partition_index, code, why))
        responses.append({"name": asked.name, "partitions": partitions})
    return Decision(records=records, response=_answer(message, ErrorCode.none, None, responses))


def _alter(
    situation: Situation,
    name: str,
    partition_id: int,
    target: tuple[BrokerId, ...] | None,
    may_resize: bool,
) -> PartitionChangeRecord | None:
    topic = situation.image.topic(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        why = f"there is no partition {name}-{partition_id}"
        raise Refused(ErrorCode.unknown_topic_or_partition, why)
    if target is None:
        return _cancel(situation, topic, partition_id, partition)
    _check_target(situation.image, target)
    originals = _without(partition.replicas, partition.adding_replicas)
    if not may_resize and len(target) != len(originals):
        why = f"the replication factor would change from {len(originals)} to {len(target)}"
        raise Refused(ErrorCode.invalid_replication_factor, why)
    change = new_change(situation, topic, partition_id)
    # A replica that an earlier reassignment was adding is still being added.
    change.adding_replicas = tuple(sorted(set(target) - set(originals)))
    change.removing_replicas = tuple(sorted(set(partition.replicas) - set(target)))
    change.replicas = (*target, *_without(partition.replicas, target))
    return change.build()


def _check_target(image: ClusterImage, target: tuple[BrokerId, ...]) -> None:
    if not target:
        raise Refused(ErrorCode.invalid_replica_assignment, "a partition has at least one replica")
    if len(set(target)) != len(target):
        raise Refused(ErrorCode.invalid_replica_assignment, f"{list(target)} has a broker twice")
    unknown = [broker_id for broker_id in target if broker_id not in image.brokers]
    if unknown:
        why = f"broker {unknown[0]} is not registered"
        raise Refused(ErrorCode.invalid_replica_assignment, why)


def _cancel(
    situation: Situation, topic: Topic, partition_id: int, partition: Partition
) -> PartitionChangeRecord | None:
    if not partition.adding_replicas and not partition.removing_replicas:
        why = f"{topic.name}-{partition_id} is not being reassigned"
        raise Refused(ErrorCode.no_reassignment_in_progress, why)
    change = new_change(situation, topic, partition_id)
    change.replicas = _without(partition.replicas, partition.adding_replicas)
    change.adding_replicas = change.removing_replicas = ()
    change.isr = _without(partition.isr, partition.adding_replicas)
    if not set(partition.isr + partition.elr) & set(change.replicas):
        # Only replicas that would be dropped hold all: to go back loses acknowledged records.
        if not unclean_election_enabled(situation.image, situation.settings, topic.name):
            why = "no replica of the old assignment is in sync, and unclean elections are off"
            raise Refused(ErrorCode.invalid_replica_assignment, why)
        if not any(map(change.may_lead, change.replicas)):
            why = "no replica of the old assignment is in sync or alive"
            raise Refused(ErrorCode.invalid_replica_assignment, why)
        change.election = Election.UNCLEAN
    return change.build()


def _without(replicas: Iterable[BrokerId], gone: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in replicas if replica not in gone)


def _result(partition_id: int, code: ErrorCode, why: str | None) -> Values:
    return {"partition_index": partition_id, "error_code": code, "error_message": why}


def _answer(
    message: Any, error_code: ErrorCode, why: str | None, responses: Sequence[Values]
) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "allow_replication_factor_change": getattr(
            message, "allow_replication_factor_change", True
        ),
        "error_code": error_code,
        "error_message": why,
        "responses": responses,
    }


def _refuse_alter(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return _answer(message, error_code, why, [])


# -- ListPartitionReassignments ---------------------------------------------------------------


def decide_list_reassignments(situation: Situation, message: Any) -> Decision:
    """Reads only; it waits for what it has read to be committed, like any decision."""
    topics: dict[str, list[Values]] = {}
    for name, partition_id in sorted(set(_asked(situation, message))):
        topic = situation.image.topic(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if partition is None or not (partition.adding_replicas or partition.removing_replicas):
            continue
        topics.setdefault(name, []).append(
            {
                "partition_index": partition_id,
                "replicas": partition.replicas,
                "adding_replicas": partition.adding_replicas,
                "removing_replicas": partition.removing_replicas,
            }
        )
    found = [{"name": name, "partitions": topics[name]} for name in sorted(topics)]
    return Decision(records=(), response=_listing(ErrorCode.none, None, found))


def _asked(situation: Situation, message: Any) -> Iterator[tuple[str, int]]:
    if message.topics is None:
        for topic_id, partition_id in situation.index.reassigning():
            yield situation.image.topics[topic_id].name, partition_id
        return
    for topic in message.topics:
        for partition_id in topic.partition_indexes:
            yield topic.name, partition_id


def _listing(error_code: ErrorCode, why: str | None, topics: Sequence[Values]) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "topics": topics,
    }


def _refuse_list(_message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return _listing(error_code, why, [])


APIS: Final[dict[int, ControlApi]] = {
    apis.ALTER_PARTITION_REASSIGNMENTS: ControlApi(
        VersionRange(0, 1), decide_alter_reassignments, _refuse_alter
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: ControlApi(
        VersionRange(0, 0), decide_list_reassignments, _refuse_list
    ),
}
