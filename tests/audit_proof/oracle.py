"""The Catalyst oracle beside the local engine: the same rows for the same small logs.

Every case of the rule book is a log of its own. The oracle replays them all at once, each as a
cluster of its own, since planning its SQL costs far more than running it.
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
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import batches_of, evidence_of, write_segment

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
        place = directory / f"case{number}"
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


def oracle_rows(session: Any, cases: Sequence[Case], directory: Path) -> dict[str, set[Row]]:
    """What the oracle tells of each; `local_rows` has written them."""
    logs = find_logs([str(directory)]).logs
    given = Given(
        paths=[str(directory)],
        logs=logs,
        clusters={log.node: log.node for log in logs},
        evidence={number: evidence_of(case.write()) for number, case in enumerate(cases)},
        defaults=KAFKA_DEFAULTS,
    )
    judge(session, given)
    told: dict[int, set[Row]] = defaultdict(set)
    for row in found(session).collect():
        told[row.log].add(
            Row(
                row.rule,
                row.offset,
                row.epoch,
                row.node == CLUSTER,
                row.topic,
                row.topic_id,
                row.partition,
                row.broker,
            )
        )
    return {case.name: told[number] for number, case in enumerate(cases)}


def differences(ours: Mapping[str, set[Row]], theirs: Mapping[str, set[Row]]) -> Iterator[str]:
    """One line for each row that only one of them has."""
    for name in ours:
        for row in sorted(ours[name] - theirs[name], key=str):
            yield f"{name}: only the local engine tells {row}"
        for row in sorted(theirs[name] - ours[name], key=str):
            yield f"{name}: only the oracle tells {row}"
