"""A broker's life: its table of states, and registration and heartbeats with real controllers."""

import asyncio
import random
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.broker.lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTiming
from kraftpy.broker.lifecycle_states import (
    NOT_RUNNING,
    PENDING,
    RECOVERY,
    RUNNING,
    SHUTTING_DOWN,
    STARTING,
    TRANSITIONS,
    BrokerState,
    HeartbeatAnswer,
    after_heartbeat,
    when_asked_to_stop,
)
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.errors import FatalFault
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request
from tests.unit.broker.live_broker import live_broker
from tests.unit.broker.live_quorum import PATIENCE_S, live_quorum, run, until
from tests.unit.broker.scripted import ScriptedController, always, scripted

FINE = HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)


# -- the table --------------------------------------------------------------------------------


def test_every_step_that_a_heartbeat_or_a_wish_leads_to_is_legal() -> None:
    for state in BrokerState:
        for told in map(HeartbeatAnswer._make, product((False, True), repeat=3)):
            following = after_heartbeat(state, told)
            assert following is state or following in TRANSITIONS[state]
        if state not in (NOT_RUNNING, SHUTTING_DOWN, PENDING):
            assert when_asked_to_stop(state) in TRANSITIONS[state]


def test_every_state_can_be_reached_and_left() -> None:
    reached = {following for steps in TRANSITIONS.values() for following in steps}
    assert reached == set(BrokerState)
    assert set(TRANSITIONS) == set(BrokerState)
    assert all(TRANSITIONS.values())


@pytest.mark.parametrize(
    ("state", "told", "following"),
    [
        (STARTING, (False, True, False), STARTING),
        (STARTING, (True, True, False), RECOVERY),
        (STARTING, (True, False, False), RUNNING),
        (RECOVERY, (True, True, False), RECOVERY),
        (RECOVERY, (True, False, False), RUNNING),
        (RUNNING, (True, True, False), RUNNING),
        (RUNNING, (True, False, True), RUNNING),
        (PENDING, (True, False, False), PENDING),
        (PENDING, (True, True, True), SHUTTING_DOWN),
    ],
)
def test_what_answers_lead_to(
    state: BrokerState, told: tuple[bool, bool, bool], following: BrokerState
) -> None:
    assert after_heartbeat(state, HeartbeatAnswer(*told)) is following


def test_only_a_broker_that_serves_hands_over() -> None:
    assert when_asked_to_stop(RUNNING) is PENDING
    assert when_asked_to_stop(STARTING) is when_asked_to_stop(RECOVERY) is SHUTTING_DOWN


def test_times_come_from_the_settings_and_their_defaults_are_kafkas() -> None:
    assert LifecycleTiming.of(Settings()) == LifecycleTiming()
    assert LifecycleTiming() == LifecycleTiming(
        heartbeat_interval_ms=2000, registration_timeout_ms=60_000
    )


# -- with real controllers --------------------------------------------------------------------


def test_it_registers_fenced_and_is_unfenced_when_it_is_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            broker.live()
            await until(lambda: broker.lifecycle.state is RECOVERY)
            registered = broker.registered(broker.cache.image)
            assert registered is not None
            assert registered.fenced
            assert registered.broker_epoch == broker.lifecycle.broker_epoch
            assert registered.log_dirs == broker.dirs.directory_ids
            broker.lifecycle.ready()
            await until(lambda: broker.lifecycle.state is RUNNING)
            await broker.caught_up(quorum)
            registered = broker.registered(broker.cache.image)
            assert registered is not None
            assert not registered.fenced

    run(main)


def test_it_stops_in_order_and_its_next_life_proves_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum:
            async with live_broker(quorum) as broker:
                await broker.running()
                epoch = broker.lifecycle.broker_epoch
                assert await broker.lifecycle.controlled_shutdown(PATIENCE_S)
                broker.clean = True
            async with live_broker(quorum) as broker:
                assert broker.dirs.previous_broker_epoch == epoch
                await broker.running()
                assert broker.lifecycle.broker_epoch > epoch

    run(main)


