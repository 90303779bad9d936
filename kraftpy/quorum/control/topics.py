"""CreateTopics, DeleteTopics and CreatePartitions. Pure.

Topics of one request stand or fall one by one, all that can be created in one batch: the topic,
its configs, all of its partitions (rule A37). A request for more records than a batch may have is
refused as a whole, before anything is placed.

What always holds: a live name has one topic; topic ids are drawn by chance and not in use; the
partitions of a topic are numbered from 0 without gaps (KAFKA-14129).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode

from kraftpy import topic_configs
from kraftpy.describe.configs import created_topic_configs
from kraftpy.errors import ConfigError
from kraftpy.metadata_log.image import Topic
from kraftpy.metadata_log.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.metadata_log.topic_names import name_problem
from kraftpy.quorum.control.configs import static_configs
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.new_partitions import PartitionWriter, check_size, repeated
from kraftpy.quorum.control.placement import Replicas
from kraftpy.quorum.control.topic_names import TopicNames
from kraftpy.types import TopicId, from_wire_uuid, random_uuid, to_wire_uuid, uuid_text
from kraftpy.wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    NO_THROTTLE,
    VersionRange,
)

Result: TypeAlias = dict[str, Any]

METADATA_TOPIC: Final = "__cluster_metadata"
_DEFAULT: Final = -1


# -- CreateTopics -----------------------------------------------------------------------------


def decide_create_topics(situation: Situation, message: Any) -> Decision:
    asked = message.topics
    check_size(sum(_partitions_asked(situation, topic) for topic in asked))
    twice = repeated(topic.name for topic in asked)
    creation = _Creation(situation, validate_only=message.validate_only)
    results = {
        topic.name: _each(topic.name in twice, creation.create, topic, _not_created)
        for topic in asked
    }
    check_size(len(creation.records))
    return Decision(
        records=() if message.validate_only else creation.records,
        response={"throttle_time": NO_THROTTLE, "topics": list(results.values())},
    )


def _partitions_asked(situation: Situation, topic: Any) -> int:
    """What the topic would need, whether or not it can be created: cheap to know."""
    if topic.assignments:
        return len(topic.assignments)
    asked: int = topic.num_partitions
    return situation.settings.num_partitions if asked == _DEFAULT else max(0, asked)


def _each(
    is_repeated: bool,
    decide: Callable[[Any], Result],
    item: Any,
    refuse: Callable[[str, ErrorCode, str | None], Result],
) -> Result:
    """The result of one item: refused, it leaves the others alone."""
    try:
        if is_repeated:
            raise Refused(ErrorCode.invalid_request, "the request names this topic more than once")
        return decide(item)
    except Refused as refusal:
        return refuse(item.name, refusal.error_code, str(refusal))


class _Creation:
    """The records of one request. A topic adds all of its records, or none."""

    def __init__(self, situation: Situation, *, validate_only: bool) -> None:
        self.records: list[MetadataRecord] = []
        self._situation = situation
        self._image = situation.image
        self._static = static_configs(situation.settings)
        self._writer = PartitionWriter(situation.image, situation.rng)
        self._validate_only = validate_only
        self._new_names = TopicNames()
        self._new_ids: set[TopicId] = set()

    def create(self, topic: Any) -> Result:
        self._check_name(topic.name)
        configs = _checked_configs(topic)
        placements = self._by_hand(topic) if topic.assignments else self._placed(topic)
        topic_id = self._new_id()
        self._new_names.add(topic.name)
        self.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self.records += (
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value
            )
            for name, value in configs.items()
        )
        self.records += self._writer.records(topic_id, 0, placements)
        return {
            **_not_created(topic.name, ErrorCode.none, None),
            "topic_id": None if self._validate_only else to_wire_uuid(topic_id),
            "num_partitions": len(placements),
            "replication_factor": len(placements[0]),
            "configs": created_topic_configs(self._image, self._static, configs),
        }

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise Refused(ErrorCode.invalid_request, f"{name} cannot be created: it is the log")
        if why := name_problem(name):
            raise Refused(ErrorCode.invalid_topic_exception, why)
        if name in self._image.topic_ids:
            raise Refused(ErrorCode.topic_already_exists, f"topic {name} exists")
        colliding = self._situation.index.colliding(name) or self._new_names.colliding(name)
        if colliding:
            raise Refused(
                ErrorCode.invalid_topic_exception,
                f"{name} collides with topic {colliding[0]}: in metrics '.' and '_' are the same",
            )

    def _by_hand(self, topic: Any) -> list[Replicas]:
        if (topic.num_partitions, topic.replication_factor) != (_DEFAULT, _DEFAULT):
            raise Refused(
                ErrorCode.invalid_request,
                "with an assignment, the numbers of partitions and of replicas are both -1",
            )
        placements: dict[int, Replicas] = {}
        for assignment in topic.assignments:
            if assignment.partition_index in placements:
                raise Refused(
                    ErrorCode.invalid_replica_assignment,
                    f"partition {assignment.partition_index} is assigned more than once",
                )
            placements[assignment.partition_index] = tuple(assignment.broker_ids)
        if placements.keys() != set(range(len(placements))):
            raise Refused(
                ErrorCode.invalid_replica_assignment,
                "the assigned partitions are not numbered from 0 without gaps",
            )
        for replicas in placements.values():
            self._writer.check(replicas, len(placements[0]))
        return [placements[partition_id] for partition_id in range(len(placements))]

    def _placed(self, topic: Any) -> list[Replicas]:
        partitions, factor = topic.num_partitions, topic.replication_factor
        if factor == 0 or factor < _DEFAULT:
            raise Refused(
                ErrorCode.invalid_replication_factor,
                f"a replication factor is positive, or -1 for the default; not {factor}",
            )
        if partitions == 0 or partitions < _DEFAULT:
            raise Refused(
                ErrorCode.invalid_partitions,
                f"a number of partitions is positive, or -1 for the default; not {partitions}",
            )
        settings = self._situation.settings
        return self._writer.place(
            settings.num_partitions if partitions == _DEFAULT else partitions,
            settings.default_replication_factor if factor == _DEFAULT else factor,
        )

    def _new_id(self) -> TopicId:
        while True:  # Version 4: none of Kafka's reserved ids, which are nearly all zeros.
            topic_id = TopicId(random_uuid(self._situation.rng))
            if topic_id not in self._image.topics and topic_id not in self._new_ids:
                self._new_ids.add(topic_id)
                return topic_id


def _checked_configs(topic: Any) -> dict[str, str]:
    configs = {config.name: config.value for config in topic.configs}
    for name, value in configs.items():
        if value is None:  # KAFKA-13863: a record with null would mean the key's removal.
            raise Refused(ErrorCode.invalid_config, f"config {name[:60]!a} has no value")
    try:
        topic_configs.validate(configs)
    except ConfigError as problem:
        raise Refused(ErrorCode.invalid_config, str(problem)) from None
    return configs


def _not_created(name: str, error_code: ErrorCode, why: str | None) -> Result:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error_code,
        "error_message": why,
        "topic_config_error_code": ErrorCode.none.value,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _refuse_create_topics(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    names = dict.fromkeys(topic.name for topic in message.topics)
    topics = [_not_created(name, error_code, why) for name in names]
    return {"throttle_time": NO_THROTTLE, "topics": topics}


# -- DeleteTopics -----------------------------------------------------------------------------


def decide_delete_topics(situation: Situation, message: Any) -> Decision:
    """By name or by id. A topic that is named twice, however, is not deleted at all."""
    asked = _topics_to_delete(message)
    found = [_find(situation, name, topic_id) for name, topic_id in asked]
    times: dict[TopicId, int] = {}
    for each in found:
        if isinstance(each, Topic):
            times[each.topic_id] = times.get(each.topic_id, 0) + 1
    records = [RemoveTopicRecord(topic_id=topic_id) for topic_id in times if times[topic_id] == 1]
    check_size(len(records))
    responses = [
        _deletion(name, topic_id, each, times)
        for (name, topic_id), each in zip(asked, found, strict=True)
    ]
    return Decision(
        records=records, response={"throttle_time": NO_THROTTLE, "responses": responses}
    )


def _topics_to_delete(message: Any) -> list[tuple[str | None, TopicId | None]]:
    """Name and id of each; ids came with version 6."""
    if not hasattr(message, "topics"):
        return [(name, None) for name in message.topic_names]
    return [
        (topic.name, TopicId(from_wire_uuid(topic.topic_id)) if topic.topic_id else None)
        for topic in message.topics
    ]


def _find(situation: Situation, name: str | None, topic_id: TopicId | None) -> Topic | Refused:
    image = situation.image
    if (name is None) == (topic_id is None):
        given = "neither" if name is None else "both"
        return Refused(ErrorCode.invalid_request, f"a topic is named or has its id; not {given}")
    if topic_id is not None:
        by_id = image.topics.get(topic_id)
        why = f"there is no topic with id {uuid_text(topic_id)}"
        return by_id or Refused(ErrorCode.unknown_topic_id, why)
    assert name is not None
    by_name = image.topic(name)
    return by_name or Refused(ErrorCode.unknown_topic_or_partition, "there is no such topic")


def _deletion(
    name: str | None, topic_id: TopicId | None, found: Topic | Refused, times: dict[TopicId, int]
) -> Result:
    if isinstance(found, Refused):
        return _deleted(name, topic_id, found.error_code, str(found))
    if times[found.topic_id] > 1:
        why = "the request names this topic more than once"
        return _deleted(name, topic_id, ErrorCode.invalid_request, why)
    return _deleted(found.name, found.topic_id, ErrorCode.none, None)


def _deleted(
    name: str | None, topic_id: TopicId | None, error_code: ErrorCode, why: str | None
) -> Result:
    return {
        "name": name,
        "topic_id": None if topic_id is None else to_wire_uuid(topic_id),
        "error_code": error_code,
        "error_message": why,
    }


def _refuse_delete_topics(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    asked = dict.fromkeys(_topics_to_delete(message))
    responses = [_deleted(name, topic_id, error_code, why) for name, topic_id in asked]
    return {"throttle_time": NO_THROTTLE, "responses": responses}


# -- CreatePartitions -------------------------------------------------------------------------


def decide_create_partitions(situation: Situation, message: Any) -> Decision:
    check_size(sum(_growth(situation, topic) for topic in message.topics))
    twice = repeated(topic.name for topic in message.topics)
    writer = PartitionWriter(situation.image, situation.rng)
    records: list[MetadataRecord] = []

    def grow(topic: Any) -> Result:
        known = situation.image.topic(topic.name)
        if known is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "there is no such topic")
        placements = _more_placements(writer, known, topic)
        records.extend(writer.records(known.topic_id, len(known.partitions), placements))
        return _not_grown(topic.name, ErrorCode.none, None)

    results = {
        topic.name: _each(topic.name in twice, grow, topic, _not_grown) for topic in message.topics
    }
    return Decision(
        records=() if message.validate_only else records,
        response={"throttle_time": NO_THROTTLE, "results": list(results.values())},
    )


def _growth(situation: Situation, topic: Any) -> int:
    known = situation.image.topic(topic.name)
    return 0 if known is None else max(0, topic.count - len(known.partitions))


def _more_placements(writer: PartitionWriter, known: Topic, topic: Any) -> list[Replicas]:
    size = len(known.partitions)
    if topic.count <= size:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"topic {topic.name} has {size} partitions; {topic.count} would not be more",
        )
    first, last = known.partitions.get(0), known.partitions.get(size - 1)
    if first is None or last is None:
        raise Refused(ErrorCode.unknown_server_error, "the topic's partitions have gaps")
    # What a reassignment is about to take away does not count.
    factor = len(first.replicas) - len(first.removing_replicas)
    if topic.assignments is None:
        return writer.place(topic.count - size, factor, after=last.replicas[0])
    if len(topic.assignments) != topic.count - size:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"{topic.count - size} partitions are added, and {len(topic.assignments)} assigned",
        )
    placements = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    for replicas in placements:
        writer.check(replicas, factor)
    return placements


def _not_grown(name: str, error_code: ErrorCode, why: str | None) -> Result:
    return {"name": name, "error_code": error_code, "error_message": why}


def _refuse_create_partitions(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    names: Iterable[str] = dict.fromkeys(topic.name for topic in message.topics)
    results = [_not_grown(name, error_code, why) for name in names]
    return {"throttle_time": NO_THROTTLE, "results": results}


APIS: Final[dict[int, ControlApi]] = {
    CREATE_TOPICS: ControlApi(VersionRange(2, 7), decide_create_topics, _refuse_create_topics),
    DELETE_TOPICS: ControlApi(VersionRange(1, 6), decide_delete_topics, _refuse_delete_topics),
    CREATE_PARTITIONS: ControlApi(
        VersionRange(0, 3), decide_create_partitions, _refuse_create_partitions
    ),
}
