"""DescribeAcls: the access control entries that match a filter. Pure.

A filter matches an entry if each of its parts does. The pattern type MATCH is the one that is not
plain: it finds every entry that would apply to a resource of that very name, by its literal name,
by the wildcard, or by a prefix of it.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import Acl, ClusterImage
from kraftpy.types import Uuid
from kraftpy.wire.apis import NO_THROTTLE

ANY: Final = 1  # Of resource types, pattern types, operations and permission types alike.
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4
PATTERN_TYPES: Final = (LITERAL, PREFIXED)
WILDCARD: Final = "*"
# TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER.
CLUSTER: Final = 4
RESOURCE_TYPES: Final = range(2, 8)
OPERATIONS: Final = range(2, 16)  # From ALL to TWO_PHASE_COMMIT.
PERMISSION_TYPES: Final = range(2, 4)  # DENY and ALLOW.


class AclFilter(NamedTuple):
    """None, and ANY where a number stands, let everything pass."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, message: Any) -> "AclFilter":
        """The filter in a DescribeAcls request, or one of those in a DeleteAcls request."""
        return cls(
            message.resource_type_filter,
            message.resource_name_filter,
            message.pattern_type_filter,
            message.principal_filter,
            message.host_filter,
            message.operation,
            message.permission_type,
        )

    def problem(self) -> str | None:
        """What in it is none of Kafka's values: such a filter is refused, not left to miss."""
        for what, value, known in (
            ("resource type", self.resource_type, RESOURCE_TYPES),
            ("pattern type", self.pattern_type, (MATCH, *PATTERN_TYPES)),
            ("operation", self.operation, OPERATIONS),
            ("permission type", self.permission_type, PERMISSION_TYPES),
        ):
            if value != ANY and value not in known:
                return f"unknown {what} {value}"
        return None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type == PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


def matching_acls(image: ClusterImage, acl_filter: AclFilter) -> Iterator[tuple[Uuid, Acl]]:
    """In the order of what they say; ids are random and order nothing."""
    found = ((uuid, acl) for uuid, acl in image.acls.items() if acl_filter.matches(acl))
    yield from sorted(found, key=lambda each: (content_of(each[1]), each[0]))


def content_of(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    """What an entry says, without its id."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def describe_acls(image: ClusterImage, message: Any) -> dict[str, Any]:
    """The entries that match, resource by resource."""
    acl_filter = AclFilter.of(message)
    problem = acl_filter.problem()
    if problem is not None:
        return refuse_describe_acls(message, ErrorCode.invalid_request, problem)
    resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    for _, acl in matching_acls(image, acl_filter):
        resource = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resources.setdefault(resource, []).append(
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission_type,
            }
        )
    described = [
        {
            "resource_type": resource_type,
            "resource_name": resource_name,
            "pattern_type": pattern_type,
            "acls": acls,
        }
        for (resource_type, resource_name, pattern_type), acls in resources.items()
    ]
    return _answer(ErrorCode.none, None, described)


def refuse_describe_acls(_message: Any, error_code: ErrorCode, why: str | None) -> dict[str, Any]:
    return _answer(error_code, why, [])


def _answer(error_code: ErrorCode, why: str | None, resources: list[Any]) -> dict[str, Any]:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "resources": resources,
    }
