"""Which APIs a listener serves, in which versions, and the classes of their messages. Pure.

An unknown API, or a version that is not in the table, closes the connection, as in Kafka: without
its schema a request cannot even be answered with an error. ApiVersions is the exception, since with
it a client finds out: it is answered in version 0 with UNSUPPORTED_VERSION and the whole table.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.index import PayloadEntityType, api_key_map, schema_name_map
from kio.static.constants import EntityType

from kraftpy.errors import WireError
from kraftpy.wire.codec import build, decode
from kraftpy.wire.headers import (
    API_VERSIONS,
    RequestHeader,
    read_header,
    read_start,
    response_frame,
)

FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
CREATE_PARTITIONS: Final = 37
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
UNREGISTER_BROKER: Final = 64
ALLOCATE_PRODUCER_IDS: Final = 67
CONTROLLER_REGISTRATION: Final = 70
ASSIGN_REPLICAS_TO_DIRS: Final = 73
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75

# Nobody is throttled yet, and every answer says so.
NO_THROTTLE: Final = timedelta(0)


class VersionRange(NamedTuple):
    """Both ends belong to it."""

    min_version: int
    max_version: int


# Of one listener: API key to versions.
ApiTable = Mapping[int, VersionRange]


class Request(NamedTuple):
    """A request that was understood. `message` is None for an ApiVersions that is too new."""

    header: RequestHeader
    message: Any
    response_type: type
    frame: bytes = b""  # As it came, without its length: for whoever passes it on.
    principal: str = ""  # Who asked, where a broker that passes it on has said so.

    def response(self, values: Mapping[str, Any]) -> bytearray:
        """The answer's frame, from the values that any version has."""
        message: Any = build(self.response_type, values)
        return response_frame(message, self.header.api_key, self.header.correlation_id)


def api_name(api_key: int) -> str:
    """Such as `describe_quorum`."""
    return api_key_map.get(api_key, f"api_{api_key}")


def request_type(api_key: int, version: int) -> type:
    return _load(api_key, version, EntityType.request)


def response_type(api_key: int, version: int) -> type:
    return _load(api_key, version, EntityType.response)


@cache
def _load(api_key: int, version: int, kind: PayloadEntityType) -> type:
    """kio has a module per API and version: import those that are asked for."""
    found: type = resolve_name(schema_name_map[api_key_map[api_key]][version][kind])
    return found


def read_request(table: ApiTable, frame: bytes) -> Request:
    """A request in a version of the table; WireError for anything else."""
    start = read_start(frame)
    versions = table.get(start.api_key)
    if versions is None:
        raise WireError(f"API {start.api_key} is not served here")
    if not versions.min_version <= start.api_version <= versions.max_version:
        if start.api_key == API_VERSIONS:
            return Request(start._replace(api_version=0), None, response_type(API_VERSIONS, 0))
        raise WireError(f"{api_name(start.api_key)} version {start.api_version} is not served here")
    entity = request_type(start.api_key, start.api_version)
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    header, at = read_header(frame, flexible=flexible)
    # Kafka does not look at what follows a request, and librdkafka relies on it: its Metadata for
    # all topics has bytes to spare.
    message: Any = decode(entity, frame, at, exact=False)
    return Request(header, message, response_type(start.api_key, start.api_version), frame)


def mentions(message: Any, error_code: ErrorCode) -> bool:
    """Whether an answer has this error, as a whole or for any of its parts."""
    if isinstance(message, tuple):
        return any(mentions(each, error_code) for each in message)
    if is_dataclass(message):
        return any(mentions(getattr(message, each.name), error_code) for each in fields(message))
    return message is error_code
