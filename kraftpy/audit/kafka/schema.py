"""Kafka's metadata records as a table: type id, versions, and each field's kind, version and tag.

The table is the decoder: `decoding.py` knows kinds, not records. Fields stand in the order of the
wire; a tagged one may stand anywhere, and is its default where it is absent. Field names are those
of kraftpy's own records, which are Kafka's. Types 6, 13 and 16 existed once and are gone; ids that
are not here (AutoMQ adds 501 to 518 and 600) are unknown, not errors.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftpy.metadata_log import records as r


class FieldSchema(NamedTuple):
    name: str
    kind: str  # A number, "bool", "uuid", "text", "data", "[" + kind, or the name of a struct.
    since: int = 0
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class RecordSchema:
    cls: type[r.MetadataRecord]
    fields: tuple[FieldSchema, ...]

    @property
    def api_key(self) -> int:
        return self.cls.API_KEY

    @property
    def max_version(self) -> int:
        return self.cls.MAX_VERSION


class StructSchema(NamedTuple):
    cls: type[r.Endpoint] | type[r.Feature] | type[r.QuotaEntity]
    fields: tuple[FieldSchema, ...]


_F = FieldSchema

STRUCTS: Final[dict[str, StructSchema]] = {
    "endpoint": StructSchema(
        r.Endpoint,
        (_F("name", "text"), _F("host", "text"), _F("port", "u16"), _F("security_protocol", "i16")),
    ),
    "feature": StructSchema(
        r.Feature,
        (
            _F("name", "text"),
            _F("min_supported_version", "i16"),
            _F("max_supported_version", "i16"),
        ),
    ),
    "entity": StructSchema(r.QuotaEntity, (_F("entity_type", "text"), _F("entity_name", "text?"))),
}

_REGISTER_BROKER = (
    _F("broker_id", "i32"),
    _F("is_migrating_zk_broker", "bool", since=2),
    _F("incarnation_id", "uuid"),
    _F("broker_epoch", "i64"),
    _F("end_points", "[endpoint"),
    _F("features", "[feature"),
    _F("rack", "text?"),
    _F("fenced", "bool"),
    _F("in_controlled_shutdown", "bool", since=1),
    _F("log_dirs", "[uuid", since=3, tag=0),
    _F("cordoned_log_dirs", "[uuid", since=4, tag=1),
)
_PARTITION = (
    _F("partition_id", "i32"),
    _F("topic_id", "uuid"),
    _F("replicas", "[i32"),
    _F("isr", "[i32"),
    _F("removing_replicas", "[i32"),
    _F("adding_replicas", "[i32"),
    _F("leader", "i32"),
    _F("leader_recovery_state", "i8", tag=0),
    _F("leader_epoch", "i32"),
    _F("partition_epoch", "i32"),
    _F("directories", "[uuid", since=1),
    _F("eligible_leader_replicas", "[i32", since=2, tag=1),
    _F("last_known_elr", "[i32", since=2, tag=2),
)
_PARTITION_CHANGE = (
    _F("partition_id", "i32"),
    _F("topic_id", "uuid"),
    _F("isr", "[i32", tag=0),
    _F("leader", "i32", tag=1),
    _F("replicas", "[i32", tag=2),
    _F("removing_replicas", "[i32", tag=3),
    _F("adding_replicas", "[i32", tag=4),
    _F("leader_recovery_state", "i8", tag=5),
    _F("eligible_leader_replicas", "[i32", since=2, tag=6),
    _F("last_known_elr", "[i32", since=2, tag=7),
    _F("directories", "[uuid", since=1, tag=8),
)
_BROKER_CHANGE = (
    _F("broker_id", "i32"),
    _F("broker_epoch", "i64"),
    _F("fenced", "i8", tag=0),
    _F("in_controlled_shutdown", "i8", since=1, tag=1),
    _F("log_dirs", "[uuid", since=2, tag=2),
    _F("cordoned_log_dirs", "[uuid", since=3, tag=3),
)
_FENCE = (_F("id", "i32"), _F("epoch", "i64"))

_RECORDS: Final[tuple[RecordSchema, ...]] = (
    RecordSchema(r.RegisterBrokerRecord, _REGISTER_BROKER),
    RecordSchema(r.UnregisterBrokerRecord, (_F("broker_id", "i32"), _F("broker_epoch", "i64"))),
    RecordSchema(r.TopicRecord, (_F("name", "text"), _F("topic_id", "uuid"))),
    RecordSchema(r.PartitionRecord, _PARTITION),
    RecordSchema(
        r.ConfigRecord,
        (
            _F("resource_type", "i8"),
            _F("resource_name", "text"),
            _F("name", "text"),
            _F("value", "text?"),
        ),
    ),
    RecordSchema(r.PartitionChangeRecord, _PARTITION_CHANGE),
    RecordSchema(r.FenceBrokerRecord, _FENCE),
    RecordSchema(r.UnfenceBrokerRecord, _FENCE),
    RecordSchema(r.RemoveTopicRecord, (_F("topic_id", "uuid"),)),
    RecordSchema(
        r.DelegationTokenRecord,
        (
            _F("owner", "text"),
            _F("requester", "text"),
            _F("renewers", "[text"),
            _F("issue_timestamp", "i64"),
            _F("max_timestamp", "i64"),
            _F("expiration_timestamp", "i64"),
            _F("token_id", "text"),
        ),
    ),
    RecordSchema(
        r.UserScramCredentialRecord,
        (
            _F("name", "text"),
            _F("mechanism", "i8"),
            _F("salt", "data"),
            _F("stored_key", "data"),
            _F("server_key", "data"),
            _F("iterations", "i32"),
        ),
    ),
    RecordSchema(r.FeatureLevelRecord, (_F("name", "text"), _F("feature_level", "i16"))),
    RecordSchema(
        r.ClientQuotaRecord,
        (_F("entity", "[entity"), _F("key", "text"), _F("value", "f64"), _F("remove", "bool")),
    ),
    RecordSchema(
        r.ProducerIdsRecord,
        (_F("broker_id", "i32"), _F("broker_epoch", "i64"), _F("next_producer_id", "i64")),
    ),
    RecordSchema(r.BrokerRegistrationChangeRecord, _BROKER_CHANGE),
    RecordSchema(
        r.AccessControlEntryRecord,
        (
            _F("id", "uuid"),
            _F("resource_type", "i8"),
            _F("resource_name", "text"),
            _F("pattern_type", "i8"),
            _F("principal", "text"),
            _F("host", "text"),
            _F("operation", "i8"),
            _F("permission_type", "i8"),
        ),
    ),
    RecordSchema(r.RemoveAccessControlEntryRecord, (_F("id", "uuid"),)),
    RecordSchema(r.NoOpRecord, ()),
    RecordSchema(r.ZkMigrationStateRecord, (_F("zk_migration_state", "i8"),)),
    RecordSchema(r.RemoveUserScramCredentialRecord, (_F("name", "text"), _F("mechanism", "i8"))),
    RecordSchema(r.BeginTransactionRecord, (_F("name", "text?", tag=0),)),
    RecordSchema(r.EndTransactionRecord, ()),
    RecordSchema(r.AbortTransactionRecord, (_F("reason", "text?", tag=0),)),
    RecordSchema(r.RemoveDelegationTokenRecord, (_F("token_id", "text"),)),
    RecordSchema(
        r.RegisterControllerRecord,
        (
            _F("controller_id", "i32"),
            _F("incarnation_id", "uuid"),
            _F("zk_migration_ready", "bool"),
            _F("end_points", "[endpoint"),
            _F("features", "[feature"),
        ),
    ),
    RecordSchema(r.ClearElrRecord, (_F("topic_name", "text"),)),
    RecordSchema(r.UnregisterControllerRecord, (_F("controller_id", "i32"),)),
)

SCHEMAS: Final[dict[int, RecordSchema]] = {schema.api_key: schema for schema in _RECORDS}
