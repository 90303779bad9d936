"""Hypothesis strategies for metadata records and for whole legal metadata logs.

`records_of(cls)` draws any record the wire can carry. `legal_logs()` draws batches that replay onto
EMPTY without an error: each record is drawn against the image that the ones before it made, so that
brokers, topics and partitions are changed, removed and created again, in and out of transactions.
"""

# ruff: noqa: ARG001 - the makers of records share one signature, (draw, image) -> record.

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from hypothesis import strategies as st

from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord, replay
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.fieldcheck import WireType, wire_types
from kraftpy.types import BrokerId, TopicId, Uuid

Draw = Callable[[st.SearchStrategy[Any]], Any]

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
texts = st.text(max_size=8)
NAMES = ["a", "b", "c", "logs", "orders", "ünï", "{x}"]
names = st.sampled_from(NAMES)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
# Few, so that records meet what earlier ones made.
some_uuids = st.integers(1, 6).map(lambda n: Uuid(bytes([n]) * 16))
broker_ids = st.integers(0, 4).map(BrokerId)
replica_lists = st.lists(broker_ids, min_size=1, max_size=4, unique=True).map(tuple)
subsets = st.lists(broker_ids, max_size=3, unique=True).map(tuple)
end_points = st.lists(
    st.builds(
        r.Endpoint,
        name=names,
        host=texts,
        port=st.integers(0, 65535),
        security_protocol=st.integers(0, 3),
    ),
    max_size=2,
).map(tuple)
features = st.lists(
    st.builds(
        r.Feature,
        name=names,
        min_supported_version=st.integers(0, 3),
        max_supported_version=st.integers(3, 30),
    ),
    max_size=2,
).map(tuple)
leaders = st.one_of(st.just(BrokerId(-1)), broker_ids)


def values_of(wire: WireType) -> st.SearchStrategy[Any]:
    """Anything that a field of this wire type may hold."""
    if wire.nullable:
        return st.one_of(st.none(), values_of(replace(wire, nullable=False)))
    if wire.struct is not None:
        nested = {name: values_of(inner) for name, inner in wire_types(wire.struct).items()}
        return st.lists(st.builds(wire.struct, **nested), max_size=3).map(tuple)
    if wire.kind in BITS:
        half = 1 << (BITS[wire.kind] - 1)
        return st.integers(-half, half - 1)
    i32 = st.integers(-(1 << 31), (1 << 31) - 1)
    by_kind: dict[str, st.SearchStrategy[Any]] = {
        "u16": st.integers(0, 65535),
        "uuid": uuids,
        "str": texts,
        "bytes": st.binary(max_size=40),
        "bool": st.booleans(),
        "f64": st.floats(allow_nan=False, allow_infinity=False),
        "i32s": st.lists(i32, max_size=4).map(tuple),
        "uuids": st.lists(uuids, max_size=4).map(tuple),
        "strs": st.lists(texts, max_size=3).map(tuple),
    }
    return by_kind[wire.kind]


def records_of(
    cls: type[MetadataRecord], version: int | None = None
) -> st.SearchStrategy[MetadataRecord]:
    """Any record of the type; fields newer than `version` hold their defaults."""
    wires = wire_types(cls)
    present = field_names(cls, cls.MAX_VERSION if version is None else version)
    return st.builds(cls, **{name: values_of(wires[name]) for name in present})


def field_names(cls: type[MetadataRecord], version: int) -> list[str]:
    """The fields that this version has, in order."""
    return [f.name for f in fields(cls) if f.metadata.get("since", 0) <= version]


@st.composite
def legal_logs(draw: Draw, max_records: int = 40) -> list[list[MetadataRecord]]:
    """Batches of records that replay onto EMPTY, one after the other."""
    image = EMPTY
    batches: list[list[MetadataRecord]] = [[]]
    for offset in range(draw(st.integers(0, max_records))):
        record = draw_record(draw, image)
        image = replay(image, record, offset)
        if batches[-1] and draw(st.booleans()):
            batches.append([])
        batches[-1].append(record)
    return [batch for batch in batches if batch]


