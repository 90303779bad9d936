"""Which replica a consumer is sent to, and what logs tell each other of their epochs."""

from dataclasses import replace
from typing import Any

import pytest

from kraftpy.broker.isr import Follower
from kraftpy.broker.reads import EpochEnd, check_position, epoch_end, preferred_read_replica
from kraftpy.metadata_log.records import RegisterBrokerRecord
from kraftpy.types import NO_EPOCH, ZERO_UUID, BrokerId
from tests.property.partition_parts import ModelLog

ONE, TWO, THREE, FOUR = (BrokerId(each) for each in (1, 2, 3, 4))
RACKS = {ONE: "a", TWO: "b", THREE: "b", FOUR: "b"}
BROKERS = {
    each: RegisterBrokerRecord(
        broker_id=each,
        incarnation_id=ZERO_UUID,
        broker_epoch=1,
        end_points=(),
        features=(),
        rack=rack,
        fenced=False,
    )
    for each, rack in RACKS.items()
}


def chosen(rack: str | None = "b", offset: int = 5, **changed: Any) -> BrokerId | None:
    known: dict[str, Any] = {
        "leader": ONE,
        "high_watermark": 10,
        "isr": (ONE, TWO, THREE),
        "followers": {
            TWO: Follower(log_start=0, log_end=9),
            THREE: Follower(log_start=0, log_end=12),
            FOUR: Follower(log_start=0, log_end=12),
        },
        "brokers": BROKERS,
    }
    return preferred_read_replica(rack, offset, **(known | changed))


def test_the_furthest_replica_of_the_rack_that_is_in_sync() -> None:
    assert chosen() == THREE
    assert chosen(isr=(ONE, TWO)) == TWO
    assert chosen(brokers=BROKERS | {THREE: replace(BROKERS[THREE], fenced=True)}) == TWO


@pytest.mark.parametrize("rack", [None, "", "a", "c"])
def test_the_leader_where_the_rack_has_no_other(rack: str | None) -> None:
    assert chosen(rack) is None


def test_only_a_replica_that_has_the_offset() -> None:
    started = {THREE: Follower(log_start=6, log_end=12)}
    assert chosen(followers=started, isr=(ONE, THREE)) is None
    assert chosen(offset=10, isr=(ONE, TWO)) is None
    assert chosen(offset=11) is None, "nobody knows yet whether it is committed"


def test_an_epoch_before_all_that_are_known_ends_where_they_begin() -> None:
    log = ModelLog()
    assert epoch_end(log, 3) == EpochEnd(NO_EPOCH, -1)
    log.append(5, 0)
    assert epoch_end(log, 3) == EpochEnd(3, 0)
    assert epoch_end(log, 7) == EpochEnd(5, 1)
    assert check_position(log, 0, 3) is None
