"""Bytes of a log in, suspects and states out: the compiled loops with what they leave over.

Feed it whole batches in the order of the log. It decodes them, tells the compiled replay what the
other records mean, and hands those records on to whoever judges them (`on_others`). What always
holds: a partition that is not among the suspects breaks no rule of the rule book for partitions,
and the states are what lenient replay gives.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    ADDING,
    DIRECTORIES,
    ELR,
    EXISTS,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    STATE_WIDTH,
    STEP,
    SUSPECT,
    TOPIC,
    Array,
)
from kraftpy.audit.kernel.events import apply_event, apply_events
from kraftpy.audit.kernel.facts import BROKER_RECORDS, Event, Facts
from kraftpy.audit.kernel.interning import Interned
from kraftpy.audit.kernel.reading import Read, Unreadable, read_batches
from kraftpy.audit.kernel.replay import replay
from kraftpy.audit.kernel.rows import adopt, reindex
from kraftpy.audit.kernel.seeding import compare, recount
from kraftpy.audit.kernel.world import World
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, Defaults, Evidence, PartitionKey, Writer
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Partition
from kraftpy.types import BrokerId, TopicId, Uuid

_TRANSACTION_RECORDS: Final = (
    r.BeginTransactionRecord,
    r.EndTransactionRecord,
    r.AbortTransactionRecord,
)


class OtherBatch(NamedTuple):
    """The records of one batch that are no partition's, by offset."""

    base_offset: int
    last_offset: int
    epoch: int
    others: list[tuple[int, r.MetadataRecord | Unreadable]]


OnOthers: TypeAlias = Callable[[OtherBatch], None]
OnBroken: TypeAlias = Callable[[int, str], None]  # Base offset, and why nothing can be read.
Bytes: TypeAlias = bytes | bytearray | memoryview


class Suspects(NamedTuple):
    """What the rule book must judge: these partitions, and all of these topics."""

    keys: frozenset[PartitionKey]
    topics: frozenset[TopicId]

    def __bool__(self) -> bool:
        return bool(self.keys or self.topics)


class Difference(NamedTuple):
    """A partition that a snapshot and the log tell apart."""

    key: PartitionKey
    replayed: Partition | None
    stored: Partition | None


