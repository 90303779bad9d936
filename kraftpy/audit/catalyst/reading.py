"""The tables that the oracle's SQL begins with, from the data source `kraft_log`.

`records` is one log for each cluster: that of the node that is most up to date, and what it lacks
from the others; and one for each snapshot, which is compared with it. What comes before a log's
first record is its oldest snapshot, at offsets below 0.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kraftpy.audit.catalyst.notes import SCHEMA as NOTES
from kraftpy.audit.local import EvidenceAt
from kraftpy.audit.rules.rule import Defaults, Evidence
from kraftpy.audit.snapshots import SnapshotAt, snapshot_bytes, snapshots_of
from kraftpy.audit.source.directories import LogDirectory
from kraftpy.audit.violations import Unchecked
from kraftpy.errors import StorageError
from kraftpy.storage.audit_notes import FILE_NAME, OLD_FILE_NAME
from kraftpy.types import uuid_text

# Logs of snapshots are numbered from here on.
SNAPSHOT_LOG: Final = 1_000_000_000
_EVIDENCE: Final = (
    "log int, base_offset long, unclean_elections array<string>, unclean_restarts array<int>, "
    "isr_requests map<string, struct<leader: int, leader_epoch: int, partition_epoch: int, "
    "epochs: map<int, long>>>, caught_up map<int, long>, partition_epochs map<string, long>"
)
_COLUMNS: Final = (
    "log int, offset long, epoch int, base_offset long, last_offset long, type int, "
    "type_name string, topic_id string, partition int, replicas array<int>, isr array<int>, "
    "removing array<int>, adding array<int>, elr array<int>, last_known_elr array<int>, "
    "leader int, recovery int, leader_epoch int, partition_epoch int, directories array<string>, "
    "broker int, broker_epoch long, name string, key string, value string, json string"
)
_NAMES: Final = [each.strip().split(" ")[0] for each in _COLUMNS.split(", ")]
_SAID: Final = ", ".join(f"r.{name}" for name in _NAMES[5:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What to read. `clusters`: which cluster a node belongs to; all to 0 if it is empty."""

    paths: Sequence[str]
    logs: Sequence[LogDirectory]
    clusters: Mapping[int, int] = field(default_factory=dict)
    evidence: Mapping[int, EvidenceAt] = field(default_factory=dict)  # By cluster.
    watermarks: Mapping[int, int] = field(default_factory=dict)  # By node.
    defaults: Defaults

    def cluster(self, node: int) -> int:
        return self.clusters.get(node, 0)


class Best(NamedTuple):
    """The log of a cluster that is replayed, and the snapshot that it begins with, if any."""

    log: int
    node: int
    start_offset: int
    end_offset: int
    seed_node: int
    seed_end: int  # 0: it begins with nothing.


