"""The metadata log of a node, read beside it: what was said when, and what was true then.

Takes no lock and writes nothing (kraftpy/storage/reader.py). Everything here may read files and
replay many records: callers use a thread. `Tail` belongs to one caller at a time.
"""

from collections import OrderedDict
from typing import Any, Final

from kraftpy.admin.cluster_view import all_topics, broker_rows, health
from kraftpy.admin.meaning import meaning
from kraftpy.errors import RecordDecodeError
from kraftpy.metadata_log.control_records import CONTROL_TYPES
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.reader import MetadataEntry, MetadataReader, entries
from kraftpy.metadata_log.record_json import record_to_json
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.reader import LogReader

_KEPT_IMAGES: Final = 16
_SHOWN_AT_FIRST: Final = 200
# More than this at once is not explained one by one: nobody could read it.
_EXPLAINED_MAX: Final = 2000
_CONTROL: Final = tuple(CONTROL_TYPES)


class Tail:
    """The records as they come, each with what it meant."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._reader: LogReader | None = None
        self._image: ClusterImage | None = None

    def read(self, end_offset: int) -> list[dict[str, Any]]:
        """What was not given before, up to `end_offset`; at first, and after a flood, its end."""
        known = None if self._image is None else self._image.end_offset
        if known is None or end_offset - known > _EXPLAINED_MAX:
            self._begin(max(0, end_offset - _SHOWN_AT_FIRST))
        assert self._image is not None
        assert self._reader is not None
        found: list[dict[str, Any]] = []
        if self._image.end_offset >= end_offset:
            return found
        for batch in self._reader.batches():
            if batch.header.base_offset >= end_offset:
                # Not committed yet, as far as the node knows: it is read again next time.
                self._reader = LogReader(self._files, self._directory, batch.header.base_offset)
                break
            found += [
                self._explain(entry)
                for entry in entries(batch)
                if entry.offset >= self._image.end_offset
            ]
        return found

    def _begin(self, offset: int) -> None:
        start = LogReader(self._files, self._directory).start_offset
        offset = max(offset, start)
        self._image = MetadataReader(self._files, self._directory).image_at(offset)
        self._reader = LogReader(self._files, self._directory, offset)

    def _explain(self, entry: MetadataEntry) -> dict[str, Any]:
        image = self._image
        assert image is not None
        record = entry.record
        shown = {"offset": entry.offset, "epoch": entry.epoch, "timestamp_ms": entry.timestamp_ms}
        if isinstance(record, RecordDecodeError):
            return {**shown, "type": "(undecodable)", "text": record.reason, "fields": {}}
        before = image.transaction.pending if image.transaction else image
        said = {"type": type(record).__name__, "text": meaning(record, before)}
        delta = ClusterDelta(image)
        if not isinstance(record, _CONTROL):
            delta.replay(record, entry.offset)  # type: ignore[arg-type]
        self._image = delta.image(entry.offset + 1, entry.epoch, entry.timestamp_ms)
        return {**shown, **said, "fields": record_to_json(record)}


class Past:
    """The cluster as it was at an offset; the last few answers are kept."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._kept: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def first_offset(self) -> int:
        return LogReader(self._files, self._directory).start_offset

    def at(self, offset: int) -> dict[str, Any]:
        """After every record before `offset`."""
        found = self._kept.get(offset)
        if found is None:
            image = MetadataReader(self._files, self._directory).image_at(offset)
            found = self._kept[offset] = shown(image)
            while len(self._kept) > _KEPT_IMAGES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(offset)
        return found


def shown(image: ClusterImage) -> dict[str, Any]:
    """An image as the dashboard draws it."""
    counts = health(image)
    return {
        "end_offset": image.end_offset,
        "epoch": image.epoch,
        "timestamp_ms": image.timestamp_ms,
        "health": {name: getattr(counts, name) for name in counts.__dataclass_fields__},
        "brokers": broker_rows(image),
        "topics": all_topics(image)["changed"],
    }
