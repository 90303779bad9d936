"""The controller's order of things: decide, replay, write, answer; and what becomes of the answers.

Each test is a schedule: the consensus below the controller commits, proves and loses when told to.
"""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from kraftpy import limits
from kraftpy.errors import IllegalDecision, OutcomeUnknown, ReplayError
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import (
    METADATA_VERSION,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.quorum import tenure as tenure_module
from kraftpy.quorum.control.decision import Decision
from kraftpy.quorum.proposal import make_proposal
from kraftpy.quorum.registration import registration_message, registration_values
from kraftpy.quorum.voters import Voter
from kraftpy.storage.record_batch import read_header
from kraftpy.types import NO_LEADER, BrokerId, TopicId, Uuid
from tests.unit.quorum.fake_consensus import (
    GLANCE,
    NODE_ID,
    OTHER_ID,
    WRITE,
    Desk,
    code,
    config,
    raised,
    value_of,
)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.lead()
    return desk


# -- decide, replay, write, answer ------------------------------------------------------------


def test_a_write_is_answered_when_it_is_committed(desk: Desk) -> None:
    answers = desk.put("a")
    assert answers == []
    desk.consensus.commit()
    assert code(answers) is ErrorCode.none
    assert value_of(desk.consensus.image(), "a") == "x"


def test_nothing_waits_for_an_earlier_commit_to_be_decided(desk: Desk) -> None:
    before = desk.consensus.end_offset
    answers = [desk.put(str(number)) for number in range(50)]
    assert desk.consensus.end_offset == before + 50, "all are in the log"
    assert not any(answers)
    desk.consensus.commit(20)
    assert [len(each) for each in answers] == [1] * 20 + [0] * 30
    desk.consensus.commit()
    assert [each[0]["offset"] for each in answers] == list(range(before, before + 50))


def test_a_decision_sees_what_was_decided_before_it_and_is_not_committed(desk: Desk) -> None:
    desk.put("a")
    again = desk.put("a")
    desk.consensus.commit()
    desk.consensus.prove()
    assert code(again) is ErrorCode.topic_already_exists


def test_the_speculative_image_is_what_the_log_replays_to(desk: Desk) -> None:
    for number in range(10):
        desk.put(str(number))
    desk.put(*map(str, range(10, limits.BATCH_RECORDS_MAX + 50)), own=True)
    desk.consensus.commit()
    assert desk.controller.image == desk.consensus.image()


def test_a_record_that_cannot_be_replayed_never_reaches_the_log(desk: Desk) -> None:
    before = desk.consensus.end_offset
    unknown = RemoveTopicRecord(topic_id=TopicId(Uuid(b"?" * 16)))
    with capture_logs() as logged:
        answers = desk.ask(WRITE, records=[config("a", "x"), unknown])
    assert desk.consensus.end_offset == before
    assert code(answers) is ErrorCode.unknown_server_error
    (fault,) = desk.faults
    assert isinstance(fault, ReplayError)
    assert fault.record == unknown
    assert fault.offset == before + 1
    critical = [each for each in logged if each["log_level"] == "critical"]
    assert "RemoveTopicRecord" in critical[0]["why"]


def test_a_decision_that_breaks_the_state_machine_never_reaches_the_log(desk: Desk) -> None:
    topic_id = TopicId(Uuid(b"t" * 16))
    offline = PartitionRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=(BrokerId(1),),
        isr=(BrokerId(1),),
        leader=NO_LEADER,
        leader_epoch=3,
        partition_epoch=3,
    )
    before = desk.consensus.end_offset
    answers = desk.ask(WRITE, records=[TopicRecord(name="t", topic_id=topic_id), offline])
    assert desk.consensus.end_offset == before
    assert code(answers) is ErrorCode.unknown_server_error
    (fault,) = desk.faults
    assert isinstance(fault, IllegalDecision)
    assert str(fault) == "t-0 goes from NonExistent to Offline"


def test_a_controller_that_failed_leads_no_more(desk: Desk) -> None:
    desk.ask(WRITE, records=[RemoveTopicRecord(topic_id=TopicId(Uuid(b"?" * 16)))])
    desk.win(epoch=2)
    assert not desk.controller.is_active
    assert code(desk.put("a")) is ErrorCode.not_controller


def test_a_batch_that_the_engine_takes_for_malformed_ends_the_node(desk: Desk) -> None:
    desk.consensus.refuses_batches = True
    assert code(desk.put("a")) is ErrorCode.unknown_server_error
    assert len(desk.faults) == 1


