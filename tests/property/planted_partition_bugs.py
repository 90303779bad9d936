"""Bugs in how partitions change: elections, ISR, ELR, reassignments, creation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftpy.metadata_log import records as r
from kraftpy.quorum.control import (
    brokers,
    configs,
    elections,
    fencing,
    isr,
    new_partitions,
    partition_change,
    reassignment,
)
from kraftpy.quorum.control.partition_change import PartitionChange
from tests.property import controller_actions as act
from tests.property.controller_driver import Driver
from tests.property.planted_bug import (
    Patch,
    all_die,
    below_the_minimum,
    below_the_minimum_only,
    bug,
    cancels_a_move,
    crash_below_the_minimum,
    crash_of_the_last,
    leader_dies,
    moves_a_replica,
    one_by_one_and_back,
    orders,
    shrinks_and_grows,
    unclean_request,
)


def _patched_step(patch: Patch, name: str, after: Callable[[PartitionChange], None]) -> None:
    """The step of a change is followed by something that it should not do."""
    original = getattr(PartitionChange, name)

    def step(self: PartitionChange) -> None:
        original(self)
        after(self)

    patch.setattr(PartitionChange, name, step)


def _patched_record(patch: Patch, change: Callable[[PartitionChange, Any], Any]) -> None:
    original = PartitionChange._record

    def record(self: PartitionChange) -> Any:
        made = original(self)
        return None if made is None else change(self, made)

    patch.setattr(PartitionChange, "_record", record)


@bug(1, lambda driver: act.reassign(driver, orders(driver), [1, 2, 9]))
def targets_are_not_checked(patch: Patch) -> None:
    patch.setattr(reassignment, "_check_target", lambda *_: None)


def _alter_with_a_member_twice(driver: Driver) -> None:
    act.alter(driver, orders(driver), [1, 2, 2])


@bug(2, _alter_with_a_member_twice)
def proposals_are_taken_as_they_are(patch: Patch) -> None:
    patch.setattr(isr, "_illegal", lambda *_: None)
    patch.setattr(isr, "_in_replica_order", lambda _partition, proposed: proposed.isr)


@bug(3, leader_dies)
def the_first_replica_always_leads(patch: Patch) -> None:
    def elect(self: PartitionChange) -> None:
        self._leader = self.replicas[0]

    patch.setattr(PartitionChange, "_elect", elect)


@bug(4, all_die)
def the_last_member_leaves_without_elr(patch: Patch) -> None:
    """KAFKA-15353, by another way."""
    original = PartitionChange._record

    def record(self: PartitionChange) -> Any:
        self.elr_enabled = True
        return original(self)

    patch.setattr(PartitionChange, "_record", record)


@bug(5, shrinks_and_grows)
def every_change_names_the_leader(patch: Patch) -> None:
    """KAFKA-15021."""
    _patched_record(
        patch,
        lambda change, made: (
            made
            if made.leader != r.NO_CHANGE
            else replace(made, leader=change.partition.leader, leader_epoch=made.leader_epoch + 1)
        ),
    )


@bug(6, shrinks_and_grows)
def the_answer_has_the_old_partition_epoch(patch: Patch) -> None:
    """KAFKA-12367, as a leader sees it."""
    original = isr._result

    def result(partition_id: int, code: Any, partition: Any) -> Any:
        values = dict(original(partition_id, code, partition))
        return values | {"partition_epoch": values["partition_epoch"] - 1}

    patch.setattr(isr, "_result", result)


@bug(6, leader_dies, by_replay=True)
def the_partition_epoch_jumps(patch: Patch) -> None:
    _patched_record(patch, lambda _, made: replace(made, partition_epoch=made.partition_epoch + 1))


def _create_on_a_fenced_broker(driver: Driver) -> None:
    act.start(driver, 1, 2)
    act.silence(driver, 2)
    act.create(driver, "orders", placed=[(1, 2)])


@bug(7, _create_on_a_fenced_broker)
def fenced_replicas_are_in_sync_at_once(patch: Patch) -> None:
    """KAFKA-13083."""
    patch.setattr(new_partitions, "is_active", lambda *_: True)


@bug(8, lambda driver: act.elect(driver, [orders(driver)], unclean=True) or act.balance(driver))
def nothing_is_written(patch: Patch) -> None:
    patch.setattr(partition_change, "_says_something", lambda _: True)
    patch.setattr(elections, "_is_content", lambda *_: False)
    original = elections._elect

    def elect(situation: Any, name: str, partition_id: int, election: Any) -> Any:
        found = original(situation, name, partition_id, election)
        topic = situation.image.topic(name)
        return *found[:2], elections.new_change(situation, topic, partition_id).build()

    patch.setattr(elections, "_elect", elect)


@bug(9, unclean_request)
def unclean_leaders_are_not_marked(patch: Patch) -> None:
    """KAFKA-18940."""
    _patched_step(patch, "_elect", lambda self: setattr(self, "leader_recovery_state", 0))


def _leader_alone_dies(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1])
    act.silence(driver, 1)


@bug(10, _leader_alone_dies)
def every_topic_allows_unclean_elections(patch: Patch) -> None:
    patch.setattr(elections, "unclean_election_enabled", lambda *_: True)


@bug(11, unclean_request)
def replicas_join_a_recovering_leader(patch: Patch) -> None:
    patch.setattr(isr, "_illegal", lambda *_: None)


@bug(12, crash_of_the_last, elr=True)
def the_last_known_leader_need_not_live(patch: Patch) -> None:
    """KAFKA-19522."""

    def last_known(self: PartitionChange) -> Any:
        last = self._last_known_elr
        return last[0] if len(last) == 1 and not self.isr and not self._elr else None

    patch.setattr(PartitionChange, "_last_known_leader", last_known)


def _follower_dies(driver: Driver) -> None:
    orders(driver)
    act.silence(driver, 2)


@bug(13, _follower_dies)
def a_fenced_broker_stays_in_sync(patch: Patch) -> None:
    patch.setattr(fencing, "leave_isrs", lambda *_args, **_kwargs: ())


def _restart_in_sync(driver: Driver) -> None:
    orders(driver)
    driver.now_ms += driver.settings.broker_session_timeout_ms + 1
    act.register(driver, 2, life=2)


@bug(13, _restart_in_sync)
def a_new_life_stays_in_sync(patch: Patch) -> None:
    """KAFKA-18106."""
    patch.setattr(brokers, "_end_previous_life", lambda *_: ())


def _fenced_replica_joins(driver: Driver) -> None:
    key = orders(driver)
    act.silence(driver, 2)
    act.alter(driver, key, [1, 2, 3])


@bug(13, _fenced_replica_joins)
def fenced_replicas_may_join(patch: Patch) -> None:
    """KAFKA-13916."""
    patch.setattr(isr, "_ineligible", lambda *_: None)


def _stale_leader_lets_join(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1, 2])
    act.alter(driver, key, [1, 2, 3], epochs=(0, -1), member_epoch=0)


@bug(14, _stale_leader_lets_join)
def stale_proposals_count(patch: Patch) -> None:
    patch.setattr(isr, "_stale", lambda *_: None)


def _old_life_joins(driver: Driver) -> None:
    key = orders(driver)
    act.alter(driver, key, [1, 2])
    act.alter(driver, key, [1, 2, 3], member_epoch=-1)


@bug(14, _old_life_joins)
def the_epoch_of_who_joins_is_not_looked_at(patch: Patch) -> None:
    """KIP-903."""
    patch.setattr(isr, "_ineligible", lambda *_: None)


@bug(15, below_the_minimum, elr=True)
def members_of_the_isr_are_eligible_too(patch: Patch) -> None:
    def keep(self: PartitionChange) -> None:
        self._elr = (*self._elr, *self.isr) if self._elr else ()

    _patched_step(patch, "_keep_eligible", keep)


@bug(16, below_the_minimum, elr=True)
def the_elr_outlives_its_need(patch: Patch) -> None:
    def keep(self: PartitionChange) -> None:
        others = tuple(each for each in self.partition.elr if each not in self.isr)
        self._elr = self._elr or others

    _patched_step(patch, "_keep_eligible", keep)


def _minimum_is_lowered(driver: Driver) -> None:
    below_the_minimum_only(driver)
    act.configure(driver, "orders", "min.insync.replicas", "1")


@bug(16, _minimum_is_lowered, elr=True)
def a_new_minimum_leaves_the_elr(patch: Patch) -> None:
    """KAFKA-16540."""
    patch.setattr(configs, "_elr_to_clear", lambda *_: [])


@bug(17, below_the_minimum, elr=True)
def one_eligible_replica_is_forgotten(patch: Patch) -> None:
    _patched_step(patch, "_keep_eligible", lambda self: setattr(self, "_elr", self._elr[:-1]))


@bug(18, crash_below_the_minimum, elr=True)
def a_crash_leaves_the_elr(patch: Patch) -> None:
    patch.setattr(brokers, "leave_for_good", fencing.leave_isrs)


@bug(19, all_die, elr=True)
def the_last_leader_is_forgotten(patch: Patch) -> None:
    patch.setattr(PartitionChange, "_remember_last_leader", lambda _: None)


@bug(20, moves_a_replica)
def what_was_removed_is_still_to_be_removed(patch: Patch) -> None:
    def keep(self: PartitionChange) -> None:
        self.removing_replicas = self.removing_replicas or self.partition.removing_replicas

    _patched_step(patch, "_complete_reassignment", keep)


@bug(21, moves_a_replica)
def a_move_begins_with_the_new_replica_in_sync(patch: Patch) -> None:
    def join(self: PartitionChange) -> None:
        if self.adding_replicas and not self.partition.adding_replicas:
            self.isr = (self.partition.leader, *self.adding_replicas)

    _patched_step(patch, "_complete_reassignment", join)


@bug(22, moves_a_replica)
def a_move_ends_too_early(patch: Patch) -> None:
    """KAFKA-15665."""

    def end(self: PartitionChange) -> None:
        if self.removing_replicas and self.partition.removing_replicas:
            self.isr = tuple(each for each in self.isr if each not in self.removing_replicas)[:2]
            self.replicas = tuple(e for e in self.replicas if e not in self.removing_replicas)
            self.adding_replicas = self.removing_replicas = ()

    patch.setattr(PartitionChange, "_complete_reassignment", end)


@bug(23, cancels_a_move)
def a_cancel_drops_one_too_many(patch: Patch) -> None:
    original = reassignment._cancel

    def cancel(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                reassignment,
                "_without",
                lambda all_, gone: tuple(e for e in all_ if e not in gone)[:2],
            )
            return original(*args)

    patch.setattr(reassignment, "_cancel", cancel)


def _grow(driver: Driver) -> None:
    orders(driver)
    act.grow(driver, "orders", 3)


def _numbered_from(patch: Patch, shift: int) -> None:
    original = new_partitions.PartitionWriter.records

    def records(self: Any, topic_id: Any, first: int, placements: Any) -> Any:
        return original(self, topic_id, first + shift if first else 0, placements)

    patch.setattr(new_partitions.PartitionWriter, "records", records)


@bug(24, _grow)
def new_partitions_begin_one_too_low(patch: Patch) -> None:
    _numbered_from(patch, -1)


@bug(35, _grow)
def new_partitions_begin_one_too_high(patch: Patch) -> None:
    _numbered_from(patch, 1)


@bug(25, one_by_one_and_back)
def nobody_is_elected_when_a_broker_comes_back(patch: Patch) -> None:
    patch.setattr(fencing, "lead_what_it_can", lambda *_args, **_kwargs: ())
