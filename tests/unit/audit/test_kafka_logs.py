"""Logs in Apache Kafka's format, from files: real recordings are clean, historical bugs are named.

How the recordings were made is in their README files.
"""

import re
from pathlib import Path

import pytest

from kraftpy.audit.local import audit
from kraftpy.audit.rules import LogAudit, Writer
from kraftpy.audit.rules.rule import Defaults
from kraftpy.audit.run import Asked, run_audit
from kraftpy.audit.violations import AuditResult, ExitCode
from kraftpy.metadata_log import records as r
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import build_value_batch
from kraftpy.types import BrokerId
from tests.unit.audit.kafka_bugs import BUGS, Bug
from tests.unit.audit.kafka_directory_bugs import DIRECTORY_BUGS, DirectoryBug
from tests.unit.audit.kafka_encoding import kafka_value, uvarint, write_kafka_log
from tests.unit.audit.logs import (
    Log,
    brokers,
    cluster,
    ids,
    new_partition,
    reassigned_to_124,
    topic,
)

RECORDINGS = Path(__file__).parent / "recordings"


def shown(result: AuditResult) -> list[str]:
    return [str(each) for each in result.violations]


def test_a_recording_of_a_healthy_cluster_is_clean() -> None:
    result = audit([str(RECORDINGS / "kafka-4.3-churn")])
    assert shown(result) == []
    assert result.problems == []
    assert result.exit_code is ExitCode.CLEAN
    assert result.records > 300
    assert len(result.nodes) == 3
    assert len({each.leader for each in result.controllers}) == 2  # It failed over, twice.
    kinds = (r.TopicRecord, r.ConfigRecord, r.RemoveTopicRecord, r.RegisterBrokerRecord)
    assert all(result.record_types[kind.API_KEY] > 3 for kind in kinds)
    looked = {code for code, count in result.looked_at.items() if count}
    assert {f"A{number}" for number in (*range(1, 38), 38, 39, 40, 43, 44, 45, 46, 50)} <= looked


def test_a_real_bug_of_kafka_is_named() -> None:
    """Moved while it moves, a partition keeps what the first request was about to remove."""
    result = audit([str(RECORDINGS / "kafka-4.3-careless")])
    assert set(result.counts) == {"A20", "A21"}
    assert (result.violations[0].topic, result.violations[0].offset) == ("churn-1", 49)


@pytest.mark.parametrize("known", BUGS, ids=lambda known: known.number)
def test_a_bug_that_kafka_had_is_named(known: Bug, tmp_path: Path) -> None:
    result = audit([write_kafka_log(tmp_path, known.write())])
    assert result.problems == []
    assert known.rules <= set(result.counts), shown(result)
    end = result.nodes[0].end_offset
    assert all(each.offset >= end - 5 for each in result.violations), shown(result)


@pytest.mark.parametrize("known", DIRECTORY_BUGS, ids=lambda known: known.number)
def test_a_bug_that_directories_show_is_named(known: DirectoryBug, tmp_path: Path) -> None:
    for has_bug in (True, False):
        place = tmp_path / str(has_bug)
        known.write(place, has_bug)
        history = place / "history.jsonl"
        asked = Asked(
            paths=[str(place)],
            run="t",
            with_data=known.with_data,
            history=str(history) if history.exists() else None,
        )
        result = run_audit(OsFiles(), asked)
        if has_bug:
            assert known.rules <= set(result.counts), shown(result)
        else:
            assert shown(result) == []
            assert result.problems == []


def test_the_docs_list_every_bug() -> None:
    text = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    for named in [*(each.number for each in BUGS), *(each.number for each in DIRECTORY_BUGS)]:
        for number in re.findall(r"\d{3,}", named):
            assert number in text, named


@pytest.mark.parametrize("writer", [cluster, reassigned_to_124, lambda: cluster(elr=True)])
def test_logs_without_a_bug_are_clean(writer: object, tmp_path: Path) -> None:
    assert callable(writer)
    assert shown(audit([write_kafka_log(tmp_path, writer())])) == []


def test_records_of_others_are_told_by_id_and_passed_over(tmp_path: Path) -> None:
    path = Path(write_kafka_log(tmp_path, cluster())) / f"{0:020d}.log"
    end = audit([str(tmp_path)]).nodes[0].end_offset
    automq = uvarint(1) + uvarint(501) + uvarint(0) + b"S3"
    change = kafka_value(r.NoOpRecord())
    more = build_value_batch([automq, change], base_offset=end, leader_epoch=1, timestamp_ms=0)
    path.write_bytes(path.read_bytes() + bytes(more))
    result = audit([str(tmp_path)])
    assert shown(result) == []
    (told,) = [each for each in result.unchecked if each.kind == "unknown_record"]
    assert "501" in told.reason
    assert told.offset == end


# -- what Kafka may do, and kraftpy does not -------------------------------------------------------


def judged(log: Log, writer: Writer) -> set[str]:
    judge = LogAudit(defaults=Defaults(writer=writer))
    found = []
    for base, records, _ in log.batches:
        found += judge.batch(records, base_offset=base, epoch=1)
    return {each.rule.code for each in found}


def two_registrations_in_one_batch() -> Log:
    log = cluster()
    second = log.register(6, broker_epoch=log.end_offset + 1)
    log.write(log.register(5), second)
    return log


def an_unfence_behind_a_creation() -> Log:
    log = brokers(1, 2, 3)
    log.write(log.fence(3))
    log.write(topic(), new_partition(isr=ids(1, 2)), log.unfence(3))
    return log


def a_growing_isr_beside_a_fence() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.fence(4), log.change(isr=ids(1, 2, 3)))
    return log


def an_end_with_an_old_replica_out_of_sync() -> Log:
    log = reassigned_to_124()
    log.write(log.change(isr=ids(1, 3)))
    log.write(
        log.change(
            isr=ids(1, 4),
            leader=BrokerId(1),
            replicas=ids(1, 2, 4),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        (two_registrations_in_one_batch(), "A26"),
        (an_unfence_behind_a_creation(), "A7"),
        (a_growing_isr_beside_a_fence(), "A14"),
        (an_end_with_an_old_replica_out_of_sync(), "A22"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_kafkas_customs_are_allowed_to_kafka_only(log: Log, rule: str) -> None:
    assert judged(log, Writer.KAFKA) == set()
    assert rule in judged(log, Writer.KRAFTPY)
