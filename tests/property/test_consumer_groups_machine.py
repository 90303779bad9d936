"""Groups of the new protocol under random heartbeats, losses, timeouts and dying coordinators."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import (
    consumer_assignors,
    consumer_decisions,
    consumer_group,
    consumer_state,
)
from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.consumer_records import Current, MemberState
from kraftpy.broker.groups.consumer_state import ConsumerState, Draft
from kraftpy.broker.groups.effects import StartTimer, Store
from tests.property.consumer_groups_model import Client, Model, Violation

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
STEPS = 30
EXAMPLES = int(os.environ.get("GROUP_EXAMPLES", "40"))
SEEDS_MAX = 10
PLANTED_EXAMPLES = 1000  # It ends at the first that shows the bug, nearly always much earlier.
# s1 and s2 claim the same instance; so do s3 and s4.
NAMES = st.sampled_from(["a", "b", "c", "d", "s1", "s2", "s3", "s4"])
INSTANCES = {"s1": "i", "s2": "i", "s3": "j", "s4": "j"}
TOPICS = st.sampled_from([("a",), ("b",), ("a", "b"), ("nowhere",)])


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def _client(self, name: str) -> Client:
        return self.model.client(name, INSTANCES.get(name))

    @initialize(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
    def some_are_there(self, names: list[str]) -> None:
        for name in names:
            self._client(name)
        self.all_is_well_for_a_while(turns=4)

    @rule(turns=st.integers(1, 8))
    def all_is_well_for_a_while(self, turns: int) -> None:
        for _ in range(turns):
            for client in self.model.clients.values():
                client.reconcile()
                self.model.heartbeat(client)
            self.model.settle()
            self.model.advance(500)

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        self.model.heartbeat(self._client(name))

    @rule()
    def all_say_something(self) -> None:
        for client in self.model.clients.values():
            self.model.heartbeat(client)

    @rule(name=NAMES)
    def reconcile(self, name: str) -> None:
        self._client(name).reconcile()

    @rule(name=NAMES)
    def gives_up_waiting(self, name: str) -> None:
        self.model.gives_up_waiting(self._client(name))

    @rule(name=NAMES)
    def gets_stuck(self, name: str) -> None:
        self._client(name).is_stuck = True

    @rule(name=NAMES, for_now=st.booleans())
    def leave(self, name: str, for_now: bool) -> None:
        self.model.leave(self._client(name), for_now=for_now)

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        self.model.restart(self._client(name))

    @rule(name=NAMES, topics=TOPICS, regex=st.sampled_from([None, "", "a.*", "[ab]"]))
    def subscribe(self, name: str, topics: tuple[str, ...], regex: str | None) -> None:
        client = self._client(name)
        if client.waiting is None:
            client.topics, client.regex, client.is_full = topics, regex or "", True

    @rule(name=NAMES, assignor=st.sampled_from(["range", "uniform"]))
    def ask_for_an_assignor(self, name: str, assignor: str) -> None:
        client = self._client(name)
        client.assignor, client.is_full = assignor, True

    @rule(name=NAMES, step=st.sampled_from([-1, 1]))
    def wrong_epoch(self, name: str, step: int) -> None:
        self.model.wrong_epoch(self._client(name), step)

    @rule(name=NAMES, back=st.integers(0, 2))
    def commit(self, name: str, back: int) -> None:
        self.model.commit(self._client(name), back)

    @rule(name=st.sampled_from(["a", "b", "ab"]), by=st.integers(1, 3))
    def topic_grows(self, name: str, by: int) -> None:
        cluster = self.model.cluster
        size = cluster.size(name)
        if size is None:
            cluster.create(name, by)
        else:
            cluster.sizes[name] = size._replace(partitions=size.partitions + by)
        self.model.topics_changed()

    @rule(name=st.sampled_from(["a", "b", "ab"]))
    def topic_goes(self, name: str) -> None:
        if self.model.cluster.sizes.pop(name, None) is not None:
            self.model.topics_changed()

    @rule(outcome=st.sampled_from(["commit", "commit", "refuse", "late"]))
    def settle(self, outcome: str) -> None:
        self.model.settle(outcome)

    @rule(by_ms=st.sampled_from([100, 3000, 11_000, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        self.model.advance(by_ms)

    @rule(cut=st.integers(0, 40))
    def crash(self, cut: int) -> None:
        self.model.crash(cut)

    def teardown(self) -> None:
        self.model.converge()


def machine_settings(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def test_a_group_keeps_its_promises() -> None:
    run_state_machine_as_test(ConsumerGroups, settings=machine_settings(EXAMPLES))


def test_the_machine_goes_everywhere() -> None:
    """Without this nothing would be proven."""
    seen: set[str] = set()

    class Watched(ConsumerGroups):
        def teardown(self) -> None:
            super().teardown()
            seen.update(self.model.hits)

    everything = {
        *("Empty", "Reconciling", "Stable", "commit", "refuse", "late", "session", "rebalance"),
        *("none", "unknown_member_id", "unreleased_instance_id", "not_coordinator"),
        *("group_max_size_reached", "coordinator_not_available"),
    }
    for number in range(SEEDS_MAX):  # Mostly one is enough.
        run_state_machine_as_test(
            seed(number)(Watched), settings=machine_settings(40, database=None)
        )
        if seen >= everything:
            break
    assert seen >= everything


# -- planted bugs -------------------------------------------------------------------------------

BUGS: list[Plant] = []


def bug(plant: Plant) -> Plant:
    BUGS.append(plant)
    return plant


@bug
def partitions_are_given_before_they_are_released(patch: Patch) -> None:
    original = consumer_state.reconciled

    def reconciled(current: Any, target: Any, epoch: int, released: Any, _taken: Any) -> Current:
        return original(current, target, epoch, released, frozenset())

    patch.setattr(consumer_decisions, "reconciled", reconciled)


@bug
def revoked_partitions_are_taken_for_released_at_once(patch: Patch) -> None:
    original = consumer_state.reconciled

    def reconciled(current: Any, target: Any, epoch: int, _released: Any, taken: Any) -> Current:
        return original(current, target, epoch, current.revoking, taken)

    patch.setattr(consumer_decisions, "reconciled", reconciled)


@bug
def what_is_being_revoked_has_no_owner(patch: Patch) -> None:
    def replay(self: ConsumerState, member_id: str, current: Current | None) -> None:
        for each in [each for each, owner in self.owners.items() if owner == member_id]:
            del self.owners[each]
        self.currents.pop(member_id, None)
        if current is not None:
            self.currents[member_id] = current
            self.owners.update(dict.fromkeys(current.assigned, member_id))

    patch.setattr(ConsumerState, "_replay_current", replay)


@bug
def any_epoch_is_taken(patch: Patch) -> None:
    patch.setattr(consumer_decisions, "check_epoch", lambda _current, _asked: None)


@bug
def offsets_of_any_epoch_are_taken(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "_check_epoch", lambda _self, _member_id, _epoch: None)


@bug
def members_are_told_before_it_is_committed(patch: Patch) -> None:
    def go_on(self: ConsumerGroup) -> None:
        while self._waiting and self._storing is None:
            decision = consumer_decisions.decide(
                self.state,
                self._next_operations(),
                self._topics,
                self.config,
                refresh=self._refresh,
            )
            self._refresh = False
            self._tell(decision)
            if decision.records:
                self._storing = decision._replace(answers=())
                self.effects.append(Store(decision.records, self._storing))

    patch.setattr(ConsumerGroup, "_go_on", go_on)


@bug
def decisions_do_not_wait_for_the_one_before(patch: Patch) -> None:
    original = ConsumerGroup._go_on

    def go_on(self: ConsumerGroup) -> None:
        self._storing = None
        original(self)

    patch.setattr(ConsumerGroup, "_go_on", go_on)


@bug
def a_store_that_took_too_long_is_forgotten(patch: Patch) -> None:
    original = ConsumerGroup.stored

    def stored(self: ConsumerGroup, decision: Any, error: ErrorCode, now_ms: int) -> None:
        original(self, decision, error, now_ms)
        if error is not ErrorCode.none:
            self._storing = None

    patch.setattr(ConsumerGroup, "stored", stored)


@bug
def a_loaded_group_watches_no_sessions(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "loaded", lambda _self: None)


@bug
def nobody_waits_for_who_does_not_let_go(patch: Patch) -> None:
    def keep_alive(self: ConsumerGroup, member_id: str) -> None:
        delay_ms = self.config.consumer_session_timeout_ms
        self.effects.append(StartTimer(("session", member_id), delay_ms))

    patch.setattr(ConsumerGroup, "_keep_alive", keep_alive)


@bug
def heartbeats_do_not_keep_alive(patch: Patch) -> None:
    original = ConsumerGroup._keep_alive

    def keep_alive(self: ConsumerGroup, member_id: str) -> None:
        before = len(self.effects)
        original(self, member_id)
        if member_id in self.__dict__.setdefault("known", set()):
            self.effects[before:] = []
        self.__dict__["known"].add(member_id)

    patch.setattr(ConsumerGroup, "_keep_alive", keep_alive)


@bug
def topics_that_grow_are_not_seen(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "topics_changed", lambda _self: None)


@bug
def the_target_stays_when_a_member_goes(patch: Patch) -> None:
    def leave(self: Any, member_id: str) -> None:
        if member_id in self._state.profiles:
            self._draft.remove(member_id)
            self._gone.append(member_id)

    patch.setattr(consumer_decisions._Round, "_leave", leave)


@bug
def a_new_subscription_changes_nothing(patch: Patch) -> None:
    patch.setattr(consumer_decisions, "_subscription", lambda _profile: ())


@bug
def who_is_gone_keeps_its_partitions(patch: Patch) -> None:
    def remove(self: Draft, member_id: str) -> None:
        for kind in (kinds.TARGET, kinds.PROFILE):
            self.put(kind, None, member_id)

    patch.setattr(Draft, "remove", remove)


@bug
def an_instance_is_taken_over_from_who_has_it(patch: Patch) -> None:
    original = consumer_decisions._Round._join

    def join(self: Any, asked: Any) -> None:
        before = self._state.instances.get(asked.instance_id or "")
        if before is not None and before != asked.member_id:
            self._draft.remove(before)
        original(self, asked)

    patch.setattr(consumer_decisions._Round, "_join", join)


@bug
def the_group_grows_without_end(patch: Patch) -> None:
    original = consumer_decisions.decide

    def decide(state: Any, operations: Any, topics: Any, config: Any, *, refresh: bool) -> Any:
        wide = replace(config, consumer_size_max=1000)
        return original(state, operations, topics, wide, refresh=refresh)

    patch.setattr(consumer_group, "decide", decide)


@bug
def the_group_goes_back_to_an_old_epoch(patch: Patch) -> None:
    original = ConsumerState.replay

    def replay(self: ConsumerState, key: Any, value: Any) -> None:
        original(self, key, value)
        if key.kind == kinds.PROFILE and value is None and not self.profiles:
            self.epoch = self.target_epoch = 0

    patch.setattr(ConsumerState, "replay", replay)


@bug
def a_partition_goes_to_two(patch: Patch) -> None:
    original = consumer_assignors.by_uniform

    def assign(readers: Any, topics: Any) -> Any:
        shares = original(readers, topics)
        everything = frozenset().union(*shares.values())
        first = frozenset(sorted(everything)[:1])
        return {member_id: share | first for member_id, share in shares.items()}

    patch.setattr(
        consumer_decisions, "ASSIGNORS", {"uniform": assign, "range": consumer_assignors.by_range}
    )


@bug
def a_partition_goes_to_nobody(patch: Patch) -> None:
    original = consumer_assignors.by_uniform

    def assign(readers: Any, topics: Any) -> Any:
        shares = original(readers, topics)
        return {member_id: frozenset(sorted(share)[1:]) for member_id, share in shares.items()}

    patch.setattr(
        consumer_decisions, "ASSIGNORS", {"uniform": assign, "range": consumer_assignors.by_range}
    )


@bug
def who_waits_is_not_told_when_the_store_fails(patch: Patch) -> None:
    def stored(self: ConsumerGroup, decision: Any, error: ErrorCode, _now_ms: int) -> None:
        if error is ErrorCode.none:
            self._tell(decision)

    patch.setattr(ConsumerGroup, "stored", stored)


@bug
def a_state_is_changed_past_the_log(patch: Patch) -> None:
    original = ConsumerGroup.heartbeat

    def heartbeat(self: ConsumerGroup, asked: Any, token: Any) -> None:
        original(self, asked, token)
        current = self.state.currents.get(asked.member_id)
        if current is not None and current.state is MemberState.UNRELEASED:
            self.state.currents[asked.member_id] = replace(current, state=MemberState.STABLE)

    patch.setattr(ConsumerGroup, "heartbeat", heartbeat)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_machine_finds_a_planted_bug(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, KeyError, AssertionError)):
        run_state_machine_as_test(
            ConsumerGroups,
            settings=machine_settings(
                PLANTED_EXAMPLES, phases=[Phase.generate], derandomize=True, database=None
            ),
        )
