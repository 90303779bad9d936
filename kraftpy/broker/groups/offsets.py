"""The offsets that the groups of one partition of __consumer_offsets have committed. Pure.

What is fetched is what is committed: an offset is here from the moment on that its record is, and
`replay` is what puts it here, on the coordinator that took it and on the one that loads it later.
Records on their way are only counted, so that nobody decides to drop what is about to be replaced.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kraftpy.broker.groups.records import LogRecord, OffsetKey, OffsetRecord, offset_key

TopicPartition = tuple[str, int]
_NONE: Final[Mapping[TopicPartition, OffsetRecord]] = {}


class CommittedOffsets:
    """By group, topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, OffsetRecord]] = {}
        self._in_flight: dict[OffsetKey, int] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def of(self, group: str) -> Mapping[TopicPartition, OffsetRecord]:
        return self._groups.get(group, _NONE)

    def replay(self, key: OffsetKey, record: OffsetRecord | None) -> None:
        group, topic, partition = key
        if record is not None:
            self._groups.setdefault(group, {})[topic, partition] = record
            return
        offsets = self._groups.get(group)
        if offsets is not None:
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._groups[group]

    # -- on their way -------------------------------------------------------------------------

    def sent(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            self._in_flight[key] = self._in_flight.get(key, 0) + 1

    def settled(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            count = self._in_flight[key] - 1
            if count:
                self._in_flight[key] = count
            else:
                del self._in_flight[key]

    def is_in_flight(self, key: OffsetKey) -> bool:
        return key in self._in_flight

    def keys(self, group: str) -> list[OffsetKey]:
        """All of a group that are here or on their way, in order."""
        here = {OffsetKey(group, topic, partition) for topic, partition in self.of(group)}
        return sorted(here | {key for key in self._in_flight if key.group == group})


def tombstones(keys: Iterable[OffsetKey]) -> list[LogRecord]:
    return [LogRecord(offset_key(*key), None) for key in keys]


def is_expired(record: OffsetRecord, since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    """Whether an offset has been kept for long enough, since it was committed or since then."""
    if record.expire_ms >= 0:
        return now_ms >= record.expire_ms
    start_ms = record.commit_ms if since_ms is None else max(since_ms, record.commit_ms)
    return now_ms - start_ms >= retention_ms
