"""Records through the rule book, in order, with snapshots held against them on the way.

A lane takes the batches of a log, or of a log of which most partitions were left out. What always
holds: a snapshot is compared after every batch before its end and before any other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kraftpy.audit.judge import Judge, OffsetRecord
from kraftpy.audit.kafka.decoding import UnknownRecord, decode_value
from kraftpy.audit.retold import before_partitions, behind_partitions
from kraftpy.audit.rules.context import History
from kraftpy.audit.rules.entities import Entities
from kraftpy.audit.rules.rule import NO_EVIDENCE, Defaults, Evidence, PartitionKey, Violation
from kraftpy.audit.snapshots import SnapshotAt, compare_entities
from kraftpy.audit.source.pieces import Plan
from kraftpy.audit.violations import Unchecked
from kraftpy.errors import InvalidBatch, RecordDecodeError
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Partition
from kraftpy.storage.record_batch import BatchHeader, iter_records
from kraftpy.types import TopicId

Found: TypeAlias = Callable[[Iterable[Violation]], None]


class Place(NamedTuple):
    """Where a batch is in its log."""

    base_offset: int
    last_offset: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Ended:
    """The cluster where a replay ended. Can be sent to another process without its partitions."""

    before: list[r.MetadataRecord]  # What rebuilds it: these, partitions,
    behind: list[r.MetadataRecord]  # and these.
    history: History
    is_in_transaction: bool
    partitions: Callable[[], Iterable[tuple[PartitionKey, Partition]]] | None = None


@dataclass(slots=True)
class Looked:
    """What was looked at, beside what was found."""

    types: Counter[int] = field(default_factory=Counter)
    unchecked: list[Unchecked] = field(default_factory=list)
    entities: int = 0
    ended: Ended | None = None  # If the task wanted it.

    def unreadable(self, node: int, offset: int, what: UnknownRecord | RecordDecodeError) -> None:
        kind, reason = "undecodable", ""
        if isinstance(what, UnknownRecord):
            kind, reason = "unknown_record", f"type {what.api_key}, version {what.version}"
        else:
            reason = what.reason
        self.unchecked.append(Unchecked(kind, node, offset, offset + 1, 1, reason))

    def broken(self, node: int, offset: int, records: int, reason: str) -> None:
        end = offset + max(records, 1)
        self.unchecked.append(Unchecked("undecodable", node, offset, end, records, reason))


@dataclass(slots=True, kw_only=True)
class Task:
    """What to replay, and with which knowledge. It can be sent to another process."""

    plan: Plan
    defaults: Defaults
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    snapshots: Sequence[SnapshotAt] = ()
    history: History | None = None  # Of what came before the snapshot that it begins with.
    keeps_end: bool = False  # Whether somebody wants to go on from where it ends.

    @property
    def start_offset(self) -> int:
        return 0 if self.plan.snapshot is None else self.plan.snapshot.end_offset

    @property
    def stops(self) -> list[int]:
        """Where snapshots end that the replay reaches."""
        first, last = self.start_offset, self.plan.end_offset
        return sorted({s.end_offset for s in self.snapshots if first < s.end_offset <= last})


class Rest:
    """Entities that no rule looks at, but snapshots hold: the last record of each."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], r.MetadataRecord] = {}

    def replay(self, record: r.MetadataRecord) -> None:
        match record:
            case r.RegisterControllerRecord():
                self._kept["controller", record.controller_id] = record
            case r.UnregisterControllerRecord():
                self._kept.pop(("controller", record.controller_id), None)
            case r.AccessControlEntryRecord():
                self._kept["acl", record.id] = record
            case r.RemoveAccessControlEntryRecord():
                self._kept.pop(("acl", record.id), None)
            case r.UserScramCredentialRecord():
                self._kept["scram", record.name, record.mechanism] = record
            case r.RemoveUserScramCredentialRecord():
                self._kept.pop(("scram", record.name, record.mechanism), None)
            case r.DelegationTokenRecord():
                self._kept["token", record.token_id] = record
            case r.RemoveDelegationTokenRecord():
                self._kept.pop(("token", record.token_id), None)
            case r.ClientQuotaRecord():
                # One that removes is kept, too: it removes nothing, and is the last word.
                self._kept["quota", record.entity, record.key] = record

    def records(self) -> list[r.MetadataRecord]:
        return list(self._kept.values())


