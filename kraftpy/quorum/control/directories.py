"""AssignReplicasToDirs: a broker says in which of its directories replicas are (KIP-858). Pure.

A replica that turns out to be in a failed directory, or in none (LOST_DIRECTORY), leaves the ISR in
the same batch, behind the assignments: until then the controller could not know.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.quorum.control.activity import is_directory_online
from kraftpy.quorum.control.broker_epochs import current_broker
from kraftpy.quorum.control.decision import ControlApi, Decision, Situation, Values
from kraftpy.quorum.control.elections import changes_for_brokers, new_change
from kraftpy.quorum.control.partition_index import PartitionKey
from kraftpy.types import NO_LEADER, BrokerId, TopicId, Uuid, from_wire_uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange


def decide_assign_replicas(situation: Situation, message: Any) -> Decision:
    """Each partition is accepted or refused on its own; named twice, the last word counts."""
    image, broker_id = situation.image, BrokerId(message.broker_id)
    current_broker(image, broker_id, message.broker_epoch)
    assigned: dict[PartitionKey, Uuid] = {}
    directories = []
    for directory in message.directories:
        directory_id = from_wire_uuid(directory.id_)
        topics = []
        for topic in directory.topics:
            topic_id = TopicId(from_wire_uuid(topic.topic_id))
            partitions = []
            for partition in topic.partitions:
                key = (topic_id, partition.partition_index)
                error_code = _problem(image, broker_id, key)
                if error_code is ErrorCode.none:
                    assigned[key] = directory_id
                partitions.append(_partition_answer(partition, error_code))
            topics.append({"topic_id": topic.topic_id, "partitions": partitions})
        directories.append({"id_": directory.id_, "topics": topics})
    records = _records(situation, broker_id, assigned)
    return Decision(records=records, response=_answer(ErrorCode.none, directories))


def _problem(image: ClusterImage, broker_id: BrokerId, key: PartitionKey) -> ErrorCode:
    topic_id, partition_id = key
    if topic_id not in image.topics:
        return ErrorCode.unknown_topic_id
    partition = image.partition(topic_id, partition_id)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if broker_id not in partition.replicas:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def _records(
    situation: Situation, broker_id: BrokerId, assigned: dict[PartitionKey, Uuid]
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = list(_assignments(situation, broker_id, assigned))
    image = situation.image
    failed = [
        key
        for key, directory_id in assigned.items()
        if not is_directory_online(image, broker_id, directory_id)
    ]
    # One that is found in a good directory may be the leader that a partition waits for.
    found = [key for key in assigned if key not in failed and _is_leaderless(image, key)]
    if failed or found:
        after = replay_all(image, records)
        records += changes_for_brokers(situation, failed, removed=broker_id, image=after)
        records += changes_for_brokers(situation, found, image=after)
    return records


def _is_leaderless(image: ClusterImage, key: PartitionKey) -> bool:
    partition = image.partition(*key)
    return partition is not None and partition.leader == NO_LEADER


def _assignments(
    situation: Situation, broker_id: BrokerId, assigned: dict[PartitionKey, Uuid]
) -> Iterator[MetadataRecord]:
    for (topic_id, partition_id), directory_id in assigned.items():
        change = new_change(situation, situation.image.topics[topic_id], partition_id)
        change.directories = {broker_id: directory_id}
        record = change.build()
        if record is not None:
            yield record


# -- answers ----------------------------------------------------------------------------------


def _partition_answer(partition: Any, error_code: ErrorCode) -> Values:
    return {"partition_index": partition.partition_index, "error_code": error_code}


def _answer(error_code: ErrorCode, directories: Sequence[Values]) -> Values:
    return {"throttle_time": NO_THROTTLE, "error_code": error_code, "directories": directories}


def _refuse(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    return _answer(error_code, ())


APIS: Final[dict[int, ControlApi]] = {
    apis.ASSIGN_REPLICAS_TO_DIRS: ControlApi(VersionRange(0, 0), decide_assign_replicas, _refuse),
}
