"""For every rule that is judged from rows: rows that break it, and rows that only look like it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kraftpy.audit.rules import Violation
from kraftpy.audit.rules import node_logs as logs
from kraftpy.audit.rules import node_records as notes
from kraftpy.audit.rules.entities import entities_of, snapshot_is_the_log
from kraftpy.audit.rules.rows import (
    AppliedRow,
    BatchRow,
    LeaderRow,
    LogRow,
    ReplicaRow,
    SnapshotRow,
    TruncationRow,
    VoteRow,
    VotersRow,
    WatermarkRow,
)
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId
from tests.unit.audit.logs import ORDERS, Log, brokers, cluster, config, ids, new_partition, topic

Found = Iterable[Violation]


@dataclass(frozen=True)
class RowCase:
    rule: int
    name: str
    check: Callable[[], Found]


BREAKING: list[RowCase] = []
KEEPING: list[RowCase] = []


def breaks(rule: int) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    def keep(check: Callable[[], Found]) -> Callable[[], Found]:
        BREAKING.append(RowCase(rule, check.__name__, check))
        return check

    return keep


def keeps(*rules: int) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    def keep(check: Callable[[], Found]) -> Callable[[], Found]:
        KEEPING.extend(RowCase(rule, check.__name__, check) for rule in rules)
        return check

    return keep


def batch(node: int, base: int, end: int, epoch: int = 1, crc: int = 7) -> BatchRow:
    return BatchRow(node, base, end, epoch, crc, 100)


# -- one log ---------------------------------------------------------------------------------------


@breaks(38)
def a_gap_between_batches() -> Found:
    return logs.batches_are_contiguous([batch(1, 0, 3), batch(1, 5, 6)])


@breaks(38)
def batches_that_overlap() -> Found:
    return logs.batches_are_contiguous([batch(1, 0, 3), batch(1, 2, 6)])


@keeps(38, 39)
def logs_of_two_nodes_one_after_the_other() -> Found:
    return logs.batches_are_contiguous([batch(1, 0, 3, 2), batch(2, 0, 2, 1), batch(2, 2, 3, 1)])


@breaks(39)
def an_epoch_that_falls() -> Found:
    return logs.batches_are_contiguous([batch(1, 0, 3, 8), batch(1, 3, 4, 7)])


@breaks(39)
def an_epoch_without_its_leader() -> Found:
    rows = [batch(1, 0, 3, 1), batch(1, 3, 4, 2)]
    return logs.epochs_begin_with_their_leader(rows, [LeaderRow(1, 0, 1, 1)])


@breaks(39)
def an_epoch_with_two_leader_changes() -> Found:
    rows = [batch(1, 0, 3, 1), batch(1, 3, 4, 1)]
    changes = [LeaderRow(1, 0, 1, 1), LeaderRow(1, 3, 1, 1)]
    return logs.epochs_begin_with_their_leader(rows, changes)


@keeps(39)
def a_log_that_begins_in_the_middle_of_an_epoch() -> Found:
    rows = [batch(1, 50, 60, 4), batch(1, 60, 61, 5)]
    return logs.epochs_begin_with_their_leader(rows, [LeaderRow(1, 60, 5, 1)])


def voters(offset: int, *who: int) -> VotersRow:
    return VotersRow(1, offset, 3, frozenset(who))


@breaks(42)
def two_voters_at_once() -> Found:
    return logs.voters_change_one_at_a_time([voters(0, 1, 2, 3), voters(9, 1, 2, 3, 4, 5)], [], {})


@breaks(42)
def one_voter_for_another() -> Found:
    return logs.voters_change_one_at_a_time([voters(0, 1, 2, 3), voters(9, 1, 2, 4)], [], {})


@breaks(42)
def voters_before_the_last_ones_are_committed() -> Found:
    rows = [voters(5, 1, 2, 3), voters(9, 1, 2, 3, 4)]
    return logs.voters_change_one_at_a_time(rows, [], {9: 4})


@breaks(42)
def voters_before_the_epoch_began() -> Found:
    rows = [voters(5, 1, 2, 3), voters(9, 1, 2, 3, 4)]
    return logs.voters_change_one_at_a_time(rows, [LeaderRow(1, 8, 3, 1)], {9: 8})


@keeps(42)
def voters_that_come_and_go() -> Found:
    rows = [voters(5, 1, 2, 3), voters(9, 1, 2, 3, 4), voters(12, 1, 2, 4)]
    return logs.voters_change_one_at_a_time(rows, [LeaderRow(1, 4, 3, 1)], {9: 9, 12: 11})


# -- many logs -------------------------------------------------------------------------------------


@breaks(40)
def two_leaders_of_one_epoch() -> Found:
    return logs.one_leader_per_epoch([LeaderRow(1, 5, 9, 1), LeaderRow(2, 5, 9, 3)])


@breaks(40)
def a_node_that_believes_in_another_leader() -> Found:
    return logs.one_leader_per_epoch([LeaderRow(1, 5, 9, 1), LeaderRow(2, -1, 9, 3)])


@keeps(40)
def one_leader_after_the_other() -> Found:
    rows = [LeaderRow(1, 5, 9, 1), LeaderRow(2, 5, 9, 1), LeaderRow(1, 8, 10, 3)]
    return logs.one_leader_per_epoch(rows)


@breaks(46)
def the_same_batch_with_other_bytes() -> Found:
    return logs.logs_match([batch(1, 0, 3), batch(2, 0, 3, crc=8)], [])


@breaks(47)
def committed_batches_of_two_epochs() -> Found:
    ends = [LogRow(1, 0, 3, 3), LogRow(2, 0, 3, 3)]
    return logs.logs_match([batch(1, 0, 3, 1), batch(2, 0, 3, 2, crc=8)], ends)


@breaks(47)
def a_committed_batch_that_one_lacks() -> Found:
    ends = [LogRow(1, 0, 6, 6), LogRow(2, 0, 6, 6)]
    rows = [batch(1, 0, 3), batch(1, 3, 4), batch(1, 4, 6), batch(2, 0, 3), batch(2, 4, 6)]
    return logs.logs_match(rows, ends)


@keeps(46, 47)
def tails_that_differ_above_the_high_watermark() -> Found:
    ends = [LogRow(1, 0, 6, 3), LogRow(2, 0, 6, 6)]
    rows = [batch(1, 0, 3), batch(2, 0, 3), batch(1, 3, 6, 1), batch(2, 3, 6, 2, crc=9)]
    return logs.logs_match(rows, ends)


@keeps(46, 47)
def a_node_that_lags_and_one_that_begins_later() -> Found:
    ends = [LogRow(1, 0, 6, 6), LogRow(2, 0, 3, 3), LogRow(3, 3, 6, 6)]
    rows = [batch(1, 0, 3), batch(2, 0, 3), batch(1, 3, 6), batch(3, 3, 6)]
    return logs.logs_match(rows, ends)


@breaks(49)
def a_leader_that_misses_what_was_committed() -> Found:
    ends = [LogRow(1, 0, 300, 290), LogRow(2, 0, 250, 200)]
    rows = [batch(1, 0, 290, 4), batch(2, 0, 250, 4)]
    return logs.leaders_hold_what_was_committed([LeaderRow(1, 290, 5, 2)], ends, rows)


@keeps(49)
def an_old_leader_that_misses_what_came_later() -> Found:
    ends = [LogRow(1, 0, 300, 300), LogRow(2, 0, 250, 200)]
    rows = [batch(1, 0, 240, 4), batch(2, 0, 240, 4), batch(1, 240, 300, 6)]
    leaders = [LeaderRow(2, 240, 5, 2), LeaderRow(1, 240, 6, 1)]
    return logs.leaders_hold_what_was_committed(leaders, ends, rows)


@breaks(51)
def a_log_that_begins_after_its_snapshots() -> Found:
    return logs.logs_begin_at_a_snapshot([LogRow(1, 5000, 6000, -1)], [SnapshotRow(1, 4800, 2)])


@breaks(51)
def a_log_that_begins_without_any() -> Found:
    return logs.logs_begin_at_a_snapshot([LogRow(1, 5000, 6000, -1)], [SnapshotRow(2, 5000, 2)])


@breaks(51)
def a_snapshot_of_what_the_log_never_had() -> Found:
    return logs.logs_begin_at_a_snapshot([LogRow(1, 0, 100, 90)], [SnapshotRow(1, 120, 2)])


@keeps(51)
def a_log_whose_first_segment_outlives_the_snapshot() -> Found:
    rows = [SnapshotRow(1, 4800, 2), SnapshotRow(1, 5200, 2)]
    return logs.logs_begin_at_a_snapshot([LogRow(1, 5000, 6000, -1), LogRow(2, 0, 10, 5)], rows)


# -- snapshots -------------------------------------------------------------------------------------


def all_records(log: Log) -> list[MetadataRecord]:
    return [record for _, records, _ in log.batches for record in records]


def compared(log: Log, stored: Sequence[MetadataRecord]) -> Found:
    replayed = entities_of(all_records(log), KAFKA_DEFAULTS)
    held = entities_of(stored, KAFKA_DEFAULTS)
    return snapshot_is_the_log(replayed, held, node=1, end_offset=log.end_offset, epoch=1)


def changed_cluster() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 3)))
    log.write(config("retention.ms", "1"))
    return log


def snapshot(partition_epoch: int = 1) -> list[MetadataRecord]:
    partition = new_partition(isr=ids(1, 3), partition_epoch=partition_epoch)
    registered = all_records(brokers(1, 2, 3, 4))
    return [*registered, topic(), partition, config("retention.ms", "1")]


@breaks(50)
def a_snapshot_without_a_topic() -> Found:
    kept = [each for each in snapshot() if not isinstance(each, r.TopicRecord)]
    return compared(changed_cluster(), kept)


@breaks(50)
def a_snapshot_with_another_partition_epoch() -> Found:
    return compared(changed_cluster(), snapshot(partition_epoch=2))


@breaks(50)
def a_snapshot_that_forgets_controllers() -> Found:
    log = changed_cluster()
    log.write(
        r.RegisterControllerRecord(
            controller_id=BrokerId(1),
            incarnation_id=bytes(16),  # type: ignore[arg-type]
            zk_migration_ready=False,
            end_points=(),
            features=(),
        )
    )
    return compared(log, snapshot())


@keeps(50)
def a_snapshot_that_is_the_log() -> Found:
    return compared(changed_cluster(), snapshot())


# -- what nodes noted ------------------------------------------------------------------------------


@breaks(41)
def two_votes_in_one_epoch() -> Found:
    return notes.votes_are_kept([VoteRow(1, 0, 0, 5, 1), VoteRow(1, 1, 0, 5, 2)])


@breaks(41)
def a_stored_epoch_that_falls() -> Found:
    return notes.votes_are_kept([VoteRow(1, 0, 0, 5, 1), VoteRow(1, 0, 1, 4, None)])


@keeps(41)
def a_vote_after_the_epoch_was_heard_of() -> Found:
    rows = [VoteRow(1, 0, 0, 5, None), VoteRow(1, 0, 1, 5, 2), VoteRow(1, 1, 0, 5, 2)]
    return notes.votes_are_kept([*rows, VoteRow(1, 1, 1, 6, 1), VoteRow(2, 0, 0, 5, 1)])


@breaks(48)
def a_cut_below_the_high_watermark() -> Found:
    return notes.truncations_spare_what_is_committed([TruncationRow(1, 0, 0, 90, 95)])


@breaks(48)
def a_log_that_ends_below_what_it_knew() -> Found:
    return notes.logs_keep_what_was_committed([WatermarkRow(1, 0, 0, 3, 95)], [(1, 90)])


@keeps(48)
def a_cut_of_what_was_not_committed() -> Found:
    return [
        *notes.truncations_spare_what_is_committed([TruncationRow(1, 0, 0, 95, 95)]),
        *notes.logs_keep_what_was_committed([WatermarkRow(1, 0, 0, 3, 95)], [(1, 95), (2, 0)]),
    ]


@breaks(52)
def images_that_differ_at_one_offset() -> Found:
    return notes.images_agree([AppliedRow(1, 0, 0, 70, "aa"), AppliedRow(101, 0, 0, 70, "bb")])


@breaks(52)
def an_applied_offset_that_falls() -> Found:
    return notes.images_agree([AppliedRow(1, 0, 0, 70, ""), AppliedRow(1, 0, 1, 60, "")])


@keeps(52)
def an_applied_offset_that_falls_with_a_restart() -> Found:
    rows = [
        AppliedRow(1, 0, 0, 70, "aa"),
        AppliedRow(1, 1, 0, 60, "bb"),
        AppliedRow(1, 1, 1, 70, "aa"),
    ]
    return notes.images_agree([*rows, AppliedRow(101, 0, 0, 60, "bb")])


def sample(at: int, watermark: int, **changed: int) -> ReplicaRow:
    known = {
        "node": 1,
        "life": 0,
        "partition": 0,
        "leader_epoch": 4,
        "partition_epoch": 9,
        "epoch_start_offset": 100,
        "end_offset": 1000,
        "isr": 2,
        "min_isr": 2,
    }
    return ReplicaRow(at=at, topic_id=ORDERS, high_watermark=watermark, **(known | changed))


@breaks(53)
def a_leaders_high_watermark_that_falls() -> Found:
    return notes.watermarks_of_leaders_grow([sample(0, 900), sample(1, 850)])


@breaks(53)
def an_epoch_that_begins_below_what_was_committed() -> Found:
    later = sample(0, 860, node=2, leader_epoch=5, epoch_start_offset=850)
    return notes.watermarks_of_leaders_grow([sample(0, 900), later], {})


@keeps(53)
def an_epoch_that_begins_with_an_unclean_election() -> Found:
    later = sample(0, 860, node=2, leader_epoch=6, epoch_start_offset=850)
    return notes.watermarks_of_leaders_grow([sample(0, 900), later], {(ORDERS, 0): {5}})


@keeps(53)
def a_new_leader_that_does_not_know_the_high_watermark_yet() -> Found:
    later = [
        sample(0, 700, node=2, leader_epoch=5, epoch_start_offset=950),
        sample(1, 960, node=2, leader_epoch=5, epoch_start_offset=950),
    ]
    return notes.watermarks_of_leaders_grow([sample(0, 80), sample(1, 70), sample(2, 900), *later])


@breaks(59)
def a_high_watermark_that_moves_with_too_few() -> Found:
    return notes.watermarks_wait_for_enough([sample(0, 900, isr=1), sample(1, 910, isr=1)])


@keeps(59)
def a_high_watermark_that_moved_before_the_isr_shrank() -> Found:
    rows = [sample(0, 900), sample(1, 910, isr=1, partition_epoch=10)]
    return notes.watermarks_wait_for_enough([*rows, sample(2, 910, isr=1, partition_epoch=10)])
