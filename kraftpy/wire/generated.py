"""Readers and writers of messages, made once per class from its plan. Pure.

Python source is put together and compiled, as dataclasses does it: a run of fixed-size fields is
one call of `struct`, and nothing is looked up by name while a message is read.

What always holds for a reader, whatever the bytes are:
- it never looks outside of the message, and makes nothing in advance of the bytes that back it up.
- a count of elements is taken from a budget that the caller gives, so that a small message cannot
  become a large pile of objects; and it never exceeds the bytes left, as every element has some.
- it ends with a value or raises one of MALFORMED. kio's own readers do not: they trust a count, and
  an allocation that fails ends the process (docs/adr/0006-kio.md).
- tagged fields that are not known are skipped (KIP-482), which kio refuses to do.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from kraftpy.errors import WireError
from kraftpy.wire import primitives
from kraftpy.wire.schema import FIXED, EntityPlan, FieldPlan, plan_of

# read(data, at, budget) -> (entity, end); budget is a list of one number.
Reader = Callable[[Any, int, list[int]], tuple[Any, int]]
# write(out, entity) appends to a bytearray.
Writer = Callable[[bytearray, Any], None]

MALFORMED: Final = (WireError, IndexError, struct.error, UnicodeDecodeError, OverflowError)

_TO_VALUE: Final = {
    "bool": "{} != 0",
    "error_code": "to_error_code({})",
    "timedelta_i32": "to_timedelta({})",
    "timedelta_i64": "to_timedelta({})",
    "datetime_i64": "to_datetime({})",
    "uuid": "to_uuid({})",
}
_TO_WIRE: Final = {
    "error_code": "{}.value",
    "timedelta_i32": "from_timedelta({})",
    "timedelta_i64": "from_timedelta({})",
    "datetime_i64": "from_datetime({})",
    "uuid": "from_uuid({})",
}


_readers: Final[dict[type, Reader]] = {}
_writers: Final[dict[type, Writer]] = {}


def reader_of(entity: type) -> Reader:
    """The reader of one of kio's classes."""
    found = _readers.get(entity)
    if found is None:
        found = _readers[entity] = _compile(_ReaderSource(plan_of(entity)))
    return found


def writer_of(entity: type) -> Writer:
    """The writer of one of kio's classes."""
    found = _writers.get(entity)
    if found is None:
        found = _writers[entity] = _compile(_WriterSource(plan_of(entity)))
    return found


