"""A log replayed in stretches, all at the same time: the plan for more tasks than shards pay for.

1. Each stretch gives its records that are no partition's; going through these in order tells what
   every stretch begins with of brokers, topics and settings (`beginnings`).
2. Each stretch is summed up (kernel/summing.py): what it does to partitions, whatever they were.
3. Summaries are composed in order, topic by topic (`Composer`): the partitions that every stretch
   begins with.
4. Each stretch is replayed from there by the same compiled loops as a whole log.

What always holds: wherever the log is cut, a stretch begins with exactly what replaying all before
it gives, so suspects are at least those of one replay, and the rule book's rows are the same. A
stretch never begins within a metadata transaction: it is joined with the one before. A snapshot
that the replay begins with is stretch 0.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kraftpy.audit.kafka.decoding import known_record
from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    CHANGED,
    CREATED,
    EXISTS,
    NONE,
    STATE_WIDTH,
    TOPIC,
    Array,
)
from kraftpy.audit.kernel.facts import Facts
from kraftpy.audit.kernel.interning import Interned, grown
from kraftpy.audit.kernel.packing import Packed, pack, unpack
from kraftpy.audit.kernel.reading import NO_OP, Read, read_batches
from kraftpy.audit.kernel.replayer import Replayer, Suspects
from kraftpy.audit.kernel.rows import reindex
from kraftpy.audit.kernel.skimming import skim
from kraftpy.audit.kernel.summing import apply_summary, close_all, summarise
from kraftpy.audit.kernel.world import World
from kraftpy.audit.lanes import Looked, Task
from kraftpy.audit.retold import before_partitions, behind_partitions
from kraftpy.audit.rules.rule import Defaults
from kraftpy.audit.rules.view import Saved, View
from kraftpy.audit.screening import Screened, screen
from kraftpy.audit.snapshots import snapshot_bytes
from kraftpy.audit.source.chunks import Chunk, chunks
from kraftpy.audit.source.pieces import Piece
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.codec import encode_record
from kraftpy.metadata_log.image import EMPTY

FIRST: Final = 0  # The number of the stretch that is the snapshot.
_SUMMED_EVENTS: Final = (w.TOPIC_LIVE, w.TOPIC_GONE, w.CLEAR_ELR)
Value: TypeAlias = tuple[int, bytes]  # A record as it stands in the log, and its offset.


class Stretch(NamedTuple):
    """Pieces of a plan, one behind the other; none for FIRST."""

    number: int
    pieces: tuple[Piece, ...]


class Beginning(NamedTuple):
    """What the stretches from `first` to `last` begin with, but for partitions."""

    first: int
    last: int
    facts: list[bytes]  # Records that tell it.
    aborted: list[tuple[int, int]]  # Offsets of transactions in them that came to nothing.


def stretches_of(pieces: Sequence[Piece], count: int) -> list[Stretch]:
    """About `count` stretches of the same size, of pieces that are small enough for it."""
    whole = sum(piece.end - piece.start for piece in pieces)
    groups: list[list[Piece]] = []
    done = 0
    for piece in pieces:
        if not groups or done * count >= len(groups) * whole:
            groups.append([])
        groups[-1].append(piece)
        done += piece.end - piece.start
    return [Stretch(number, tuple(group)) for number, group in enumerate(groups, FIRST + 1)]


def first_stretch(task: Task) -> list[Stretch]:
    """The snapshot, if the replay begins with one."""
    return [] if task.plan.snapshot is None else [Stretch(FIRST, ())]


def pieces_behind(task: Task, pieces: Sequence[Piece]) -> list[Piece]:
    """Those that hold anything behind the snapshot that the replay begins with."""
    following = [*(piece.base_offset for piece in pieces[1:]), task.plan.end_offset]
    return [
        piece for piece, offset in zip(pieces, following, strict=True) if offset > task.start_offset
    ]


def _data(task: Task, pieces: Sequence[Piece]) -> Iterator[Chunk]:
    """The bytes of some pieces, or of the snapshot if there are none."""
    if pieces:
        plan = task.plan._replace(pieces=tuple(pieces))
        yield from chunks(plan, start_offset=task.start_offset)
    elif task.plan.snapshot is not None:
        yield Chunk(memoryview(snapshot_bytes(task.plan.snapshot)), task.start_offset)


# -- 1. what is no partition's ---------------------------------------------------------------------


def others_of(task: Task, stretch: Stretch) -> list[Value]:
    """The records of a stretch that are no partition's."""
    return [
        (each.offset, each.value)
        for chunk in _data(task, stretch.pieces)
        for each in skim(chunk.data)
    ]