def test_a_client_that_went_away_stops_nobody(desk: Desk) -> None:
    """The write stands, and those who wait behind it are answered."""
    asked: list[Any] = []
    desk.controller.submit(WRITE, {"records": [config("a", "x")]}, lambda _values: None)
    desk.controller.submit(WRITE, {"records": [config("b", "x")]}, asked.append)
    desk.consensus.commit()
    assert value_of(desk.consensus.image(), "a") == "x"
    assert code(asked) is ErrorCode.none


# -- reads ------------------------------------------------------------------------------------


def test_a_read_waits_for_the_proof_that_this_controller_leads(desk: Desk) -> None:
    answers = desk.get("a")
    assert answers == []
    desk.consensus.prove()
    assert answers == [{"error_code": ErrorCode.none, "value": None}]


def test_a_read_waits_for_what_it_saw(desk: Desk) -> None:
    desk.put("a")
    answers = desk.get("a")
    desk.put("b")
    desk.consensus.prove()
    assert answers == [], "what it saw is not committed"
    desk.consensus.commit(1)
    assert answers[0]["value"] == "x", "and need not wait for what came later"


def test_a_read_does_not_get_ahead_of_the_last_record_that_it_saw(desk: Desk) -> None:
    desk.put("a")
    desk.put("b")
    answers = desk.get("b", GLANCE)
    desk.consensus.commit(1)
    assert answers == []
    desk.consensus.commit(1)
    assert answers[0]["value"] == "x"


def test_the_commit_of_an_earlier_batch_is_no_proof_for_a_read(desk: Desk) -> None:
    """1. A batch goes to a majority; the acknowledgements take their time. 2. Another controller
    is elected, has the batch, and answers others. 3. The read comes here. 4. Now the
    acknowledgements arrive. The read has not seen what the other one answered."""
    desk.put("a")
    answers = desk.get("a")
    desk.consensus.commit()
    assert answers == []
    desk.consensus.lose()
    assert code(answers) is ErrorCode.not_controller


def test_what_need_not_be_current_is_answered_at_once(desk: Desk) -> None:
    assert desk.get("a", GLANCE)[0]["value"] is None
    assert desk.consensus.barriers == 0


def test_what_need_not_be_current_waits_for_what_it_saw_all_the_same(desk: Desk) -> None:
    desk.put("a")
    answers = desk.get("a", GLANCE)
    assert answers == []
    desk.consensus.commit()
    assert answers[0]["value"] == "x"


def test_a_refusal_waits_as_a_read_does(desk: Desk) -> None:
    """Else somebody would hear that a name is taken, and then see that it is not."""
    desk.put("a")
    refused = desk.put("a")
    desk.consensus.prove()
    assert refused == []
    desk.consensus.lose()
    assert code(refused) is ErrorCode.not_controller
    desk.lead(epoch=3)
    retried = desk.put("a")
    desk.consensus.commit()
    assert code(retried) is ErrorCode.none


# -- leadership -------------------------------------------------------------------------------


def test_a_standby_refuses_and_names_the_leader() -> None:
    desk = Desk()
    assert desk.put("a") == [
        {"error_code": ErrorCode.not_controller, "why": "no controller is active at the moment"}
    ]
    desk.controller.resign(OTHER_ID, 4)
    assert desk.put("a") == [
        {"error_code": ErrorCode.not_controller, "why": f"the active controller is node {OTHER_ID}"}
    ]
    assert desk.consensus.log == []


def test_writes_that_may_yet_commit_are_not_called_failed(desk: Desk) -> None:
    answers = [desk.put("a"), desk.put("b"), desk.put("c")]
    desk.consensus.commit(1)
    desk.consensus.lose(kept=1)
    assert [code(each) for each in answers] == [
        ErrorCode.none,
        ErrorCode.request_timed_out,
        ErrorCode.request_timed_out,
    ]
    assert value_of(desk.consensus.image(), "b") == "x", "it did commit"


def test_the_speculative_image_goes_with_leadership(desk: Desk) -> None:
    desk.put("a")
    desk.consensus.lose()
    assert desk.controller.image is None
    desk.lead(epoch=3)
    assert desk.controller.image == desk.consensus.image()
    assert value_of(desk.consensus.image(), "a") is None


def test_a_write_that_was_never_appended_is_refused_for_certain(desk: Desk) -> None:
    """The engine has lost leadership, and the controller does not know it yet."""
    desk.consensus.leader_id, desk.consensus.epoch = OTHER_ID, 2
    answers = desk.put("a")
    assert code(answers) is ErrorCode.not_controller
    assert answers[0]["why"] == f"the active controller is node {OTHER_ID}"
    assert not desk.controller.is_active
    assert desk.consensus.resigned == 0, "there is nothing to resign from"


