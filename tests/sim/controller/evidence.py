"""What a request proves about the batch that it led to, for the rule book. Pure."""

from typing import Any

from kraftpy.audit.rules import Evidence, IsrRequest
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.types import BrokerId, TopicId, from_wire_uuid
from kraftpy.wire import apis
from tests.sim.controller.attempt import Attempt

_NOTHING: dict[str, Any] = {
    "unclean_elections": frozenset(),
    "unclean_restarts": frozenset(),
    "isr_requests": {},
    "caught_up": {},
}


def evidence_of(before: ClusterImage, attempt: Attempt | None) -> Evidence:
    """All was recorded: who asked for nothing special is known to have done so."""
    maker = None if attempt is None else _MAKERS.get(attempt.api_key)
    special = {} if maker is None or attempt is None else maker(before, attempt.message)
    return Evidence(**(_NOTHING | special))


def _registration(before: ClusterImage, message: Any) -> dict[str, Any]:
    broker_id = BrokerId(message.broker_id)
    existing = before.brokers.get(broker_id)
    is_clean = existing is not None and existing.broker_epoch == message.previous_broker_epoch
    is_same = existing is not None and existing.incarnation_id == from_wire_uuid(
        message.incarnation_id
    )
    unclean = () if is_clean or is_same else (broker_id,)
    return {"unclean_restarts": frozenset(unclean)}


def _unregistration(_before: ClusterImage, message: Any) -> dict[str, Any]:
    return {"unclean_restarts": frozenset({BrokerId(message.broker_id)})}


def _heartbeat(_before: ClusterImage, message: Any) -> dict[str, Any]:
    return {"caught_up": {BrokerId(message.broker_id): message.current_metadata_offset}}


def _alter_partition(_before: ClusterImage, message: Any) -> dict[str, Any]:
    requests = {}
    for topic in message.topics:
        for each in topic.partitions:
            key = (TopicId(from_wire_uuid(topic.topic_id)), each.partition_index)
            requests[key] = IsrRequest(
                BrokerId(message.broker_id),
                each.leader_epoch,
                each.partition_epoch,
                {BrokerId(m.broker_id): m.broker_epoch for m in each.new_isr_with_epochs},
            )
    return {"isr_requests": requests}


def _elect_leaders(before: ClusterImage, message: Any) -> dict[str, Any]:
    if message.election_type == 0:
        return {}
    if message.topic_partitions is None:
        found = {(t.topic_id, p) for t in before.topics.values() for p in t.partitions}
        return {"unclean_elections": frozenset(found)}
    keys = {
        (before.topic_ids[topic.topic], partition_id)
        for topic in message.topic_partitions
        for partition_id in topic.partitions
        if topic.topic in before.topic_ids
    }
    return {"unclean_elections": frozenset(keys)}


_MAKERS = {
    apis.BROKER_REGISTRATION: _registration,
    apis.UNREGISTER_BROKER: _unregistration,
    apis.BROKER_HEARTBEAT: _heartbeat,
    apis.ALTER_PARTITION: _alter_partition,
    apis.ELECT_LEADERS: _elect_leaders,
}
