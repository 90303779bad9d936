"""What lies beside the logs: notes become rows and evidence, partitions of data are read whole."""

import json
from pathlib import Path
from typing import Any

from kraftpy.audit.local import Options, audit
from kraftpy.audit.recorded import NotedEvidence, check_notes, find_places, read_node_notes
from kraftpy.audit.recorded.data import check_data
from kraftpy.audit.report import chronicle_of
from kraftpy.audit.rules.rule import NO_EVIDENCE
from kraftpy.audit.run import Asked, run_audit
from kraftpy.metadata_log import records as r
from kraftpy.storage.audit_notes import FILE_NAME
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import Record, build_batch
from kraftpy.types import BrokerId, uuid_text
from tests.unit.audit.log_files import batch, leader, write_segment
from tests.unit.audit.logs import ORDERS, Log, ids, new_partition, topic

LOG = "__cluster_metadata-0"


def lead_note(node: int, epoch: int) -> dict[str, Any]:
    return {"kind": "leader", "leader": node, "epoch": epoch}


def write_notes(directory: Path, node: int, *lines: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    start = {"kind": "start", "node": node, "role": "controller"}
    known = [{"life": 0, "at": at, "time_ms": 5, **line} for at, line in enumerate((start, *lines))]
    text = "".join(json.dumps(line) + "\n" for line in known)
    (directory / FILE_NAME).write_text(text)
    return directory


def unclean_cluster() -> Log:
    """orders-0 on 1 and 2: 2 falls out of sync, 1 dies, 2 is elected all the same."""
    log = Log()
    log.end_offset = 1
    for broker in (1, 2):
        log.write(log.register(broker))
        log.write(log.unfence(broker))
    log.write(topic(), new_partition(replicas=ids(1, 2)))
    log.write(log.change(isr=ids(1)))
    log.write(log.change(leader=BrokerId(-1)), log.fence(1))
    log.write(
        log.change(isr=ids(2), leader=BrokerId(2), leader_recovery_state=r.RECOVERING),
    )
    return log


def write_log(directory: Path, log: Log) -> None:
    batches = [leader(0, 1), *(batch(records, base) for base, records, _ in log.batches)]
    write_segment(directory / LOG, batches)
    (directory / LOG / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    (directory / "meta.properties").write_text("version=1\nnode.id=1\n")


def codes(directory: Path, **asked: Any) -> set[str]:
    return set(run_audit(OsFiles(), Asked(paths=[str(directory)], run="t", **asked)).counts)


def request(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "unclean_election_request",
        "principal": "User:ann",
        "offset": 3,
        "all": False,
        "partitions": [["orders", uuid_text(ORDERS), 0]],
        **changed,
    }


def test_an_unclean_election_that_nobody_asked_for_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, unclean_cluster())
    assert codes(tmp_path) == set()  # Somebody may have asked: nothing is proven.
    write_notes(tmp_path, 1, lead_note(1, 1))
    assert codes(tmp_path) == {"A10"}
    write_notes(tmp_path, 1, lead_note(1, 1), request())
    assert codes(tmp_path) == set()
    write_notes(tmp_path, 1, lead_note(1, 1), request(all=True, partitions=[]))
    assert codes(tmp_path) == set()
    write_notes(tmp_path, 2, lead_note(1, 1))  # Not of the controller that led.
    assert codes(tmp_path) == set()


def test_evidence_is_of_the_epochs_that_were_noted(tmp_path: Path) -> None:
    notes = read_node_notes(OsFiles(), str(write_notes(tmp_path, 1, lead_note(1, 2), request())))
    evidence = NotedEvidence([notes], [(0, 1), (10, 2), (20, 3)])
    assert evidence[5] is NO_EVIDENCE
    assert evidence[12].unclean_elections == frozenset({(ORDERS, 0)})
    assert evidence[25] is NO_EVIDENCE
    assert notes.requests[0].principal == "User:ann"


def test_notes_of_two_nodes_are_compared(tmp_path: Path) -> None:
    applied = {"kind": "applied", "offset": 100}
    vote = {"kind": "vote", "epoch": 5}
    nodes = [
        write_notes(tmp_path / "1", 1, {**applied, "digest": "aa"}, lead_note(1, 4)),
        write_notes(
            tmp_path / "2",
            2,
            {**applied, "digest": "bb"},
            {**vote, "voted": 1},
            {**vote, "voted": 2},
            {"kind": "truncation", "offset": 5, "high_watermark": 9},
            {"kind": "high_watermark", "offset": 90, "epoch": 4},
            lead_note(2, 4),
        ),
    ]
    found = check_notes([read_node_notes(OsFiles(), str(path)) for path in nodes], [(2, 50)])
    assert sorted(each.rule.number for each in found.violations) == [40, 41, 48, 48, 52]
    assert found.looked_at == {"A40": 2, "A41": 2, "A48": 2, "A52": 2}


def test_lines_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    path = write_notes(tmp_path, 1, {"kind": "later"}, {"kind": "vote"}, lead_note(1, 1))
    notes = read_node_notes(OsFiles(), str(path))
    assert (notes.not_understood, len(notes.leaders)) == (2, 1)
    assert not read_node_notes(OsFiles(), str(tmp_path / "none"))


# -- partitions of data ----------------------------------------------------------------------------


def write_replica(node: Path, values: list[str], *, epoch: int = 0, sequence: int = 0) -> None:
    path = node / "orders-0"
    path.mkdir(parents=True)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(ORDERS)}\n")
    data = b""
    for offset, value in enumerate(values):
        record = Record(offset=offset, timestamp=0, key=None, value=value.encode())
        data += build_batch(
            [record],
            leader_epoch=epoch,
            producer_id=0,
            producer_epoch=0,
            base_sequence=sequence + offset,
        )
    (path / f"{0:020d}.log").write_bytes(data)
    (path / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    end = f"0\n1\norders 0 {len(values)}\n"
    (node / "replication-offset-checkpoint").write_text(end)


def two_brokers(directory: Path, *replicas: list[str], epoch: int = 0) -> list[Path]:
    log = Log()
    log.end_offset = 1
    for broker in (1, 2):
        log.write(log.register(broker))
        log.write(log.unfence(broker))
    log.write(
        r.ProducerIdsRecord(
            broker_id=BrokerId(1), broker_epoch=log.epoch_of(1), next_producer_id=1000
        )
    )
    log.write(topic(), new_partition(replicas=ids(1, 2)))
    nodes = []
    for number, values in enumerate(replicas, 1):
        node = directory / f"node-{number}"
        write_log(node, log)
        (node / "meta.properties").write_text(f"version=1\nnode.id={number}\n")
        write_replica(node, values, epoch=epoch)
        nodes.append(node)
    return nodes


def test_equal_replicas_are_clean(tmp_path: Path) -> None:
    two_brokers(tmp_path, ["a", "b"], ["a", "b"])
    result = run_audit(OsFiles(), Asked(paths=[str(tmp_path)], run="t", with_data=True))
    assert [str(each) for each in result.violations] == []
    assert [result.looked_at[f"A{n}"] for n in (55, 56, 58)] == [4, 2, 4]


def test_replicas_that_differ_are_named(tmp_path: Path) -> None:
    two_brokers(tmp_path, ["a", "b"], ["a", "c"])
    assert codes(tmp_path, with_data=True) == {"A55"}


def test_an_epoch_that_no_leader_had_is_named(tmp_path: Path) -> None:
    two_brokers(tmp_path, ["a"], ["a"], epoch=3)
    assert codes(tmp_path, with_data=True) == {"A56"}


def test_acknowledged_records_are_looked_for(tmp_path: Path) -> None:
    two_brokers(tmp_path / "nodes", ["a", "b"], ["a"])
    history = tmp_path / "history.jsonl"
    sends = [
        {"type": "ok", "f": "send", "k": "orders-0", "off": 0, "lepoch": 0, "node": "b1"},
        {"type": "info", "f": "send", "k": "orders-0", "off": 9},
        {"type": "ok", "f": "poll", "k": "orders-0", "off": 9},
    ]
    history.write_text("".join(json.dumps(each) + "\n" for each in sends) + "torn")
    assert codes(tmp_path / "nodes", history=str(history)) == set()
    sends[0] |= {"off": 1, "node": "b2"}
    history.write_text(json.dumps(sends[0]))
    assert codes(tmp_path / "nodes", history=str(history)) == {"A54", "A57"}


def test_damaged_data_is_a_problem_and_not_a_verdict(tmp_path: Path) -> None:
    node, _ = two_brokers(tmp_path, ["a", "b"], ["a", "b"])
    path = node / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[64] ^= 0xFF
    path.write_bytes(data)
    found = check_data(OsFiles(), find_places([str(tmp_path)]))
    assert len(found.problems) == 1
    assert "corrupt" in found.problems[0]


# -- chronicles ------------------------------------------------------------------------------------


def test_a_chronicle_follows_who_is_asked_for_and_sums_up_the_rest(tmp_path: Path) -> None:
    write_log(tmp_path, unclean_cluster())
    found = chronicle_of(OsFiles(), str(tmp_path / LOG), [("orders", 0)])
    states = [event.state for event in found.partitions["orders", 0]]
    assert [state.leader for state in states if state] == [1, 1, -1, 2]
    assert [event.state for event in found.brokers[1]] == ["fenced", "active", "fenced"]
    assert [(event.epoch, event.leader) for event in found.controllers] == [(1, 1)]
    last = found.buckets[-1]
    assert (last.isr_shrinks, last.elections, last.leaders, last.leaderless) == (2, 2, {2: 1}, 0)
    assert sum(bucket.records for bucket in found.buckets) == 10


def test_an_audit_without_notes_is_that_of_the_engine(tmp_path: Path) -> None:
    write_log(tmp_path, unclean_cluster())
    alone = audit([str(tmp_path)], Options(run="t"))
    assert alone.counts == run_audit(OsFiles(), Asked(paths=[str(tmp_path)], run="t")).counts
