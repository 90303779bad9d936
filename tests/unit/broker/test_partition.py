"""One replica, step by step: each rule of the machine where a reader can follow it."""

from kio.schema.errors import ErrorCode

from kraftpy.broker.effects import (
    COMPLETE_WAITING,
    NO_EFFECTS,
    STOP_FETCHING,
    AssignEpoch,
    FetchFrom,
    HighWatermarkMoved,
    MoveLogStart,
    StartOver,
    TruncateTo,
)
from kraftpy.broker.partition import ACKS_ALL, Role
from kraftpy.broker.reads import Diverging, EpochEnd, Refused, Serve
from kraftpy.metadata_log.records import RECOVERED, RECOVERING
from kraftpy.types import NO_LEADER
from tests.unit.broker.replica_bench import ONE, THREE, TWO, Bench, proposed

# --- roles ----------------------------------------------------------------------------------------


def test_a_new_leader_starts_an_epoch_at_the_end_of_its_log() -> None:
    bench = Bench(records=3)
    assert bench.lead() == (STOP_FETCHING, AssignEpoch(5, 3))
    assert bench.replica.is_leader
    assert bench.replica.high_watermark == 0, "nobody has said yet what it holds"


def test_a_leader_alone_commits_what_it_has() -> None:
    bench = Bench(records=3)
    assert HighWatermarkMoved(3) in bench.lead(isr=(ONE,))


def test_a_follower_fetches_from_each_new_leader_and_stops_where_there_is_none() -> None:
    bench = Bench()
    assert bench.lead(leader=TWO) == (FetchFrom(TWO, 5),)
    newer = {"leader_epoch": 6, "partition_epoch": 11}
    assert bench.lead(leader=NO_LEADER, **newer) == (STOP_FETCHING,)
    assert bench.lead(leader=NO_LEADER, leader_epoch=6, partition_epoch=12) == NO_EFFECTS


def test_metadata_that_is_known_or_older_changes_nothing() -> None:
    bench = Bench()
    bench.lead()
    assert bench.lead(leader=TWO, leader_epoch=4, partition_epoch=9) == NO_EFFECTS
    assert bench.lead(isr=(ONE,)) == NO_EFFECTS
    assert bench.replica.isr == (ONE, TWO, THREE)


def test_a_newer_partition_epoch_alone_is_only_an_isr_update() -> None:
    bench = Bench()
    bench.lead()
    bench.append(2)
    bench.fetch(TWO, 2)
    assert bench.lead(isr=(ONE, TWO), partition_epoch=11) == (
        HighWatermarkMoved(2),
        COMPLETE_WAITING,
    )
    assert bench.replica.epoch_start_offset == 0


def test_a_failed_log_answers_storage_error_for_good() -> None:
    bench = Bench()
    bench.lead()
    assert bench.replica.log_failed() == (STOP_FETCHING, COMPLETE_WAITING)
    assert bench.lead(partition_epoch=11) == NO_EFFECTS
    assert bench.replica.role is Role.OFFLINE
    assert bench.replica.check_append(1) is ErrorCode.kafka_storage_error
    assert bench.replica.produce_outcome(1, 5) is ErrorCode.kafka_storage_error
    assert bench.replica.consumer_fetch(0) == Refused(ErrorCode.kafka_storage_error)


def test_recovering_is_kept_until_the_controller_says_recovered() -> None:
    bench = Bench()
    bench.lead(leader_recovery_state=RECOVERING, isr=(ONE,))
    proposal = proposed(bench.fetch(TWO, 0)[1])
    assert bench.replica.leader_recovery_state == RECOVERING
    assert proposal.leader_recovery_state == RECOVERED
    said = {"leader_epoch": 5, "partition_epoch": 11, "isr": (ONE, TWO)}
    bench.answer(proposal, ErrorCode.none, leader_recovery_state=RECOVERED, **said)
    assert bench.replica.leader_recovery_state == RECOVERED


# --- what is committed ----------------------------------------------------------------------------


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    bench = Bench()
    bench.lead()
    assert bench.append(5) == NO_EFFECTS
    assert bench.fetch(TWO, 4)[1] == NO_EFFECTS
    assert bench.fetch(THREE, 2)[1] == (HighWatermarkMoved(2), COMPLETE_WAITING)
    assert bench.fetch(THREE, 1)[1] == NO_EFFECTS, "it never falls"
    assert bench.replica.high_watermark == 2