class Lane:
    """The rule book, and the entities that snapshots are compared with."""

    def __init__(
        self,
        task: Task,
        found: Found,
        *,
        whole_topics: frozenset[TopicId] | None = None,
        compares: bool = True,
    ) -> None:
        """`whole_topics`: those with all of their partitions; None if nothing was left out."""
        self._task = task
        self._found = found
        self._has_all = whole_topics is None
        history = task.history or History()
        self.judge = Judge(
            defaults=task.defaults,
            history=deepcopy(history),
            whole_topics=whole_topics,
        )
        self.rest = Rest() if task.keeps_end else None
        self._stops = task.stops if compares else []
        self._entities = Entities(task.defaults) if self._stops else None
        self.looked = Looked()

    def seed(self, records: Iterable[r.MetadataRecord]) -> None:
        """Begin with what a snapshot says."""
        known = list(records)
        self.judge.seed(known)
        self._note_rest(known)
        if self._entities is not None:
            for record in known:
                self._entities.replay(record)

    def batch(self, place: Place, records: Sequence[OffsetRecord]) -> None:
        base_offset, last_offset, epoch = place
        self._compare(base_offset)
        evidence = self._task.evidence.get(base_offset, NO_EVIDENCE)
        found = self.judge.judge(
            records,
            base_offset=base_offset,
            last_offset=last_offset,
            epoch=epoch,
            evidence=evidence,
        )
        if found:
            self._found(found)
        self._note_rest(record for _, record in records)
        if self._entities is not None:
            for _, record in records:
                self._entities.replay(record)

    def _note_rest(self, records: Iterable[r.MetadataRecord]) -> None:
        if self.rest is not None:
            for record in records:
                self.rest.replay(record)

    def ended(
        self, partitions: Callable[[], Iterable[tuple[PartitionKey, Partition]]] | None
    ) -> Ended:
        """Where it stands; whoever has seen all partitions says which there are."""
        rest = [] if self.rest is None else self.rest.records()
        return Ended(
            before=list(before_partitions(self.judge.view)),
            behind=[*behind_partitions(self.judge.view), *rest],
            partitions=partitions,
            history=self.judge.history,
            is_in_transaction=self.judge.is_in_transaction,
        )

    def finish(self) -> None:
        self._compare(self._task.plan.end_offset)

    def _compare(self, offset: int) -> None:
        """With the snapshots that end at or before an offset that is about to be replayed."""
        while self._stops and self._stops[0] <= offset:
            stop = self._stops.pop(0)
            for snapshot in self._task.snapshots:
                if snapshot.end_offset == stop and self._entities is not None:
                    self._compare_one(snapshot, self._entities)

    def _compare_one(self, snapshot: SnapshotAt, entities: Entities) -> None:
        comparison = compare_entities(
            snapshot, entities, self._task.defaults, partitions=self._has_all
        )
        if comparison.violations:
            self._found(comparison.violations)
        self.looked.entities += comparison.entities
        if comparison.unchecked is not None:
            self.looked.unchecked.append(comparison.unchecked)


def decoded(header: BatchHeader, data: memoryview, looked: Looked, node: int) -> list[OffsetRecord]:
    """The records of a batch; what cannot be read is noted and passed over."""
    if header.is_control:
        return []
    records: list[OffsetRecord] = []
    try:
        for each in iter_records(data):
            try:
                record = decode_value(each.value, each.offset)
            except RecordDecodeError as error:
                looked.unreadable(node, each.offset, error)
                continue
            if isinstance(record, UnknownRecord):
                looked.unreadable(node, each.offset, record)
                continue
            looked.types[record.API_KEY] += 1
            records.append((each.offset, record))
    except InvalidBatch as error:
        looked.broken(node, header.base_offset, header.record_count, str(error))
        return []
    return records
