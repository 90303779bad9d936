"""What a message looks like, read from kio's classes. Pure.

kio generates one dataclass per message, version and nested structure from Kafka's own schema files.
Here its fields are turned into a plan that the reader and the writer are made from. Nothing else in
kraftpy knows how kio describes a field.
"""

from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

# Kafka's fixed-size types and how `struct` calls them; 16 bytes are a UUID.
FIXED: Final = {
    "bool": "b",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    """One field: how its bytes look, and what stands for its absence."""

    name: str
    kind: str  # Kafka's type, as kio names it; "entity" for a structure.
    entity: type | None
    is_array: bool
    nullable: bool  # The field itself, so of an array the array and not its elements.
    tag: int | None
    default: Any  # Of a tagged field: what it is when the tag is not there.


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """One structure: its fields in the order of the wire, then the tagged ones by tag."""

    entity: type
    flexible: bool
    fields: tuple[FieldPlan, ...]
    tagged: tuple[FieldPlan, ...]


def plan_of(entity: type) -> EntityPlan:
    """The plan of one of kio's classes."""
    found = [_field_plan(field) for field in fields(entity)]
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    tagged = sorted((f for f in found if f.tag is not None), key=lambda f: f.tag or 0)
    assert flexible or not tagged, f"{entity.__name__} has tags in a version without tags"
    plain = tuple(field for field in found if field.tag is None)
    return EntityPlan(entity=entity, flexible=flexible, fields=plain, tagged=tuple(tagged))


def _field_plan(field: Field[Any]) -> FieldPlan:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    entity: Any = inner if is_dataclass(inner) else None
    tag = field.metadata.get("tag")
    return FieldPlan(
        name=field.name,
        kind="entity" if entity is not None else field.metadata["kafka_type"],
        entity=entity,
        is_array=is_array,
        nullable=nullable,
        tag=tag,
        default=None if tag is None else _default(field, entity),
    )


def _without_none(found: Any) -> tuple[Any, bool]:
    if get_origin(found) not in (UnionType, Union):
        return found, False
    (inner,) = (each for each in get_args(found) if each is not NoneType)
    return inner, True


def _default(field: Field[Any], entity: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    if entity is not None:  # Kafka's default of a structure: all of its fields at theirs.
        return entity(**{each.name: _default_or_zero(each) for each in fields(entity)})
    return _default_or_zero(field)


def _default_or_zero(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return {"string": "", "bytes": b"", "bool": False}.get(field.metadata["kafka_type"], 0)
