"""Many faults in one log: the cases of the rule book, one behind the other, each with brokers,
topics, directories and producer ids of its own.

Between good records lie the logs that break a rule and those that only look like it. Each must be
found where it is, and nothing anywhere else. Cases that change a feature level make an audit look
at every partition once more, and so at what other cases broke: those get a log of their own, but
for the many that want ELR, which share one in which it is on from the start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from bench.audit_log import EPOCH, FEATURES
from kraftpy.audit.rules import Evidence, IsrRequest
from kraftpy.audit.rules.rule import NO_EVIDENCE
from kraftpy.audit.rules.view import ELR_FEATURE
from kraftpy.audit.violations import AuditResult
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import record_batch
from kraftpy.types import BrokerId, TopicId, Uuid
from tests.audit_proof.good import Good, shifted
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import write_segment
from tests.unit.audit.logs import ORDERS, Log, level

LOADED = (partition_logs, placement_logs, cluster_logs)
RESERVED = (r.MIGRATING_DIRECTORY, r.UNASSIGNED_DIRECTORY, r.LOST_DIRECTORY)
FIRST_BROKER, BROKERS_EACH = 1000, 20
PRODUCER_IDS_EACH = 10_000
NEWEST_VERSION = 30  # Of the metadata, as far as the cases' brokers go.
_TOLD_AGAIN = 25
_SUPPORTED = {each.name for each in FEATURES}  # By good brokers.
_IDS = {
    "broker_id",
    "id",
    "leader",
    "replicas",
    "isr",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
}


@dataclass(frozen=True)
class Planted:
    """A case in a log, and where it is."""

    name: str
    due: frozenset[str]
    offset: int
    end_offset: int


@dataclass(frozen=True)
class Plot:
    """One log with its faults."""

    name: str
    planted: tuple[Planted, ...]
    evidence: Mapping[int, Evidence]
    records: int


# -- names of its own for each case ----------------------------------------------------------------


@dataclass(frozen=True)
class Renaming:
    """What a case calls 1, "orders" and so on is called otherwise in the log."""

    number: int

    def broker(self, broker_id: int) -> BrokerId:
        if broker_id < 0:
            return BrokerId(broker_id)
        return BrokerId(FIRST_BROKER + BROKERS_EACH * self.number + broker_id)

    def uuid(self, uuid: bytes) -> Uuid:
        if uuid in RESERVED:
            return Uuid(uuid)
        return Uuid(uuid[:12] + (self.number + 1).to_bytes(4, "big"))

    def key(self, key: tuple[bytes, int]) -> tuple[TopicId, int]:
        return TopicId(self.uuid(key[0])), key[1]

    def record(self, record: Any) -> MetadataRecord:
        changed: dict[str, Any] = {}
        for each in fields(record):
            value = getattr(record, each.name)
            if each.name in _IDS and value is not None:
                is_one = isinstance(value, int)
                changed[each.name] = (
                    self.broker(value) if is_one else tuple(map(self.broker, value))
                )
            elif each.name in ("directories", "log_dirs") and value is not None:
                changed[each.name] = tuple(map(self.uuid, value))
            elif each.name == "topic_id":
                changed[each.name] = TopicId(self.uuid(value))
            elif each.name == "next_producer_id":
                changed[each.name] = value + PRODUCER_IDS_EACH * self.number
        return self._named(replace(record, **changed))

    def _named(self, record: Any) -> MetadataRecord:
        match record:
            case r.TopicRecord():
                return replace(record, name=f"{record.name}-{self.number}")
            case r.ConfigRecord(resource_type=r.TOPIC_RESOURCE):
                return replace(record, resource_name=f"{record.resource_name}-{self.number}")
            case r.ClearElrRecord():
                return replace(record, topic_name=f"{record.topic_name}-{self.number}")
        return record  # type: ignore[no-any-return]

    def evidence(self, known: Evidence) -> Evidence:
        return replace(
            known,
            unclean_elections=_each(self.key, known.unclean_elections),
            unclean_restarts=_each(self.broker, known.unclean_restarts),
            isr_requests=None
            if known.isr_requests is None
            else {self.key(key): self._request(q) for key, q in known.isr_requests.items()},
            caught_up=None
            if known.caught_up is None
            else {self.broker(b): offset for b, offset in known.caught_up.items()},
            partition_epochs={self.key(k): epoch for k, epoch in known.partition_epochs.items()},
        )

    def _request(self, request: IsrRequest) -> IsrRequest:
        epochs = {self.broker(b): epoch for b, epoch in request.broker_epochs.items()}
        return request._replace(leader=self.broker(request.leader), broker_epochs=epochs)


def _each(renamed: Callable[[Any], Any], known: frozenset[Any] | None) -> frozenset[Any] | None:
    return None if known is None else frozenset(map(renamed, known))


# -- which cases share a log -----------------------------------------------------------------------


def _features(case: Case) -> list[tuple[int, r.FeatureLevelRecord]]:
    """With how many records their batches have."""
    return [
        (len(records), record)
        for _, records, _ in case.write().batches
        for record in records
        if isinstance(record, r.FeatureLevelRecord)
    ]


def every_case() -> list[Case]:
    kept = {case.name: replace(case, rule=0) for case in KEEPING}
    return [*BREAKING, *kept.values()]


def plots(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Cases by the log that they are planted in."""
    found: dict[str, list[Case]] = {"plain": [], "elr": []}
    for case in cases:
        levels = _features(case)
        if not levels:
            found["plain"].append(case)
        elif _begins_with_elr(case, levels):
            found["elr"].append(case)
        else:
            found[case.name] = [case]
    return {name: group for name, group in found.items() if group}


