"""Audits that go on where the last one ended: `audit(paths, options, directory)`.

The directory keeps, for the offset R at which the last run ended: the cluster there, as records in
a file like a snapshot (`states-R.checkpoint`); what images forget, ids and epochs that were used;
and what that run found and counted. The next run surveys the logs, compares their batch before R
with the one that is noted, seeds its replay with the records and replays from R on. What always
holds: the result is that of a full run. Where something does not fit (another log, a batch that was
cut, a new snapshot of an old offset, a lost range, an open transaction), it is a full one.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from kraftpy.audit.lanes import Ended, Looked
from kraftpy.audit.local import Options, audit_resumed
from kraftpy.audit.rules.context import History
from kraftpy.audit.rules.rule import PartitionKey
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.source.directories import Snapshot
from kraftpy.audit.source.pieces import Plan
from kraftpy.audit.violations import AuditResult, Unchecked, Violation, from_row
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import control_batch, packed_batches
from kraftpy.metadata_log.control_records import SnapshotFooter, SnapshotHeader
from kraftpy.metadata_log.image import Partition
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import read_header
from kraftpy.types import BrokerId, TopicId, Uuid

STATE_FILE: Final = "state.json"
_VERSION: Final = 1
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12


@dataclass(slots=True, kw_only=True)
class Resume:
    """What the last run left."""

    offset: int
    last_batch: tuple[int, int, int]  # Base offset, epoch and CRC of the batch that ends there.
    snapshots: list[str]  # Those that it knew, by path.
    history: History
    found: list[Violation]  # By the replay.
    looked: Looked
    states: str
    settings: str  # What the run was told; another run with other settings begins anew.

    def fits(self, plan: Plan, snapshots: Iterable[Any], settings: str) -> bool:
        """Whether a run over this plan may go on from here."""
        is_known = all(s.end_offset > self.offset or s.path in self.snapshots for s in snapshots)
        same = _batch_before(plan, self.offset) == self.last_batch
        return is_known and same and not plan.lost and settings == self.settings

    def add_to(self, looked: Looked) -> None:
        """What was looked at before, beside what was looked at since."""
        looked.types += self.looked.types
        looked.unchecked += self.looked.unchecked
        looked.entities += self.looked.entities

    def seeded(self, plan: Plan) -> Plan:
        size = os.stat(self.states).st_size
        return plan._replace(snapshot=Snapshot(self.offset, self.last_batch[1], self.states, size))


def _batch_before(plan: Plan, offset: int) -> tuple[int, int, int] | None:
    """The last batch before an offset, if it ends there."""
    last = None
    for chunk in chunks(plan, start_offset=max(0, offset - 1), end_offset=offset):
        at = 0
        while at < len(chunk.data):
            header = read_header(chunk.data, at)
            at += header.size
            if header.end_offset == offset:
                last = header.base_offset, header.leader_epoch, header.crc
    return last


def audit(paths: Sequence[str], options: Options, directory: str) -> AuditResult:
    """As kraftpy.audit.local.audit; ConfigError is never raised for what the directory holds."""
    store = StateDirectory(directory, options)
    return audit_resumed(paths, options, store.load(), store)


def _settings(options: Options) -> str:
    rules = sorted(options.rules) if options.rules is not None else None
    return json.dumps([str(options.defaults), rules])


class StateDirectory:
    """Reads and writes what a run leaves."""

    def __init__(self, directory: str, options: Options) -> None:
        self._directory = directory
        self.settings = _settings(options)
        self._files = OsFiles()

    def load(self) -> Resume | None:
        """None if there is nothing, or nothing that can be understood: then a run is a full one."""
        path = os.path.join(self._directory, STATE_FILE)
        if not self._files.exists(path):
            return None
        try:
            return _resume(json.loads(self._files.read_whole(path)), self._directory)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(
        self,
        plan: Plan,
        looked: Looked,
        found: Sequence[Violation],
        snapshots: Sequence[str],
        partitions: Iterable[bytes] = (),
    ) -> None:
        """Nothing if the log ends where no other run can go on. `partitions`: batches of them, if
        others have encoded them already."""
        last, ended = _batch_before(plan, plan.end_offset), looked.ended
        if plan.lost or ended is None or ended.is_in_transaction or last is None:
            return
        self._files.make_directory(self._directory)
        name = f"states-{plan.end_offset:020d}.checkpoint"
        path = os.path.join(self._directory, name)
        self._files.replace(path, b"".join(_encoded(ended, partitions, last[1])))
        told = {
            "version": _VERSION,
            "offset": plan.end_offset,
            "last_batch": last,
            "snapshots": list(snapshots),
            "history": {
                "removed_topics": sorted(each.hex() for each in ended.history.removed_topics),
                "broker_epochs": sorted(ended.history.broker_epochs.items()),
                "last_epochs": sorted(ended.history.last_epochs.items()),
            },
            "found": [asdict(each) for each in found],
            "types": sorted(looked.types.items()),
            "unchecked": looked.unchecked,
            "entities": looked.entities,
            "states": name,
            "settings": self.settings,
        }
        self._files.replace(os.path.join(self._directory, STATE_FILE), json.dumps(told).encode())
        for other in self._files.names(self._directory):
            if other.startswith("states-") and other != name:
                self._files.remove(os.path.join(self._directory, other))


def _resume(told: dict[str, Any], directory: str) -> Resume:
    if told["version"] != _VERSION:
        raise ValueError(f"version {told['version']}")
    history, looked = told["history"], Looked()
    looked.types = Counter({int(key): int(count) for key, count in told["types"]})
    looked.unchecked = [Unchecked(*each) for each in told["unchecked"]]
    looked.entities = int(told["entities"])
    states = os.path.join(directory, told["states"])
    os.stat(states)
    base, epoch, crc = told["last_batch"]
    return Resume(
        offset=int(told["offset"]),
        last_batch=(base, epoch, crc),
        snapshots=list(told["snapshots"]),
        history=History(
            {TopicId(Uuid(bytes.fromhex(each))) for each in history["removed_topics"]},
            {int(epoch): BrokerId(broker) for epoch, broker in history["broker_epochs"]},
            {BrokerId(broker): int(epoch) for broker, epoch in history["last_epochs"]},
        ),
        found=[from_row(each) for each in told["found"]],
        looked=looked,
        states=states,
        settings=told["settings"],
    )


# -- the cluster as records ------------------------------------------------------------------------


def _encoded(ended: Ended, partitions: Iterable[bytes], epoch: int) -> Iterator[bytes]:
    """A file as snapshots are: it rebuilds the cluster by lenient replay."""
    header = SnapshotHeader(last_contained_log_timestamp=0)
    yield bytes(control_batch(header, base_offset=0, epoch=epoch, timestamp_ms=0))
    offset = 1
    own = () if ended.partitions is None else ended.partitions()
    for batch in chain(_packed(ended.before), partitions, encoded(own), _packed(ended.behind)):
        yield _placed(batch, offset, epoch)
        offset += read_header(batch).record_count
    footer = SnapshotFooter()
    yield bytes(control_batch(footer, base_offset=offset, epoch=epoch, timestamp_ms=0))


def encoded(partitions: Iterable[tuple[PartitionKey, Partition]]) -> Iterator[bytes]:
    """Batches of partitions, each at offset 0."""
    return _packed(_partition(key[0], key[1], partition) for key, partition in partitions)


def _packed(records: Iterable[r.MetadataRecord]) -> Iterator[bytes]:
    return map(bytes, packed_batches(records, base_offset=0, epoch=0, timestamp_ms=0))


def _placed(batch: bytes, base_offset: int, epoch: int) -> bytes:
    """The same batch elsewhere: its CRC covers neither the offset nor the epoch."""
    moved = bytearray(batch)
    _OFFSET.pack_into(moved, 0, base_offset)
    _EPOCH.pack_into(moved, _EPOCH_AT, epoch)
    return bytes(moved)


def _partition(topic_id: TopicId, partition_id: int, partition: Partition) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
    )
