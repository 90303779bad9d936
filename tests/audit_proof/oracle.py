"""The Catalyst oracle beside the local engine: the same rows for the same small logs.

Every case of the rule book is a log of its own, and three nodes have all that is wrong with logs
and notes (nodes.py). The oracle replays them all at once, each as a cluster of its own, since
planning its SQL costs far more than running it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kraftpy.audit.catalyst.engine import found, judge
from kraftpy.audit.catalyst.reading import Given
from kraftpy.audit.local import WHOLE, Options, audit
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.audit.source.directories import find_logs
from kraftpy.audit.violations import CLUSTER
from tests.audit_proof.nodes import NODES, Found, NodesPlot
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import batches_of, evidence_of, write_segment

FIRST = 1000  # The node of the first case: those below are nodes of one cluster.
LOADED = (partition_logs, placement_logs, cluster_logs)


class Row(NamedTuple):
    """A violation, but for the words in which an engine tells what was due and what it found."""

    rule: int
    offset: int
    epoch: int
    is_cluster: bool  # Or of the node, of which a case has one.
    topic: str | None
    topic_id: str | None
    partition: int | None
    broker: int | None


def distinct_cases() -> list[Case]:
    return list({case.name: case for case in (*KEEPING, *BREAKING)}.values())


def local_rows(cases: Sequence[Case], directory: Path) -> dict[str, set[Row]]:
    """What the local engine tells of each."""
    told = {}
    for number, case in enumerate(cases):
        log = case.write()
        place = directory / f"case{FIRST + number}"
        write_segment(place, batches_of(log))
        result = audit([str(place)], Options(mode=WHOLE, evidence=evidence_of(log)))
        told[case.name] = {
            Row(
                each.number,
                each.offset,
                each.epoch,
                each.node == CLUSTER,
                each.topic,
                each.topic_id,
                each.partition,
                each.broker,
            )
            for each in result.violations
        }
    return told


def oracle_rows(
    session: Any, cases: Sequence[Case], directory: Path, quorum: NodesPlot
) -> tuple[dict[str, set[Row]], set[Found]]:
    """What the oracle tells of each, and of three nodes that are a cluster, too; the cases were
    written by `local_rows`."""
    paths = [str(quorum.directory), str(directory)]
    logs = find_logs(paths).logs
    clusters = {log.node: log.node for log in logs} | dict.fromkeys(NODES, NODES[0])
    evidence = {FIRST + n: evidence_of(case.write()) for n, case in enumerate(cases)}
    given = Given(
        paths=paths,
        logs=logs,
        clusters=clusters,
        evidence=evidence,
        watermarks=quorum.watermarks,
        defaults=KAFKA_DEFAULTS,
    )
    judge(session, given)
    told: dict[int, set[Row]] = defaultdict(set)
    of_nodes = set()
    for row in found(session).collect():
        if row.log == NODES[0]:
            of_nodes.add((f"A{row.rule}", row.node, row.offset))
        else:
            told[row.log].add(row_of(row))
    return {case.name: told[FIRST + n] for n, case in enumerate(cases)}, of_nodes


def row_of(row: Any) -> Row:
    """Of Spark's."""
    is_cluster = row.node == CLUSTER
    place = row.topic, row.topic_id, row.partition, row.broker
    return Row(row.rule, row.offset, row.epoch, is_cluster, *place)


def differences(ours: Mapping[str, set[Row]], theirs: Mapping[str, set[Row]]) -> Iterator[str]:
    """One line for each row that only one of them has."""
    for name in ours:
        for row in sorted(ours[name] - theirs[name], key=str):
            yield f"{name}: only the local engine tells {row}"
        for row in sorted(theirs[name] - ours[name], key=str):
            yield f"{name}: only the oracle tells {row}"
