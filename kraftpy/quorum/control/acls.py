"""CreateAcls and DeleteAcls: who may do what, stored and replicated; others enforce it. Pure.

What always holds: no two entries say the same. An entry that exists is created again without a
record, and one that several filters of a request match is deleted once.

Kafka lets any operation be granted on any type of resource, and so do we: which ones mean something
is for the tool that asks.
"""

import ipaddress
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.describe.acls import (
    CLUSTER,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    AclFilter,
    content_of,
    describe_acls,
    matching_acls,
    refuse_describe_acls,
)
from kraftpy.metadata_log.image import Acl, ClusterImage
from kraftpy.metadata_log.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from kraftpy.quorum.control.decision import ControlApi, Decision, Situation, Values
from kraftpy.types import Rng, Uuid, random_uuid
from kraftpy.wire.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, NO_THROTTLE, VersionRange

_CLUSTER_NAME: Final = "kafka-cluster"


# -- CreateAcls -------------------------------------------------------------------------------


def decide_create_acls(situation: Situation, message: Any) -> Decision:
    """The entries that are not there yet; one that is wrong does not stop the others."""
    known = {content_of(acl) for acl in situation.image.acls.values()}
    taken: set[Uuid] = set()
    records: list[AccessControlEntryRecord] = []
    results: list[dict[str, Any]] = []
    for creation in message.creations:
        problem = _creation_problem(creation)
        if problem is not None:
            results.append(_result(ErrorCode.invalid_request, problem))
            continue
        results.append(_result(ErrorCode.none, None))
        entry = _entry(creation, _unused_uuid(situation.image, taken, situation.rng))
        if content_of(entry) not in known:
            known.add(content_of(entry))
            taken.add(entry.id)
            records.append(entry)
    return Decision(records=records, response={"throttle_time": NO_THROTTLE, "results": results})


def _creation_problem(creation: Any) -> str | None:
    for what, value, known in (
        ("resource type", creation.resource_type, RESOURCE_TYPES),
        ("pattern type", creation.resource_pattern_type, PATTERN_TYPES),
        ("operation", creation.operation, OPERATIONS),
        ("permission type", creation.permission_type, PERMISSION_TYPES),
    ):
        if value not in known:
            return f"an entry cannot have the {what} {value}"
    if creation.resource_type == CLUSTER and creation.resource_name != _CLUSTER_NAME:
        return f"the cluster is called {_CLUSTER_NAME}"
    if not creation.resource_name:
        return "the name of the resource is empty"
    if ":" not in creation.principal:
        return f"the principal {creation.principal} has no type, as in User:alice"
    return _host_problem(creation.host)


def _host_problem(host: str) -> str | None:
    """A host with a slash is a range of addresses (KIP-1276); any other is taken as it is."""
    if "/" not in host:
        return None
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        return f"{host} is not a range of addresses"
    return None


def _unused_uuid(image: ClusterImage, taken: set[Uuid], rng: Rng) -> Uuid:
    while True:
        uuid = random_uuid(rng)
        if uuid not in image.acls and uuid not in taken:
            return uuid


def _entry(creation: Any, uuid: Uuid) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=uuid,
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )


def _result(error_code: ErrorCode, why: str | None) -> dict[str, Any]:
    return {"error_code": error_code, "error_message": why}


def _refuse_create(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "results": [_result(error_code, why) for _ in message.creations],
    }


# -- DeleteAcls -------------------------------------------------------------------------------


def decide_delete_acls(situation: Situation, message: Any) -> Decision:
    """Whatever any filter matches; each filter is told all that it matched."""
    doomed: dict[Uuid, None] = {}
    results: list[dict[str, Any]] = []
    for each in message.filters:
        acl_filter = AclFilter.of(each)
        problem = acl_filter.problem()
        if problem is not None:
            results.append(_filter_result(ErrorCode.invalid_request, problem, []))
            continue
        found = list(matching_acls(situation.image, acl_filter))
        doomed.update((uuid, None) for uuid, _ in found)
        results.append(_filter_result(ErrorCode.none, None, [_deleted(acl) for _, acl in found]))
    return Decision(
        records=[RemoveAccessControlEntryRecord(id=uuid) for uuid in doomed],
        response={"throttle_time": NO_THROTTLE, "filter_results": results},
    )


def _deleted(acl: Acl) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission_type,
    }


def _filter_result(
    error_code: ErrorCode, why: str | None, matching: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"error_code": error_code, "error_message": why, "matching_acls": matching}


def _refuse_delete(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "filter_results": [_filter_result(error_code, why, []) for _ in message.filters],
    }


def _decide_describe(situation: Situation, message: Any) -> Decision:
    return Decision(records=(), response=describe_acls(situation.image, message))


APIS: Final[dict[int, ControlApi]] = {
    CREATE_ACLS: ControlApi(VersionRange(1, 3), decide_create_acls, _refuse_create),
    DELETE_ACLS: ControlApi(VersionRange(1, 3), decide_delete_acls, _refuse_delete),
    DESCRIBE_ACLS: ControlApi(VersionRange(1, 3), _decide_describe, refuse_describe_acls),
}
