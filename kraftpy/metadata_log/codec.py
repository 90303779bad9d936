"""One metadata record <-> the bytes of one record value: msgpack `[type id, version, field, ...]`.

The fields are those of that version, in the order records.py declares them. What always holds:
decode(encode(record)) == record; bytes that are not exactly one known record of a known version,
field by field, raise RecordDecodeError with the reason, and nothing else escapes; nothing is
guessed, defaulted or dropped. A bool is not an integer here, nor is a float, although Python
would have them equal; a float must be finite, since an image holding NaN would not equal itself.

A decoder and an encoder per (type, version) are generated once, at import, from the dataclasses:
a million records are decoded at every start. Replica and directory lists repeat endlessly, so
decoded ones are shared through a bounded table, which is what keeps a million partitions small.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import fieldcheck
from kraftpy.metadata_log.fastclass import compile_function, draft_of
from kraftpy.metadata_log.fieldcheck import FieldError, shown, wire_types
from kraftpy.metadata_log.records import RECORD_TYPES, MetadataRecord

_Decoder = Callable[[tuple[Any, ...]], MetadataRecord]
_Encoder = Callable[[MetadataRecord], bytes]

_unpack: Final = partial(msgpack.unpackb, use_list=False)
# Everything msgpack raises for bad bytes; UnicodeDecodeError and ExtraData are ValueErrors.
_UNPACK_ERRORS: Final = (ValueError, TypeError, OverflowError, msgpack.UnpackException)


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The record's value bytes; ValueError if the version cannot carry what the record says."""
    versions = _ENCODERS.get(type(record))
    if versions is None:
        raise ValueError(f"{type(record).__name__} is not a metadata record")
    encoder = versions.get(record.MAX_VERSION if version is None else version)
    if encoder is None:
        raise ValueError(f"{type(record).__name__} has no version {version}")
    try:
        return encoder(record)
    except FieldError as refusal:
        raise ValueError(f"cannot encode {type(record).__name__}: {refusal}") from None


def decode_record(value: bytes | memoryview, offset: int = -1) -> MetadataRecord:
    """The record in `value`; `offset` is only for the error message."""
    try:
        array = _unpack(value)
    except _UNPACK_ERRORS as error:
        raise RecordDecodeError(_unpack_reason(error), offset) from None
    if type(array) is not tuple:
        raise RecordDecodeError(f"a record is an array, not {type(array).__name__}", offset)
    try:
        decoder = _DECODERS[array[0]][array[1]]
    except (KeyError, IndexError, TypeError):
        raise RecordDecodeError(_header_reason(array), offset) from None
    try:
        return decoder(array)
    except FieldError as refusal:
        reason = f"{RECORD_TYPES[array[0]].__name__} version {array[1]}: {refusal}"
        raise RecordDecodeError(reason, offset) from None


def encode_records(records: Iterable[MetadataRecord]) -> list[bytes]:
    """The value bytes of each record, at its newest version."""
    return [encode_record(record) for record in records]


def decode_records(
    values: Iterable[bytes | memoryview], base_offset: int
) -> Iterator[MetadataRecord]:
    """The records of one batch, whose first has `base_offset`."""
    return map(decode_record, values, range(base_offset, 1 << 63))


def _unpack_reason(error: Exception) -> str:
    if isinstance(error, msgpack.ExtraData):
        return f"{len(error.extra)} bytes after the end of the record"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not valid UTF-8"
    # A length beyond the bytes at hand is refused at once, before anything is allocated for it.
    if "incomplete" in str(error) or "exceeds max_" in str(error):
        return "the bytes end before the record does"
    return f"the bytes are not msgpack ({str(error) or type(error).__name__})"


def _header_reason(array: tuple[Any, ...]) -> str:
    if len(array) < 2:
        return "a record begins with a type id and a version"
    type_id, version = array[:2]
    if type(type_id) is not int or type(version) is not int:
        return f"type id {shown(type_id)} and version {shown(version)} must be integers"
    record_type = RECORD_TYPES.get(type_id)
    if record_type is None:
        return f"unknown record type {type_id}"
    return (
        f"{record_type.__name__} has no version {version}, only "
        f"{record_type.MIN_VERSION} to {record_type.MAX_VERSION}"
    )


# --- generating the functions ----------------------------------------------------------------


def _decoder(cls: type, version: int) -> _Decoder:
    """decode(t): check the arity and each field, fill a draft, freeze it."""
    types = wire_types(cls)
    present = [f for f in fields(cls) if f.metadata.get("since", 0) <= version]
    names = _namespace(cls)
    unpacked = "".join(f", {f.name}" for f in present)
    source = [
        "def decode(t):",
        f" if len(t) != {len(present) + 2}: _wrong_arity(len(t) - 2, {len(present)})",
        f" _key, _version{unpacked} = t",
        " if type(_key) is not int or type(_version) is not int: _wrong_header(_key, _version)",
    ]
    for f in present:
        source += types[f.name].decode_lines(f.name)
    source.append(" _r = _Draft()")
    for f in fields(cls):
        if f not in present:
            names[f"_default_{f.name}"] = f.default
        source.append(f" _r.{f.name} = {f.name if f in present else f'_default_{f.name}'}")
    source += [" _r.__class__ = _cls", " return _r"]
    return compile_function("\n".join(source), names)


def _encoder(cls: type, version: int) -> _Encoder:
    """encode(r): check each field, as a decoder will, and pack."""
    types = wire_types(cls)
    names = _namespace(cls)
    source, packed = ["def encode(r):"], []
    for f in fields(cls):
        source.append(f" {f.name} = r.{f.name}")
        if f.metadata.get("since", 0) > version:
            assert f.default is not MISSING
            names[f"_default_{f.name}"] = f.default
            source.append(f" if {f.name} != _default_{f.name}: _too_new('{f.name}', {version})")
            continue
        source += types[f.name].encode_lines(f.name)
        packed.append(f"{f.name}, ")
    key = cls.API_KEY  # type: ignore[attr-defined]
    source.append(f" return _pack(({key}, {version}, {''.join(packed)}))")
    return compile_function("\n".join(source), names)


def _namespace(cls: type) -> dict[str, Any]:
    return {
        "_cls": cls,
        "_Draft": draft_of(cls),
        "_pack": msgpack.packb,
        "_too_new": fieldcheck.too_new,
        "_wrong_arity": fieldcheck.wrong_arity,
        "_wrong_header": fieldcheck.wrong_header,
        **fieldcheck.NAMES,
    }


def _versions(cls: type[MetadataRecord]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


_DECODERS: Final[dict[int, dict[int, _Decoder]]] = {
    key: {version: _decoder(cls, version) for version in _versions(cls)}
    for key, cls in RECORD_TYPES.items()
}
_ENCODERS: Final[dict[type, dict[int, _Encoder]]] = {
    cls: {version: _encoder(cls, version) for version in _versions(cls)}
    for cls in RECORD_TYPES.values()
}