def beginnings(
    others: Iterable[tuple[int, Sequence[Value]]], defaults: Defaults
) -> Iterator[Beginning]:
    """In the order of the stretches, which `others` has, too."""
    follower = _Follower(defaults)
    for number, values in others:
        if follower.may_begin(number):
            yield from follower.ended()
            follower.begin(number)
        follower.last = number
        for offset, value in values:
            record = known_record(value, offset)
            if record is not None:
                follower.replay(offset, record)
    yield from follower.ended()


class _Follower:
    """Goes through the records of all stretches."""

    def __init__(self, defaults: Defaults) -> None:
        self._view = View(EMPTY, defaults)
        self._saved: Saved | None = None
        self._since = 0
        self._current: Beginning | None = None
        self._encoded: dict[r.TopicRecord | r.ConfigRecord, bytes] = {}
        self.last = FIRST

    def may_begin(self, number: int) -> bool:
        return self._saved is None or number <= FIRST + 1

    def begin(self, number: int) -> None:
        self._current = Beginning(number, number, list(self._facts()), [])

    def ended(self) -> Iterator[Beginning]:
        if self._current is not None:
            yield self._current._replace(last=self.last)

    def replay(self, offset: int, record: r.MetadataRecord) -> None:
        match record:
            case r.BeginTransactionRecord():
                if self._saved is None:
                    self._saved, self._since = self._view.save(), offset
            case r.EndTransactionRecord():
                self._saved = None
            case r.AbortTransactionRecord():
                if self._saved is not None and self._current is not None:
                    self._view.restore(self._saved)
                    self._saved = None
                    self._current.aborted.append((self._since, offset))
            case _:
                self._view.replay(record)

    def _facts(self) -> Iterator[bytes]:
        for record in chain(before_partitions(self._view), behind_partitions(self._view)):
            if isinstance(record, r.TopicRecord | r.ConfigRecord):
                yield self._once(record)  # Most of them are the same at every beginning.
            else:
                yield bytes(encode_record(record))

    def _once(self, record: r.TopicRecord | r.ConfigRecord) -> bytes:
        found = self._encoded.get(record)
        if found is None:
            found = self._encoded[record] = bytes(encode_record(record))
        return found


def _told(values: Iterable[bytes]) -> list[r.MetadataRecord]:
    found = [known_record(value) for value in values]
    return [each for each in found if each is not None]


# -- 2. summaries ----------------------------------------------------------------------------------


def summary_of(task: Task, pieces: Sequence[Piece], beginning: Beginning) -> "Summary":
    summary = Summary(task.defaults, beginning)
    for chunk in _data(task, pieces):
        summary.feed(chunk.data)
    return summary


class Summary:
    """What a stretch does to partitions."""

    def __init__(self, defaults: Defaults, beginning: Beginning) -> None:
        self._interned = Interned()
        self._world = World(self._interned)
        self._facts = Facts(self._interned, defaults)
        self._aborted = beginning.aborted
        self._out = np.zeros((1 << 10, STATE_WIDTH), np.int32)
        self._used = 0
        self._scratch = np.zeros(1 << 16, np.int32)
        for record in _told(beginning.facts):
            self._facts.events(0, record)
        live = [
            self._interned.topic(topic_id)
            for topic_id, topic in self._facts.view.topics.changed.items()
            if topic is not None
        ]
        self._world.make_room(0)
        self._world.topics.live[live] = 1

    def feed(self, data: memoryview) -> None:
        read = read_batches(data, self._interned)
        count = len(read.columns.kind)
        events = [
            event
            for index, record in read.others
            if isinstance(record, r.Record)
            for event in self._facts.events(index, record)
            if event[1] in _SUMMED_EVENTS
        ]
        told = self._heed_aborts(read, events)
        if self._world.make_room(count):
            reindex(self._world.memory)
        clears = sum(1 for event in events if event[1] == w.CLEAR_ELR)
        rows = int(self._world.now[w.ROWS]) + count
        self._make_room(2 * count + len(events) + clears * rows)
        self._used = int(
            summarise(
                self._world.memory,
                read.columns,
                count,
                told,
                self._out,
                self._used,
                self._scratch,
            )
        )

    def _heed_aborts(self, read: Read, events: list[tuple[int, int, int, int, int]]) -> Array:
        """Leave out what came to nothing, but for what the abort itself means."""
        told = np.array(events, np.int64).reshape(-1, w.EVENT_WIDTH)
        columns, batches = read.columns, read.batches
        first = batches.first[columns.batch]
        offsets = batches.base_offset[columns.batch] + np.arange(len(columns.kind)) - first
        for begin, end in self._aborted:
            inside = (offsets >= begin) & (offsets < end)
            columns.kind[inside & np.isin(columns.kind, (CREATED, CHANGED))] = NO_OP
            told = told[~inside[told[:, 0]]]
        return told

    def _make_room(self, operations: int) -> None:
        if self._used + operations > len(self._out):
            self._out = grown(self._out, 2 * (self._used + operations))

    def packed(self, buckets: int) -> Iterator[tuple[int, Packed]]:
        """The operations, by bucket of topics."""
        self._make_room(int(self._world.now[w.ROWS]))
        used = int(close_all(self._world.memory, self._out, self._used))
        operations = self._out[:used]
        topics = operations[:, TOPIC]
        bucket = buckets_of(self._interned, buckets)[np.maximum(topics, 0)]
        for number in range(buckets):
            yield number, pack(self._interned, operations[(bucket == number) | (topics == NONE)])


