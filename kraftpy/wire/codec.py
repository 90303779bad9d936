"""Messages to bytes and back: kio's classes, our own reading and writing. Pure.

Every message from the network comes through `decode`; docs/adr/0006-kio.md says why not through
kio's reader.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from kraftpy.errors import WireError
from kraftpy.limits import MESSAGE_ELEMENTS_MAX
from kraftpy.wire.generated import MALFORMED, reader_of, writer_of
from kraftpy.wire.schema import FieldPlan, plan_of

T = TypeVar("T")

_plans: Final[dict[type, dict[str, FieldPlan]]] = {}


def decode(
    entity: type[T],
    data: bytes | memoryview,
    at: int = 0,
    *,
    elements_max: int = MESSAGE_ELEMENTS_MAX,
    exact: bool = True,
) -> T:
    """The message that begins at `at`, and, if `exact`, ends with the data; else WireError."""
    try:
        found, end = reader_of(entity)(data, at, [elements_max])
    except MALFORMED as error:
        known = isinstance(error, (WireError, UnicodeDecodeError))
        reason = str(error) if known else "it is shorter than it says"
        raise WireError(f"malformed {entity.__name__}: {reason}") from None
    if exact and end != len(data):
        raise WireError(f"malformed {entity.__name__}: {len(data) - end} bytes behind it")
    message: T = found
    return message


def encode(message: Any, head: bytes = b"") -> bytearray:
    """The bytes of a message, behind those of `head`."""
    out = bytearray(head)
    writer_of(type(message))(out, message)
    return out


def build(entity: type[T], values: Mapping[str, Any]) -> T:
    """A message of one version from the values of any: what this version lacks is left out.

    Structures inside are mappings too. So an answer is put together once and not per version.
    """
    plans = _plans_by_name(entity)
    return entity(
        **{name: _value(plans[name], value) for name, value in values.items() if name in plans}
    )


def _plans_by_name(entity: type) -> dict[str, FieldPlan]:
    found = _plans.get(entity)
    if found is None:
        plan = plan_of(entity)
        found = _plans[entity] = {each.name: each for each in (*plan.fields, *plan.tagged)}
    return found


def _value(plan: FieldPlan, value: Any) -> Any:
    if plan.entity is None or value is None:
        return value
    if plan.is_array:
        return tuple(build(plan.entity, each) for each in value)
    return build(plan.entity, value)
