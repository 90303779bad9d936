"""What the oracle looked at: nodes, records, damage, lost ranges, controllers."""

from collections import Counter
from collections.abc import Collection, Sequence

from pyspark.sql import SparkSession

from kraftpy.audit.catalyst.reading import SNAPSHOT_LOG
from kraftpy.audit.coverage import BATCHES, ENTITIES, LEADERS, LOGS, VOTERS, looked_at
from kraftpy.audit.source.directories import LogDirectory
from kraftpy.audit.violations import AuditResult, ControllerChange, NodeSummary, Unchecked

_NODES = """
select node, count(*) as batches, sum(if(is_control, 0, records)) as records, sum(size) as bytes,
  min(base_offset) as start_offset, max(end_offset) as end_offset, min(timestamp_ms) as first_ms,
  max(timestamp_ms) as last_ms
from good_batches group by node"""
_LOST = """
select due, base_offset from (
  select base_offset, lag(end_offset) over (order by base_offset) as due from (
    select base_offset, end_offset from chosen_batches
    union select c.base_offset, c.end_offset from good_batches c join best b using (log, node)
    where c.is_control))
where base_offset > due order by due"""
_NOTED = {
    40: "leader",
    41: "vote",
    48: "high_watermark",
    52: "applied",
    53: "replica",
    59: "replica",
}


def summarize(
    session: SparkSession,
    result: AuditResult,
    logs: Sequence[LogDirectory],
    undecided: Collection[int],
) -> int | None:
    """Put it into the result; the first offset that is lost, if one is."""
    ends = {row.node: row.high_watermark for row in session.table("log_ends").collect()}
    nodes = {row.node: row for row in session.sql(_NODES).collect()}
    for log in logs:
        row = nodes.get(log.node)
        result.nodes.append(
            NodeSummary(
                node=log.node,
                path=log.path,
                format="" if row else "empty",
                start_offset=row.start_offset if row else 0,
                end_offset=row.end_offset if row else 0,
                high_watermark=ends.get(log.node, -1),
                batches=row.batches if row else 0,
                records=row.records if row else 0,
                bytes=row.bytes if row else 0,
                snapshots=len(log.snapshots),
            )
        )
    if not nodes:
        result.problems.append("the logs hold no batch")
    else:
        result.first_timestamp_ms = min(row.first_ms for row in nodes.values())
        result.last_timestamp_ms = max(row.last_ms for row in nodes.values())
    _add_counts(session, result, len(logs), sum(row.batches for row in nodes.values()))
    result.looked_at |= {f"A{number}": 0 for number in undecided}
    return _add_damage(session, result)


def _add_counts(session: SparkSession, result: AuditResult, logs: int, batches: int) -> None:
    types = session.sql(
        f"select type, count(*) as n from records where log < {SNAPSHOT_LOG} and offset >= 0 "
        "group by type"
    ).collect()
    result.record_types = Counter({row.type: row.n for row in types})
    result.records = sum(result.record_types.values())
    controls = Counter(
        {
            row.kind: row["count"]
            for row in session.table("controls").groupBy("kind").count().collect()
        }
    )
    others = {
        BATCHES: batches,
        LEADERS: controls["LeaderChange"],
        VOTERS: controls["Voters"],
        LOGS: logs,
        ENTITIES: session.table("entities").where("is_stored").count(),
    }
    result.looked_at = looked_at(result.record_types, others)
    noted = Counter(
        {row.kind: row["count"] for row in session.table("notes").groupBy("kind").count().collect()}
    )
    for number, kind in _NOTED.items():
        result.looked_at[f"A{number}"] += noted[kind]
    leaders = session.sql(
        "select distinct epoch, leader, offset, timestamp_ms from controls "
        "where kind = 'LeaderChange'"
    )
    result.controllers = sorted(
        ControllerChange(row.epoch, row.leader, row.offset, row.timestamp_ms)
        for row in leaders.collect()
    )


def _add_damage(session: SparkSession, result: AuditResult) -> int | None:
    for row in session.table("all_batches").where("damage is not null").collect():
        where = f"{row.path} at position {row.position}: {row.damage}"
        result.skip(
            Unchecked("damaged", row.node, row.base_offset, row.end_offset, row.records, where)
        )
    lost = session.sql(_LOST).collect()
    for row in lost:
        reason = "no node has it whole; what follows may follow from it"
        count = row.base_offset - row.due
        result.skip(Unchecked("lost_range", -1, row.due, row.base_offset, count, reason))
    return lost[0].due if lost else None
