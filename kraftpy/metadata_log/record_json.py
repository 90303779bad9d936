"""A record as plain dicts, lists, strings and numbers, for tools. Pure.

UUIDs are Kafka's text form. What a record's repr hides (keys of credentials) is left out: what a
tool prints ends up in tickets.
"""

from dataclasses import fields
from typing import Any, Final

from kraftpy.metadata_log.control_records import ControlRecord
from kraftpy.metadata_log.records import MetadataRecord
from kraftpy.types import uuid_text

_UUID_BYTES: Final = 16


def record_to_json(record: MetadataRecord | ControlRecord) -> dict[str, Any]:
    """The record's fields by name."""
    return {f.name: _plain(getattr(record, f.name)) for f in fields(record) if f.repr}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == _UUID_BYTES else value.hex()
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    return value
