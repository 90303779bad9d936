"""The Catalyst oracle beside the local engine: the same rows for the same small logs.

The logs are those of planting.py, with few good records around the cases, the three nodes of
nodes.py, and recordings of Apache Kafka. The oracle replays them all at once, each as a cluster of
its own, since planning its SQL costs far more than running it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kraftpy.audit.catalyst.engine import found, judge
from kraftpy.audit.catalyst.reading import Given
from kraftpy.audit.catalyst.undecided import UNDECIDED_OF_KAFKA
from kraftpy.audit.local import WHOLE, EvidenceAt, Options, audit
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.audit.source.directories import find_logs
from kraftpy.audit.violations import CLUSTER
from tests.audit_proof.good import good_records
from tests.audit_proof.nodes import Found as OfNodes
from tests.audit_proof.nodes import NodesPlot, write_nodes
from tests.audit_proof.planting import every_case, plots, write_plot

GOOD_RECORDS = 300
RECORDINGS = Path(__file__).parents[1] / "unit" / "audit" / "recordings"
RECORDED = ("kafka-4.3-careless", "kafka-4.3-churn")
QUORUM = "nodes"


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
    """Clusters by name: where they are, and what lies beside them."""

    paths: dict[str, str]
    evidence: dict[str, EvidenceAt]
    quorum: NodesPlot

    @property
    def names(self) -> list[str]:
        """A cluster's number is its place among them."""
        return list(self.paths)


def write_small(directory: Path, records: int = GOOD_RECORDS) -> Small:
    """With that many good records in each log."""
    good = good_records(records, directory / "good", topics=2, per_topic=3)
    quorum = write_nodes(good, directory / QUORUM)
    paths, evidence = {QUORUM: str(quorum.directory)}, {}
    for number, (name, cases) in enumerate(plots(every_case()).items()):
        place = directory / f"log{number}"
        evidence[name] = write_plot(name, cases, good, place).evidence
        paths[name] = str(place)
    paths |= {name: str(RECORDINGS / name) for name in RECORDED}
    return Small(paths, evidence, quorum)


def local_rows(small: Small) -> dict[str, set[Row]]:
    """What the local engine tells of each, as far as the oracle decides it; of the nodes, what was
    planted."""
    told: dict[str, set[Row]] = {}
    for name in small.names:
        if name == QUORUM:
            continue
        result = audit([small.paths[name]], Options(mode=WHOLE, evidence=small.evidence.get(name)))
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
            if name not in RECORDED or each.number not in UNDECIDED_OF_KAFKA
        }
    return told


def oracle_rows(session: Any, small: Small) -> tuple[dict[str, set[Row]], set[OfNodes]]:
    """What the oracle tells of each cluster, and of the three nodes."""
    logs = find_logs(list(small.paths.values())).logs
    places = {path: number for number, path in enumerate(small.paths.values())}
    clusters = {
        log.node: next(n for path, n in places.items() if f"{log.path}/".startswith(f"{path}/"))
        for log in logs
    }
    given = Given(
        paths=list(small.paths.values()),
        logs=logs,
        clusters=clusters,
        evidence={small.names.index(name): known for name, known in small.evidence.items()},
        watermarks=small.quorum.watermarks,
        defaults=KAFKA_DEFAULTS,
    )
    judge(session, given)
    told: dict[str, set[Row]] = {name: set() for name in small.names if name != QUORUM}
    of_nodes = set()
    for row in found(session).collect():
        name = small.names[row.log]
        if name == QUORUM:
            of_nodes.add((f"A{row.rule}", row.node, row.offset))
        elif name not in RECORDED or row.rule not in UNDECIDED_OF_KAFKA:
            place = row.topic, row.topic_id, row.partition, row.broker
            told[name].add(Row(row.rule, row.offset, row.epoch, row.node == CLUSTER, *place))
    return told, of_nodes


def differences(ours: Mapping[str, set[Row]], theirs: Mapping[str, set[Row]]) -> Iterator[str]:
    """One line for each row that only one of them has."""
    for name in ours:
        for row in sorted(ours[name] - theirs[name], key=str):
            yield f"{name}: only the local engine tells {row}"
        for row in sorted(theirs[name] - ours[name], key=str):
            yield f"{name}: only the oracle tells {row}"