def test_a_log_that_ends_elsewhere_makes_the_controller_give_up(desk: Desk) -> None:
    waiting = desk.get("a")
    desk.consensus.end_offset += 1
    assert code(desk.put("a")) is ErrorCode.not_controller
    assert code(waiting) is ErrorCode.not_controller
    assert not desk.controller.is_active
    assert desk.consensus.resigned == 1, "somebody must lead from where the log really ends"


def test_a_barrier_that_fails_ends_the_epoch(desk: Desk) -> None:
    desk.consensus.leader_id, desk.consensus.epoch = OTHER_ID, 2
    assert code(desk.get("a")) is ErrorCode.not_controller
    assert not desk.controller.is_active


def test_outcomes_are_awaited_even_after_the_end(desk: Desk) -> None:
    """A write was committed, but the news of the new leader overtakes the news of that."""
    answers = desk.put("a")
    desk.controller.resign(OTHER_ID, 2)
    assert answers == []
    desk.consensus.commit()
    assert code(answers) is ErrorCode.none


def test_old_outcomes_do_not_disturb_a_new_epoch(desk: Desk) -> None:
    late = desk.consensus._pending
    old = desk.put("a")
    (_, future) = late.pop()
    desk.consensus.log.pop()
    desk.consensus.end_offset -= 1
    desk.controller.resign(None, 1)
    desk.lead(epoch=2)
    new = desk.put("b")
    future.set_exception(OutcomeUnknown("lost"))
    assert code(old) is ErrorCode.request_timed_out
    assert desk.controller.is_active
    desk.consensus.commit()
    assert code(new) is ErrorCode.none


def test_leadership_is_logged(desk: Desk) -> None:
    with capture_logs() as logged:
        desk.put("a")
        desk.consensus.lose()
    (line,) = [each for each in logged if each["event"] == "controller_resigned"]
    assert (line["epoch"], line["new_epoch"], line["in_flight"]) == (1, 2, 0)
    with capture_logs() as logged:
        desk.win(epoch=3)
    assert [each["event"] for each in logged] == ["controller_active"]


# -- sizes ------------------------------------------------------------------------------------


def test_a_request_of_too_many_records_is_refused(desk: Desk) -> None:
    before = desk.consensus.end_offset
    answers = desk.put(*map(str, range(limits.BATCH_RECORDS_MAX + 1)))
    desk.consensus.prove()
    assert code(answers) is ErrorCode.policy_violation
    assert "10001 records" in answers[0]["why"]
    assert desk.consensus.end_offset == before
    assert not desk.faults


def test_a_request_of_too_many_bytes_is_refused(desk: Desk) -> None:
    answers = desk.put("a", "b", "c", value="x" * (limits.METADATA_BATCH_BYTES_MAX // 3))
    desk.consensus.prove()
    assert code(answers) is ErrorCode.policy_violation
    assert "bytes" in answers[0]["why"]
    assert desk.controller.image == desk.consensus.image(), "nothing of it stays"


def test_the_largest_request_is_one_batch(desk: Desk) -> None:
    before = len(desk.consensus.log)
    answers = desk.put(*map(str, range(limits.BATCH_RECORDS_MAX)))
    assert len(desk.consensus.log) == before + 1
    desk.consensus.commit()
    assert code(answers) is ErrorCode.none


LARGE = tuple(map(str, range(25_000)))


def test_a_large_decision_of_its_own_is_one_transaction(desk: Desk) -> None:
    begin = desk.consensus.end_offset
    answers = desk.put(*LARGE, own=True)
    written = desk.consensus.records()[-len(LARGE) - 2 :]
    assert isinstance(written[0], BeginTransactionRecord)
    assert isinstance(written[-1], EndTransactionRecord)
    assert desk.consensus.end_offset == begin + len(LARGE) + 2
    assert len(desk.consensus.log) > 2
    while not answers:
        assert value_of(desk.consensus.image(), "0") is None, "it applies as one"
        desk.consensus.commit(1)
    assert answers[0]["offset"] == begin, "what the decision took for its base offset"
    assert value_of(desk.consensus.image(), LARGE[-1]) == "x"


def test_a_new_leader_aborts_what_was_left_open(desk: Desk) -> None:
    answers = desk.put(*LARGE, own=True)
    desk.consensus.lose(kept=2)
    assert code(answers) is ErrorCode.request_timed_out
    assert desk.consensus.image().transaction is not None
    with capture_logs() as logged:
        desk.lead(epoch=3)
    assert isinstance(desk.consensus.records()[-1], AbortTransactionRecord)
    assert desk.consensus.image().transaction is None
    assert value_of(desk.consensus.image(), "0") is None
    assert "transaction_aborted" in {each["event"] for each in logged}


def test_a_transaction_whose_end_was_refused_did_not_happen(desk: Desk) -> None:
    """Whatever of it is in the log, without its end it does not count: that is for certain."""
    propose, first = desk.consensus.propose, desk.consensus.end_offset

    def fails_half_way(batch: Any, *, epoch: int, base_offset: int) -> Any:
        future = propose(batch, epoch=epoch, base_offset=base_offset)
        if base_offset == first:
            desk.consensus.lose(kept=1)
        return future

    desk.consensus.propose = fails_half_way  # type: ignore[method-assign]
    assert code(desk.put(*LARGE, own=True)) is ErrorCode.not_controller


def test_too_much_at_once_is_refused_and_can_be_tried_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure_module, "CONTROLLER_IN_FLIGHT_MAX", 3)
    taken = [desk.put(str(number)) for number in range(3)]
    refused = desk.put("3")
    assert code(refused) is ErrorCode.throttling_quota_exceeded
    assert desk.get("0", GLANCE) == [], "heartbeats have room of their own"
    desk.consensus.commit()
    assert [code(each) for each in taken] == [ErrorCode.none] * 3
    again = desk.put("3")
    desk.consensus.commit()
    assert code(again) is ErrorCode.none


def test_bytes_under_way_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenure_module, "CONTROLLER_BYTES_IN_FLIGHT_MAX", 1000)
    desk.put("a", value="x" * 2000)
    assert code(desk.put("b")) is ErrorCode.throttling_quota_exceeded
    desk.consensus.commit()
    assert desk.put("b") == [], "it waits for its commit, as any"


