"""The metadata records: Kafka's types, ids, fields and versions, as frozen values.

A record says what became true; it never says how to decide it, and it has no behaviour.
Field order is the order on the wire (codec.py), so a field may only ever be added, with
`since(version)`, and an id or a name is never used again. 6, 13 and 16 are gone for good.

One addition to Kafka's fields: a PartitionChangeRecord carries the leader epoch and the partition
epoch that replay must arrive at. Replay and audits hold the log to it.

None means "unchanged" in a change record, never "empty": an empty ISR is the empty tuple.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from kraftpy.types import ZERO_UUID, BrokerId, TopicId, Uuid

# Integers by their width on Kafka's wire; the codec checks the range both ways.
I8: TypeAlias = Annotated[int, "i8"]
I16: TypeAlias = Annotated[int, "i16"]
U16: TypeAlias = Annotated[int, "u16"]
I32: TypeAlias = Annotated[int, "i32"]
I64: TypeAlias = Annotated[int, "i64"]

# The value of `leader` in a change record that elects nobody.
NO_CHANGE: Final = BrokerId(-2)
# `leader_recovery_state`.
RECOVERED: Final = 0
RECOVERING: Final = 1
RECOVERY_UNCHANGED: Final = -1
# `fenced` and `in_controlled_shutdown` in a BrokerRegistrationChangeRecord.
UNFENCE: Final = -1
UNCHANGED: Final = 0
FENCE: Final = 1
SHUTTING_DOWN: Final = 1
# Kafka's reserved directory ids: a replica in a directory nobody named, and one not yet placed.
MIGRATING_DIRECTORY: Final = ZERO_UUID
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")
# `resource_type` in a ConfigRecord.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
# The feature whose level decides which record versions may be written.
METADATA_VERSION: Final = "metadata.version"


def since(version: int, *, default: Any) -> Any:
    """A field that exists from `version` of its record on; older versions mean `default`."""
    return field(default=default, metadata={"since": version})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    name: str
    host: str
    port: U16
    security_protocol: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str
    min_supported_version: I16
    max_supported_version: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    entity_type: str
    entity_name: str | None  # None is the default entity of its type.


class Record:
    """What every record type has; the union below is what code should speak of."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(Record):
    """A broker's new incarnation; it replaces whatever the same id had registered."""

    API_KEY: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    broker_id: BrokerId
    is_migrating_zk_broker: bool = since(2, default=False)
    incarnation_id: Uuid
    broker_epoch: I64
    end_points: tuple[Endpoint, ...]
    features: tuple[Feature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = since(1, default=False)
    log_dirs: tuple[Uuid, ...] = since(3, default=())
    cordoned_log_dirs: tuple[Uuid, ...] = since(4, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(Record):
    API_KEY: ClassVar[int] = 1
    broker_id: BrokerId
    broker_epoch: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(Record):
    API_KEY: ClassVar[int] = 2
    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(Record):
    """The whole state of one partition."""

    API_KEY: ClassVar[int] = 3
    MAX_VERSION: ClassVar[int] = 2
    partition_id: I32
    topic_id: TopicId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    leader: BrokerId
    leader_recovery_state: I8 = RECOVERED
    leader_epoch: I32
    partition_epoch: I32
    directories: tuple[Uuid, ...] = since(1, default=())
    eligible_leader_replicas: tuple[BrokerId, ...] = since(2, default=())
    last_known_elr: tuple[BrokerId, ...] = since(2, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(Record):
    API_KEY: ClassVar[int] = 4
    resource_type: I8
    resource_name: str
    name: str
    value: str | None  # None removes the key.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(Record):
    """What changed in a partition that exists, and the epochs it must have afterwards."""

    API_KEY: ClassVar[int] = 5
    MAX_VERSION: ClassVar[int] = 2
    partition_id: I32
    topic_id: TopicId
    isr: tuple[BrokerId, ...] | None = None
    leader: BrokerId = NO_CHANGE
    replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    leader_recovery_state: I8 = RECOVERY_UNCHANGED
    eligible_leader_replicas: tuple[BrokerId, ...] | None = since(2, default=None)
    last_known_elr: tuple[BrokerId, ...] | None = since(2, default=None)
    directories: tuple[Uuid, ...] | None = since(1, default=None)
    leader_epoch: I32
    partition_epoch: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord(Record):
    API_KEY: ClassVar[int] = 7
    id: BrokerId
    epoch: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(Record):
    API_KEY: ClassVar[int] = 8
    id: BrokerId
    epoch: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(Record):
    """The topic, its partitions and its configs are gone, and its id with them."""

    API_KEY: ClassVar[int] = 9
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord(Record):
    API_KEY: ClassVar[int] = 10
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: I64
    max_timestamp: I64
    expiration_timestamp: I64
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(Record):
    API_KEY: ClassVar[int] = 11
    name: str
    mechanism: I8
    salt: bytes
    stored_key: bytes = field(repr=False)  # Keys stay out of logs and error messages.
    server_key: bytes = field(repr=False)
    iterations: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(Record):
    API_KEY: ClassVar[int] = 12
    name: str
    feature_level: I16  # 0 removes the feature.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(Record):
    API_KEY: ClassVar[int] = 14
    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(Record):
    """A broker was given the block of producer ids that ends before `next_producer_id`."""

    API_KEY: ClassVar[int] = 15
    broker_id: BrokerId
    broker_epoch: I64
    next_producer_id: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(Record):
    API_KEY: ClassVar[int] = 17
    MAX_VERSION: ClassVar[int] = 3
    broker_id: BrokerId
    broker_epoch: I64
    fenced: I8 = UNCHANGED
    in_controlled_shutdown: I8 = since(1, default=UNCHANGED)  # noqa: RUF009
    log_dirs: tuple[Uuid, ...] | None = since(2, default=None)
    cordoned_log_dirs: tuple[Uuid, ...] | None = since(3, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(Record):
    API_KEY: ClassVar[int] = 18
    id: Uuid
    resource_type: I8
    resource_name: str
    pattern_type: I8
    principal: str
    host: str
    operation: I8
    permission_type: I8


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(Record):
    API_KEY: ClassVar[int] = 19
    id: Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(Record):
    """Nothing changed; the log moved on, so followers of it see that it is alive."""

    API_KEY: ClassVar[int] = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord(Record):
    API_KEY: ClassVar[int] = 21
    zk_migration_state: I8


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(Record):
    API_KEY: ClassVar[int] = 22
    name: str
    mechanism: I8


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(Record):
    """What follows becomes visible at EndTransaction, all of it, or never."""

    API_KEY: ClassVar[int] = 23
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(Record):
    API_KEY: ClassVar[int] = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(Record):
    API_KEY: ClassVar[int] = 25
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord(Record):
    API_KEY: ClassVar[int] = 26
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(Record):
    API_KEY: ClassVar[int] = 27
    controller_id: BrokerId
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: tuple[Endpoint, ...]
    features: tuple[Feature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(Record):
    """Forget the eligible leader replicas of a topic, or of every topic if the name is empty."""

    API_KEY: ClassVar[int] = 28
    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRecord(Record):
    API_KEY: ClassVar[int] = 29
    controller_id: BrokerId


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

RECORD_TYPES: Final[dict[int, type[MetadataRecord]]] = {
    record_type.API_KEY: record_type for record_type in MetadataRecord.__args__
}