def buckets_of(interned: Interned, buckets: int) -> Array:
    """Of each topic, by its id: every process has the same."""
    uuids, used = interned.topics, int(interned.topics.used[0])
    mixed = (uuids.high[: max(used, 1)] ^ uuids.low[: max(used, 1)]) * np.int64(
        -7723592293110705685
    )
    return ((mixed >> 33) & 0x7FFFFFFF) % buckets


# -- 3. composing ----------------------------------------------------------------------------------


class Composer:
    """The partitions of a bucket, stretch by stretch."""

    def __init__(self) -> None:
        self._interned = Interned()
        self._world = World(self._interned)
        self._scratch = np.zeros(1 << 16, np.int32)

    def add(self, summary: Packed) -> None:
        """Go on behind the next stretch."""
        operations = unpack(self._interned, summary)
        world = self._world
        if world.make_room_for_rows(int(world.now[w.ROWS]) + len(operations)):
            reindex(world.memory)
        world.make_room(0)
        self._interned.make_room(len(operations), len(operations) * self._interned.longest, 0)
        apply_summary(world.memory, operations, self._scratch)

    def partitions(self) -> Packed:
        rows = self._world.partitions.rows[: int(self._world.now[w.ROWS])]
        return pack(self._interned, rows[rows[:, EXISTS] != 0])


# -- 4. the replay of a stretch --------------------------------------------------------------------


def replay_stretch(
    task: Task, pieces: Sequence[Piece], beginning: Beginning, partitions: Iterable[Packed]
) -> Screened:
    """As `screen` has it, for these pieces only."""

    def begin(replayer: Replayer) -> None:
        rows = [unpack(replayer.interned, each) for each in partitions]
        empty = np.zeros((0, STATE_WIDTH), np.int32)
        replayer.begin_with(_told(beginning.facts), np.concatenate([empty, *rows]))

    return screen(task, pieces=pieces, begin=begin)


def joined(screened: Sequence[Screened]) -> Screened:
    """The stretches of a log, as one."""
    looked = Looked()
    for each in screened:
        looked.types += each.looked.types
        looked.unchecked += each.looked.unchecked
        looked.entities += each.looked.entities
    return Screened(
        Suspects(
            frozenset().union(*(each.suspects.keys for each in screened)),
            frozenset().union(*(each.suspects.topics for each in screened)),
        ),
        [violation for each in screened for violation in each.violations],
        looked,
        sum(each.records for each in screened),
    )


def screen_in_stretches(task: Task, stretches: Sequence[Stretch], buckets: int = 1) -> Screened:
    """All four steps in one process, one after the other: what Spark's tasks do."""
    known = [*first_stretch(task), *stretches]
    others = [(each.number, others_of(task, each)) for each in known]
    pieces = {each.number: each.pieces for each in known}
    composers = [Composer() for _ in range(buckets)]
    screened = []
    for beginning in beginnings(others, task.defaults):
        own = [p for n in range(beginning.first, beginning.last + 1) for p in pieces[n]]
        sent = pickle.dumps([composer.partitions() for composer in composers])
        if beginning.first != FIRST:
            screened.append(replay_stretch(task, own, beginning, pickle.loads(sent)))
        for bucket, packed in summary_of(task, own, beginning).packed(buckets):
            composers[bucket].add(packed)
    return joined(screened)
