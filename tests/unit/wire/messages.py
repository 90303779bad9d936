"""Random messages of any of kio's classes, for tests that compare our bytes with kio's."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.static.constants import EntityType

from kraftpy.wire.schema import FieldPlan, plan_of

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def top_level_types(*kinds: EntityType) -> Iterator[type]:
    """Every message that kio knows, in every version."""
    for versions in schema_name_map.values():
        for by_type in versions.values():
            for kind, path in by_type.items():
                if not kinds or kind in kinds:
                    yield resolve_name(path)


def random_message(entity: type, rng: random.Random, length_max: int = 3) -> Any:
    plan = plan_of(entity)
    fields = (*plan.fields, *plan.tagged)
    return entity(**{field.name: _value(field, rng, length_max) for field in fields})


def _value(field: FieldPlan, rng: random.Random, length_max: int) -> Any:
    if field.tag is not None and rng.random() < 0.4:
        return field.default
    # kio writes a tagged field that may be null, and is not at its default, as if it could not.
    if field.nullable and field.tag is None and rng.random() < 0.3:
        return None
    if field.is_array:
        count = rng.randrange(length_max + 1)
        return tuple(_one(field, rng, length_max) for _ in range(count))
    return _one(field, rng, length_max)


def _one(field: FieldPlan, rng: random.Random, length_max: int) -> Any:
    if field.entity is not None:
        return random_message(field.entity, rng, length_max)
    return _primitive(field.kind, rng)


def _primitive(kind: str, rng: random.Random) -> Any:
    match kind:
        case "string":
            return "".join(rng.choices("aé漢 -\0", k=rng.choice([0, 1, 5, 200])))
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 126, 127, 128, 20_000]))
        case "bool" | "float64":
            return rng.random() < 0.5 if kind == "bool" else rng.uniform(-1e9, 1e9)
        case "uint16":
            return rng.randrange(1 << 16)
        case "error_code":
            return rng.choice(list(ErrorCode))
        case "timedelta_i32":
            return timedelta(milliseconds=rng.randrange(-(2**31), 2**31))
        case "timedelta_i64":
            return timedelta(milliseconds=rng.randrange(-(2**40), 2**40))
        case "datetime_i64":
            return datetime.fromtimestamp(rng.randrange(2**32), tz=UTC)
        case "uuid":
            return rng.choice([None, UUID(bytes=rng.randbytes(16))]) or UUID(int=7)
    return rng.randrange(-(1 << BITS[kind]), 1 << BITS[kind])
