"""Bugs for the control code, one or more per rule, and a sequence that runs into each.

Where replay itself refuses what the bug writes, it is caught there, before any rule is asked:
`by_replay`. The logs in tests/unit/audit show that the rule would see it, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.property import controller_actions as act
from tests.property.controller_driver import Driver

Patch = pytest.MonkeyPatch
Sequence = Callable[[Driver], object]


@dataclass(frozen=True)
class Bug:
    rule: int
    name: str
    plant: Callable[[Patch], None]
    run: Sequence
    elr: bool = False
    by_replay: bool = False


BUGS: list[Bug] = []


def bug(
    rule: int, run: Sequence, *, elr: bool = False, by_replay: bool = False
) -> Callable[[Callable[[Patch], None]], None]:
    def keep(plant: Callable[[Patch], None]) -> None:
        BUGS.append(Bug(rule, plant.__name__, plant, run, elr, by_replay))

    return keep


# -- what is done to the cluster -------------------------------------------------------------------


def orders(driver: Driver, *replicas: int) -> Any:
    """Brokers 1 to 4, and orders-0; its key."""
    act.start(driver, 1, 2, 3, 4)
    act.create(driver, "orders", placed=[replicas or (1, 2, 3)])
    return driver.partitions()[0][0]


def shrinks_and_grows(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1, 2], member_epoch=0)
    act.alter(driver, key, [1, 2, 3], member_epoch=0)


def leader_dies(driver: Driver) -> None:
    orders(driver)
    act.silence(driver, 1)


def all_die(driver: Driver) -> None:
    orders(driver)
    for broker_id in (1, 2, 3):
        act.silence(driver, broker_id)


def one_by_one_and_back(driver: Driver) -> None:
    all_die(driver)
    for broker_id in (3, 2, 1):
        act.heartbeat(driver, broker_id)


def unclean_request(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1])
    act.silence(driver, 1)
    act.elect(driver, [key], unclean=True)
    act.alter(driver, key, [2, 3], recovery=1)


def below_the_minimum(driver: Driver) -> None:
    key = orders(driver)
    act.configure(driver, "orders", "min.insync.replicas", "2")
    act.alter(driver, key, [1])
    act.alter(driver, key, [1, 2])


def crash_below_the_minimum(driver: Driver) -> None:
    key = orders(driver)
    act.configure(driver, "orders", "min.insync.replicas", "3")
    act.alter(driver, key, [1, 2])
    act.silence(driver, 3)
    act.register(driver, 3, life=2, clean=False)


def crash_of_the_last(driver: Driver) -> None:
    orders(driver, 1)
    act.silence(driver, 1)
    act.register(driver, 1, life=2, clean=False)
    act.elect_unclean(driver)


def moves_a_replica(driver: Driver) -> None:
    key = orders(driver)
    act.reassign(driver, key, [1, 2, 4])
    act.alter(driver, key, [1, 2, 3, 4])


def cancels_a_move(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1])
    act.reassign(driver, key, [1, 2, 4])
    act.reassign(driver, key, None)


def orders_only(driver: Driver) -> None:
    orders(driver)


def below_the_minimum_only(driver: Driver) -> None:
    key = orders(driver)
    act.configure(driver, "orders", "min.insync.replicas", "2")
    act.alter(driver, key, [1])
