"""AlterClientQuotas: how much users, clients and addresses may ask of the cluster. Pure.

What always holds: an entity is a user, a client id, both, or an address; it has only quotas of its
kind, and each is greater than zero. An entity is changed as a whole or not at all.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from immutables import Map
from kio.schema.errors import ErrorCode

from kraftpy.describe.quotas import (
    ENTITY_TYPES,
    IP,
    describe_client_quotas,
    refuse_describe_client_quotas,
)
from kraftpy.metadata_log.image import QuotaKey
from kraftpy.metadata_log.records import ClientQuotaRecord, QuotaEntity
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, NO_THROTTLE, VersionRange


class _Kind(NamedTuple):
    """What a quota counts: `most` is the greatest value of Kafka's type for it."""

    most: float
    is_integral: bool


_LONG: Final = _Kind(float(2**63), True)
_INT: Final = _Kind(float(2**31 - 1), True)
_DOUBLE: Final = _Kind(math.inf, False)
_USER_AND_CLIENT_QUOTAS: Final = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _DOUBLE,
    "controller_mutation_rate": _DOUBLE,
}
_IP_QUOTAS: Final = {"connection_creation_rate": _INT}
_FRACTION_MAX: Final = 1e-6  # What is closer to a whole number passes for one.


def decide_alter_client_quotas(situation: Situation, message: Any) -> Decision:
    """The quotas that differ from what is set, entity by entity."""
    records: list[ClientQuotaRecord] = []
    results: list[dict[str, Any]] = []
    times = Counter(_names(entry) for entry in message.entries)
    for entry in message.entries:
        error_code, why = ErrorCode.none, None
        try:
            if times[_names(entry)] > 1:
                raise _invalid("the entity is in the request twice")
            key = _checked_entity(entry.entity)
            _check_operations(key, entry.ops)
            records.extend(_changes(key, situation.image.quotas.get(key, Map()), entry.ops))
        except Refused as refusal:
            error_code, why = refusal.error_code, str(refusal)
        results.append(_result(entry, error_code, why))
    return Decision(
        records=() if message.validate_only else records,
        response={"throttle_time": NO_THROTTLE, "entries": results},
    )


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.invalid_request, why)


def _names(entry: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def _checked_entity(entity: Iterable[Any]) -> QuotaKey:
    by_type: dict[str, QuotaEntity] = {}
    for each in entity:
        if each.entity_type not in ENTITY_TYPES:
            raise _invalid(f"unknown entity type {each.entity_type}")
        if each.entity_type in by_type:
            raise _invalid(f"the entity has two names of type {each.entity_type}")
        if each.entity_name == "":
            raise _invalid(f"the name of type {each.entity_type} is empty")
        by_type[each.entity_type] = QuotaEntity(
            entity_type=each.entity_type, entity_name=each.entity_name
        )
    if not by_type:
        raise _invalid("the entity is empty")
    if IP in by_type:
        if len(by_type) > 1:
            raise _invalid("an ip goes with no other entity type")
        _check_address(by_type[IP].entity_name)
    return tuple(by_type[entity_type] for entity_type in sorted(by_type))


def _check_address(address: str | None) -> None:
    """Kafka also takes a name that resolves: but a decision asks nobody."""
    if address is None:
        return
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise _invalid(f"{address} is not an IP address") from None


def _check_operations(key: QuotaKey, operations: Iterable[Any]) -> None:
    kinds = _IP_QUOTAS if key[0].entity_type == IP else _USER_AND_CLIENT_QUOTAS
    seen: set[str] = set()
    for operation in operations:
        name, value = operation.key, operation.value
        if name in seen:
            raise _invalid(f"{name} is changed twice")
        seen.add(name)
        if operation.remove:
            continue  # What an older release let in must be removable.
        if name not in kinds:
            raise _invalid(f"{name} is not a quota of this entity")
        if not math.isfinite(value) or not 0 < value <= kinds[name].most:
            raise _invalid(f"{name} cannot be {value}")
        if kinds[name].is_integral and math.fmod(value, 1) > _FRACTION_MAX:
            raise _invalid(f"{name} is a whole number, not {value}")


def _changes(
    key: QuotaKey, current: Map[str, float], operations: Iterable[Any]
) -> Iterator[ClientQuotaRecord]:
    for operation in operations:
        name = operation.key
        if operation.remove:
            if name in current:
                yield ClientQuotaRecord(entity=key, key=name, value=0.0, remove=True)
        elif current.get(name) != operation.value:
            yield ClientQuotaRecord(entity=key, key=name, value=float(operation.value))


def _result(entry: Any, error_code: ErrorCode, why: str | None) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "error_message": why,
        "entity": [
            {"entity_type": each.entity_type, "entity_name": each.entity_name}
            for each in entry.entity
        ],
    }


def _refuse_alter(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "entries": [_result(entry, error_code, why) for entry in message.entries],
    }


def _decide_describe(situation: Situation, message: Any) -> Decision:
    return Decision(records=(), response=describe_client_quotas(situation.image, message))


APIS: Final[dict[int, ControlApi]] = {
    ALTER_CLIENT_QUOTAS: ControlApi(VersionRange(0, 1), decide_alter_client_quotas, _refuse_alter),
    DESCRIBE_CLIENT_QUOTAS: ControlApi(
        VersionRange(0, 1), _decide_describe, refuse_describe_client_quotas
    ),
}
