"""One metadata record <-> the bytes of one record value: msgpack `[type id, version, field, ...]`.

The fields are those of that version, in the order records.py declares them. What always holds:
decode(encode(record)) == record; bytes that are not exactly one known record of a known version,
field by field, raise RecordDecodeError with the reason, and nothing else escapes; nothing is
guessed, defaulted or dropped. A bool is not an integer here, nor is a float, although Python
would have them equal; a float must be finite, since an image holding NaN would not equal itself.

A decoder and an encoder per (type, version) are generated from the dataclasses, as a million
records are decoded at every start; each when it is first needed, as most logs have few types. The
first three bytes of a value say how many elements the array has, its type id and its version, so
they alone find the decoder; whatever they do not find, or the decoder refuses, is looked at again,
carefully. Replica and directory lists repeat
endlessly, so decoded ones are shared through a bounded table: a million partitions stay small.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log import fieldcheck
from kraftpy.metadata_log.fastclass import compile_function, draft_of
from kraftpy.metadata_log.fieldcheck import FieldError, shown, wire_types
from kraftpy.metadata_log.records import RECORD_TYPES, MetadataRecord

_Decoder = Callable[[tuple[Any, ...]], MetadataRecord]
_Encoder = Callable[[MetadataRecord], bytes]

_KNOWN_TYPES: Final = frozenset(RECORD_TYPES.values())
_PREFIX_BYTES: Final = 3
_FIXARRAY: Final = 0x90  # msgpack: the first byte of an array of fewer than 16 elements.
# Everything msgpack raises for bad bytes; UnicodeDecodeError and ExtraData are ValueErrors.
_UNPACK_ERRORS: Final = (ValueError, TypeError, OverflowError, msgpack.UnpackException)
# And what the table of decoders and the decoders themselves say to what they do not know.
_REFUSALS: Final = (*_UNPACK_ERRORS, FieldError, KeyError, IndexError)


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The record's value bytes; ValueError if the version cannot carry what the record says."""
    cls = type(record)
    encoder = _encoders.get((cls, version)) or _new_encoder(cls, version)
    try:
        return encoder(record)
    except FieldError as refusal:
        raise ValueError(f"cannot encode {type(record).__name__}: {refusal}") from None


def decode_record(value: bytes | memoryview, offset: int = -1) -> MetadataRecord:
    """The record in `value`; `offset` is only for the error message."""
    return decode_records((value,), offset)[0]


def encode_records(records: Iterable[MetadataRecord]) -> list[bytes]:
    """The value bytes of each record, at its newest version."""
    return [encode_record(record) for record in records]


def decode_records(values: Iterable[bytes | memoryview], base_offset: int) -> list[MetadataRecord]:
    """The records of one batch, whose first has `base_offset`; RecordDecodeError, or all."""
    decoders, unpack = _decoders, msgpack.unpackb
    records: list[MetadataRecord] = []
    for value in values:
        try:
            records.append(decoders[value[:_PREFIX_BYTES]](unpack(value, use_list=False)))
        except _REFUSALS:
            records.append(_decode_carefully(value, base_offset + len(records)))
    return records


def _decode_carefully(value: bytes | memoryview, offset: int) -> MetadataRecord:
    """Say what is wrong, or decode what is right: a header that is longer than it need be, or the
    first record of its type and version."""
    try:
        array = msgpack.unpackb(value, use_list=False)
    except _UNPACK_ERRORS as error:
        raise RecordDecodeError(_unpack_reason(error), offset) from None
    try:
        decoder = _decoder_of(*_checked_type(array))
    except FieldError as refusal:
        raise RecordDecodeError(str(refusal), offset) from None
    try:
        return decoder(array)
    except FieldError as refusal:
        reason = f"{RECORD_TYPES[array[0]].__name__} version {array[1]}: {refusal}"
        raise RecordDecodeError(reason, offset) from None


def _unpack_reason(error: Exception) -> str:
    if isinstance(error, msgpack.ExtraData):
        return f"{len(error.extra)} bytes after the end of the record"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not valid UTF-8"
    # A length beyond the bytes at hand is refused at once, before anything is allocated for it.
    if "incomplete" in str(error) or "exceeds max_" in str(error):
        return "the bytes end before the record does"
    return f"the bytes are not msgpack ({str(error) or type(error).__name__})"


