"""What each field of a record may hold, as the checks that the codec compiles into its functions.

A WireType yields lines of source that check a local variable and, on decode, replace it by its
canonical value: lists of ids become shared tuples, nested arrays become Endpoints and the like.
A check that fails raises FieldError, which names the field and shows the value, unless the field is
one that stays out of messages.
"""

import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NoReturn, get_args, get_origin, get_type_hints

from kraftpy.limits import INTERNED_LISTS_MAX
from kraftpy.metadata_log.fastclass import compile_function
from kraftpy.metadata_log.records import Endpoint, Feature, QuotaEntity
from kraftpy.types import BrokerId, TopicId, Uuid

_RANGES: Final = {
    "i8": (-(1 << 7), (1 << 7) - 1),
    "i16": (-(1 << 15), (1 << 15) - 1),
    "u16": (0, (1 << 16) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "i64": (-(1 << 63), (1 << 63) - 1),
}
_KINDS: Final[dict[Any, str]] = {
    BrokerId: "i32",
    TopicId: "uuid",
    Uuid: "uuid",
    str: "str",
    bytes: "bytes",
    bool: "bool",
    float: "f64",
}
_LIST_KINDS: Final = {"i32": "i32s", "uuid": "uuids", "str": "strs"}


class FieldError(Exception):
    """A field does not hold what its type says; the codec turns it into its own errors."""


def refuse(name: str, kind: str, value: object) -> NoReturn:
    raise FieldError(f"{name} must be {kind}, not {type(value).__name__} {shown(value)}")


def refuse_secret(name: str, kind: str, value: object) -> NoReturn:
    raise FieldError(f"{name} must be {kind}, not {type(value).__name__}")


def shown(value: object) -> str:
    """A value from a stranger, for a message: bounded in length and in depth."""
    return reprlib.repr(value)


def too_new(name: str, version: int) -> NoReturn:
    raise FieldError(f"version {version} has no field {name}, and dropping it would lose data")


@dataclass(frozen=True, slots=True)
class WireType:
    """One field's type: a scalar kind, a list kind, or "structs" of a nested class."""

    kind: str
    nullable: bool
    struct: type | None = None
    secret: bool = False

    def decode_lines(self, name: str) -> list[str]:
        if self.kind in ("i32s", "uuids", "strs"):
            # There is one empty tuple, most lists are empty, and a call costs more than a look.
            lines = self._guarded(name, f"if {name} is not _EMPTY:")
            indent = " " * (len(lines) + 1)
            return [*lines, f"{indent}{name} = _{self.kind}('{name}', {name})"]
        if self.struct is not None:
            call = f"_decode_structs('{name}', {name}, _{self.struct.__name__})"
            return self._guarded(name, f"{name} = {call}")
        return self._scalar_lines(name)

    def encode_lines(self, name: str) -> list[str]:
        if self.struct is not None:
            call = f"_encode_structs('{name}', {name}, _{self.struct.__name__})"
            return self._guarded(name, f"{name} = {call}")
        return self.decode_lines(name)

    def _scalar_lines(self, name: str) -> list[str]:
        wrong = {
            "uuid": f"type({name}) is not bytes or len({name}) != 16",
            "str": f"type({name}) is not str",
            "bytes": f"type({name}) is not bytes",
            "bool": f"{name} is not True and {name} is not False",
            "f64": f"type({name}) is not float or not _isfinite({name})",
        }.get(self.kind)
        if wrong is None:
            low, high = _RANGES[self.kind]
            wrong = f"type({name}) is not int or not {low} <= {name} <= {high}"
        refusal = "_refuse_secret" if self.secret else "_refuse"
        return self._guarded(name, f"if {wrong}: {refusal}('{name}', '{self.kind}', {name})")

    def _guarded(self, name: str, line: str) -> list[str]:
        return [f" if {name} is not None:", f"  {line}"] if self.nullable else [f" {line}"]


def wire_type(hint: Any) -> WireType:
    """The wire type that a dataclass field's annotation stands for."""
    if get_origin(hint) is UnionType or NoneType in get_args(hint):
        (inner,) = (arg for arg in get_args(hint) if arg is not NoneType)
        return replace(wire_type(inner), nullable=True)
    if get_origin(hint) is Annotated:
        return WireType(hint.__metadata__[0], False)
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        if element in _KINDS:
            return WireType(_LIST_KINDS[_KINDS[element]], False)
        return WireType("structs", False, element)
    return WireType(_KINDS[hint], False)


def wire_types(cls: type) -> dict[str, WireType]:
    """The wire type of each field of a dataclass; what its repr hides is a secret."""
    found = get_type_hints(cls, include_extras=True)
    return {f.name: replace(wire_type(found[f.name]), secret=not f.repr) for f in fields(cls)}


# --- lists: shared tuples ---------------------------------------------------------------------

_interned: Final[dict[tuple[Any, ...], tuple[Any, ...]]] = {}
_interned_uuids: Final[dict[bytes, bytes]] = {}
_I32_LOW, _I32_HIGH = _RANGES["i32"]


def _i32s(name: str, value: Any) -> tuple[int, ...]:
    """A list of broker ids: the shared tuple equal to it.

    The element types are checked each time, for (1.0, True) equals and finds (1, 1).
    """
    if type(value) is not tuple:
        refuse(name, "a list of i32", value)
    for element in value:
        if type(element) is not int:
            refuse(name, "a list of i32", value)
    found = _interned.get(value)
    if found is not None:
        return found
    for element in value:
        if not _I32_LOW <= element <= _I32_HIGH:
            refuse(name, "a list of i32", value)
    return _intern(value)


def _uuids(name: str, value: Any) -> tuple[bytes, ...]:
    if type(value) is not tuple:
        refuse(name, "a list of uuid", value)
    for element in value:
        if type(element) is not bytes or len(element) != 16:
            refuse(name, "a list of uuid", value)
    found = _interned.get(value)
    if found is not None:
        return found
    if len(_interned_uuids) >= INTERNED_LISTS_MAX:
        _interned_uuids.clear()
    return _intern(tuple(_interned_uuids.setdefault(uuid, uuid) for uuid in value))


def _strs(name: str, value: Any) -> tuple[str, ...]:
    if type(value) is not tuple or any(type(element) is not str for element in value):
        refuse(name, "a list of str", value)
    checked: tuple[str, ...] = value
    return checked


def _intern(value: tuple[Any, ...]) -> tuple[Any, ...]:
    # Forgetting everything when full costs one round of misses and follows what is in use now.
    if len(_interned) >= INTERNED_LISTS_MAX:
        _interned.clear()
    _interned[value] = value
    return value


# --- nested structs: rare, so not compiled ------------------------------------------------------


class Struct:
    """How a nested dataclass is checked: an array of its fields, all of them always present."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.names = [f.name for f in fields(cls)]

    @cached_property
    def check(self) -> Callable[..., None]:
        """A function of all fields, generated when it is first needed."""
        source = [f"def check({', '.join(self.names)}):"]
        for name, wire in wire_types(self.cls).items():
            source += wire.decode_lines(name)
        return compile_function("\n".join(source), {"_refuse": refuse, "_isfinite": math.isfinite})


def _decode_structs(name: str, value: Any, struct: Struct) -> tuple[Any, ...]:
    if type(value) is not tuple:
        refuse(name, f"a list of {struct.cls.__name__}", value)
    for element in value:
        if type(element) is not tuple or len(element) != len(struct.names):
            refuse(name, f"a list of {struct.cls.__name__}", value)
        struct.check(*element)
    return tuple(struct.cls(**dict(zip(struct.names, e, strict=True))) for e in value)


def _encode_structs(name: str, value: Any, struct: Struct) -> tuple[Any, ...]:
    if type(value) is not tuple or any(type(element) is not struct.cls for element in value):
        refuse(name, f"a tuple of {struct.cls.__name__}", value)
    arrays = tuple(tuple(getattr(element, n) for n in struct.names) for element in value)
    for array in arrays:
        struct.check(*array)
    return arrays


NAMES: Final[dict[str, Any]] = {
    "_EMPTY": (),
    "_refuse": refuse,
    "_refuse_secret": refuse_secret,
    "_isfinite": math.isfinite,
    "_i32s": _i32s,
    "_uuids": _uuids,
    "_strs": _strs,
    "_decode_structs": _decode_structs,
    "_encode_structs": _encode_structs,
    **{f"_{cls.__name__}": Struct(cls) for cls in (Endpoint, Feature, QuotaEntity)},
}