def _begins_with_elr(case: Case, levels: list[tuple[int, r.FeatureLevelRecord]]) -> bool:
    """Whether it may lie in a log in which ELR is on from the start."""
    written = [record for _, records, _ in case.write().batches for record in records]
    firsts = [each for each in written if isinstance(each, r.PartitionRecord | type(levels[0][1]))]
    return isinstance(firsts[0], r.FeatureLevelRecord) and all(
        (size, each.name, each.feature_level) == (1, ELR_FEATURE, 1) for size, each in levels
    )


@contextmanager
def logs_begin_at(offset: int) -> Iterator[None]:
    """Cases write their logs as if they began there."""
    plain = Log.__init__

    def begin(log: Log) -> None:
        plain(log)
        log.end_offset = offset

    Log.__init__ = begin  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Log.__init__ = plain  # type: ignore[method-assign]


# -- a log -----------------------------------------------------------------------------------------


class Planter:
    """Writes the middle part of a log."""

    def __init__(self, offset: int) -> None:
        self.end_offset = offset
        self.batches: list[bytes] = []
        self.evidence: dict[int, Evidence] = {}
        self.planted: list[Planted] = []

    def batch(self, records: Sequence[MetadataRecord], base: int) -> None:
        data = record_batch(records, base_offset=base, epoch=EPOCH, timestamp_ms=0)
        self.batches.append(bytes(data))
        self.end_offset = max(self.end_offset, base + len(records))

    def plant(self, case: Case, number: int, *, elr_is_on: bool) -> None:
        start, renaming = self.end_offset, Renaming(number)
        with logs_begin_at(start):
            log = case.write()
        for base, records, known in log.batches:
            if not records:
                continue
            renamed = [renaming.record(record) for record in records]
            if elr_is_on and isinstance(renamed[0], r.FeatureLevelRecord):
                renamed = [r.NoOpRecord()]
            self.batch(renamed, base)
            if known is not NO_EVIDENCE:
                self.evidence[base] = renaming.evidence(known)
        self._clean_up(case, renaming)
        due = frozenset(f"A{each}" for each in (case.rule, *case.also) if each)
        self.planted.append(Planted(case.name, due, start, self.end_offset))

    def _clean_up(self, case: Case, renaming: Renaming) -> None:
        """What would be told once more whenever a broker comes, or would change what is good."""
        if case.rule == _TOLD_AGAIN:
            removal = r.RemoveTopicRecord(topic_id=ORDERS)
            self.batch([renaming.record(removal)], self.end_offset)
        for name in {each.name for _, each in _features(case)}:
            if name == r.METADATA_VERSION:
                self.batch([level(name, NEWEST_VERSION)], self.end_offset)
            elif name not in _SUPPORTED:
                self.batch([level(name, 0)], self.end_offset)


def write_plot(name: str, cases: Sequence[Case], good: Good, directory: Path) -> Plot:
    planter = Planter(good.offset)
    if name == "elr":
        planter.batch([level(ELR_FEATURE, 1)], planter.end_offset)
    for number, case in enumerate(cases):
        planter.plant(case, number, elr_is_on=name == "elr")
    behind = shifted(good.behind, planter.end_offset - good.offset)
    write_segment(directory, [good.before, *planter.batches, behind])
    return Plot(name, tuple(planter.planted), planter.evidence, good.records)


def wrong(plot: Plot, result: AuditResult) -> list[str]:
    """Why the result is not what it should be, one line for each case."""
    told = []
    left = list(result.violations)
    for case in plot.planted:
        here = [v for v in left if case.offset <= v.offset < case.end_offset]
        left = [v for v in left if v not in here]
        codes = {v.rule for v in here}
        if codes != case.due:
            told.append(f"{case.name}: {sorted(codes)} where {sorted(case.due)} were due")
    told += [f"found among good records: {each}" for each in left[:5]]
    if result.records < plot.records:
        told.append(f"looked at {result.records} records only")
    return told