def _checked_type(array: Any) -> tuple[type[MetadataRecord], int]:
    """The type and version of what was unpacked; FieldError if it is none that is known."""
    if type(array) is not tuple:
        raise FieldError(f"a record is an array, not {type(array).__name__}")
    if len(array) < 2:
        raise FieldError("a record begins with a type id and a version")
    key, version = array[:2]
    if type(key) is not int or type(version) is not int:
        raise FieldError(f"type id {shown(key)} and version {shown(version)} must be integers")
    cls = RECORD_TYPES.get(key)
    if cls is None:
        raise FieldError(f"unknown record type {key}")
    if version not in _versions(cls):
        known = f"{cls.MIN_VERSION} to {cls.MAX_VERSION}"
        raise FieldError(f"{cls.__name__} has no version {version}, only {known}")
    expected = len(_fields_of(cls, version))
    if len(array) - 2 != expected:
        found = f"{len(array) - 2} fields where there must be {expected}"
        raise FieldError(f"{cls.__name__} version {version}: {found}")
    return cls, version


# --- generating the functions ----------------------------------------------------------------


def _decoder(cls: type[MetadataRecord], version: int) -> _Decoder:
    """decode(t): check each field, fill a draft, freeze it. The prefix has told the header."""
    types = wire_types(cls)
    present = _fields_of(cls, version)
    names = _namespace(cls)
    source = ["def decode(t):", f" {', '.join(['_key', '_version', *present])} = t"]
    for name in present:
        source += types[name].decode_lines(name)
    source.append(" _r = _Draft()")
    for f in fields(cls):
        if f.name not in present:
            names[f"_default_{f.name}"] = f.default
        source.append(f" _r.{f.name} = {f.name if f.name in present else f'_default_{f.name}'}")
    source += [" _r.__class__ = _cls", " return _r"]
    return compile_function("\n".join(source), names)


def _encoder(cls: type[MetadataRecord], version: int) -> _Encoder:
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
    source.append(f" return _pack(({cls.API_KEY}, {version}, {''.join(packed)}))")
    return compile_function("\n".join(source), names)


def _namespace(cls: type) -> dict[str, Any]:
    return {
        "_cls": cls,
        "_Draft": draft_of(cls),
        "_pack": msgpack.packb,
        "_too_new": fieldcheck.too_new,
        **fieldcheck.NAMES,
    }


def _versions(cls: type[MetadataRecord]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def _fields_of(cls: type[MetadataRecord], version: int) -> list[str]:
    """The names of the fields that this version has, in the order of the wire."""
    return [f.name for f in fields(cls) if f.metadata.get("since", 0) <= version]


def _prefix(cls: type[MetadataRecord], version: int) -> bytes:
    """How every value of this type and version begins: array length, type id, version."""
    elements = len(_fields_of(cls, version)) + 2
    assert elements < 16, "the length of a longer array takes more than one byte"
    return bytes((_FIXARRAY | elements, cls.API_KEY, version))


# Filled when needed. Two threads may both generate a function: either is as good.
_decoders: Final[dict[bytes | memoryview, _Decoder]] = {}
_encoders: Final[dict[tuple[type, int | None], _Encoder]] = {}


def _decoder_of(cls: type[MetadataRecord], version: int) -> _Decoder:
    prefix = _prefix(cls, version)
    decoder = _decoders.get(prefix)
    if decoder is None:
        decoder = _decoders[prefix] = _decoder(cls, version)
    return decoder


def _new_encoder(cls: type[MetadataRecord], version: int | None) -> _Encoder:
    """The encoder of a version, or of the newest; ValueError if there is none."""
    if cls not in _KNOWN_TYPES:
        raise ValueError(f"{cls.__name__} is not a metadata record")
    exact = cls.MAX_VERSION if version is None else version
    if exact not in _versions(cls):
        raise ValueError(f"{cls.__name__} has no version {exact}")
    encoder = _encoders[cls, version] = _encoder(cls, exact)
    return encoder
