"""A log through the compiled loops, and out of it again what the rule book must see."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from kraftpy.audit.judge import OffsetRecord
from kraftpy.audit.kafka.decoding import UnknownRecord, known_record
from kraftpy.audit.kernel.columns import CHANGED, CREATED, PARTITION, TOPIC
from kraftpy.audit.kernel.interning import Interned
from kraftpy.audit.kernel.reading import Read, read_batches
from kraftpy.audit.kernel.replayer import Difference, OtherBatch, Replayer, Suspects
from kraftpy.audit.kernel.skimming import skim
from kraftpy.audit.lanes import Looked, Place, Task
from kraftpy.audit.rules.entities import snapshot_is_the_log
from kraftpy.audit.rules.rule import Violation
from kraftpy.audit.snapshots import SnapshotAt, snapshot_bytes
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.source.pieces import Piece
from kraftpy.errors import RecordDecodeError, StorageError
from kraftpy.metadata_log.records import Record
from kraftpy.types import TopicId, Uuid

Tick: TypeAlias = Callable[[int], None]  # Told the offset that was reached.
OnBatch: TypeAlias = Callable[[Place, list[OffsetRecord]], None]


def no_tick(_offset: int) -> None:
    """For those who do not watch."""


class Screened(NamedTuple):
    """What a shard's replay leaves for others."""

    suspects: Suspects
    violations: list[Violation]  # Partitions that snapshots have otherwise.
    looked: Looked
    records: int


def screen(
    task: Task,
    *,
    shard: int = 0,
    shards: int = 1,
    on_batch: OnBatch | None = None,
    tick: Tick = no_tick,
    on_end: Callable[[Replayer], None] | None = None,
    pieces: Sequence[Piece] | None = None,
    begin: Callable[[Replayer], None] | None = None,
) -> Screened:
    """Replay one shard. `on_batch` is given the records that are no partition's. `pieces`: only
    these, which `begin` prepares for; else all, from the plan's snapshot on."""
    looked, found = Looked(), []
    plan = task.plan if pieces is None else task.plan._replace(pieces=tuple(pieces))
    node = task.plan.node

    def on_others(batch: OtherBatch) -> None:
        records = []
        for offset, record in batch.others:
            if isinstance(record, UnknownRecord | RecordDecodeError):
                looked.unreadable(node, offset, record)
            else:
                records.append((offset, record))
        if on_batch is not None:
            on_batch(Place(*batch[:3]), records)

    replayer = Replayer(
        shard=shard,
        shards=shards,
        defaults=task.defaults,
        evidence=task.evidence,
        on_others=on_others,
        on_broken=lambda offset, reason: looked.broken(node, offset, 0, reason),
    )
    if begin is not None:
        begin(replayer)
    elif plan.snapshot is not None:
        replayer.seed(snapshot_bytes(plan.snapshot))
    stops = frozenset(task.stops)
    for chunk in chunks(plan, task.stops, start_offset=task.start_offset):
        replayer.feed(chunk.data)
        if chunk.end_offset in stops:
            found += _compare_all(task, chunk.end_offset, replayer, looked)
        tick(chunk.end_offset)
    looked.types = replayer.types
    if on_end is not None:
        on_end(replayer)
    return Screened(replayer.suspects(), found, looked, replayer.records)


def _compare_all(task: Task, offset: int, replayer: Replayer, looked: Looked) -> list[Violation]:
    found = []
    for snapshot in task.snapshots:
        if snapshot.end_offset == offset:
            found += _compare(snapshot, replayer, looked)
    return found


def _compare(snapshot: SnapshotAt, replayer: Replayer, looked: Looked) -> list[Violation]:
    if replayer.facts.is_in_transaction:
        return []  # The lane of the other records says so.
    try:
        data = snapshot_bytes(snapshot)
        found, compared = replayer.differences(data)
    except (StorageError, OSError):
        return []  # So it does here.
    looked.entities += compared
    names = {}
    if any(difference.replayed is None for difference in found):
        names = _topic_names(data)
    violations: list[Violation] = []
    for difference in found:
        violations += _violations(snapshot, difference, replayer, names)
    return violations


def _topic_names(data: bytes) -> dict[TopicId, str]:
    from kraftpy.audit.snapshots import others_in
    from kraftpy.metadata_log.records import TopicRecord

    return {each.topic_id: each.name for each in others_in(data) if isinstance(each, TopicRecord)}


def _violations(
    snapshot: SnapshotAt, difference: Difference, replayer: Replayer, names: dict[TopicId, str]
) -> Iterator[Violation]:
    topic_id, partition = difference.key
    name = replayer.facts.view.topic_name(topic_id) or names.get(topic_id, "")
    entity = "partition", f"{name}-{partition}"
    ours = {} if difference.replayed is None else {entity: difference.replayed}
    theirs = {} if difference.stored is None else {entity: difference.stored}
    return snapshot_is_the_log(
        ours, theirs, node=snapshot.node, end_offset=snapshot.end_offset, epoch=snapshot.epoch
    )


class Extracted(NamedTuple):
    """The records of a batch that the rule book must see."""

    place: Place
    records: list[OffsetRecord]


class Raw(NamedTuple):
    """One such record as it stands in the log; the topic if it is a partition's."""

    place: Place
    offset: int
    topic_id: TopicId | None
    value: bytes


def raw_extract(data: bytes | memoryview, suspects: Suspects) -> Iterator[Raw]:
    """From whole batches: what is no partition's, and what is a suspect's."""
    if not suspects:
        for place, offset, value in skim(data):
            yield Raw(Place(*place), offset, None, value)
        return
    interned = Interned()
    read = read_batches(data, interned)
    topics: dict[int, TopicId | None] = {
        index: None for index, record in read.others if isinstance(record, Record)
    }
    for index in _of_suspects(read, interned, suspects):
        topic_id = interned.topic_id(int(read.columns.rows[index, TOPIC]))
        topics[index] = TopicId(Uuid(topic_id))
    for index in sorted(topics):
        place = Place(*read.place_of(int(read.columns.batch[index])))
        yield Raw(place, read.offset_of(index), topics[index], read.value(index))


def extract(data: bytes | memoryview, suspects: Suspects) -> Iterator[Extracted]:
    """The same, decoded, batch by batch."""
    for place, group in groupby(raw_extract(data, suspects), key=lambda each: each.place):
        records: list[OffsetRecord] = []
        for each in group:
            record = known_record(each.value, each.offset)
            if record is not None:
                records.append((each.offset, record))
        yield Extracted(place, records)


def _of_suspects(read: Read, interned: Interned, suspects: Suspects) -> list[int]:
    kinds, rows = read.columns.kind, read.columns.rows
    if not suspects or not len(kinds):
        return []
    topics = {interned.topic(topic_id) for topic_id, _ in suspects.keys}
    whole = {interned.topic(topic_id) for topic_id in suspects.topics}
    are_partitions = (kinds == CREATED) | (kinds == CHANGED)
    near = np.flatnonzero(are_partitions & np.isin(rows[:, TOPIC], sorted(topics | whole)))
    wanted = {(interned.topic(topic_id), partition) for topic_id, partition in suspects.keys}
    return [
        index
        for index in near.tolist()
        if int(rows[index, TOPIC]) in whole
        or (int(rows[index, TOPIC]), int(rows[index, PARTITION])) in wanted
    ]