def test_a_checkpoint_beyond_the_log_is_cut_to_it() -> None:
    assert Bench(records=3, mark=9).replica.high_watermark == 3


def test_the_high_watermark_rests_while_the_isr_is_too_small() -> None:
    bench = Bench(min_isr=2)
    bench.lead(isr=(ONE,))
    assert bench.append() == NO_EFFECTS
    assert bench.replica.check_append(ACKS_ALL) is ErrorCode.not_enough_replicas
    assert bench.replica.check_append(1) is ErrorCode.none
    assert HighWatermarkMoved(1) not in bench.fetch(TWO, 1)[1], "not before it is committed"


def test_fewer_replicas_than_min_insync_need_all_of_them() -> None:
    bench = Bench(min_isr=5)
    bench.lead()
    assert bench.replica.check_append(ACKS_ALL) is ErrorCode.none


def test_acks_all_waits_for_the_high_watermark() -> None:
    bench = Bench(min_isr=2)
    bench.lead()
    bench.append(2)
    assert bench.replica.produce_outcome(2, 5) is None
    bench.fetch(TWO, 2)
    bench.fetch(THREE, 2)
    assert bench.replica.produce_outcome(2, 5) is ErrorCode.none
    bench.lead(isr=(ONE,), partition_epoch=11)
    assert bench.replica.produce_outcome(2, 5) is ErrorCode.not_enough_replicas_after_append


def test_what_an_earlier_leadership_appended_is_never_acknowledged() -> None:
    bench = Bench()
    bench.lead()
    bench.append()
    effects = bench.lead(leader=TWO, leader_epoch=6, partition_epoch=11)
    assert effects == (FetchFrom(TWO, 6), COMPLETE_WAITING)
    assert bench.replica.produce_outcome(1, 5) is ErrorCode.not_leader_or_follower
    bench.lead(leader_epoch=7, partition_epoch=12, isr=(ONE,))
    assert bench.replica.high_watermark == 1
    assert bench.replica.produce_outcome(1, 5) is ErrorCode.not_leader_or_follower
    assert bench.replica.produce_outcome(1, 7) is ErrorCode.none


def test_a_leader_that_stays_keeps_its_waiting_produces_but_not_its_followers_words() -> None:
    bench = Bench()
    bench.lead(isr=(ONE, TWO))
    bench.append(2)
    bench.fetch(TWO, 1)
    bench.lead(isr=(ONE, TWO), leader_epoch=6, partition_epoch=11)
    assert bench.replica.followers[TWO].log_end == -1
    bench.fetch(TWO, 2, leader_epoch=6)
    assert bench.replica.produce_outcome(2, 5) is ErrorCode.none


# --- following ------------------------------------------------------------------------------------


def test_a_follower_takes_the_high_watermark_as_far_as_its_log_goes() -> None:
    bench = Bench(records=3)
    bench.lead(leader=TWO)
    moved = (HighWatermarkMoved(3), COMPLETE_WAITING)
    assert bench.replica.replicated(5, 7, 0) == moved
    assert bench.replica.replicated(5, 2, 0) == NO_EFFECTS, "a new leader may know less"
    assert bench.replica.replicated(4, 9, 0) == NO_EFFECTS
    assert bench.replica.replicated(5, 3, 2) == (MoveLogStart(2),)


def test_a_follower_cuts_where_the_epochs_part() -> None:
    bench = Bench(records=3, epoch=2)
    for _ in range(3):
        bench.log.append(4, 0)
    bench.lead(leader=TWO)
    position = bench.replica.fetch_position()
    assert (position.offset, position.last_fetched_epoch) == (6, 4)
    # The leader never saw epoch 4: it names what comes before it.
    assert bench.replica.diverged(position, EpochEnd(3, 5)) == (TruncateTo(3, False),)
    bench.log.truncate(3)
    assert bench.replica.fetch_position().last_fetched_epoch == 2


def test_a_log_of_later_epochs_only_goes_altogether() -> None:
    bench = Bench(records=2, epoch=4)
    bench.lead(leader=TWO)
    position = bench.replica.fetch_position()
    assert bench.replica.diverged(position, EpochEnd(3, 5)) == (TruncateTo(0, False),)


def test_a_cut_below_the_high_watermark_says_so() -> None:
    bench = Bench(records=3, mark=3)
    bench.lead(leader=TWO)
    position = bench.replica.fetch_position()
    assert bench.replica.diverged(position, EpochEnd(4, 1)) == (TruncateTo(1, True),)
    assert bench.replica.high_watermark == 1