class Reader:
    """Fills a session with the tables."""

    def __init__(self, session: SparkSession, given: Given) -> None:
        self._session = session
        self._given = given
        self.unchecked: list[Unchecked] = []

    def load(self) -> None:
        given = self._given
        self._rows(
            "nodes", "log int, node int", [(given.cluster(g.node), g.node) for g in given.logs]
        )
        starts = [(given.cluster(g.node), g.node, g.start_offset) for g in given.logs]
        self._rows("log_starts", "log int, node int, start_offset long", starts)
        marks = [(given.cluster(node), node, mark) for node, mark in given.watermarks.items()]
        self._rows("watermarks", "log int, node int, high_watermark long", marks)
        d = given.defaults
        self._rows(
            "defaults",
            "min_insync_replicas int, unclean_leader_election_enable boolean",
            [(d.min_insync_replicas, d.unclean_leader_election_enable)],
        )
        self._table("batches").createOrReplaceTempView("read_batches")
        keep(
            self._session,
            "all_batches",
            "select n.log, b.* from read_batches b join nodes n using (node)",
        )
        self._table("control").createOrReplaceTempView("read_controls")
        keep(
            self._session,
            "controls",
            "select n.log, c.* from read_controls c join nodes n using (node)",
        )
        self._load_records()
        self._load_notes()

    def _table(self, name: str, nodes: Sequence[int] | None = None) -> DataFrame:
        reader = self._session.read.format("kraft_log").option("table", name)
        if nodes is not None:
            reader = reader.option("nodes", ",".join(map(str, nodes)))
        return reader.option("paths", json.dumps(list(self._given.paths))).load()

    def _rows(self, name: str, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._session.createDataFrame(list(rows), schema).createOrReplaceTempView(name)

    # -- records ------------------------------------------------------------------------------

    def _load_records(self) -> None:
        snapshots = self._readable()
        best = self._best(snapshots)
        self._rows(
            "best",
            "log int, node int, start_offset long, end_offset long, seed_node int, seed_end long",
            best,
        )
        files = [(self._given.cluster(s.node), s.node, s.end_offset, s.epoch) for s in snapshots]
        self._rows("snapshot_files", "log int, node int, end_offset long, epoch int", files)
        compared = [
            (SNAPSHOT_LOG + number, self._given.cluster(s.node), s.node, s.end_offset, s.epoch)
            for number, s in enumerate(snapshots)
            for b in best
            if b.log == self._given.cluster(s.node) and b.seed_end < s.end_offset <= b.end_offset
        ]
        schema = "log int, of_log int, node int, end_offset long, epoch int"
        self._rows("snapshot_logs", schema, compared)
        self._table("records").createOrReplaceTempView("read_records")
        readable = sorted({s.node for s in snapshots})
        if readable:
            stored = self._table("snapshots", readable)
        else:
            stored = self._session.createDataFrame([], f"end_offset long, node int, {_COLUMNS}")
        stored.createOrReplaceTempView("read_snapshots")
        keep(self._session, "chosen_batches", _CHOSEN)
        keep(self._session, "records", _RECORDS)
        self._load_evidence()

    def _readable(self) -> list[SnapshotAt]:
        """A node with a snapshot that is damaged is left out, as its table cannot be read."""
        found: list[SnapshotAt] = []
        bad: set[int] = set()
        for each in snapshots_of(self._given.logs):
            try:
                snapshot_bytes(each)
                found.append(each)
            except (StorageError, OSError) as error:
                bad.add(each.node)
                self.unchecked.append(each.unchecked(str(error)))
        return [each for each in found if each.node not in bad]

    def _best(self, snapshots: Sequence[SnapshotAt]) -> list[Best]:
        rows = self._session.sql(
            "select a.log, a.node, s.start_offset, max(a.epoch) as epoch, max(a.end_offset) as end "
            "from all_batches a join log_starts s using (log, node) where a.damage is null "
            "group by a.log, a.node, s.start_offset"
        ).collect()
        found: dict[int, Any] = {}
        for row in sorted(rows, key=lambda r: (r.start_offset, -r.epoch, -r.end, r.node)):
            found.setdefault(row.log, row)
        return [self._seeded(row, snapshots) for row in found.values()]

    def _seeded(self, row: Any, snapshots: Sequence[SnapshotAt]) -> Best:
        fitting = [
            s
            for s in snapshots
            if self._given.cluster(s.node) == row.log and s.end_offset >= row.start_offset > 0
        ]
        first = min(fitting, key=lambda s: (s.node != row.node, s.end_offset), default=None)
        seed = (-1, 0) if first is None else (first.node, first.end_offset)
        return Best(row.log, row.node, row.start_offset, row.end, *seed)

    # -- what lies beside ---------------------------------------------------------------------

    def _load_evidence(self) -> None:
        rows = []
        if self._given.evidence:
            bases = self._session.sql("select distinct log, base_offset from records").collect()
            for row in bases:
                known = self._given.evidence.get(row.log, {}).get(row.base_offset)
                if known is not None:
                    rows.append((row.log, row.base_offset, *_evidence(known)))
        self._rows("evidence", _EVIDENCE, rows)

    def _load_notes(self) -> None:
        """Of nodes whose metadata log lies in a data directory with notes."""
        directories: dict[str, int] = {}
        for log in self._given.logs:
            parent = os.path.dirname(log.path)
            directories[parent] = self._given.cluster(log.node)
        files = [
            f"{directory}/{name}"
            for directory in directories
            for name in (OLD_FILE_NAME, FILE_NAME)
            if os.path.exists(f"{directory}/{name}")
        ]
        if not files:
            empty = self._session.createDataFrame([], f"log int, {NOTES}")
            empty.createOrReplaceTempView("notes")
            return
        read = self._session.read.schema(NOTES).option("mode", "DROPMALFORMED").json(files)
        path = f.regexp_replace(f.col("_metadata.file_path"), "^file:/*", "/")
        lines = read.withColumn("directory", f.regexp_replace(path, "/[^/]*$", ""))
        lines.createOrReplaceTempView("read_notes")
        self._rows("note_places", "directory string, log int", list(directories.items()))
        keep(self._session, "notes", _NOTES_OF_NODES)


def keep(session: SparkSession, name: str, sql: str) -> None:
    """Compute a view once. Logs are small here, so what is kept goes through this process, and
    what is computed from it begins with a plain table."""
    table: pa.Table = session.sql(sql).toArrow()
    session.createDataFrame(table).createOrReplaceTempView(name)


def _evidence(known: Evidence) -> tuple[Any, ...]:
    elections = known.unclean_elections
    restarts = known.unclean_restarts
    requests = known.isr_requests
    return (
        None if elections is None else sorted(map(_key, elections)),
        None if restarts is None else sorted(map(int, restarts)),
        None
        if requests is None
        else {
            _key(key): (int(q.leader), q.leader_epoch, q.partition_epoch, dict(q.broker_epochs))
            for key, q in requests.items()
        },
        None if known.caught_up is None else dict(known.caught_up),
        {_key(key): epoch for key, epoch in known.partition_epochs.items()},
    )


def _key(key: tuple[bytes, int]) -> str:
    return f"{uuid_text(key[0])}-{key[1]}"


_CHOSEN: Final = """
with good as (select * from all_batches where damage is null and not is_control),
own as (select g.* from good g join best b on b.log = g.log and b.node = g.node),
spare as (
  select g.* from good g join best b on b.log = g.log and b.node <> g.node
    and g.base_offset >= b.start_offset and g.end_offset <= b.end_offset
  left anti join (
    select a.log, a.base_offset, a.end_offset from all_batches a
    join best b on b.log = a.log and b.node = a.node where a.damage is null) o
  on o.log = g.log and o.base_offset < g.end_offset and g.base_offset < o.end_offset)
select log, node, base_offset, end_offset from own
union all
select log, min(node), base_offset, min_by(end_offset, node) from spare group by log, base_offset"""

_RECORDS: Final = f"""
select c.log, r.offset, r.epoch, r.base_offset, c.end_offset - 1 as last_offset, {_SAID}
from read_records r
join chosen_batches c on c.node = r.node and c.base_offset = r.base_offset
join best b on b.log = c.log and r.offset >= b.seed_end
union all
select b.log, r.offset - max(r.offset) over (partition by b.log) - 1, r.epoch, -1L, -1L, {_SAID}
from read_snapshots r join best b on b.seed_node = r.node and b.seed_end = r.end_offset
union all
select s.log, r.offset, r.epoch, r.base_offset, r.base_offset, {_SAID}
from read_snapshots r join snapshot_logs s on s.node = r.node and s.end_offset = r.end_offset"""

_NOTES_OF_NODES: Final = """
select p.log, n.* except (directory, node), max_by(if(kind = 'start', n.node, null),
    if(kind = 'start', (life, at), null)) over (partition by directory) as node
from read_notes n join note_places p using (directory)
where kind is not null and life is not null and at is not null"""