def test_after_a_kill_it_waits_for_the_session_of_its_earlier_life(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, broker_session_timeout_ms=1000) as quorum:
            async with live_broker(quorum) as broker:
                await broker.running()
                epoch = broker.lifecycle.broker_epoch
            async with live_broker(quorum) as broker:
                assert broker.dirs.previous_broker_epoch == -1
                await broker.running()
                assert broker.lifecycle.broker_epoch > epoch

    run(main)


def test_leaderships_are_moved_before_it_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            live_quorum(tmp_path) as quorum,
            live_broker(quorum, 101) as one,
            live_broker(quorum, 102) as two,
        ):
            await one.running()
            await two.running()
            await create_topic(quorum, "orders", 4, [101, 102])
            assert await one.lifecycle.controlled_shutdown(PATIENCE_S)
            image = await quorum.image()
            topic = image.topic("orders")
            assert topic is not None
            assert {p.leader for p in topic.partitions.values()} == {BrokerId(102)}

    run(main)


async def create_topic(quorum: Any, name: str, count: int, replicas: list[int]) -> None:
    assignments = [{"partition_index": n, "broker_ids": replicas} for n in range(count)]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [],
    }
    values = {"topics": [topic], "timeout": timedelta(seconds=5), "validate_only": False}
    answer = await quorum.ask(apis.CREATE_TOPICS, values)
    assert answer.topics[0].error_code is ErrorCode.none, answer


def test_it_lives_through_a_failover(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path, 3) as quorum, live_broker(quorum) as broker:
            await broker.running()
            epoch = broker.lifecycle.broker_epoch
            await quorum.stop((await quorum.leader()).config.node_id)
            leader = await quorum.leader()
            await asyncio.sleep(1.0)
            registered = broker.registered(leader.image)
            assert registered is not None
            assert (registered.broker_epoch, registered.fenced) == (epoch, False)
            assert broker.lifecycle.state is RUNNING

    run(main)


def test_a_broker_that_was_unregistered_registers_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.running()
            epoch = broker.lifecycle.broker_epoch
            await quorum.ask(apis.UNREGISTER_BROKER, {"broker_id": 101})
            await until(lambda: broker.lifecycle.broker_epoch > epoch)
            await until(lambda: broker.lifecycle.state is RUNNING)

    run(main)


def test_a_failed_directory_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_quorum(tmp_path) as quorum, live_broker(quorum) as broker:
            await broker.running()
            broker.lifecycle.directory_failed(Uuid(b"?" * 16))
            broker.lifecycle.directory_failed(broker.dirs.directory_ids[0])

            def is_fenced() -> bool:
                registered = broker.registered(broker.cache.image)
                return registered is not None and registered.fenced

            await until(is_fenced)  # It was the last one.

    run(main)


# -- with controllers that do as they are told ------------------------------------------------


class Life:
    """A lifecycle without anything else."""

    def __init__(self, node: ScriptedController, **timing: int) -> None:
        finder = ControllerFinder([node.place], random.Random(1))
        self.channel = ControllerChannel(finder, random.Random(2))
        self.publisher = MetadataPublisher(MetadataCache())
        identity = BrokerIdentity(
            broker_id=5,
            cluster_id="c",
            incarnation_id=Uuid(b"i" * 16),
            end_points=(),
            rack="r",
            log_dirs=(Uuid(b"d" * 16), Uuid(b"e" * 16)),
            previous_broker_epoch=77,
        )
        known = {"heartbeat_interval_ms": 30, "registration_timeout_ms": 30_000, **timing}
        self.life = BrokerLifecycle(
            identity,
            self.channel,
            self.publisher,
            LifecycleTiming(**known),
            SystemClock(),
            random.Random(3),
        )

    async def __aenter__(self) -> BrokerLifecycle:
        self.task = asyncio.create_task(self.life.run())
        return self.life

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.channel.close()


REGISTERED = {"error_code": ErrorCode.none, "broker_epoch": 500}


def told(node: ScriptedController, api_key: int) -> list[Any]:
    return [message for key, message in node.told if key == api_key]


