"""Bugs that Apache Kafka has had and that one log alone does not show: snapshots, voters, replicas.

Each is what the version with the bug could have left on disk, in Kafka's own format; the audit must
name the rule that it breaks. With the bug left out the same directory is clean.

What no directory shows, and why, is in docs/audit.md ("Bugs that Kafka has had").
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import control_batch
from kraftpy.metadata_log.control_records import Voter, Voters
from kraftpy.types import ZERO_UUID, BrokerId, Uuid
from tests.unit.audit.kafka_encoding import (
    kafka_batch,
    kafka_batches,
    write_kafka_log,
    write_kafka_snapshot,
)
from tests.unit.audit.log_files import leader, write_segment
from tests.unit.audit.logs import (
    Log,
    brokers,
    cluster,
    config,
    ids,
    new_partition,
    topic,
)
from tests.unit.audit.test_recorded import two_brokers

LOG = "__cluster_metadata-0"


@dataclass(frozen=True)
class DirectoryBug:
    """`write(directory, has_bug)`; with `history`, what producers were told lies beside it."""

    number: str
    rules: frozenset[str]
    write: Callable[[Path, bool], None]
    with_data: bool = False


DIRECTORY_BUGS: list[DirectoryBug] = []
Written = Callable[[Path, bool], None]


def bug(number: str, *rules: int, with_data: bool = False) -> Callable[[Written], Written]:
    def keep(write: Written) -> Written:
        codes = frozenset(f"A{rule}" for rule in rules)
        DIRECTORY_BUGS.append(DirectoryBug(number, codes, write, with_data))
        return write

    return keep


# -- snapshots -------------------------------------------------------------------------------------


def _log() -> Log:
    """Brokers, orders-0 whose ISR has shrunk once, a controller, a block of producer ids."""
    log = cluster()
    log.write(log.change(isr=ids(1, 3)))
    log.write(_controller())
    log.write(
        r.ProducerIdsRecord(
            broker_id=BrokerId(1), broker_epoch=log.epoch_of(1), next_producer_id=1000
        )
    )
    log.write(config("retention.ms", "1"))
    return log


def _controller() -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=BrokerId(1),
        incarnation_id=Uuid(bytes(16)),
        zk_migration_ready=False,
        end_points=(),
        features=(),
    )


def _snapshot(log: Log) -> list[MetadataRecord]:
    """What a snapshot of `_log()` holds."""
    partition = new_partition(isr=ids(1, 3), partition_epoch=1)
    registered = [each for _, records, _ in brokers(1, 2, 3, 4).batches for each in records]
    rest = [each for _, records, _ in log.batches[-3:] for each in records]
    return [*registered, topic(), partition, *rest]


def _write(directory: Path, log: Log, records: Sequence[MetadataRecord], end_offset: int) -> None:
    write_kafka_log(directory / LOG, log)
    write_kafka_snapshot(directory / LOG, records, end_offset)


@bug("KAFKA-12367", 50)
def a_partition_epoch_that_did_not_move(directory: Path, has_bug: bool) -> None:
    log = _log()
    stale = [
        replace(each, partition_epoch=0) if isinstance(each, r.PartitionRecord) else each
        for each in _snapshot(log)
    ]
    _write(directory, log, stale if has_bug else _snapshot(log), log.end_offset + 1)


@bug("KAFKA-14618", 50)
def a_snapshot_named_after_its_last_record(directory: Path, has_bug: bool) -> None:
    """Its end should be exclusive: as it is, the last record is in it and yet behind it."""
    log = _log()
    _write(directory, log, _snapshot(log), log.end_offset + (not has_bug))


@bug("KAFKA-17713 and KAFKA-14619", 45)
def a_snapshot_within_a_metadata_transaction(directory: Path, has_bug: bool) -> None:
    log = _log()
    held, end = _snapshot(log), log.end_offset + 1
    log.write(r.BeginTransactionRecord())
    log.write(log.change(isr=ids(1)))
    log.write(r.EndTransactionRecord())
    _write(directory, log, held, end + 1 if has_bug else end)


@bug("KAFKA-14894", 50)
def a_snapshot_with_what_was_removed_long_ago(directory: Path, has_bug: bool) -> None:
    """A node that loaded one snapshot over another kept what the second did not have."""
    log = _log()
    old = config("cleanup.policy", "compact")
    kept = [*_snapshot(log), old] if has_bug else _snapshot(log)
    _write(directory, log, kept, log.end_offset + 1)


@bug("KAFKA-15860", 50)
def a_snapshot_that_forgets_controllers(directory: Path, has_bug: bool) -> None:
    log = _log()
    kept = [
        each
        for each in _snapshot(log)
        if not (has_bug and isinstance(each, r.RegisterControllerRecord))
    ]
    _write(directory, log, kept, log.end_offset + 1)


@bug("KAFKA-13357", 50)
def a_snapshot_that_forgets_producer_ids(directory: Path, has_bug: bool) -> None:
    log = _log()
    kept = [
        each for each in _snapshot(log) if not (has_bug and isinstance(each, r.ProducerIdsRecord))
    ]
    _write(directory, log, kept, log.end_offset + 1)


@bug("KAFKA-14203 and KAFKA-14275", 50)
def two_nodes_that_make_different_images_of_one_log(directory: Path, has_bug: bool) -> None:
    log = _log()
    _write(directory / "node-1", log, _snapshot(log), log.end_offset + 1)
    other = [
        replace(each, value="2") if has_bug and isinstance(each, r.ConfigRecord) else each
        for each in _snapshot(log)
    ]
    _write(directory / "node-2", log, other, log.end_offset + 1)


@bug("KAFKA-14238 and KAFKA-14240", 51)
def a_log_that_lost_the_snapshot_it_begins_with(directory: Path, has_bug: bool) -> None:
    log = _log()
    at = log.end_offset + 1
    if not has_bug:
        write_kafka_snapshot(directory / LOG, _snapshot(log), at)
    change = kafka_batch([log.change(isr=ids(1))], base_offset=at, epoch=1)
    write_segment(directory / LOG, [change], base_offset=at)


# -- logs ------------------------------------------------------------------------------------------


def _voters(at: int, *voter_ids: int) -> bytes:
    known = tuple(
        Voter(
            voter_id=each,
            directory_id=ZERO_UUID,
            endpoints=(),
            min_supported_version=0,
            max_supported_version=1,
        )
        for each in voter_ids
    )
    return bytes(control_batch(Voters(voters=known), base_offset=at, epoch=1, timestamp_ms=0))


@bug("KAFKA-17973", 42)
def voters_that_change_two_at_a_time(directory: Path, has_bug: bool) -> None:
    log = _log()
    at = log.end_offset + 1
    voters = [_voters(at, 1, 2, 3, 4), _voters(at + 1, 1, 2, *((5, 6) if has_bug else (3,)))]
    write_segment(directory / LOG, [*kafka_batches(log), *voters])


@bug("KAFKA-18723", 38, 39)
def batches_of_an_old_epoch_behind_those_of_a_new_one(directory: Path, has_bug: bool) -> None:
    """A read that raced with a truncation sent what had been cut off already."""
    log = _log()
    at = log.end_offset + 1
    nothing = [r.NoOpRecord()]
    batches = [*kafka_batches(log), leader(at, 2, 2)]
    batches.append(kafka_batch(nothing, base_offset=at + 1, epoch=2))
    if has_bug:
        batches.append(kafka_batch(nothing, base_offset=at + 1, epoch=1))
    write_segment(directory / LOG, batches)


# -- partitions of data ----------------------------------------------------------------------------


def _acked(directory: Path, offset: int) -> None:
    told = {"type": "ok", "f": "send", "k": "orders-0", "off": offset, "lepoch": 0, "node": "b1"}
    (directory / "history.jsonl").write_text(json.dumps(told))


@bug("KAFKA-18991", 54, with_data=True)
def a_follower_that_cut_off_what_was_committed(directory: Path, has_bug: bool) -> None:
    two_brokers(directory, ["a", "b"], ["a"] if has_bug else ["a", "b"])
    _acked(directory, 1)


@bug("KIP-966, the last replica standing", 54, with_data=True)
def an_isr_that_came_back_from_a_crash_without_its_tail(directory: Path, has_bug: bool) -> None:
    kept = ["a"] if has_bug else ["a", "b"]
    two_brokers(directory, kept, kept)
    _acked(directory, 1)


@bug("KAFKA-16541", 56, with_data=True)
def an_epoch_checkpoint_that_does_not_grow(directory: Path, has_bug: bool) -> None:
    nodes = two_brokers(directory, ["a", "b"], ["a", "b"])
    if has_bug:
        path = nodes[0] / "orders-0" / "leader-epoch-checkpoint"
        path.write_text("0\n2\n0 1\n0 0\n")
