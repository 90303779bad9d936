"""DescribeClientQuotas: the client quotas whose entities match a filter. Pure.

A filter names entity types. An entity matches if it has each of them, with the exact name, as the
default of its type, or with any name; a strict filter wants no further types in it.
"""

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage, QuotaKey
from kraftpy.wire.apis import NO_THROTTLE

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (CLIENT_ID, IP, USER)
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


def describe_client_quotas(image: ClusterImage, message: Any) -> dict[str, Any]:
    """Every quota of the entities that match, or what is wrong with the filter."""
    problem = _problem(message.components)
    if problem is not None:
        return refuse_describe_client_quotas(message, *problem)
    found = (key for key in image.quotas if _matches(key, message.components, message.strict))
    entries = [
        {
            "entity": [
                {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in key
            ],
            "values": [
                {"key": name, "value": value} for name, value in sorted(image.quotas[key].items())
            ],
        }
        for key in sorted(found, key=_order)
    ]
    return _answer(ErrorCode.none, None, entries)


def _order(key: QuotaKey) -> list[tuple[str, bool, str]]:
    """By type and name; the default of a type comes first."""
    return [
        (each.entity_type, each.entity_name is not None, each.entity_name or "") for each in key
    ]


def _matches(key: QuotaKey, components: Iterable[Any], strict: bool) -> bool:
    names = {each.entity_type: each.entity_name for each in key}
    asked = 0
    for component in components:
        asked += 1
        if component.entity_type not in names:
            return False
        # The default is the entity without a name, and its filter has no name either.
        if component.match_type != _ANY and names[component.entity_type] != component.match:
            return False
    return asked == len(names) or not strict


def _problem(components: Iterable[Any]) -> tuple[ErrorCode, str] | None:
    types: set[str] = set()
    for component in components:
        if component.entity_type not in ENTITY_TYPES:
            if not component.entity_type:
                return ErrorCode.invalid_request, "an entity type is empty"
            return (
                ErrorCode.unsupported_version,
                f"unknown entity type {component.entity_type}",
            )
        if component.entity_type in types:
            return ErrorCode.invalid_request, f"{component.entity_type} is in the filter twice"
        types.add(component.entity_type)
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            return ErrorCode.invalid_request, f"unknown match type {component.match_type}"
        if (component.match_type == _EXACT) != (component.match is not None):
            return (
                ErrorCode.invalid_request,
                f"match type {component.match_type} does not go with the name {component.match}",
            )
    if IP in types and len(types) > 1:
        return ErrorCode.invalid_request, "no entity has an ip and something else"
    return None


def refuse_describe_client_quotas(
    _message: Any, error_code: ErrorCode, why: str | None
) -> dict[str, Any]:
    return _answer(error_code, why, None)


def _answer(error_code: ErrorCode, why: str | None, entries: list[Any] | None) -> dict[str, Any]:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "entries": entries,
    }