def test_what_it_says_of_itself() -> None:
    async def main() -> None:
        async with scripted() as (node,):
            node.answers[apis.BROKER_REGISTRATION] = always(**REGISTERED)
            node.answers[apis.BROKER_HEARTBEAT] = always(
                error_code=ErrorCode.none, **FINE._replace(is_fenced=True)._asdict()
            )
            async with Life(node) as life:
                await until(lambda: node.count(apis.BROKER_HEARTBEAT) >= 2)
                (registration,) = told(node, apis.BROKER_REGISTRATION)
                assert registration.broker_id == 5
                assert registration.previous_broker_epoch == 77
                assert [each.bytes for each in registration.log_dirs] == [b"d" * 16, b"e" * 16]
                assert "metadata.version" in {each.name for each in registration.features}
                first = told(node, apis.BROKER_HEARTBEAT)[0]
                assert (first.broker_epoch, first.current_metadata_offset) == (500, -1)
                assert (first.want_fence, first.want_shut_down) == (True, False)
                life.ready()
                life.directory_failed(Uuid(b"e" * 16))
                count = node.count(apis.BROKER_HEARTBEAT)
                await until(lambda: node.count(apis.BROKER_HEARTBEAT) > count + 1)
                last = told(node, apis.BROKER_HEARTBEAT)[-1]
                assert not last.want_fence
                assert [each.bytes for each in last.offline_log_dirs] == [b"e" * 16]

    run(main)


@pytest.mark.parametrize(
    ("error_code", "why"),
    [
        (ErrorCode.inconsistent_cluster_id, "its directories are of c"),
        (ErrorCode.unsupported_version, "newer than this release"),
        (ErrorCode.invalid_registration, "not acceptable"),
    ],
)
def test_a_registration_that_is_refused_for_good_stops_the_broker(
    error_code: ErrorCode, why: str
) -> None:
    async def main() -> None:
        async with scripted() as (node,), asyncio.timeout(PATIENCE_S):
            node.answers[apis.BROKER_REGISTRATION] = always(error_code=error_code, broker_epoch=-1)
            life = Life(node)
            async with life:
                with pytest.raises(FatalFault, match=f"{error_code.name}: .*{why}"):
                    await life.task

    run(main)


@pytest.mark.parametrize("answer", ["duplicate", "nobody"])
def test_who_cannot_register_in_time_stops(answer: str) -> None:
    async def main() -> None:
        async with scripted() as (node,), asyncio.timeout(PATIENCE_S):
            node.answers[apis.BROKER_REGISTRATION] = always(
                error_code=ErrorCode.duplicate_broker_registration, broker_epoch=-1
            )
            if answer == "nobody":
                node.leader_id = -1
            life = Life(node, registration_timeout_ms=300)
            async with life:
                with pytest.raises(FatalFault, match="could not register within 300 ms: "):
                    await life.task

    run(main)


def test_a_shutdown_that_nobody_grants_ends_in_time() -> None:
    async def main() -> None:
        async with scripted() as (node,):
            node.answers[apis.BROKER_REGISTRATION] = always(**REGISTERED)
            node.answers[apis.BROKER_HEARTBEAT] = always(
                error_code=ErrorCode.none, **FINE._asdict()
            )
            async with Life(node) as life:
                life.ready()
                await until(lambda: life.state is RUNNING)
                assert not await life.controlled_shutdown(0.2)
                assert life.state is SHUTTING_DOWN
                assert any(each.want_shut_down for each in told(node, apis.BROKER_HEARTBEAT))

    run(main)


def test_a_shutdown_while_its_registration_is_gone_ends_at_once() -> None:
    async def main() -> None:
        async with scripted() as (node,):
            node.answers[apis.BROKER_REGISTRATION] = always(**REGISTERED)

            async def answer(request: Request) -> dict[str, Any]:
                gone = request.message.want_shut_down
                error_code = ErrorCode.stale_broker_epoch if gone else ErrorCode.none
                return {"throttle_time": NO_THROTTLE, "error_code": error_code, **FINE._asdict()}

            node.answers[apis.BROKER_HEARTBEAT] = answer
            async with Life(node) as life:
                life.ready()
                await until(lambda: life.state is RUNNING)
                assert await life.controlled_shutdown(PATIENCE_S)

    run(main)


def test_a_shutdown_before_it_serves_has_nothing_to_wait_for() -> None:
    async def main() -> None:
        async with scripted() as (node,):
            node.leader_id = -1
            async with Life(node) as life:
                await until(lambda: life.state is STARTING)
                assert await life.controlled_shutdown(PATIENCE_S)
                assert life.state is SHUTTING_DOWN

    run(main)