def test_a_late_answer_cuts_nothing() -> None:
    bench = Bench(records=3, mark=3)
    bench.lead(leader=TWO)
    position = bench.replica.fetch_position()
    for late in (
        position._replace(leader_epoch=4),
        position._replace(offset=2),
        position._replace(last_fetched_epoch=2),
    ):
        assert bench.replica.diverged(late, EpochEnd(4, 1)) == NO_EFFECTS
        assert bench.replica.out_of_range(late, 0, 1) == NO_EFFECTS


def test_out_of_range_cuts_to_the_leaders_end_or_starts_over_at_its_start() -> None:
    bench = Bench(records=3, mark=1)
    bench.lead(leader=TWO)
    position = bench.replica.fetch_position()
    assert bench.replica.out_of_range(position, 0, 3) == NO_EFFECTS
    assert bench.replica.out_of_range(position, 0, 2) == (TruncateTo(2, False),)
    assert bench.replica.out_of_range(position, 8, 9) == (StartOver(8, False),)
    assert bench.replica.high_watermark == 8


# --- reading --------------------------------------------------------------------------------------


def test_consumers_see_what_is_committed_and_followers_everything() -> None:
    bench = Bench()
    bench.lead()
    bench.append(3)
    bench.fetch(TWO, 3)
    plan, _ = bench.fetch(THREE, 2)
    assert plan == Serve(3, 2, 2, 0)
    assert bench.replica.consumer_fetch(0) == Serve(2, 2, 2, 0)
    bench.replica.first_unstable_offset = 1
    assert bench.replica.consumer_fetch(0, read_committed=True) == Serve(1, 2, 1, 0)
    assert bench.replica.consumer_fetch(4) == Refused(ErrorCode.offset_out_of_range)
    assert bench.replica.consumer_fetch(3) == Serve(2, 2, 1, 0), "nothing, but not an error"


def test_consumers_read_from_a_follower_only_where_they_may() -> None:
    bench = Bench(records=2, mark=1)
    bench.lead(leader=TWO)
    assert bench.replica.consumer_fetch(0) == Refused(ErrorCode.not_leader_or_follower)
    assert bench.replica.consumer_fetch(0, leader_only=False) == Serve(1, 1, 1, 0)
    plan = bench.replica.consumer_fetch(0, leader_epoch=4, leader_only=False)
    assert plan == Refused(ErrorCode.fenced_leader_epoch)


def test_a_reader_of_other_records_learns_where_they_part() -> None:
    bench = Bench(records=3, epoch=2)
    bench.lead()
    bench.append(2)
    assert bench.fetch(TWO, 4, last_epoch=3)[0] == Diverging(2, 3)
    assert bench.fetch(TWO, 4, last_epoch=2)[0] == Diverging(2, 3)
    assert bench.replica.followers[TWO].log_end == -1, "it counts for nothing"
    assert isinstance(bench.fetch(TWO, 4, last_epoch=5)[0], Serve)
    assert bench.fetch(TWO, 0, last_epoch=1)[0] == Serve(5, 0, 0, 0)
    assert bench.replica.consumer_fetch(4, last_fetched_epoch=2) == Diverging(2, 3)


def test_the_latest_offset_is_not_told_before_it_is_known() -> None:
    bench = Bench(records=3, mark=1)
    bench.lead()
    assert bench.replica.latest_offset() is ErrorCode.offset_not_available
    bench.fetch(TWO, 3)
    bench.fetch(THREE, 3)
    assert bench.replica.latest_offset() == 3
    assert bench.replica.latest_offset(leader_epoch=6) is ErrorCode.unknown_leader_epoch


def test_the_end_of_an_epoch_is_told_by_the_leader_alone() -> None:
    bench = Bench(records=3, epoch=2)
    bench.lead()
    assert bench.replica.offset_for_leader_epoch(5, 2) == EpochEnd(2, 3)
    assert bench.replica.offset_for_leader_epoch(5, 1) == EpochEnd(1, 0)
    assert bench.replica.offset_for_leader_epoch(4, 2) is ErrorCode.fenced_leader_epoch
    bench.lead(leader=TWO, leader_epoch=6, partition_epoch=11)
    assert bench.replica.offset_for_leader_epoch(6, 2) is ErrorCode.not_leader_or_follower