class _Source:
    """Lines of one function, and the names that they use."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.names: dict[str, Any] = {
            name: value for name, value in vars(primitives).items() if callable(value)
        }

    def add(self, depth: int, *lines: str) -> None:
        self.lines += [" " * depth + line for line in lines]

    def name(self, value: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = value
        return name


def _compile(source: _Source) -> Callable[..., Any]:
    exec(compile("\n".join(source.lines), "<generated message code>", "exec"), source.names)
    function: Callable[..., Any] = source.names["run"]
    return function


def _runs(fields: tuple[FieldPlan, ...]) -> Iterator[tuple[bool, list[FieldPlan]]]:
    """The fields in order, those of a fixed size that follow each other together."""
    for fixed, run in groupby(fields, lambda f: not f.is_array and f.kind in FIXED):
        yield fixed, list(run)


# -- reading ----------------------------------------------------------------------------------


class _ReaderSource(_Source):
    def __init__(self, plan: EntityPlan) -> None:
        super().__init__("def run(data, at, budget):")
        self._flexible = plan.flexible
        for fixed, run in _runs(plan.fields):
            if fixed:
                self._read_fixed(run)
            else:
                for field in run:
                    self._read(field, 1)
        if plan.flexible:
            self._read_tags(plan.tagged)
        self._construct(plan)

    def _construct(self, plan: EntityPlan) -> None:
        """Make the value. It is frozen, and its own constructor costs more than all of the above:
        so a twin that is not frozen is filled and then becomes it. CPython refuses to change the
        class of an object unless both classes have the same layout."""
        entity = plan.entity
        twin = type(f"Draft{entity.__name__}", (), {"__slots__": vars(entity)["__slots__"]})
        self.add(1, f"entity = {self.name(twin)}()")
        for field in (*plan.fields, *plan.tagged):
            self.add(1, f"entity.{field.name} = f_{field.name}")
        self.add(1, f"entity.__class__ = {self.name(entity)}", "return entity, at")

    def _read_fixed(self, run: list[FieldPlan]) -> None:
        codes = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
        targets = "".join(f"f_{field.name}, " for field in run)
        self.add(1, f"{targets} = {self.name(codes.unpack_from)}(data, at)", f"at += {codes.size}")
        for field in run:
            if field.kind in _TO_VALUE:
                self.add(1, f"f_{field.name} = {_to_value(field, f'f_{field.name}')}")

    def _read(self, field: FieldPlan, depth: int) -> None:
        target = f"f_{field.name}"
        if field.is_array:
            self._read_array(field, target, depth)
        elif field.entity is not None:
            self._read_entity(field, target, depth)
        elif field.kind in FIXED:
            self._read_one_fixed(field, target, depth)
        else:
            self._read_text(field, target, depth, nullable=field.nullable)

    def _read_entity(self, field: FieldPlan, target: str, depth: int) -> None:
        assert field.entity is not None
        read = self.name(reader_of(field.entity))
        if field.nullable:  # KIP-893: a byte in front, below 0 for null.
            self.add(depth, "at += 1", f"{target} = None", "if data[at - 1] < 0x80:")
            depth += 1
        self.add(depth, f"{target}, at = {read}(data, at, budget)")

    def _read_one_fixed(self, field: FieldPlan, target: str, depth: int) -> None:
        codes = struct.Struct(">" + FIXED[field.kind])
        self.add(
            depth,
            f"{target}, = {self.name(codes.unpack_from)}(data, at)",
            f"at += {codes.size}",
            f"{target} = {_to_value(field, target)}",
        )

    def _read_length(self, depth: int, fixed: struct.Struct) -> None:
        """Put a length, or -1 for null, into `n`."""
        if self._flexible:
            self.add(depth, "n = data[at]", "at += 1")
            self.add(depth, "if n > 127: n, at = varint(data, at, n)", "n -= 1")
        else:
            self.add(depth, f"n, = {self.name(fixed.unpack_from)}(data, at)", f"at += {fixed.size}")

    def _read_text(self, field: FieldPlan, target: str, depth: int, *, nullable: bool) -> None:
        self._read_length(depth, _INT16 if field.kind == "string" else _INT32)
        cut = "str(data[at:end], 'utf-8')" if field.kind == "string" else "bytes(data[at:end])"
        self.add(
            depth,
            f"if n < 0: {target} = {'None' if nullable else 'null()'}",
            "else:",
            " end = at + n",
            " if end > len(data): raise IndexError",
            f" {target} = {cut}",
            " at = end",
        )

    def _read_array(self, field: FieldPlan, target: str, depth: int) -> None:
        self._read_length(depth, _INT32)
        self.add(
            depth,
            f"if n < 0: {target} = {'None' if field.nullable else 'null()'}",
            "else:",
            " budget[0] -= n",
            " if n > len(data) - at: raise IndexError",
            " if budget[0] < 0: raise WireError('it has more elements than are taken')",
        )
        self.names["WireError"] = WireError
        if field.entity is None and field.kind in FIXED and field.kind not in _TO_VALUE:
            # Numbers as they are: all of them at once.
            size = struct.calcsize(">" + FIXED[field.kind])
            unpack = self.name(struct.unpack_from)
            self.add(depth, f" {target} = {unpack}('>%d{FIXED[field.kind]}' % n, data, at)")
            self.add(depth, f" at += {size} * n")
            return
        items = f"l_{field.name}"
        self.add(depth, f" {items} = []", " for _ in range(n):")
        if field.entity is not None:
            self.add(depth + 2, f"x, at = {self.name(reader_of(field.entity))}(data, at, budget)")
        elif field.kind in FIXED:
            self._read_one_fixed(field, "x", depth + 2)
        else:
            self._read_text(field, "x", depth + 2, nullable=False)
        self.add(depth, f"  {items}.append(x)", f" {target} = tuple({items})")

    def _read_tags(self, tagged: tuple[FieldPlan, ...]) -> None:
        for field in tagged:
            self.add(1, f"f_{field.name} = {self.name(field.default)}")
        if not tagged:
            self.add(1, "if data[at] == 0: at += 1", "else: at = skip_tags(data, at)")
            return
        self.add(1, "count = data[at]", "at += 1")
        self.add(1, "if count > 127: count, at = varint(data, at, count)", "for _ in range(count):")
        self.add(2, "tag, size, at = tag_head(data, at)", "tag_end = at + size")
        self.add(2, "if tag_end > len(data): raise IndexError")
        for field in tagged:
            self.add(2, f"if tag == {field.tag}:")
            self._read(field, 3)
            self.add(3, "if at != tag_end: raise WireError('a tag is not as long as it says')")
        self.names["WireError"] = WireError
        self.add(2, "at = tag_end")


def _to_value(field: FieldPlan, wire: str) -> str:
    value = _TO_VALUE.get(field.kind, "{}").format(wire)
    if field.kind == "datetime_i64" and field.nullable:
        return f"None if {wire} == -1 else {value}"
    return value


# -- writing ----------------------------------------------------------------------------------


class _WriterSource(_Source):
    def __init__(self, plan: EntityPlan) -> None:
        super().__init__("def run(out, e):")
        self._flexible = plan.flexible
        for fixed, run in _runs(plan.fields):
            if fixed:
                self._write_fixed(run)
            else:
                for field in run:
                    self._write(field, f"e.{field.name}", 1)
        if plan.flexible:
            self._write_tags(plan.tagged)
        self.add(1, "return")

    def _write_fixed(self, run: list[FieldPlan]) -> None:
        codes = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
        values = ", ".join(_to_wire(field, f"e.{field.name}") for field in run)
        self.add(1, f"out += {self.name(codes.pack)}({values})")

    def _write(self, field: FieldPlan, value: str, depth: int) -> None:
        self.add(depth, f"v = {value}")
        if field.is_array:
            self._write_array(field, depth)
        elif field.entity is not None:
            self._write_entity(field, depth)
        elif field.kind in FIXED:
            pack = self.name(struct.Struct(">" + FIXED[field.kind]).pack)
            self.add(depth, f"out += {pack}({_to_wire(field, 'v')})")
        else:
            self._write_text(field.kind, depth, nullable=field.nullable)

    def _write_entity(self, field: FieldPlan, depth: int) -> None:
        assert field.entity is not None
        write = self.name(writer_of(field.entity))
        if field.nullable:
            self.add(depth, "if v is None: out.append(255)", "else:", " out.append(1)")
            depth += 1
        self.add(depth, f"{write}(out, v)")

    def _write_length(self, depth: int, fixed: struct.Struct) -> None:
        """Write the number in `n`."""
        if self._flexible:
            self.add(depth, "if n < 127: out.append(n + 1)", "else: out += varint_bytes(n + 1)")
        else:
            self.add(depth, f"out += {self.name(fixed.pack)}(n)")

    def _write_null_or(self, depth: int, fixed: struct.Struct, *, nullable: bool) -> None:
        if nullable:
            none = "out.append(0)" if self._flexible else f"out += {self.name(fixed.pack(-1))}"
            self.add(depth, f"if v is None: {none}", "else:")
        else:
            self.add(depth, "if True:")

    def _write_text(self, kind: str, depth: int, *, nullable: bool) -> None:
        fixed = _INT16 if kind == "string" else _INT32
        self._write_null_or(depth, fixed, nullable=nullable)
        if kind == "string":
            self.add(depth + 1, "v = v.encode()")
        self.add(depth + 1, "n = len(v)")
        self._write_length(depth + 1, fixed)
        self.add(depth + 1, "out += v")

    def _write_array(self, field: FieldPlan, depth: int) -> None:
        self._write_null_or(depth, _INT32, nullable=field.nullable)
        self.add(depth + 1, "n = len(v)")
        self._write_length(depth + 1, _INT32)
        if field.entity is not None:
            write = self.name(writer_of(field.entity))
            self.add(depth + 1, f"for x in v: {write}(out, x)")
        elif field.kind in FIXED and field.kind not in _TO_WIRE:
            pack = self.name(struct.pack)
            self.add(depth + 1, f"out += {pack}('>%d{FIXED[field.kind]}' % n, *v)")
        else:
            self.add(depth + 1, "for v in v:")
            if field.kind in FIXED:
                pack = self.name(struct.Struct(">" + FIXED[field.kind]).pack)
                self.add(depth + 2, f"out += {pack}({_to_wire(field, 'v')})")
            else:
                self._write_text(field.kind, depth + 2, nullable=False)

    def _write_tags(self, tagged: tuple[FieldPlan, ...]) -> None:
        if not tagged:
            self.add(1, "out.append(0)")
            return
        self.add(1, "whole, tags = out, []")
        for field in tagged:
            default = self.name(field.default)
            self.add(1, f"if e.{field.name} != {default}:", " out = bytearray()")
            self._write(field, f"e.{field.name}", 2)
            head = self.name(primitives.varint_bytes(field.tag or 0))
            self.add(2, f"tags.append({head} + varint_bytes(len(out)) + out)")
        self.add(1, "whole += varint_bytes(len(tags))", "for tag in tags: whole += tag")


def _to_wire(field: FieldPlan, value: str) -> str:
    wire = _TO_WIRE.get(field.kind, "{}").format(value)
    if field.kind == "datetime_i64" and field.nullable:
        return f"-1 if {value} is None else {wire}"
    return wire


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
