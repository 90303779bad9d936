"""The Catalyst oracle beside the local engine: the same rows for the same small logs.

The logs are those of planting.py, with few good records around the cases, and the three nodes of
nodes.py. The oracle replays them all at once, each as a cluster of its own, since planning its SQL
costs far more than running it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kraftpy.audit.catalyst.engine import found, judge
from kraftpy.audit.catalyst.reading import Given
from kraftpy.audit.local import WHOLE, EvidenceAt, Options, audit
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.audit.source.directories import find_logs
from kraftpy.audit.violations import CLUSTER
from tests.audit_proof.good import good_records
from tests.audit_proof.nodes import NODES, NodesPlot, write_nodes
from tests.audit_proof.nodes import Found as OfNodes
from tests.audit_proof.planting import every_case, plots, write_plot

GOOD_RECORDS = 300
FIRST = 1000  # The node of the first log: those below are nodes of one cluster.


class Row(NamedTuple):
    """A violation, but for the words in which an engine tells what was due and what it found."""

    rule: int
    offset: int
    epoch: int
    is_cluster: bool  # Or of the node, of which a log has one.
    topic: str | None
    topic_id: str | None
    partition: int | None
    broker: int | None


@dataclass(frozen=True)
class Small:
    """The logs, by name, and what lies beside them."""

    directory: Path
    evidence: dict[str, EvidenceAt]
    quorum: NodesPlot

    def log(self, name: str) -> str:
        return str(self.directory / f"log{FIRST + list(self.evidence).index(name)}")


def write_small(directory: Path) -> Small:
    good = good_records(GOOD_RECORDS, directory / "good")
    evidence: dict[str, EvidenceAt] = {}
    for number, (name, cases) in enumerate(plots(every_case()).items(), FIRST):
        evidence[name] = write_plot(name, cases, good, directory / f"log{number}").evidence
    return Small(directory, evidence, write_nodes(good, directory / "nodes"))


def local_rows(small: Small) -> dict[str, set[Row]]:
    """What the local engine tells of each log."""
    told = {}
    for name, evidence in small.evidence.items():
        result = audit([small.log(name)], Options(mode=WHOLE, evidence=evidence))
        told[name] = {
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


def oracle_rows(session: Any, small: Small) -> tuple[dict[str, set[Row]], set[OfNodes]]:
    """What the oracle tells of each log, and of the three nodes."""
    paths = [str(small.quorum.directory), *map(small.log, small.evidence)]
    logs = find_logs(paths).logs
    given = Given(
        paths=paths,
        logs=logs,
        clusters={log.node: log.node for log in logs} | dict.fromkeys(NODES, NODES[0]),
        evidence=dict(enumerate(small.evidence.values(), FIRST)),
        watermarks=small.quorum.watermarks,
        defaults=KAFKA_DEFAULTS,
    )
    judge(session, given)
    told: dict[int, set[Row]] = defaultdict(set)
    of_nodes = set()
    for row in found(session).collect():
        if row.log == NODES[0]:
            of_nodes.add((f"A{row.rule}", row.node, row.offset))
            continue
        place = row.topic, row.topic_id, row.partition, row.broker
        told[row.log].add(Row(row.rule, row.offset, row.epoch, row.node == CLUSTER, *place))
    return {name: told[number] for number, name in enumerate(small.evidence, FIRST)}, of_nodes


def differences(ours: Mapping[str, set[Row]], theirs: Mapping[str, set[Row]]) -> Iterator[str]:
    """One line for each row that only one of them has."""
    for name in ours:
        for row in sorted(ours[name] - theirs[name], key=str):
            yield f"{name}: only the local engine tells {row}"
        for row in sorted(theirs[name] - ours[name], key=str):
            yield f"{name}: only the oracle tells {row}"
