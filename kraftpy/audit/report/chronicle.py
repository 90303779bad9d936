"""What happened in a cluster, as its log tells it: for charts and timelines, bounded in size.

One pass over one log. Partitions that are asked for are followed event by event; of all others only
sums over time are kept: ISR changes, leaders by broker, partitions without a leader. Time is cut
into buckets as it goes: when there are too many, two become one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kraftpy.audit.recorded.reading import Entry, LogEntries
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.control_records import LeaderChange
from kraftpy.metadata_log.image import EMPTY, Partition
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import NO_LEADER, BrokerId, TopicId

BUCKETS_MAX: Final = 240
EVENTS_MAX: Final = 400  # Of one partition, and of one broker.
PARTITIONS_MAX: Final = 24
CHRONICLE_BYTES_MAX: Final = 256 * 1024 * 1024

Name: TypeAlias = tuple[str, int]  # A topic's name and a partition.


class PartitionEvent(NamedTuple):
    """A partition after a record; None: it was deleted."""

    offset: int
    epoch: int
    timestamp_ms: int
    state: Partition | None


class BrokerEvent(NamedTuple):
    """A broker from here on: active, fenced, shutting down, or gone."""

    offset: int
    timestamp_ms: int
    state: str


class ControllerEvent(NamedTuple):
    offset: int
    timestamp_ms: int
    epoch: int
    leader: int


@dataclass(slots=True)
class Bucket:
    """A stretch of time; the last four are as it ends."""

    start_ms: int
    records: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    elections: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    leaderless: int = 0
    partitions: int = 0
    under_replicated: int = 0

    def merge(self, later: "Bucket") -> None:
        self.records += later.records
        self.isr_shrinks += later.isr_shrinks
        self.isr_expands += later.isr_expands
        self.elections += later.elections
        self.leaders, self.leaderless = later.leaders, later.leaderless
        self.partitions, self.under_replicated = later.partitions, later.under_replicated


@dataclass(slots=True)
class Chronicle:
    """`wanted` partitions by name."""

    wanted: Collection[Name] = ()
    partitions: dict[Name, list[PartitionEvent]] = field(default_factory=dict)
    brokers: dict[int, list[BrokerEvent]] = field(default_factory=lambda: defaultdict(list))
    controllers: list[ControllerEvent] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    bucket_ms: int = 1000
    first_ms: int = -1
    last_ms: int = -1
    problem: str | None = None
    _view: View = field(default_factory=lambda: View(EMPTY, KAFKA_DEFAULTS))
    _leaders: Counter[int] = field(default_factory=Counter)
    _short: set[tuple[TopicId, int]] = field(default_factory=set)
    _count: int = 0

    def take(self, entry: Entry) -> None:
        record = entry.record
        if isinstance(record, LeaderChange):
            event = ControllerEvent(entry.offset, entry.timestamp_ms, entry.epoch, record.leader_id)
            self.controllers.append(event)
            return
        if not isinstance(record, r.Record):
            return
        bucket = self._bucket(entry.timestamp_ms)
        bucket.records += 1
        match record:
            case r.PartitionRecord() | r.PartitionChangeRecord():
                key = record.topic_id, record.partition_id
                old = self._view.partition(key)
                self._view.replay(record)
                self._moved(entry, bucket, key, old, self._view.partition(key))
            case r.RemoveTopicRecord():
                self._removed(entry, bucket, record.topic_id)
            case r.ClearElrRecord():
                for key, old, new in self._view.clear_elr(record):
                    self._moved(entry, bucket, key, old, new)
            case _:
                self._view.replay(record)
                self._broker(entry)

    def finish(self) -> None:
        """The last bucket ends as the log does."""
        if self.buckets:
            self._close(self.buckets[-1])

    # -- partitions -------------------------------------------------------------------------------

    def _removed(self, entry: Entry, bucket: Bucket, topic_id: TopicId) -> None:
        name = self._view.topic_name(topic_id)
        olds = {key: self._view.partition(key) for key in self._view.keys_of(topic_id)}
        self._view.replay(entry.record)  # type: ignore[arg-type]
        for key, old in olds.items():
            self._moved(entry, bucket, key, old, None, name)

    def _moved(
        self,
        entry: Entry,
        bucket: Bucket,
        key: tuple[TopicId, int],
        old: Partition | None,
        new: Partition | None,
        topic: str | None = None,
    ) -> None:
        if old is not None:
            self._leaders[old.leader] -= 1
        self._count += (new is not None) - (old is not None)
        if new is not None:
            self._leaders[new.leader] += 1
        if old is not None and new is not None and not entry.is_past:
            bucket.isr_shrinks += bool(set(old.isr) - set(new.isr))
            bucket.isr_expands += bool(set(new.isr) - set(old.isr))
            bucket.elections += old.leader != new.leader
        is_short = new is not None and len(new.isr) < len(new.replicas)
        (self._short.add if is_short else self._short.discard)(key)
        name = topic or self._view.topic_name(key[0]), key[1]
        if name in self.wanted:
            events = self.partitions.setdefault(name, [])
            if len(events) < EVENTS_MAX:
                events.append(PartitionEvent(entry.offset, entry.epoch, entry.timestamp_ms, new))

    # -- brokers ----------------------------------------------------------------------------------

    def _broker(self, entry: Entry) -> None:
        record = entry.record
        match record:
            case r.RegisterBrokerRecord() | r.UnregisterBrokerRecord():
                broker_id = record.broker_id
            case r.BrokerRegistrationChangeRecord():
                broker_id = record.broker_id
            case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
                broker_id = record.id
            case _:
                return
        events = self.brokers[broker_id]
        state = self._broker_state(broker_id)
        if len(events) < EVENTS_MAX and (not events or events[-1].state != state):
            events.append(BrokerEvent(entry.offset, entry.timestamp_ms, state))

    def _broker_state(self, broker_id: BrokerId) -> str:
        broker = self._view.brokers.get(broker_id)
        if broker is None:
            return "gone"
        if broker.fenced:
            return "fenced"
        return "shutting down" if broker.in_controlled_shutdown else "active"

    # -- time -------------------------------------------------------------------------------------

    def _bucket(self, timestamp_ms: int) -> Bucket:
        at = max(
            timestamp_ms, self.last_ms
        )  # Clocks of controllers differ; the log's order counts.
        if self.first_ms < 0:
            self.first_ms = at
        self.last_ms = at
        start = at - (at - self.first_ms) % self.bucket_ms
        if not self.buckets or start > self.buckets[-1].start_ms:
            if self.buckets:
                self._close(self.buckets[-1])
            self.buckets.append(Bucket(start))
            while len(self.buckets) > BUCKETS_MAX or self._span() > BUCKETS_MAX:
                self._coarsen()
        return self.buckets[-1]

    def _span(self) -> int:
        return (self.buckets[-1].start_ms - self.first_ms) // self.bucket_ms + 1

    def _coarsen(self) -> None:
        self.bucket_ms *= 2
        merged: list[Bucket] = []
        for bucket in self.buckets:
            start = bucket.start_ms - (bucket.start_ms - self.first_ms) % self.bucket_ms
            if merged and merged[-1].start_ms == start:
                merged[-1].merge(bucket)
            else:
                bucket.start_ms = start
                merged.append(bucket)
        self.buckets = merged

    def _close(self, bucket: Bucket) -> None:
        bucket.leaders = {b: n for b, n in self._leaders.items() if n and b != NO_LEADER}
        bucket.leaderless = self._leaders[NO_LEADER]
        bucket.partitions = self._count
        bucket.under_replicated = len(self._short)


def chronicle_of(files: FileLayer, directory: str, wanted: Iterable[Name] = ()) -> Chronicle:
    """One pass over a log."""
    names = frozenset(wanted)
    out = Chronicle(wanted=names)
    entries = LogEntries(files, directory)
    for entry in entries:
        out.take(entry)
    out.finish()
    out.problem = entries.problem
    return out
