"""One error as the answer to a whole admin request, in the shape that its API has for it. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE

_Error = Mapping[str, Any]  # error_code and error_message.


def error_values(api_key: int, asked: Any, error_code: ErrorCode, why: str) -> dict[str, Any]:
    """The values of an answer in which all that was asked for ended with this error."""
    error = {"error_code": error_code, "error_message": why}
    values = {"throttle_time": NO_THROTTLE, **error}
    fill = _PARTS.get(api_key)
    if fill is not None:
        values.update(fill(asked, error))
    return values


def _create_topics(asked: Any, error: _Error) -> dict[str, Any]:
    nothing = {"topic_id": None, "num_partitions": -1, "replication_factor": -1, "configs": None}
    return {"topics": [{"name": each.name, **nothing, **error} for each in asked.topics]}


def _delete_topics(asked: Any, error: _Error) -> dict[str, Any]:
    if hasattr(asked, "topic_names"):
        names = [{"name": name, "topic_id": None} for name in asked.topic_names]
    else:
        names = [{"name": each.name, "topic_id": each.topic_id} for each in asked.topics]
    return {"responses": [{**each, **error} for each in names]}


def _create_partitions(asked: Any, error: _Error) -> dict[str, Any]:
    return {"results": [{"name": each.name, **error} for each in asked.topics]}


def _create_acls(asked: Any, error: _Error) -> dict[str, Any]:
    return {"results": [error for _ in asked.creations]}


def _delete_acls(asked: Any, error: _Error) -> dict[str, Any]:
    return {"filter_results": [{**error, "matching_acls": []} for _ in asked.filters]}


def _alter_configs(asked: Any, error: _Error) -> dict[str, Any]:
    return {
        "responses": [
            {"resource_type": each.resource_type, "resource_name": each.resource_name, **error}
            for each in asked.resources
        ]
    }


def _alter_client_quotas(asked: Any, error: _Error) -> dict[str, Any]:
    entities = [
        [{"entity_type": e.entity_type, "entity_name": e.entity_name} for e in entry.entity]
        for entry in asked.entries
    ]
    return {"entries": [{"entity": entity, **error} for entity in entities]}


def _alter_scram(asked: Any, error: _Error) -> dict[str, Any]:
    users = dict.fromkeys(each.name for each in (*asked.deletions, *asked.upsertions))
    return {"results": [{"user": user, **error} for user in users]}


def _empty(*names: str) -> Callable[[Any, _Error], dict[str, Any]]:
    return lambda _asked, _error: dict.fromkeys(names, ())


_PARTS: Final[Mapping[int, Callable[[Any, _Error], dict[str, Any]]]] = {
    apis.CREATE_TOPICS: _create_topics,
    apis.DELETE_TOPICS: _delete_topics,
    apis.CREATE_PARTITIONS: _create_partitions,
    apis.CREATE_ACLS: _create_acls,
    apis.DELETE_ACLS: _delete_acls,
    apis.ALTER_CONFIGS: _alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    apis.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    apis.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    apis.ELECT_LEADERS: _empty("replica_election_results"),
    apis.ALTER_PARTITION_REASSIGNMENTS: _empty("responses"),
    apis.LIST_PARTITION_REASSIGNMENTS: _empty("topics"),
    apis.DESCRIBE_QUORUM: _empty("topics", "nodes"),
    apis.UPDATE_FEATURES: _empty("results"),
}