def draw_record(draw: Draw, image: ClusterImage) -> MetadataRecord:
    """A record that is legal for the image; any of the 27 types, over time."""
    visible = image if image.transaction is None else image.transaction.pending
    makers: list[Callable[[Draw, ClusterImage], MetadataRecord]] = list(ALWAYS)
    if visible.brokers:
        makers += WITH_BROKER
    if visible.topics:
        makers += WITH_TOPIC
    if any(topic.partitions for topic in visible.topics.values()):
        makers += [change_partition] * 4
    if len(visible.topic_ids) < 6:
        makers += [create_topic] * 2
    if visible.controllers:
        makers.append(unregister_controller)
    if visible.acls:
        makers.append(remove_acl)
    if visible.scram:
        makers.append(remove_scram)
    makers += [begin_transaction] if image.transaction is None else [end_transaction] * 3
    return draw(st.sampled_from(makers))(draw, visible)  # type: ignore[no-any-return]


def register_broker(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.RegisterBrokerRecord(
        broker_id=draw(broker_ids),
        is_migrating_zk_broker=draw(st.booleans()),
        incarnation_id=draw(some_uuids),
        broker_epoch=draw(st.integers(0, 1000)),
        end_points=draw(end_points),
        features=draw(features),
        rack=draw(st.none() | names),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(some_uuids, max_size=2).map(tuple)),
        cordoned_log_dirs=draw(st.lists(some_uuids, max_size=1).map(tuple)),
    )


def broker_record(draw: Draw, image: ClusterImage) -> MetadataRecord:
    broker_id = draw(st.sampled_from(sorted(image.brokers)))
    epoch = image.brokers[broker_id].broker_epoch
    dirs = st.none() | st.lists(some_uuids, max_size=2).map(tuple)
    change = r.BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        fenced=draw(st.sampled_from([-1, 0, 1])),
        in_controlled_shutdown=draw(st.sampled_from([0, 1])),
        log_dirs=draw(dirs),
        cordoned_log_dirs=draw(dirs),
    )
    choices: list[MetadataRecord] = [
        change,
        r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch),
        r.FenceBrokerRecord(id=broker_id, epoch=epoch),
        r.UnfenceBrokerRecord(id=broker_id, epoch=epoch),
    ]
    return draw(st.sampled_from(choices))  # type: ignore[no-any-return]


def create_topic(draw: Draw, image: ClusterImage) -> MetadataRecord:
    free = [name for name in NAMES if name not in image.topic_ids]
    ids = [TopicId(Uuid(bytes([n]) * 16)) for n in range(1, 12)]
    unused = [i for i in ids if i not in image.topics]
    return r.TopicRecord(name=draw(st.sampled_from(free)), topic_id=draw(st.sampled_from(unused)))


def create_partition(draw: Draw, image: ClusterImage) -> MetadataRecord:
    replicas = draw(replica_lists)
    full = st.lists(some_uuids, min_size=len(replicas), max_size=len(replicas)).map(tuple)
    return r.PartitionRecord(
        partition_id=draw(st.integers(0, 3)),
        topic_id=draw(st.sampled_from(sorted(image.topics))),
        replicas=replicas,
        isr=draw(subsets),
        removing_replicas=draw(subsets),
        adding_replicas=draw(subsets),
        leader=draw(leaders),
        leader_recovery_state=draw(st.sampled_from([0, 1])),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        directories=draw(st.just(()) | full),
        eligible_leader_replicas=draw(subsets),
        last_known_elr=draw(subsets),
    )


def change_partition(draw: Draw, image: ClusterImage) -> MetadataRecord:
    topics = [topic for _, topic in sorted(image.topics.items()) if topic.partitions]
    topic = draw(st.sampled_from(topics))
    partition_id = draw(st.sampled_from(sorted(topic.partitions)))
    old = topic.partitions[partition_id]
    replicas = draw(st.none() | replica_lists)
    count = len(old.replicas if replicas is None else replicas)
    full = st.lists(some_uuids, min_size=count, max_size=count).map(tuple)
    leader = draw(st.just(r.NO_CHANGE) | leaders)
    maybe = st.none() | subsets
    return r.PartitionChangeRecord(
        partition_id=partition_id,
        topic_id=topic.topic_id,
        isr=draw(maybe),
        leader=leader,
        replicas=replicas,
        removing_replicas=draw(maybe),
        adding_replicas=draw(maybe),
        leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
        eligible_leader_replicas=draw(maybe),
        last_known_elr=draw(maybe),
        directories=draw(st.none() | full),
        leader_epoch=old.leader_epoch + (leader != r.NO_CHANGE),
        partition_epoch=old.partition_epoch + 1,
    )


