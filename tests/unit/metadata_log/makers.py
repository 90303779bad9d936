"""Short ways to write records in tests: every required field has a plain value."""

from typing import Any

from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, TopicId, Uuid

TOPIC_ID = TopicId(Uuid(b"T" * 16))
OTHER_ID = TopicId(Uuid(b"U" * 16))
DIR = [Uuid(bytes([n]) * 16) for n in range(1, 6)]


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(n) for n in ids)


def register(broker_id: int = 1, epoch: int = 10, **changed: Any) -> r.RegisterBrokerRecord:
    known: dict[str, Any] = {"end_points": (), "features": (), "rack": None, "fenced": True}
    return r.RegisterBrokerRecord(
        broker_id=BrokerId(broker_id),
        broker_epoch=epoch,
        incarnation_id=Uuid(b"I" * 16),
        **(known | changed),
    )


def topic(name: str = "orders", topic_id: TopicId = TOPIC_ID) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id)


def partition(partition_id: int = 0, **changed: Any) -> r.PartitionRecord:
    known: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "replicas": brokers(1, 2, 3),
        "isr": brokers(1, 2, 3),
        "leader": BrokerId(1),
        "leader_epoch": 4,
        "partition_epoch": 7,
    }
    return r.PartitionRecord(partition_id=partition_id, **(known | changed))


def change(partition_id: int = 0, **changed: Any) -> r.PartitionChangeRecord:
    """A change of the partition above; the witness fits a first change without a leader."""
    known: dict[str, Any] = {"topic_id": TOPIC_ID, "leader_epoch": 4, "partition_epoch": 8}
    return r.PartitionChangeRecord(partition_id=partition_id, **(known | changed))


def config(name: str, value: str | None, resource: str = "orders") -> r.ConfigRecord:
    return r.ConfigRecord(
        resource_type=r.TOPIC_RESOURCE, resource_name=resource, name=name, value=value
    )


def acl(acl_id: bytes = b"A" * 16) -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(
        id=Uuid(acl_id),
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )


def scram(name: str = "alice", mechanism: int = 1) -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=b"salt",
        stored_key=b"stored-secret",
        server_key=b"server-secret",
        iterations=4096,
    )


def quota(value: float, remove: bool = False, user: str | None = "alice") -> r.ClientQuotaRecord:
    entity = (r.QuotaEntity(entity_type="user", entity_name=user),)
    return r.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value, remove=remove)


def producer_ids(next_producer_id: int) -> r.ProducerIdsRecord:
    return r.ProducerIdsRecord(
        broker_id=BrokerId(1), broker_epoch=10, next_producer_id=next_producer_id
    )


def controller(controller_id: int = 3000) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=BrokerId(controller_id),
        incarnation_id=Uuid(b"C" * 16),
        zk_migration_ready=False,
        end_points=(),
        features=(),
    )


def token(token_id: str = "token-1") -> r.DelegationTokenRecord:
    return r.DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=(),
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=5,
        token_id=token_id,
    )
