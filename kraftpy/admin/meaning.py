"""What a metadata record means, in one sentence for people. Pure.

The sentence is told from the image before the record: "orders-0 is led by 2 now, was 1". A record
that the image does not fit (an unknown topic, say) still gets a sentence: this explains, replay
judges. Nothing secret is told.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kraftpy.describe.configs import configs_of
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.control_records import ControlRecord, LeaderChange
from kraftpy.metadata_log.image import ClusterImage, Partition
from kraftpy.types import NO_LEADER, TopicId, uuid_text

_RESOURCES: Final = {r.TOPIC_RESOURCE: "topic", r.BROKER_RESOURCE: "broker"}


def meaning(record: "r.MetadataRecord | ControlRecord", image: ClusterImage) -> str:
    """The sentence for a record that follows this image."""
    tell = _SENTENCES.get(type(record))
    return type(record).__name__ if tell is None else tell(record, image)


def _ids(ids: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, ids))}]"


def _topic(image: ClusterImage, topic_id: TopicId) -> str:
    found = image.topics.get(topic_id)
    return uuid_text(topic_id) if found is None else found.name


def _register_broker(record: r.RegisterBrokerRecord, image: ClusterImage) -> str:
    where = ", ".join(f"{each.host}:{each.port}" for each in record.end_points)
    again = " again, in a new life" if record.broker_id in image.brokers else ""
    state = "fenced until it has caught up" if record.fenced else "unfenced"
    return f"broker {record.broker_id} registers{again} at {where or '(nowhere)'}; it is {state}"


def _unregister_broker(record: r.UnregisterBrokerRecord, _image: ClusterImage) -> str:
    return f"broker {record.broker_id} is no longer part of the cluster"


def _new_topic(record: r.TopicRecord, _image: ClusterImage) -> str:
    return f"topic {record.name} is created"


def _new_partition(record: r.PartitionRecord, image: ClusterImage) -> str:
    name = f"{_topic(image, record.topic_id)}-{record.partition_id}"
    replicas = _ids(record.replicas)
    return f"{name} has replicas {replicas}, in sync {_ids(record.isr)}, leader {record.leader}"


def _config(record: r.ConfigRecord, image: ClusterImage) -> str:
    kind = _RESOURCES.get(record.resource_type, f"resource {record.resource_type}")
    name = record.resource_name or "(all)"
    before = configs_of(image, record.resource_type, record.resource_name).get(record.name)
    was = "" if before is None else f", was {before}"
    if record.value is None:
        return f"{kind} {name}: {record.name} is back at its default{was}"
    return f"{kind} {name}: {record.name} is {record.value}{was}"


def _partition_change(record: r.PartitionChangeRecord, image: ClusterImage) -> str:
    name = f"{_topic(image, record.topic_id)}-{record.partition_id}"
    before = image.partition(record.topic_id, record.partition_id)
    said = [*_leader_words(record, before), *_replica_words(record, before)]
    return f"{name}: {'; '.join(said) or 'its epoch moves on'}"


def _leader_words(record: r.PartitionChangeRecord, before: Partition | None) -> Iterator[str]:
    if record.leader == NO_LEADER:
        yield "nobody can lead it"
    elif record.leader != r.NO_CHANGE:
        was = "" if before is None else f", was {_leader(before.leader)}"
        unclean = " without having all records" if record.leader_recovery_state == 1 else ""
        same = before is not None and before.leader == record.leader
        yield f"{record.leader} leads {'on' if same else 'now'}{unclean}{'' if same else was}"
    if record.isr is not None:
        yield _moved("in sync", record.isr, before.isr if before else ())


def _replica_words(record: r.PartitionChangeRecord, before: Partition | None) -> Iterator[str]:
    if record.eligible_leader_replicas is not None:
        yield _moved("eligible", record.eligible_leader_replicas, before.elr if before else ())
    if record.adding_replicas:
        yield f"{_ids(record.adding_replicas)} are being added"
    if record.removing_replicas:
        yield f"{_ids(record.removing_replicas)} will be removed"
    if record.replicas is not None and not record.adding_replicas:
        yield f"replicas are {_ids(record.replicas)}"
    if record.leader_recovery_state == r.RECOVERED:
        yield "recovered"


def _leader(leader: int) -> str:
    return "nobody" if leader == NO_LEADER else str(leader)


def _moved(what: str, now: tuple[int, ...], before: tuple[int, ...]) -> str:
    gone = [each for each in before if each not in now]
    new = [each for each in now if each not in before]
    moved = [*(f"-{each}" for each in gone), *(f"+{each}" for each in new)]
    return f"{what} {_ids(now)}" + (f" ({' '.join(moved)})" if moved else "")


def _fence(record: r.FenceBrokerRecord, _image: ClusterImage) -> str:
    return f"broker {record.id} is fenced: it may lead nothing"


def _unfence(record: r.UnfenceBrokerRecord, _image: ClusterImage) -> str:
    return f"broker {record.id} is unfenced: it may lead"


def _broker_change(record: r.BrokerRegistrationChangeRecord, _image: ClusterImage) -> str:
    said = []
    if record.fenced == r.FENCE:
        said.append("is fenced: it may lead nothing")
    elif record.fenced == r.UNFENCE:
        said.append("is unfenced: it may lead")
    if record.in_controlled_shutdown == r.SHUTTING_DOWN:
        said.append("is shutting down: its leaderships move away")
    if record.log_dirs is not None:
        said.append(f"has {len(record.log_dirs)} directories online")
    return f"broker {record.broker_id} {' and '.join(said) or 'stays as it is'}"


def _remove_topic(record: r.RemoveTopicRecord, image: ClusterImage) -> str:
    return f"topic {_topic(image, record.topic_id)} is deleted"


def _feature(record: r.FeatureLevelRecord, image: ClusterImage) -> str:
    before = image.features.get(record.name)
    was = "" if before is None else f", was {before}"
    return f"feature {record.name} is at level {record.feature_level}{was}"


def _producer_ids(record: r.ProducerIdsRecord, image: ClusterImage) -> str:
    begin, end = image.next_producer_id, record.next_producer_id - 1
    return f"broker {record.broker_id} may give out producer ids {begin} to {end}"


def _scram(record: r.UserScramCredentialRecord, _image: ClusterImage) -> str:
    return f"user {record.name} has new SCRAM credentials"


def _remove_scram(record: r.RemoveUserScramCredentialRecord, _image: ClusterImage) -> str:
    return f"user {record.name} has SCRAM credentials no more"


def _quota(record: r.ClientQuotaRecord, _image: ClusterImage) -> str:
    who = " ".join(f"{e.entity_type} {e.entity_name or '(default)'}" for e in record.entity)
    value = "without limit" if record.remove else f"at most {record.value:g}"
    return f"{who}: {record.key} is {value}"


def _acl(record: r.AccessControlEntryRecord, _image: ClusterImage) -> str:
    return f"an ACL of {record.principal} for {record.resource_name} is added"


def _remove_acl(record: r.RemoveAccessControlEntryRecord, image: ClusterImage) -> str:
    found = image.acls.get(record.id)
    whose = "" if found is None else f" of {found.principal} for {found.resource_name}"
    return f"an ACL{whose} is removed"


def _token(record: r.DelegationTokenRecord, _image: ClusterImage) -> str:
    return f"{record.owner} has a delegation token"


def _unregister_controller(record: r.UnregisterControllerRecord, _image: ClusterImage) -> str:
    return f"controller {record.controller_id} is no longer registered"


def _controller(record: r.RegisterControllerRecord, _image: ClusterImage) -> str:
    return f"controller {record.controller_id} registers"


def _leader_change(record: LeaderChange, _image: ClusterImage) -> str:
    return f"controller {record.leader_id} leads the quorum from here on"


def _clear_elr(record: r.ClearElrRecord, _image: ClusterImage) -> str:
    return f"eligible leaders of {record.topic_name or 'all topics'} are forgotten"


def _always(words: str) -> Callable[[Any, ClusterImage], str]:
    return lambda _record, _image: words


_SENTENCES: Final[dict[type, Callable[[Any, ClusterImage], str]]] = {
    r.RegisterBrokerRecord: _register_broker,
    r.UnregisterBrokerRecord: _unregister_broker,
    r.TopicRecord: _new_topic,
    r.PartitionRecord: _new_partition,
    r.ConfigRecord: _config,
    r.PartitionChangeRecord: _partition_change,
    r.FenceBrokerRecord: _fence,
    r.UnfenceBrokerRecord: _unfence,
    r.BrokerRegistrationChangeRecord: _broker_change,
    r.RemoveTopicRecord: _remove_topic,
    r.FeatureLevelRecord: _feature,
    r.ProducerIdsRecord: _producer_ids,
    r.UserScramCredentialRecord: _scram,
    r.RemoveUserScramCredentialRecord: _remove_scram,
    r.ClientQuotaRecord: _quota,
    r.AccessControlEntryRecord: _acl,
    r.RegisterControllerRecord: _controller,
    r.ClearElrRecord: _clear_elr,
    LeaderChange: _leader_change,
    r.RemoveAccessControlEntryRecord: _remove_acl,
    r.DelegationTokenRecord: _token,
    r.RemoveDelegationTokenRecord: _always("a delegation token is removed"),
    r.ZkMigrationStateRecord: _always("the state of a migration from ZooKeeper"),
    r.UnregisterControllerRecord: _unregister_controller,
    r.NoOpRecord: _always("nothing changed; the log is alive"),
    r.BeginTransactionRecord: _always("what follows counts when it is complete"),
    r.EndTransactionRecord: _always("all since the beginning counts now, as one"),
    r.AbortTransactionRecord: _always("nothing since the beginning counts"),
}
