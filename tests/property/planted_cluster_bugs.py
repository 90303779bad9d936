"""Bugs in how brokers, topics, configs, features and transactions are decided."""

from dataclasses import replace
from typing import Any

import pytest

from kraftpy.metadata_log import records as r
from kraftpy.quorum import proposal
from kraftpy.quorum.control import (
    broker_heartbeat,
    broker_state,
    brokers,
    configs,
    features,
    fencing,
    new_partitions,
    producer_ids,
    topics,
)
from kraftpy.types import BrokerId
from tests.property import controller_actions as act
from tests.property.controller_driver import Driver
from tests.property.planted_bug import (
    Patch,
    below_the_minimum_only,
    bug,
    leader_dies,
    orders,
    orders_only,
)
from tests.unit.control.cluster import directory, wire


def _registered_with(patch: Patch, **changed: Any) -> None:
    def record(**values: Any) -> Any:
        made = r.RegisterBrokerRecord(**values)
        return replace(made, **{name: change(made) for name, change in changed.items()})

    patch.setattr(brokers, "RegisterBrokerRecord", record)


def _restart(driver: Driver) -> None:
    act.start(driver, 1, 2)
    act.register(driver, 1, rack="another")
    act.heartbeat(driver, 1, want_fence=True)
    act.register(driver, 1, life=2)


@bug(26, _restart)
def the_epoch_is_not_the_base_offset(patch: Patch) -> None:
    _registered_with(patch, broker_epoch=lambda made: made.broker_epoch + 1)


@bug(26, _restart)
def registering_again_is_a_new_epoch(patch: Patch) -> None:
    """KAFKA-16952."""
    patch.setattr(brokers, "_same_life", lambda _existing, record: record)


@bug(27, _restart)
def all_brokers_have_the_epoch_of_the_first(patch: Patch) -> None:
    epochs: list[int] = []

    def first(made: r.RegisterBrokerRecord) -> int:
        epochs.append(made.broker_epoch)
        return epochs[0]

    _registered_with(patch, broker_epoch=first)


@bug(28, _restart)
def a_new_life_is_not_fenced(patch: Patch) -> None:
    _registered_with(patch, fenced=lambda _: False)


@bug(29, leader_dies, by_replay=True)
def the_fence_names_another_epoch(patch: Patch) -> None:
    original: Any = fencing.fence_broker

    def fence(*args: Any, **kwargs: Any) -> Any:
        *changes, record = original(*args, **kwargs)
        return (*changes, replace(record, broker_epoch=record.broker_epoch - 1))

    patch.setattr(fencing, "fence_broker", fence)


@bug(30, leader_dies)
def the_fence_comes_first(patch: Patch) -> None:
    original: Any = fencing.fence_broker

    def fence(*args: Any, **kwargs: Any) -> Any:
        *changes, record = original(*args, **kwargs)
        return (record, *changes)

    patch.setattr(fencing, "fence_broker", fence)


def _early_heartbeat(driver: Driver) -> None:
    act.start(driver, 1)
    act.register(driver, 2)
    act.heartbeat(driver, 2, offset=act.epoch_of(driver, 2) - 1)


@bug(31, _early_heartbeat)
def a_broker_need_not_catch_up(patch: Patch) -> None:
    original: Any = broker_state.next_state
    patch.setattr(
        broker_heartbeat,
        "next_state",
        lambda broker, **asked: original(broker, **(asked | {"is_caught_up": True})),
    )


def _shutdown_and_again(driver: Driver) -> None:
    orders(driver)
    act.heartbeat(driver, 1, want_shut_down=True, offset=0)
    act.register(driver, 1, rack="another")


@bug(32, _shutdown_and_again)
def registering_again_ends_the_shutdown(patch: Patch) -> None:
    original = brokers._same_life
    patch.setattr(
        brokers,
        "_same_life",
        lambda *args: replace(original(*args), in_controlled_shutdown=False),
    )


def _shared_directory(driver: Driver) -> None:
    act.start(driver, 1)
    act.register(driver, 2, log_dirs=[wire(directory(1))])


@bug(33, _shared_directory)
def directories_are_not_compared(patch: Patch) -> None:
    patch.setattr(brokers, "_checked_log_dirs", lambda *_: (directory(1),))


# -- topics and the rest ---------------------------------------------------------------------------


def _made_again(driver: Driver) -> None:
    orders(driver)
    act.delete(driver, "orders")
    act.create(driver, "orders")


@bug(34, _made_again)
def topic_ids_are_not_drawn(patch: Patch) -> None:
    patch.setattr(topics, "random_uuid", lambda _: b"T" * 16)


def _config_of_nothing(driver: Driver) -> None:
    act.configure(driver, "nothing", "retention.ms", "1")


@bug(36, _config_of_nothing)
def configs_need_no_topic(patch: Patch) -> None:
    patch.setattr(configs, "_check_resource", lambda *_: None)


@bug(37, orders_only)
def partitions_come_later(patch: Patch) -> None:
    patch.setattr(new_partitions.PartitionWriter, "records", lambda *_: [])


def _two_blocks(driver: Driver) -> None:
    act.start(driver, 1)
    act.producer_ids(driver, 1)


@bug(43, _two_blocks)
def blocks_are_too_small(patch: Patch) -> None:
    patch.setattr(producer_ids, "BLOCK_SIZE", 10)


@bug(43, _two_blocks, by_replay=True)
def blocks_are_given_again(patch: Patch) -> None:
    patch.setattr(producer_ids, "BLOCK_SIZE", 0)


def _a_broker_without_elr(driver: Driver) -> None:
    other = [each for each in act.FEATURES if each["name"] != act.ELR_FEATURE]
    act.register(driver, 1, features=other)
    act.heartbeat(driver, 1)
    act.set_elr(driver, True)


@bug(44, _a_broker_without_elr)
def brokers_are_not_asked_what_they_support(patch: Patch) -> None:
    patch.setattr(features, "_reasons_not_supported", lambda *_: iter(()))


def _elr_off(driver: Driver) -> None:
    below_the_minimum_only(driver)
    act.set_elr(driver, False)


@bug(44, _elr_off, elr=True)
def the_elr_outlives_its_feature(patch: Patch) -> None:
    original = features._records_for
    patch.setattr(
        features,
        "_records_for",
        lambda *args: (e for e in original(*args) if not isinstance(e, r.ClearElrRecord)),
    )


def _long_decision(driver: Driver) -> None:
    act.start(driver, 1, 2)
    act.create(driver, "orders", partitions=9, factor=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposal, "BATCH_RECORDS_MAX", 4)
        act.silence(driver, BrokerId(1))


@bug(45, _long_decision, by_replay=True)
def a_transaction_ends_before_it_begins(patch: Patch) -> None:
    patch.setattr(proposal, "BeginTransactionRecord", lambda **_: r.EndTransactionRecord())
