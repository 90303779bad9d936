"""What every engine does before and after its work: the result's frame."""

from collections.abc import Mapping, Sequence

from kraftpy.audit.coverage import BATCHES, ENTITIES, LEADERS, LOGS, VOTERS, looked_at
from kraftpy.audit.kafka.decoding import is_kafka_value
from kraftpy.audit.lanes import Looked
from kraftpy.audit.source.chunks import chunks
from kraftpy.audit.source.directories import Found, LogDirectory
from kraftpy.audit.source.pieces import Plan
from kraftpy.audit.source.survey import NodeSurvey, Survey, log_rows
from kraftpy.audit.violations import AuditResult, ControllerChange, NodeSummary, Unchecked
from kraftpy.errors import InvalidBatch
from kraftpy.storage.record_batch import iter_records, read_header


def begin_result(run: str, engine: str, found: Found) -> tuple[AuditResult, list[LogDirectory]]:
    """An empty result, with a line for each path that is of no use."""
    result = AuditResult(run=run, engine=engine)
    result.problems += found.problems
    for problem in found.problems:
        result.skip(Unchecked("directory", -1, -1, -1, 0, problem))
    return result, found.logs


def is_kafka_log(plan: Plan) -> bool:
    """Whether the first record that is there was written by Apache Kafka."""
    for chunk in chunks(plan):
        at = 0
        while at < len(chunk.data):
            header = read_header(chunk.data, at)
            batch = chunk.data[at : at + header.size]
            at += header.size
            if header.is_control:
                continue
            try:
                return any(is_kafka_value(each.value or b"") for each in iter_records(batch))
            except InvalidBatch:
                continue
    return False


def finish_result(
    result: AuditResult,
    survey: Survey | None = None,
    logs: Sequence[LogDirectory] = (),
    watermarks: Mapping[int, int] | None = None,
    looked: Looked | None = None,
    plan: Plan | None = None,
) -> AuditResult:
    """Put in what was looked at and what was not, and bring all of it in order."""
    if survey is not None:
        _add_survey(result, survey, logs, watermarks)
    if survey is not None and not any(node.batches for node in survey.nodes.values()):
        result.problems.append("the logs hold no batch")
    if plan is not None:
        _add_plan(result, plan)
    looked = looked or Looked()
    result.record_types = looked.types
    result.records = sum(looked.types.values())
    for unchecked in sorted(looked.unchecked, key=lambda each: (each.offset, each.kind)):
        result.skip(unchecked)
    nodes = list(survey.nodes.values()) if survey is not None else []
    others = {
        BATCHES: sum(node.batches for node in nodes),
        LEADERS: sum(len(node.leaders) for node in nodes),
        VOTERS: sum(len(node.voters) for node in nodes),
        LOGS: len(nodes),
        ENTITIES: looked.entities,
    }
    result.looked_at = looked_at(looked.types, others)
    result.sort()
    result.timings["all"] = sum(result.timings.values())
    return result


def _add_survey(
    result: AuditResult,
    survey: Survey,
    logs: Sequence[LogDirectory],
    watermarks: Mapping[int, int] | None,
) -> None:
    ends = {row.node: row for row in log_rows(survey, logs, watermarks)}
    for log in logs:
        node = survey.nodes[log.node]
        result.nodes.append(
            NodeSummary(
                node=log.node,
                path=log.path,
                format="" if node.batches else "empty",
                start_offset=node.start_offset,
                end_offset=node.end_offset,
                high_watermark=ends[log.node].high_watermark,
                batches=node.batches,
                records=node.records,
                bytes=node.bytes,
                snapshots=len(log.snapshots),
            )
        )
        _add_damage(result, node)
    changes = sorted(
        {(row.epoch, row.leader, row.offset) for n in survey.nodes.values() for row in n.leaders}
    )
    times = {k: v for node in survey.nodes.values() for k, v in node.leaders_at_ms.items()}
    result.controllers = [
        ControllerChange(epoch, leader, offset, times.get((epoch, leader), -1))
        for epoch, leader, offset in changes
    ]
    used = [node for node in survey.nodes.values() if node.batches]
    if used:
        result.first_timestamp_ms = min(node.first_timestamp_ms for node in used)
        result.last_timestamp_ms = max(node.last_timestamp_ms for node in used)


def _add_damage(result: AuditResult, node: NodeSurvey) -> None:
    for row in node.damaged:
        where = f"{row.path} at position {row.position}: {row.damage}"
        result.skip(
            Unchecked("damaged", node.node, row.base_offset, row.end_offset, row.records, where)
        )
    if node.torn_bytes:
        reason = f"{node.torn_bytes} bytes of an unfinished batch"
        result.skip(Unchecked("torn_tail", node.node, node.end_offset, node.end_offset, 0, reason))


def _add_plan(result: AuditResult, plan: Plan) -> None:
    for lost in plan.lost:
        reason = "no node has it whole; what follows may follow from it"
        count = lost.end_offset - lost.offset
        result.skip(Unchecked("lost_range", -1, lost.offset, lost.end_offset, count, reason))
    if plan.start_offset > 0 and plan.snapshot is None:
        result.problems.append(
            f"the log begins at offset {plan.start_offset}, and no snapshot leads there"
        )
    elif plan.snapshot is not None:
        end = plan.snapshot.end_offset
        reason = "before the snapshot that the replay begins with"
        result.skip(Unchecked("before_snapshot", plan.node, 0, end, end, reason))
