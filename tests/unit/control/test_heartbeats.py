"""Sessions: who is silent for too long, counted by the active controller alone."""

import random
from dataclasses import replace

import pytest

from kraftpy.metadata_log import EMPTY, ClusterImage, replay_batch
from kraftpy.metadata_log.records import UnregisterBrokerRecord
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.types import BrokerId, Offset
from tests.unit.control.cluster import broker, ids, incarnation

TIMEOUT_MS = 9000
ONE, TWO, THREE = ids(1, 2, 3)


def image_of(*brokers: int, end_offset: int = 1000) -> ClusterImage:
    image = replay_batch(EMPTY, [broker(each) for each in brokers], 0, epoch=1)
    return replace(image, end_offset=Offset(end_offset))


def changed(image: ClusterImage, broker_id: int, end_offset: int, **fields: object) -> ClusterImage:
    record = replace(image.brokers[BrokerId(broker_id)], **fields)  # type: ignore[arg-type]
    brokers = image.brokers.set(BrokerId(broker_id), record)
    return replace(image, brokers=brokers, end_offset=Offset(end_offset))


def test_a_silent_broker_expires_after_one_session_and_not_before() -> None:
    heartbeats = Heartbeats.of(image_of(1), now_ms=50)
    assert heartbeats.expired(50 + TIMEOUT_MS, TIMEOUT_MS) == []
    assert heartbeats.has_session(ONE, 50 + TIMEOUT_MS, TIMEOUT_MS)
    assert heartbeats.expired(51 + TIMEOUT_MS, TIMEOUT_MS) == [ONE]
    assert not heartbeats.has_session(ONE, 51 + TIMEOUT_MS, TIMEOUT_MS)


def test_the_next_expiry_is_the_first_moment_that_names_somebody() -> None:
    heartbeats = Heartbeats.of(image_of(1, 2), now_ms=0)
    heartbeats.contact(ONE, 100, 5, now_ms=700)
    moment = heartbeats.next_expiry(TIMEOUT_MS)
    assert moment is not None
    assert heartbeats.expired(moment - 1, TIMEOUT_MS) == []
    assert heartbeats.expired(moment, TIMEOUT_MS) == [TWO]


def test_nobody_expires_where_nobody_is_unfenced() -> None:
    image = changed(image_of(1), 1, 1000, fenced=True)
    heartbeats = Heartbeats.of(image, now_ms=0)
    assert heartbeats.next_expiry(TIMEOUT_MS) is None
    assert heartbeats.expired(10**9, TIMEOUT_MS) == []


def test_a_contact_starts_the_session_anew() -> None:
    heartbeats = Heartbeats.of(image_of(1), now_ms=0)
    heartbeats.contact(ONE, 100, 5, now_ms=8000)
    assert heartbeats.expired(9001, TIMEOUT_MS) == []
    assert heartbeats.expired(17_001, TIMEOUT_MS) == [ONE]


def test_the_longest_silent_expires_first_and_ties_go_by_id() -> None:
    heartbeats = Heartbeats.of(image_of(3, 1, 2), now_ms=0)
    assert heartbeats.expired(10_000, TIMEOUT_MS) == [ONE, TWO, THREE]
    heartbeats.contact(ONE, 100, 5, now_ms=10)
    assert heartbeats.expired(10_000, TIMEOUT_MS) == [TWO, THREE, ONE]


def test_a_zombie_does_not_keep_the_session_of_its_successor_alive() -> None:
    heartbeats = Heartbeats.of(image_of(1), now_ms=0)
    heartbeats.contact(ONE, 99, 5, now_ms=8000)
    assert heartbeats.expired(9001, TIMEOUT_MS) == [ONE]


def test_a_contact_of_an_unknown_broker_is_ignored() -> None:
    heartbeats = Heartbeats.of(image_of(1), now_ms=0)
    heartbeats.contact(TWO, 200, 5, now_ms=10)
    assert not heartbeats.has_session(TWO, 10, TIMEOUT_MS)
    assert heartbeats.registration_offset(TWO) is None


