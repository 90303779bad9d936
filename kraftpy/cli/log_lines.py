"""What `kraftpy log dump` prints: which records, and each as one line of text or JSON.

Names of topics are shown beside their ids. They are known from the newest snapshot before the
first offset and from the records since, so reading begins there; printing begins where asked.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kraftpy.errors import ConfigError, RecordDecodeError
from kraftpy.metadata_log.control_records import CONTROL_TYPES
from kraftpy.metadata_log.loading import load_newest_snapshot
from kraftpy.metadata_log.reader import MetadataEntry, entries, is_metadata
from kraftpy.metadata_log.record_json import record_to_json
from kraftpy.metadata_log.records import RECORD_TYPES, TOPIC_RESOURCE, ConfigRecord, TopicRecord
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.reader import FoundBatch, LogReader
from kraftpy.storage.record_batch import Record, iter_records

_TYPE_NAMES: Final = {
    cls.__name__.lower(): cls.__name__ for cls in (*RECORD_TYPES.values(), *CONTROL_TYPES)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are wanted."""

    type_name: str | None
    topic: str | None
    from_offset: int
    to_offset: int | None

    @staticmethod
    def of(
        type_name: str | None, topic: str | None, from_offset: int, to_offset: int | None
    ) -> "Filter":
        """ConfigError if the type is none that exists, or the range is upside down."""
        if to_offset is not None and to_offset < from_offset:
            raise ConfigError(f"--to {to_offset} is before --from {from_offset}")
        return Filter(
            type_name=_find_type(type_name) if type_name is not None else None,
            topic=topic,
            from_offset=from_offset,
            to_offset=to_offset,
        )

    def takes_offset(self, offset: int) -> bool:
        return self.from_offset <= offset and (self.to_offset is None or offset < self.to_offset)


def _find_type(text: str) -> str:
    lower = text.lower()
    for key in (lower, lower + "record"):
        if key in _TYPE_NAMES:
            return _TYPE_NAMES[key]
    close = difflib.get_close_matches(lower, _TYPE_NAMES, n=1, cutoff=0)
    raise ConfigError(
        f"--type: there is no record type {text}; did you mean {_TYPE_NAMES[close[0]]}?"
    )


class LinePrinter:
    """Turns batches into the lines that a filter wants."""

    def __init__(self, files: FileLayer, directory: str, wanted: Filter, *, as_json: bool) -> None:
        self._wanted = wanted
        self._as_json = as_json
        self.undecodable = 0
        self.is_done = False
        self._names: dict[bytes, str] = {}
        self._metadata: bool | None = None
        start_offset = LogReader(files, directory).start_offset
        limit = max(wanted.from_offset, start_offset)
        image = load_newest_snapshot(files, directory, limit, 0)
        self._names.update((topic.topic_id, topic.name) for topic in image.topics.values())
        # A log that begins behind every snapshot is still worth reading, if not all its names.
        self.first_offset = max(image.end_offset, start_offset)

    def lines(self, found: FoundBatch) -> Iterator[str]:
        """The lines of a batch."""
        to_offset = self._wanted.to_offset
        if to_offset is not None and found.header.base_offset >= to_offset:
            self.is_done = True
            return
        if self._metadata is None and not found.header.is_control:
            self._metadata = is_metadata(found)
        if self._metadata is False:
            yield from self._data_lines(found)
            return
        for entry in entries(found):
            if isinstance(entry.record, TopicRecord):
                self._names[entry.record.topic_id] = entry.record.name
            if self._wanted.takes_offset(entry.offset) and self._takes(entry):
                yield self._line(entry)

    def _takes(self, entry: MetadataEntry) -> bool:
        wanted, record = self._wanted, entry.record
        if wanted.type_name is not None and type(record).__name__ != wanted.type_name:
            return False
        return wanted.topic is None or self._topic_of(record) == wanted.topic

    def _topic_of(self, record: Any) -> str | None:
        if isinstance(record, ConfigRecord):
            return record.resource_name if record.resource_type == TOPIC_RESOURCE else None
        if isinstance(record, TopicRecord):
            return record.name
        topic_id = getattr(record, "topic_id", None)
        name: str | None = getattr(record, "topic_name", None)
        return name if topic_id is None else self._names.get(topic_id)

    def _line(self, entry: MetadataEntry) -> str:
        record = entry.record
        if isinstance(record, RecordDecodeError):
            self.undecodable += 1
            kind, fields = "(undecodable)", {"reason": record.reason}
        else:
            kind, fields = type(record).__name__, record_to_json(record)
        topic = self._topic_of(record)
        if topic is not None and "topic_id" in fields and "name" not in fields:
            fields = {"topic": topic, **fields}
        if self._as_json:
            place = {"offset": entry.offset, "epoch": entry.epoch, "timestamp": entry.timestamp_ms}
            return json.dumps({**place, "type": kind, "fields": fields})
        return f"{_place(entry.offset, entry.epoch, entry.timestamp_ms)} {kind} {_text(fields)}"

    def _data_lines(self, found: FoundBatch) -> Iterator[str]:
        if self._wanted.type_name is not None or self._wanted.topic is not None:
            raise ConfigError("--type and --topic are for metadata logs, and this is a log of data")
        epoch = found.header.leader_epoch
        for record in iter_records(found.data):
            if not self._wanted.takes_offset(record.offset):
                continue
            fields = _data_fields(record)
            if self._as_json:
                place = {"offset": record.offset, "epoch": epoch, "timestamp": record.timestamp}
                yield json.dumps({**place, **fields})
            else:
                yield f"{_place(record.offset, epoch, record.timestamp)} {_text(fields)}"


def _data_fields(record: Record) -> dict[str, Any]:
    def shown(value: bytes | None) -> str | None:
        return None if value is None else value.decode(errors="backslashreplace")

    fields: dict[str, Any] = {"key": shown(record.key), "value": shown(record.value)}
    if record.headers:
        fields["headers"] = [[name, shown(value)] for name, value in record.headers]
    return fields


def _place(offset: int, epoch: int, timestamp_ms: int) -> str:
    return f"{offset:>10} e{epoch} {_time(timestamp_ms)}"


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # A producer may send any number.
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(fields: dict[str, Any]) -> str:
    """Fields as words; what a change leaves as it is (None) is left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if value is not None)


def _word(value: Any) -> str:
    if isinstance(value, str):
        plain = value and value.isprintable() and not set(value) & set(' ="[]')
        return value if plain else json.dumps(value)
    return json.dumps(value, separators=(",", ":"))
