"""A classic group keeps its promises, whatever clients, time and the coordinator's death do.

Method: a Hypothesis machine over the model in tests/property/groups_model.py. Clients join, sync,
beat, leave, commit, fall silent, repeat themselves, speak of old generations; stores are committed
late or not at all; the coordinator dies and another one loads. Every rule is checked after each
step, and at the end all faults stop and the group must become stable.

A planted bug is the machine with one line of it undone; the machine must find it.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import classic_group, classic_requests
from kraftpy.broker.groups.classic_group import ClassicGroup
from kraftpy.broker.groups.classic_members import Members
from kraftpy.broker.groups.classic_states import State
from kraftpy.broker.groups.effects import StopTimer, SyncAnswer
from kraftpy.broker.groups.offsets import CommittedOffsets
from kraftpy.broker.groups.shard import GroupShard
from tests.property.groups_clients import Client, Violation
from tests.property.groups_model import REBALANCE_MS, SESSION_MS, Model

EXAMPLES = int(os.environ.get("GROUP_EXAMPLES", "200"))
STEPS = 60
PLANTED_EXAMPLES = 2000  # It ends at the first that shows the bug, nearly always much earlier.

DYNAMIC = ("a", "b", "c", "d")
STATIC = ("s", "t")
NAMES = st.sampled_from(DYNAMIC + STATIC)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.offset = 0

    def _client(self, name: str) -> Client:
        return self.model.client(name, static=name in STATIC)

    @rule(name=NAMES, needs_id=st.booleans(), skip=st.booleans())
    def join(self, name: str, needs_id: bool, skip: bool) -> None:
        """Also while it waits: a client that lost its connection asks again."""
        self.model.join(self._client(name), needs_id=needs_id, skip=skip)

    @rule(name=NAMES)
    def join_with_other_metadata(self, name: str) -> None:
        client = self._client(name)
        client.protocols = (("sticky", b"2"), ("range", client.protocols[-1][1] + b"."))
        self.model.join(client)

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        client = self._client(name)
        if client.member_id and client.generation >= 0:
            self.model.sync(client)

    @rule()
    def all_go_on(self) -> None:
        """What well-behaved clients would do next."""
        for client in list(self.model.clients.values()):
            self.model._do_next(client)

    @rule(turns=st.integers(1, 12))
    def all_is_well_for_a_while(self, turns: int) -> None:
        """Long enough, and the group is stable."""
        for _ in range(turns):
            for client in list(self.model.clients.values()):
                self.model._do_next(client)
            while self.model.stores:
                self.model.settle()
            self.model.advance(500)

    @initialize(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
    def some_are_there(self, names: list[str]) -> None:
        for name in names:
            self._client(name)
        self.all_is_well_for_a_while(turns=12)

    @rule(name=st.sampled_from(STATIC), skip=st.booleans())
    def a_static_member_comes_back(self, name: str, skip: bool) -> None:
        client = self._client(name)
        self.model.restart(client)
        client.protocols = (("range", b"2"), ("sticky", b"2"))
        self.model.join(client, skip=skip)

    @rule(name=NAMES, back=st.integers(-1, 3))
    def heartbeat(self, name: str, back: int) -> None:
        client = self._client(name)
        if client.member_id:
            self.model.heartbeat(client, client.generation - back)

    @rule(name=NAMES, back=st.integers(0, 2))
    def sync_of_an_old_generation(self, name: str, back: int) -> None:
        client = self._client(name)
        if client.member_id and client.waiting is None:
            self.model.sync(client, client.generation - back)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.model.leave(self._client(name))

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        self.model.restart(self._client(name))

    @rule(name=NAMES, partition=st.integers(0, 2), back=st.integers(0, 2))
    def commit(self, name: str, partition: int, back: int) -> None:
        client = self._client(name)
        self.offset += 1
        self.model.commit(client, partition, self.offset, client.generation - back)

    @precondition(lambda self: self.model.stores)
    @rule(outcome=st.sampled_from(("commit", "commit", "commit", "refuse", "late")))
    def settle(self, outcome: str) -> None:
        self.model.settle(outcome)

    @rule(
        by_ms=st.sampled_from((1, 500, 3000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, 5 * 60_000))
    )
    def time_passes(self, by_ms: int) -> None:
        self.model.advance(by_ms)

    @rule()
    def coordinator_dies(self) -> None:
        self.model.crash()

    @invariant()
    def every_rule_holds(self) -> None:
        self.model.check()

    def teardown(self) -> None:
        self.model.heal()


def machine_settings(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def test_a_group_keeps_its_promises() -> None:
    run_state_machine_as_test(Groups, settings=machine_settings(EXAMPLES))


def test_the_machine_goes_everywhere() -> None:
    """Without this nothing would be proven: each transition of the table is taken."""
    seen: set[str] = set()

    class Watched(Groups):
        def teardown(self) -> None:
            super().teardown()
            seen.update(self.model.hits)

    run_state_machine_as_test(
        Watched,
        settings=machine_settings(40, phases=[Phase.generate], derandomize=True, database=None),
    )
    assert seen >= {
        "Empty-PreparingRebalance",
        "PreparingRebalance-CompletingRebalance",
        "PreparingRebalance-Empty",
        "CompletingRebalance-Stable",
        "CompletingRebalance-PreparingRebalance",
        "Stable-PreparingRebalance",
    }


# -- planted bugs ----------------------------------------------------------------------------------


Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
BUGS: list[Plant] = []


def bug(plant: Plant) -> Plant:
    BUGS.append(plant)
    return plant


@bug
def any_generation_will_do(patch: Patch) -> None:
    def check(group: ClassicGroup, member_id: str, instance_id: str | None, _: int) -> Any:
        return classic_requests.check_member(group, member_id, instance_id)

    patch.setattr(classic_requests, "check_generation", check)


@bug
def a_replaced_member_is_not_fenced(patch: Patch) -> None:
    """Who had an instance id before goes on as if nobody had taken it over."""

    def replace(self: ClassicGroup, old_id: str, new_id: str) -> Any:
        member = self.members[old_id]
        self.members.remove(old_id)
        member.member_id, member.join_token, member.sync_token = new_id, None, None
        self.members.add(member)
        self.leader = new_id if self.leader == old_id else self.leader
        return member

    patch.setattr(ClassicGroup, "replace", replace)


@bug
def assignments_are_told_before_they_are_stored(patch: Patch) -> None:
    def store(self: ClassicGroup, assignments: dict[str, bytes]) -> None:
        reason = classic_group.Assigned(self.generation, assignments)
        self._store(reason, self.record(assignments))
        self._assigned(self.generation, assignments, ErrorCode.none, 0)

    patch.setattr(ClassicGroup, "store_assignment", store)


@bug
def a_repeated_sync_assigns_anew(patch: Patch) -> None:
    def store(self: ClassicGroup, assignments: dict[str, bytes]) -> None:
        turned = dict(zip(assignments, reversed(list(assignments.values())), strict=True))
        shares = turned if self.storing is not None else assignments
        self.storing = classic_group.Assigned(self.generation, shares)
        self._store(self.storing, self.record(shares))

    patch.setattr(ClassicGroup, "store_assignment", store)


@bug
def all_members_get_all_partitions(patch: Patch) -> None:
    def assignment_of(_self: ClassicGroup, _member: Any) -> Any:
        return SyncAnswer(ErrorCode.none, None, None, bytes(range(6)))

    patch.setattr(ClassicGroup, "assignment_of", assignment_of)


@bug
def a_member_that_is_removed_is_not_answered(patch: Patch) -> None:
    def remove(self: ClassicGroup, member_id: str) -> None:
        self.members.remove(member_id)
        self.not_synced.discard(member_id)
        self.effects.append(StopTimer((classic_group.SESSION, member_id)))
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    patch.setattr(ClassicGroup, "remove", remove)


@bug
def who_waits_for_its_assignment_is_forgotten_by_the_next_rebalance(patch: Patch) -> None:
    def refuse(self: ClassicGroup, _error: ErrorCode) -> None:
        for member in self.members.values():
            member.sync_token = None

    patch.setattr(ClassicGroup, "refuse_syncs", refuse)


@bug
def a_repeated_join_leaves_the_first_waiting(patch: Patch) -> None:
    def wait(self: ClassicGroup, member: Any, token: Any) -> None:
        self.members.set_joining(member, token)

    patch.setattr(ClassicGroup, "wait_for_join", wait)


@bug
def a_loaded_group_watches_no_sessions(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "loaded", lambda _self: None)


@bug
def heartbeats_do_not_keep_alive(patch: Patch) -> None:
    def beat(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Any:
        error = classic_requests.check_generation(group, member_id, instance_id, generation)
        preparing = group.state is State.PREPARING_REBALANCE
        return error or (ErrorCode.rebalance_in_progress if preparing else ErrorCode.none)

    patch.setattr(classic_requests, "heartbeat", beat)


@bug
def a_stable_group_becomes_empty_at_once(patch: Patch) -> None:
    """Past the table: without telling those who are waiting for a rebalance."""

    def shrunk(self: ClassicGroup, now_ms: int) -> None:
        if not self.members and self.state is State.STABLE:
            self.transition_to(State.EMPTY, now_ms)
        elif self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(now_ms)
        else:
            self.may_complete_join(now_ms)

    patch.setattr(ClassicGroup, "shrunk", shrunk)


@bug
def an_empty_group_is_not_stored(patch: Patch) -> None:
    original = ClassicGroup._store

    def store(self: ClassicGroup, reason: Any, record: Any) -> None:
        if not isinstance(reason, classic_group.Emptied):
            original(self, reason, record)

    patch.setattr(ClassicGroup, "_store", store)


@bug
def a_replaced_member_is_not_stored(patch: Patch) -> None:
    def store(self: ClassicGroup, answer: Any) -> None:
        self._replaced(classic_group.Replaced(answer.member_id, answer), ErrorCode.none, 0)

    patch.setattr(ClassicGroup, "store_replacement", store)


@bug
def a_loaded_group_has_lost_its_generation(patch: Patch) -> None:
    original = ClassicGroup.load

    def load(self: ClassicGroup, record: Any) -> None:
        original(self, record)
        self.generation -= 1

    patch.setattr(ClassicGroup, "load", load)


@bug
def offsets_are_replayed_backwards(patch: Patch) -> None:
    def replay(self: CommittedOffsets, key: Any, record: Any) -> None:
        self._groups.setdefault(key[0], {}).setdefault(key[1:], record)

    patch.setattr(CommittedOffsets, "replay", replay)


@bug
def the_last_stored_group_does_not_win(patch: Patch) -> None:
    original = GroupShard.replay

    def replay(self: GroupShard, key: bytes, value: bytes | None) -> None:
        before = dict(self.stored)
        original(self, key, value)
        if before:
            self.stored = before

    patch.setattr(GroupShard, "replay", replay)


@bug
def the_group_grows_without_end(patch: Patch) -> None:
    patch.setattr(classic_requests, "_has_room", lambda _group, _member_id: True)


@bug
def the_votes_are_not_counted_down(patch: Patch) -> None:
    def set_protocols(self: Members, member: Any, protocols: Any) -> None:
        member.protocols = protocols
        self._count(protocols, 1)

    patch.setattr(Members, "set_protocols", set_protocols)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_machine_finds_a_planted_bug(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(
            Groups,
            settings=machine_settings(
                PLANTED_EXAMPLES, phases=[Phase.generate], derandomize=True, database=None
            ),
        )


def a_static_leader_stays_away() -> None:
    """It is alive and does not join again; another one must lead."""
    model = Model()
    leader, other = model.client("s", static=True), model.client("a", static=False)
    model.join(leader)
    for _ in range(8):
        model.advance(3000)
        model._do_next(leader)
        model.settle()
        model.check()
    assert leader.is_synced
    model.join(other)
    model.join(other)
    for _ in range(REBALANCE_MS // 5000 + 1):
        model.heartbeat(leader)
        model.advance(5000)
        model.check()
    group = model.group
    assert group is not None
    assert (group.leader, group.state) == (other.member_id, State.COMPLETING_REBALANCE)


def test_another_member_leads_if_a_static_leader_stays_away(monkeypatch: Patch) -> None:
    a_static_leader_stays_away()
    monkeypatch.setattr(ClassicGroup, "_elect_leader", lambda _self: True)
    with pytest.raises(Violation, match="does not know of it"):
        a_static_leader_stays_away()


def a_replacement_is_refused() -> None:
    """The log has not taken the new id of a static member: it must not be all there is of it."""
    model = Model()
    client = model.client("s", static=True)
    model.join(client)
    for _ in range(8):
        model.advance(3000)
        model._do_next(client)
        model.settle()
    model.restart(client)
    model.join(client)
    model.settle("refuse")
    model.check()
    model.heal()


def test_a_refused_replacement_is_followed_by_a_rebalance(monkeypatch: Patch) -> None:
    a_replacement_is_refused()
    original = ClassicGroup._replaced

    def replaced(self: ClassicGroup, reason: Any, _error: ErrorCode, now_ms: int) -> None:
        original(self, reason, ErrorCode.none, now_ms)

    monkeypatch.setattr(ClassicGroup, "_replaced", replaced)
    with pytest.raises(Violation, match="the log has"):
        a_replacement_is_refused()