def test_a_clock_that_is_read_out_of_order_does_not_disturb_the_order() -> None:
    heartbeats = Heartbeats.of(image_of(1, 2), now_ms=0)
    heartbeats.contact(ONE, 100, 5, now_ms=500)
    heartbeats.contact(TWO, 200, 5, now_ms=400)
    assert heartbeats.has_session(TWO, 9450, TIMEOUT_MS)
    assert heartbeats.expired(9450, TIMEOUT_MS) == []
    assert heartbeats.expired(9501, TIMEOUT_MS) == [ONE, TWO]


def test_kafka_18138_a_broker_that_died_during_the_failover_is_fenced_after_one_session() -> None:
    """It never speaks to the new controller, which must count its silence all the same."""
    failed_over = Heartbeats.of(image_of(1, 2), now_ms=1_000_000)
    failed_over.contact(ONE, 100, 5, now_ms=1_000_000 + TIMEOUT_MS)
    assert failed_over.expired(1_000_001 + TIMEOUT_MS, TIMEOUT_MS) == [TWO]


def test_a_failover_gives_every_living_broker_a_whole_session() -> None:
    heartbeats = Heartbeats.of(image_of(1), now_ms=0)
    assert heartbeats.expired(TIMEOUT_MS + 1, TIMEOUT_MS) == [ONE]
    failed_over = Heartbeats.of(image_of(1), now_ms=TIMEOUT_MS)
    assert failed_over.expired(2 * TIMEOUT_MS, TIMEOUT_MS) == []


def test_a_fenced_broker_has_no_session_until_it_is_unfenced() -> None:
    image = image_of(1)
    heartbeats = Heartbeats.of(image, now_ms=0)
    fenced = changed(image, 1, 1001, fenced=True)
    heartbeats.move(fenced, ids(1), now_ms=10)
    heartbeats.contact(ONE, 100, 5, now_ms=20)
    assert not heartbeats.has_session(ONE, 20, TIMEOUT_MS)
    heartbeats.move(changed(fenced, 1, 1002, fenced=False), ids(1), now_ms=30)
    assert heartbeats.has_session(ONE, 30 + TIMEOUT_MS, TIMEOUT_MS)


def test_an_unregistered_broker_is_forgotten() -> None:
    image = image_of(1, 2)
    heartbeats = Heartbeats.of(image, now_ms=0)
    gone = replay_batch(
        image, [UnregisterBrokerRecord(broker_id=ONE, broker_epoch=100)], 1000, epoch=1
    )
    heartbeats.move(gone, ids(1), now_ms=0)
    assert heartbeats.expired(10_000, TIMEOUT_MS) == [TWO]
    assert heartbeats.registration_offset(ONE) is None


def test_the_registration_offset_stays_where_it_was_while_the_log_grows() -> None:
    image = image_of(1, end_offset=1000)
    heartbeats = Heartbeats.of(image, now_ms=0)
    assert heartbeats.registration_offset(ONE) == 999
    heartbeats.move(changed(image, 1, 5000, fenced=True), ids(1), now_ms=0)
    assert heartbeats.registration_offset(ONE) == 999
    renewed = changed(image, 1, 6000, broker_epoch=5990, incarnation_id=incarnation(1, 2))
    heartbeats.move(renewed, ids(1), now_ms=0)
    assert heartbeats.registration_offset(ONE) == 5999


# -- controlled shutdown ----------------------------------------------------------------------


def shutting_down() -> tuple[ClusterImage, Heartbeats]:
    """Broker 1 shuts down, with its last change at offset 1009; 2 and 3 are active."""
    image = image_of(1, 2, 3)
    heartbeats = Heartbeats.of(image, now_ms=0)
    image = changed(image, 1, 1010, in_controlled_shutdown=True)
    heartbeats.move(image, ids(1), now_ms=0)
    return image, heartbeats


