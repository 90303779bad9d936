"""Who counts as in sync, who is proposed, and what an answer to a proposal means."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.effects import (
    COMPLETE_WAITING,
    NO_EFFECTS,
    HighWatermarkMoved,
    ProposeIsr,
)
from kraftpy.broker.isr import (
    IsrMember,
    Verdict,
    verdict,
)
from kraftpy.broker.reads import Refused, Serve
from kraftpy.types import NO_EPOCH
from tests.unit.broker.replica_bench import LAG_MS, ONE, THREE, TWO, Bench, moment, proposed


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [
        (4, ErrorCode.fenced_leader_epoch),
        (6, ErrorCode.unknown_leader_epoch),
        (NO_EPOCH, ErrorCode.fenced_leader_epoch),
    ],
)
def test_a_fetch_of_another_leader_epoch_is_refused(leader_epoch: int, error: ErrorCode) -> None:
    bench = Bench()
    bench.lead()
    bench.append()
    assert bench.fetch(TWO, 1, leader_epoch=leader_epoch) == (Refused(error), NO_EFFECTS)
    assert bench.replica.followers[TWO].log_end == -1


def test_a_broker_that_is_no_replica_yet_is_told_to_try_again() -> None:
    bench = Bench()
    bench.lead(replicas=(ONE, TWO), isr=(ONE, TWO))
    assert bench.fetch(THREE, 0)[0] == Refused(ErrorCode.unknown_leader_epoch)


def test_a_fetch_from_a_life_that_is_over_is_refused() -> None:
    bench = Bench()
    bench.lead()
    assert bench.fetch(TWO, 0, broker_epoch=199)[0] == Refused(ErrorCode.not_leader_or_follower)
    assert isinstance(bench.fetch(TWO, 0, broker_epoch=-1)[0], Serve)


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    bench = Bench(records=4, mark=1)
    bench.lead(isr=(ONE, THREE))
    assert bench.fetch(TWO, 3)[1] == NO_EFFECTS, "past the high watermark, before the epoch"
    proposal = proposed(bench.fetch(TWO, 4)[1])
    assert proposal.isr == (IsrMember(ONE, 100), IsrMember(TWO, 200), IsrMember(THREE, -1))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)
    assert bench.replica.maximal_isr == {ONE, TWO, THREE}


@pytest.mark.parametrize(
    "changed",
    [{"fenced": True}, {"in_controlled_shutdown": True}, {"broker_epoch": 150}],
)
def test_a_follower_that_may_not_join_is_not_proposed(changed: dict[str, Any]) -> None:
    bench = Bench()
    bench.lead(isr=(ONE,))
    at = moment(b2=changed)
    assert bench.fetch(TWO, 0, at)[1] == NO_EFFECTS
    assert bench.fetch(TWO, 0)[1] != NO_EFFECTS


def test_a_pending_member_holds_the_high_watermark_already() -> None:
    bench = Bench()
    bench.lead(isr=(ONE,))
    bench.fetch(TWO, 0)
    assert bench.append(3) == NO_EFFECTS
    assert bench.fetch(TWO, 3)[1] == (HighWatermarkMoved(3), COMPLETE_WAITING)


def test_a_follower_that_is_about_to_join_is_waited_for() -> None:
    bench = Bench(records=2, mark=0)
    bench.lead(isr=(ONE,))
    assert bench.replica.high_watermark == 2
    bench.append(2)
    # It is proposed, and refused: but it has caught up.
    bench.answer(proposed(bench.fetch(TWO, 4)[1]), ErrorCode.ineligible_replica)
    assert bench.append(2) == NO_EFFECTS
    assert bench.append(0, now_ms=1_000 + LAG_MS + 1) == (HighWatermarkMoved(6), COMPLETE_WAITING)


def test_the_isr_shrinks_by_those_who_did_not_catch_up_in_time() -> None:
    bench = Bench()
    bench.lead()
    bench.append(2)
    bench.fetch(TWO, 2, moment(20_000))
    assert bench.replica.tick(moment(1_000 + LAG_MS)) == NO_EFFECTS
    proposal = proposed(bench.replica.tick(moment(1_001 + LAG_MS)))
    assert [each.broker_id for each in proposal.isr] == [ONE, TWO]
    assert bench.replica.maximal_isr == {ONE, TWO, THREE}, "it is not out before it is committed"
    assert bench.replica.tick(moment(99_000)) == NO_EFFECTS, "one proposal at a time"


def test_a_follower_that_reads_what_was_the_end_at_its_last_fetch_is_in_sync() -> None:
    bench = Bench()
    bench.lead(isr=(ONE, TWO))
    for step in range(1, 9):
        bench.append(10)
        bench.fetch(TWO, 10 * (step - 1), moment(step * LAG_MS // 2))
        assert bench.replica.tick(moment(step * LAG_MS // 2)) == NO_EFFECTS


def test_a_follower_at_the_end_stays_however_long_ago_it_fetched() -> None:
    bench = Bench()
    bench.lead(isr=(ONE, TWO))
    bench.append()
    bench.fetch(TWO, 1)
    assert bench.replica.tick(moment(10 * LAG_MS)) == NO_EFFECTS


def test_a_committed_shrink_moves_the_high_watermark() -> None:
    bench = Bench()
    bench.lead(isr=(ONE, TWO))
    bench.append(3)
    proposal = proposed(bench.replica.tick(moment(2 * LAG_MS)))
    said = {"leader_epoch": 5, "partition_epoch": 11, "isr": (ONE,)}
    assert bench.answer(proposal, ErrorCode.none, **said) == (
        HighWatermarkMoved(3),
        COMPLETE_WAITING,
    )
    assert bench.replica.partition_epoch == 11
    assert bench.answer(proposal, ErrorCode.none, **said) == NO_EFFECTS, "late"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.none, Verdict.COMMITTED),
        (ErrorCode.operation_not_attempted, Verdict.NOT_APPLIED),
        (ErrorCode.ineligible_replica, Verdict.NOT_APPLIED),
        (ErrorCode.unknown_topic_or_partition, Verdict.UNCERTAIN),
        (ErrorCode.unknown_topic_id, Verdict.UNCERTAIN),
        (ErrorCode.fenced_leader_epoch, Verdict.UNCERTAIN),
        (ErrorCode.invalid_update_version, Verdict.UNCERTAIN),
        (ErrorCode.invalid_request, Verdict.UNCERTAIN),
        (ErrorCode.new_leader_elected, Verdict.UNCERTAIN),
        (ErrorCode.not_controller, Verdict.RETRY),
        (ErrorCode.request_timed_out, Verdict.RETRY),
        (ErrorCode.unknown_server_error, Verdict.RETRY),
    ],
)
def test_what_an_answer_means_for_the_proposal(error: ErrorCode, expected: Verdict) -> None:
    assert verdict(error) is expected
    bench = Bench()
    bench.lead(isr=(ONE,))
    proposal = proposed(bench.fetch(TWO, 0)[1])
    said = {"leader_epoch": 5, "partition_epoch": 11, "isr": (ONE, TWO)}
    effects = bench.answer(proposal, error, **(said if error is ErrorCode.none else {}))
    assert (effects == (ProposeIsr(proposal, again=True),)) == (expected is Verdict.RETRY)
    is_settled = expected in (Verdict.COMMITTED, Verdict.NOT_APPLIED)
    assert (bench.replica.pending is None) == is_settled
    is_member = expected is not Verdict.NOT_APPLIED
    assert (TWO in bench.replica.maximal_isr) == is_member


def test_an_answer_for_another_leadership_leaves_it_to_metadata() -> None:
    bench = Bench()
    bench.lead(isr=(ONE,))
    proposal = proposed(bench.fetch(TWO, 0)[1])
    for said in ({"leader_epoch": 6, "partition_epoch": 11}, {"leader_epoch": 5}):
        bench.answer(proposal, ErrorCode.none, **said)
        assert bench.replica.pending == proposal
    bench.lead(isr=(ONE,), partition_epoch=11)
    assert bench.replica.pending is None


def test_the_low_watermark_is_the_smallest_start_of_the_live_replicas() -> None:
    bench = Bench()
    bench.lead()
    assert bench.replica.low_watermark(moment()) == -1
    assert bench.replica.low_watermark(moment(b2={"fenced": True}, b3={"fenced": True})) == 0