# -- what a new controller writes -------------------------------------------------------------


def test_the_first_leader_gives_the_cluster_its_features() -> None:
    desk = Desk()
    desk.lead()
    assert METADATA_VERSION in desk.consensus.image().features
    written = len(desk.consensus.log)
    desk.consensus.lose()
    desk.lead(epoch=3)
    assert len(desk.consensus.log) == written, "the next one finds them"


def own_registration(incarnation: bytes = b"I") -> Any:
    values = registration_values(Voter(NODE_ID, "127.0.0.1", 9093), Uuid(incarnation * 16))
    return registration_message(values)


def test_a_leader_registers_itself_once() -> None:
    desk = Desk(registration=own_registration())
    desk.lead()
    (found,) = [r for r in desk.consensus.records() if isinstance(r, RegisterControllerRecord)]
    assert found.controller_id == NODE_ID
    written = len(desk.consensus.log)
    desk.consensus.lose()
    desk.lead(epoch=3)
    assert len(desk.consensus.log) == written


def test_requests_that_come_first_wait_behind_the_bootstrap() -> None:
    desk = Desk()
    desk.win()
    answers = desk.put("a")
    assert answers == []
    desk.consensus.commit()
    assert code(answers) is ErrorCode.none


# -- proposals --------------------------------------------------------------------------------


def test_batches_of_a_proposal_follow_each_other_without_a_gap(desk: Desk) -> None:
    image = desk.controller.image
    assert image is not None
    decision = Decision(records=[config(name, "x") for name in LARGE], response={}, own=True)
    proposal = make_proposal(image, decision, epoch=1, timestamp_ms=5)
    due = int(image.end_offset)
    for base_offset, batch in proposal.batches:
        header = read_header(batch)
        assert base_offset == header.base_offset == due
        assert header.size <= limits.METADATA_BATCH_BYTES_MAX
        due = header.end_offset
    assert due == proposal.image.end_offset


def test_a_small_decision_of_its_own_is_a_plain_batch(desk: Desk) -> None:
    image = desk.controller.image
    assert image is not None
    decision = Decision(records=[NoOpRecord()], response={}, own=True)
    proposal = make_proposal(image, decision, epoch=1, timestamp_ms=5)
    expected = record_batch([NoOpRecord()], base_offset=image.end_offset, epoch=1, timestamp_ms=5)
    assert proposal.batches == ((image.end_offset, expected),)
    assert proposal.image.without_provenance() == replay_all(image, []).without_provenance()


def test_a_stopped_engine_settles_at_once(desk: Desk) -> None:
    desk.consensus.propose = lambda *_, **__: raised(OutcomeUnknown("stopped"))  # type: ignore
    assert code(desk.put("a")) is ErrorCode.request_timed_out
    assert not desk.controller.is_active
