"""Producer ids: blocks follow one another, and only a broker in its present life gets one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import ProducerIdsRecord
from kraftpy.quorum.control.decision import Decision, Situation
from kraftpy.quorum.control.producer_ids import APIS, BLOCK_SIZE, decide_allocate_producer_ids
from kraftpy.types import BrokerId
from kraftpy.wire.apis import ALLOCATE_PRODUCER_IDS
from tests.unit.control.makers import answers, ask, image_of, request, situation
from tests.unit.metadata_log.makers import register

IMAGE = image_of(register(1, 10), register(2, 20))


def test_a_broker_gets_the_next_thousand_ids() -> None:
    image = replace(IMAGE, next_producer_id=5000)
    decision, answer = ask(
        APIS, situation(image), ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=20
    )
    assert (answer.producer_id_start, answer.producer_id_len) == (5000, 1000)
    assert decision.records == (
        ProducerIdsRecord(broker_id=BrokerId(2), broker_epoch=20, next_producer_id=6000),
    )


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "error_code"),
    [
        (3, 10, ErrorCode.broker_id_not_registered),
        (1, 9, ErrorCode.stale_broker_epoch),
        (1, 11, ErrorCode.stale_broker_epoch),
    ],
)
def test_nobody_else_gets_ids(broker_id: int, broker_epoch: int, error_code: ErrorCode) -> None:
    decision, answer = ask(
        APIS,
        situation(IMAGE),
        ALLOCATE_PRODUCER_IDS,
        0,
        broker_id=broker_id,
        broker_epoch=broker_epoch,
    )
    assert (answer.error_code, answer.producer_id_len) == (error_code, 0)
    assert not decision.records


def test_the_last_block_ends_within_64_bits() -> None:
    last = 2**63 - 1 - BLOCK_SIZE
    for first, error_code in (
        (last, ErrorCode.none),
        (last + 1, ErrorCode.unknown_server_error),
        (2**63 - 1, ErrorCode.unknown_server_error),
    ):
        image = replace(IMAGE, next_producer_id=first)
        decision, answer = ask(
            APIS, situation(image), ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=10
        )
        assert answer.error_code is error_code
        assert bool(decision.records) == (error_code is ErrorCode.none)


def test_a_refusal_for_all_is_answered() -> None:
    api = APIS[ALLOCATE_PRODUCER_IDS]
    refused = api.refuse(None, ErrorCode.not_controller, "not here")
    assert answers(ALLOCATE_PRODUCER_IDS, api, refused)[0].error_code is ErrorCode.not_controller


requests = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([10, 20])), max_size=20)
Decide = Callable[[Situation, Any], Decision]


def check_blocks(decide: Decide, asked: list[tuple[int, int]]) -> None:
    """Every id that any answer gives out is given once."""
    image, given_out = IMAGE, set[int]()
    for broker_id, broker_epoch in asked:
        if image.brokers.get(BrokerId(broker_id), register(0, -1)).broker_epoch != broker_epoch:
            continue
        message = request(ALLOCATE_PRODUCER_IDS, 0, broker_id=broker_id, broker_epoch=broker_epoch)
        decision = decide(situation(image), message)
        first, length = (decision.response[f"producer_id_{part}"] for part in ("start", "len"))
        block = set(range(first, first + length))
        assert block
        assert not block & given_out
        given_out |= block
        image = replay_all(image, decision.records)


@given(requests)
def test_no_two_blocks_overlap(asked: list[tuple[int, int]]) -> None:
    check_blocks(decide_allocate_producer_ids, asked)


def test_a_planted_overlap_is_seen() -> None:
    def off_by_one(situation: Situation, message: Any) -> Decision:
        decision = decide_allocate_producer_ids(situation, message)
        longer = {**decision.response, "producer_id_len": BLOCK_SIZE + 1}
        return replace(decision, response=longer)

    with pytest.raises(AssertionError):
        check_blocks(off_by_one, [(1, 10), (2, 20)])