class Replayer:
    """Replays one shard of a log."""

    def __init__(
        self,
        *,
        shard: int = 0,
        shards: int = 1,
        defaults: Defaults = KAFKA_DEFAULTS,
        evidence: Mapping[int, Evidence] | None = None,
        on_others: OnOthers | None = None,
        on_broken: OnBroken | None = None,
    ) -> None:
        self.interned = Interned()
        self.world = World(self.interned, shard, shards)
        self.facts = Facts(self.interned, defaults)
        self.types: Counter[int] = Counter()
        self._evidence = evidence or {}
        self._on_others = on_others
        self._on_broken = on_broken
        self._scratch = np.zeros(1 << 16, np.int32)
        self._old = np.zeros(STATE_WIDTH, np.int32)
        self.world.now[w.IS_KAFKA] = defaults.writer is Writer.KAFKA
        self._apply(self.facts.first_events())

    def feed(self, data: Bytes) -> int:
        """Replay the whole batches at the beginning of the bytes; how many bytes are left over."""
        read = read_batches(data, self.interned)
        self._count(read)
        events, marks = self._prepare(read)
        self._replay(read, events, marks)
        if self._on_others is not None:
            for batch in other_batches(read):
                self._on_others(batch)
        if self._on_broken is not None:
            for base_offset, reason in read.broken:
                self._on_broken(base_offset, reason)
        return read.rest

    def _count(self, read: Read) -> None:
        counts = np.bincount(read.columns.kind, minlength=1)
        for kind in np.flatnonzero(counts).tolist():
            self.types[kind] += int(counts[kind])

    def _prepare(self, read: Read) -> tuple[list[Event], Array]:
        """What the other records mean, and which batches end a step."""
        events: list[Event] = []
        marks = np.full(read.batch_count, w.ENDS_STEP, np.uint8)
        open_since = 0 if self.facts.is_in_transaction else -1
        for index, record in read.others:
            if not isinstance(record, r.Record):
                continue
            batch = int(read.columns.batch[index])
            events += self.facts.events(index, record)
            if isinstance(record, BROKER_RECORDS):
                marks[batch] |= w.ABOUT_BROKERS
            if isinstance(record, _TRANSACTION_RECORDS):
                if open_since >= 0:
                    marks[open_since:batch] &= ~np.uint8(w.ENDS_STEP)
                open_since = batch if self.facts.is_in_transaction else -1
        if open_since >= 0:
            marks[open_since:] &= ~np.uint8(w.ENDS_STEP)
        if self._evidence:
            events = self._heed_evidence(read, marks, events)
        return events, marks

    def _heed_evidence(self, read: Read, marks: Array, events: list[Event]) -> list[Event]:
        """What others recorded may break rules that the log alone keeps to."""
        offsets = read.batches.base_offset[: read.batch_count]
        crashed: dict[int, Collection[int]] = {}
        for batch in np.flatnonzero(np.isin(offsets, list(self._evidence))).tolist():
            evidence = self._evidence[int(offsets[batch])]
            if _matters(evidence):
                marks[batch] |= w.DIRTY
                crashed[batch] = evidence.unclean_restarts or ()
        more: list[Event] = [
            (index, w.HOLDERS, broker_id, 0, 0)
            for index, _ in read.others
            for broker_id in crashed.get(int(read.columns.batch[index]), ())
        ]
        return sorted(events + more, key=lambda event: event[0])

    def _replay(self, read: Read, events: list[Event], marks: Array) -> None:
        told = np.array(events, np.int64).reshape(-1, w.EVENT_WIDTH)
        done = next_event = 0
        self._make_room(0)  # Also measures the longest list, now that all are read.
        while done < read.batch_count:
            done, next_event = replay(
                self.world.memory,
                self.interned.topics,
                read.columns,
                read.batches,
                marks,
                told,
                done,
                read.batch_count,
                next_event,
                self._scratch,
                self._old,
            )
            if done < read.batch_count:
                first = read.batches.first
                self._make_room(int(first[done + 1] - first[done]))

    def _make_room(self, records: int) -> None:
        if self.world.make_room(records):
            reindex(self.world.memory)

    def _apply(self, events: list[Event]) -> None:
        self._make_room(0)
        for event in events:
            apply_event(self.world.memory, self.interned.topics, np.array(event, np.int64))

    # -- snapshots ----------------------------------------------------------------------------

    def seed(self, data: Bytes) -> None:
        """Begin with what a snapshot says: nothing in it is judged until it changes."""
        read = read_batches(data, self.interned)
        events, marks = self._prepare(read)
        marks[:] = 0
        self._replay(read, events, marks)
        recount(self.world.memory)

    def begin_with(self, others: Iterable[r.MetadataRecord], rows: Array) -> None:
        """The same, from records that are no partition's and from partitions as rows."""
        events = [event for record in others for event in self.facts.events(0, record)]
        self.world.make_room_for_rows(len(rows))
        self._make_room(0)
        told = np.array(events, np.int64).reshape(-1, w.EVENT_WIDTH)
        apply_events(self.world.memory, self.interned.topics, told, 0, 0)
        kept = self.world.partitions.rows[: len(rows)]
        kept[:] = rows
        kept[:, EXISTS] = 1
        kept[:, (SUSPECT, STEP)] = 0
        self.world.now[w.ROWS] = len(rows)
        adopt(self.world.memory)
        recount(self.world.memory)

    def differences(self, data: Bytes) -> tuple[list[Difference], int]:
        """Partitions of this shard that a snapshot has otherwise, and how many it has."""
        read = read_batches(data, self.interned)
        self._make_room(0)
        count = int(self.world.now[w.ROWS])
        out = np.zeros((len(read.columns.kind) + count, 4), np.int64)
        found, compared = compare(
            self.world.memory,
            self.interned.topics,
            read.columns.kind,
            read.columns.rows,
            np.zeros(count, np.uint8),
            out,
        )
        differences = [
            Difference(
                self.key_of(int(topic), int(partition)),
                None if row < 0 else self.partition(self.world.partitions.rows[row]),
                None if index < 0 else self.partition(read.columns.rows[index]),
            )
            for topic, partition, row, index in out[:found].tolist()
        ]
        return differences, int(compared)

    # -- what came of it ----------------------------------------------------------------------

    @property
    def records(self) -> int:
        return sum(self.types.values())

    def suspects(self) -> Suspects:
        rows = self.world.partitions.rows[: int(self.world.now[w.ROWS])]
        keys = rows[rows[:, SUSPECT] != 0][:, (TOPIC, PARTITION)].tolist()
        topics = np.flatnonzero(self.world.topics.suspect).tolist()
        if self.world.now[w.IS_KAFKA]:  # Its rules about ELR look at partition 0, too.
            keys += [[topic, 0] for topic in sorted({topic for topic, _ in keys})]
        return Suspects(
            frozenset(self.key_of(topic, partition) for topic, partition in keys),
            frozenset(TopicId(Uuid(self.interned.topic_id(topic))) for topic in topics),
        )

    def states(self) -> Iterator[tuple[PartitionKey, Partition]]:
        for row in self.world.partitions.rows[: int(self.world.now[w.ROWS])]:
            if row[EXISTS]:
                yield self.key_of(int(row[TOPIC]), int(row[PARTITION])), self.partition(row)

    def key_of(self, topic: int, partition: int) -> PartitionKey:
        return TopicId(Uuid(self.interned.topic_id(topic))), partition

    def partition(self, row: Array) -> Partition:
        def ids(column: int) -> tuple[BrokerId, ...]:
            return tuple(BrokerId(each) for each in self.interned.values(int(row[column])))

        directories = self.interned.directory_ids(int(row[DIRECTORIES]))
        if not directories:
            directories = (r.MIGRATING_DIRECTORY,) * len(ids(REPLICAS))
        return Partition(
            replicas=ids(REPLICAS),
            isr=ids(ISR),
            removing_replicas=ids(REMOVING),
            adding_replicas=ids(ADDING),
            leader=BrokerId(int(row[LEADER])),
            leader_recovery_state=int(row[RECOVERY]),
            leader_epoch=int(row[LEADER_EPOCH]),
            partition_epoch=int(row[PARTITION_EPOCH]),
            directories=tuple(Uuid(each) for each in directories),
            elr=ids(ELR),
            last_known_elr=ids(LAST_KNOWN_ELR),
        )


def _matters(evidence: Evidence) -> bool:
    """Who asked for an unclean election does not: any is for the rule book."""
    return bool(
        evidence.isr_requests is not None
        or evidence.unclean_restarts is not None
        or evidence.partition_epochs
    )


def other_batches(read: Read) -> Iterator[OtherBatch]:
    """The records that are no partition's, batch by batch."""
    current: OtherBatch | None = None
    last = -1
    for index, record in read.others:
        batch = int(read.columns.batch[index])
        if batch != last or current is None:
            if current is not None:
                yield current
            current, last = OtherBatch(*read.place_of(batch), []), batch
        current.others.append((read.offset_of(index), record))
    if current is not None:
        yield current