def remove_topic(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.RemoveTopicRecord(topic_id=draw(st.sampled_from(sorted(image.topics))))


def clear_elr(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.ClearElrRecord(topic_name=draw(st.sampled_from(["", *sorted(image.topic_ids)])))


def set_config(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.ConfigRecord(
        resource_type=draw(st.sampled_from([2, 4])),
        resource_name=draw(names),
        name=draw(st.sampled_from(["retention.ms", "min.insync.replicas"])),
        value=draw(st.none() | texts),
    )


def set_quota(draw: Draw, image: ClusterImage) -> MetadataRecord:
    entity = st.builds(
        r.QuotaEntity,
        entity_type=st.sampled_from(["user", "client-id", "ip"]),
        entity_name=st.none() | names,
    )
    return r.ClientQuotaRecord(
        entity=draw(st.lists(entity, min_size=1, max_size=2).map(tuple)),
        key=draw(st.sampled_from(["producer_byte_rate", "request_percentage"])),
        value=draw(st.floats(0, 1e6)),
        remove=draw(st.booleans()),
    )


def set_feature(draw: Draw, image: ClusterImage) -> MetadataRecord:
    name = draw(st.sampled_from(["group.version", r.METADATA_VERSION, "transaction.version"]))
    return r.FeatureLevelRecord(name=name, feature_level=draw(st.integers(0, 30)))


def give_producer_ids(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.ProducerIdsRecord(
        broker_id=draw(broker_ids),
        broker_epoch=draw(st.integers(0, 9)),
        next_producer_id=image.next_producer_id + draw(st.integers(1, 1000)),
    )


def add_acl(draw: Draw, image: ClusterImage) -> MetadataRecord:
    small = st.integers(0, 5)
    return r.AccessControlEntryRecord(
        id=draw(some_uuids),
        resource_type=draw(small),
        resource_name=draw(names),
        pattern_type=draw(small),
        principal=draw(names),
        host="*",
        operation=draw(small),
        permission_type=draw(small),
    )


def remove_acl(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.RemoveAccessControlEntryRecord(id=draw(st.sampled_from(sorted(image.acls))))


def set_scram(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.UserScramCredentialRecord(
        name=draw(names),
        mechanism=draw(st.sampled_from([1, 2])),
        salt=draw(st.binary(max_size=4)),
        stored_key=draw(st.binary(max_size=4)),
        server_key=b"k",
        iterations=draw(st.integers(4096, 9000)),
    )


def remove_scram(draw: Draw, image: ClusterImage) -> MetadataRecord:
    name, mechanism = draw(st.sampled_from(sorted(image.scram)))
    return r.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)


def set_token(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.DelegationTokenRecord(
        owner=draw(names),
        requester=draw(names),
        renewers=draw(st.lists(names, max_size=2).map(tuple)),
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=draw(st.integers(2, 9)),
        token_id=draw(names),
    )


def remove_token(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.RemoveDelegationTokenRecord(token_id=draw(names))


def set_zk_state(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.ZkMigrationStateRecord(zk_migration_state=draw(st.integers(0, 4)))


def register_controller(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.RegisterControllerRecord(
        controller_id=draw(broker_ids),
        incarnation_id=draw(some_uuids),
        zk_migration_ready=draw(st.booleans()),
        end_points=draw(end_points),
        features=draw(features),
    )


def unregister_controller(draw: Draw, image: ClusterImage) -> MetadataRecord:
    controller_id = draw(st.sampled_from(sorted(image.controllers)))
    return r.UnregisterControllerRecord(controller_id=controller_id)


def no_op(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.NoOpRecord()


def begin_transaction(draw: Draw, image: ClusterImage) -> MetadataRecord:
    return r.BeginTransactionRecord(name=draw(st.none() | names))


def end_transaction(draw: Draw, image: ClusterImage) -> MetadataRecord:
    if draw(st.booleans()):
        return r.EndTransactionRecord()
    return r.AbortTransactionRecord(reason=draw(st.none() | names))


ALWAYS = [
    register_broker,
    set_config,
    set_quota,
    set_feature,
    give_producer_ids,
    add_acl,
    set_scram,
    set_token,
    remove_token,
    set_zk_state,
    register_controller,
    no_op,
]
WITH_BROKER = [broker_record] * 3
WITH_TOPIC = [create_partition, create_partition, create_partition, remove_topic, clear_elr]