def test_a_shutdown_waits_for_every_active_broker_to_replay_it() -> None:
    _, heartbeats = shutting_down()
    heartbeats.contact(TWO, 200, 1009, now_ms=1)
    assert not heartbeats.may_finish_shutdown(ONE)
    heartbeats.contact(THREE, 300, 1008, now_ms=2)
    assert not heartbeats.may_finish_shutdown(ONE)
    heartbeats.contact(THREE, 300, 1009, now_ms=3)
    assert heartbeats.may_finish_shutdown(ONE)


def test_a_shutdown_does_not_wait_for_fenced_brokers_nor_for_others_that_shut_down() -> None:
    image, heartbeats = shutting_down()
    heartbeats.contact(TWO, 200, 1009, now_ms=1)
    heartbeats.move(changed(image, 3, 1020, fenced=True), ids(3), now_ms=2)
    assert heartbeats.may_finish_shutdown(ONE)

    image, heartbeats = shutting_down()
    heartbeats.contact(TWO, 200, 1009, now_ms=1)
    heartbeats.move(changed(image, 3, 1020, in_controlled_shutdown=True), ids(3), now_ms=2)
    assert heartbeats.may_finish_shutdown(ONE)


def test_what_comes_later_does_not_move_the_end_of_a_shutdown() -> None:
    image, heartbeats = shutting_down()
    for each, epoch in ((TWO, 200), (THREE, 300)):
        heartbeats.contact(each, epoch, 1009, now_ms=1)
    heartbeats.move(changed(image, 1, 9000, log_dirs=()), ids(1), now_ms=2)
    assert heartbeats.may_finish_shutdown(ONE)


def test_a_shutdown_that_outlives_its_controller_waits_for_the_new_ones_log() -> None:
    image, _ = shutting_down()
    heartbeats = Heartbeats.of(image, now_ms=0)
    assert not heartbeats.may_finish_shutdown(ONE)
    for each, epoch in ((TWO, 200), (THREE, 300)):
        heartbeats.contact(each, epoch, 1009, now_ms=1)
    assert heartbeats.may_finish_shutdown(ONE)


# -- many brokers -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_expired_is_what_a_walk_over_all_brokers_would_find(seed: int) -> None:
    rng = random.Random(seed)
    brokers = range(1, 40)
    image = image_of(*brokers)
    heartbeats = Heartbeats.of(image, now_ms=0)
    contacts = dict.fromkeys(brokers, 0)
    now_ms = 0
    for step in range(400):
        now_ms += rng.randrange(200)
        each = rng.choice(brokers)
        if rng.random() < 0.1:
            fenced = not image.brokers[BrokerId(each)].fenced
            image = changed(image, each, 1001 + step, fenced=fenced)
            heartbeats.move(image, ids(each), now_ms)
            contacts.pop(each, None)
            if not fenced:
                contacts[each] = now_ms
        else:
            heartbeats.contact(BrokerId(each), 100 * each, step, now_ms)
            if each in contacts:
                contacts[each] = now_ms
        late = {b for b, contact_ms in contacts.items() if now_ms - contact_ms > TIMEOUT_MS}
        found = heartbeats.expired(now_ms, TIMEOUT_MS)
        assert set(found) == late
        assert [contacts[b] for b in found] == sorted(contacts[b] for b in found)


def test_a_heartbeat_among_ten_thousand_brokers_looks_at_none_of_the_others() -> None:
    image = image_of(*range(1, 10_001))
    heartbeats = Heartbeats.of(image, now_ms=0)
    looked_at = 0

    class Counting(type(heartbeats._sessions)):  # type: ignore[misc]
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            for each in super().__iter__():
                looked_at += 1
                yield each

        def items(self):  # type: ignore[no-untyped-def]
            return ((each, self[each]) for each in self)

        def values(self):  # type: ignore[no-untyped-def]
            return (self[each] for each in self)

    heartbeats._sessions = Counting(heartbeats._sessions.items())
    looked_at = 0
    for each in range(1, 1001):
        heartbeats.contact(BrokerId(each), 100 * each, 5, now_ms=each)
        assert heartbeats.expired(each, TIMEOUT_MS) == []
        assert heartbeats.next_expiry(TIMEOUT_MS) == TIMEOUT_MS + 1
    assert looked_at <= 2000
