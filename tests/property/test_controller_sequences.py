"""Sequences that the controller machine found, as short as they are told."""

from kio.schema.errors import ErrorCode

from kraftpy.types import NO_LEADER
from tests.property import controller_actions as act
from tests.property.controller_driver import Driver


def one_broker() -> Driver:
    driver = Driver()
    act.set_elr(driver, False)
    act.start(driver, 1)
    act.create(driver, "orders", factor=1)
    return driver


def test_elr_is_not_switched_off_while_it_alone_knows_who_holds_a_partition() -> None:
    driver = one_broker()
    act.set_elr(driver, True)
    act.silence(driver, 1)
    assert act.set_elr(driver, False).error_code is ErrorCode.invalid_update_version
    act.heartbeat(driver, 1)
    assert act.set_elr(driver, False).error_code is ErrorCode.none


def test_a_replica_that_is_found_in_a_good_directory_leads_again() -> None:
    driver = one_broker()
    ((key, _),) = driver.partitions()
    act.assign(driver, 1, key, 7)
    assert driver.partitions()[0][1].leader == NO_LEADER
    act.assign(driver, 1, key, 1)
    assert driver.partitions()[0][1].leader == 1


def test_a_broker_that_names_another_directory_leads_what_is_in_it() -> None:
    driver = one_broker()
    ((key, _),) = driver.partitions()
    act.assign(driver, 1, key, 2)
    assert driver.partitions()[0][1].leader == NO_LEADER
    act.register(driver, 1, dirs=3)
    assert driver.partitions()[0][1].leader == 1


def test_the_last_member_that_was_fenced_before_elr_is_still_the_one_to_wait_for() -> None:
    driver = one_broker()
    act.silence(driver, 1)
    act.set_elr(driver, True)
    assert driver.partitions()[0][1].isr == (1,)
    act.register(driver, 1)
    act.heartbeat(driver, 1)
    assert driver.partitions()[0][1].leader == 1
