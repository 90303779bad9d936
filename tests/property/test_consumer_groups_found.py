"""What the machine of the new protocol, or a client, found once, and seldom: told step by step.

Each comes with the bug that it was, which must be found by it again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftpy.broker.groups import consumer_decisions, consumer_state
from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.consumer_records import Current, MemberState
from kraftpy.broker.groups.consumer_requests import JOIN
from kraftpy.broker.groups.consumer_state import Draft
from tests.property.consumer_groups_model import Violation
from tests.property.test_consumer_groups_machine import ConsumerGroups, Patch, Plant


def _takes_over_while_its_heartbeat_waits(group: ConsumerGroups) -> None:
    group.some_are_there(names=["a", "b"])
    group.topic_grows(by=1, name="a")
    group.all_is_well_for_a_while(turns=1)
    group.gets_stuck(name="a")
    group.wrong_epoch(name="c", step=-1)
    group.all_is_well_for_a_while(turns=1)
    group.topic_grows(by=1, name="a")
    group.subscribe(name="a", topics=("a",), regex=None)  # So it says everything.
    group.all_say_something()


def _coordinator_dies_over_a_topic_that_goes(group: ConsumerGroups) -> None:
    group.some_are_there(names=["a", "b"])
    group.topic_goes(name="a")
    group.all_is_well_for_a_while(turns=1)
    group.crash(cut=1)


def _comes_back_when_others_were_given_its_share(group: ConsumerGroups) -> None:
    group.some_are_there(names=["s1"])
    group.leave(name="s1", for_now=True)
    group.heartbeat(name="a")
    group.all_is_well_for_a_while(turns=2)
    group.restart(name="s1")
    group.all_is_well_for_a_while(turns=2)


def what_a_member_said_before_it_was_told_counts(patch: Patch) -> None:
    original = consumer_decisions._Round._reconcile

    def reconcile(self: Any, each: Any) -> Any:
        asked = each.request
        current = self._state.current(asked.member_id)
        given_up = current.assigned - self._state.target(asked.member_id) - (asked.owned or set())
        if current.state is MemberState.STABLE and asked.owned is not None and given_up:
            kept = replace(current, assigned=current.assigned - given_up)
            self._draft.put(kinds.CURRENT, kept, asked.member_id)
        return original(self, each)

    patch.setattr(consumer_decisions._Round, "_reconcile", reconcile)


def a_new_epoch_comes_after_its_reasons(patch: Patch) -> None:
    def bump(self: Draft) -> None:
        self.put(kinds.GROUP, self.state.epoch + 1)

    patch.setattr(Draft, "bump", bump)


def who_joins_is_asked_to_give_up_what_it_had(patch: Patch) -> None:
    original = consumer_state.reconciled

    def reconciled(current: Any, target: Any, epoch: int, released: Any, taken: Any) -> Current:
        released = kinds.NOTHING if current.epoch == JOIN else released
        return original(current, target, epoch, released, taken)

    patch.setattr(consumer_decisions, "reconciled", reconciled)


RARE = [
    (_comes_back_when_others_were_given_its_share, who_joins_is_asked_to_give_up_what_it_had),
    (_takes_over_while_its_heartbeat_waits, what_a_member_said_before_it_was_told_counts),
    (_coordinator_dies_over_a_topic_that_goes, a_new_epoch_comes_after_its_reasons),
]


@pytest.mark.parametrize(("happens", "plant"), RARE, ids=lambda each: each.__name__.strip("_"))
def test_what_was_found_once_is_found_again(
    happens: Callable[[ConsumerGroups], None], plant: Plant, monkeypatch: Patch
) -> None:
    def it_happens() -> None:
        group = ConsumerGroups()
        happens(group)
        group.teardown()

    it_happens()
    plant(monkeypatch)
    with pytest.raises(Violation):
        it_happens()
