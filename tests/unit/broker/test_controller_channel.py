"""The channel to the active controller: found, lost, found again; and what callers may conclude."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from kraftpy.broker import controller_channel, controller_finder
from kraftpy.broker.backoff import Backoff
from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.controller_finder import ControllerFinder
from kraftpy.errors import OutcomeUnknown, Unreachable
from kraftpy.network.places import Place
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request
from tests.unit.broker.live_quorum import run, until
from tests.unit.broker.scripted import (
    ScriptedController,
    always,
    hang_up,
    lead,
    scripted,
    silence,
)

FINE: dict[str, Any] = {
    "error_code": ErrorCode.none,
    "is_caught_up": True,
    "is_fenced": False,
    "should_shut_down": False,
}
NOT_CONTROLLER = {**FINE, "error_code": ErrorCode.not_controller}
TIMED_OUT = {**FINE, "error_code": ErrorCode.request_timed_out}


def heartbeat(**options: Any) -> ChannelRequest:
    values = {
        "broker_id": 1,
        "broker_epoch": options.pop("number", 0),
        "current_metadata_offset": 0,
        "want_fence": False,
        "want_shut_down": False,
    }
    known = {"timeout_s": 30.0, "attempt_s": 30.0, **options}
    return ChannelRequest(api_key=apis.BROKER_HEARTBEAT, values=values, **known)


@asynccontextmanager
async def channel_to(nodes: list[ScriptedController]) -> AsyncIterator[ControllerChannel]:
    finder = ControllerFinder([node.place for node in nodes], random.Random(1), answer_s=0.3)
    channel = ControllerChannel(finder, random.Random(2))
    try:
        yield channel
    finally:
        await channel.close()


def beats(node: ScriptedController) -> int:
    return node.count(apis.BROKER_HEARTBEAT)


def test_one_connection_carries_many_requests_without_waiting() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            gate = asyncio.Event()

            async def answer(request: Request) -> dict[str, Any]:
                await gate.wait()
                fenced = request.message.broker_epoch % 2 == 1
                return {"throttle_time": NO_THROTTLE, **FINE, "is_fenced": fenced}

            node.answers[apis.BROKER_HEARTBEAT] = answer
            sent = [asyncio.create_task(channel.send(heartbeat(number=n))) for n in range(50)]
            await until(lambda: beats(node) == 1)
            assert channel.waiting == 50
            gate.set()
            answers = await asyncio.gather(*sent)
            assert [each.is_fenced for each in answers] == [n % 2 == 1 for n in range(50)]
            assert node.server.counts["closed"] <= 1, "the search; the channel is still open"
            assert channel.waiting == 0

    run(main)


def test_a_controller_that_is_not_active_leads_to_a_new_search() -> None:
    async def main() -> None:
        async with scripted(3) as nodes, channel_to(nodes) as channel:
            nodes[0].answers[apis.BROKER_HEARTBEAT] = always(**NOT_CONTROLLER)
            nodes[1].answers[apis.BROKER_HEARTBEAT] = always(**FINE)

            async def move(_request: Request) -> dict[str, Any]:
                lead(nodes, 2, epoch=2)
                return {"throttle_time": NO_THROTTLE, **NOT_CONTROLLER}

            nodes[0].answers[apis.BROKER_HEARTBEAT] = move
            answer = await channel.send(heartbeat())
            assert answer.error_code is ErrorCode.none
            assert (beats(nodes[0]), beats(nodes[1])) == (1, 1)

    run(main)


def test_if_nobody_is_active_it_was_definitely_not_done() -> None:
    async def main() -> None:
        async with scripted(2) as nodes, channel_to(nodes) as channel:
            nodes[0].answers[apis.BROKER_HEARTBEAT] = always(**NOT_CONTROLLER)
            with pytest.raises(Unreachable, match="is not the active controller"):
                await channel.send(heartbeat(timeout_s=0.5))
            assert beats(nodes[0]) > 1

    run(main)


@pytest.mark.parametrize("answer", [hang_up, always(**TIMED_OUT)])
def test_what_was_sent_and_not_answered_is_unknown_and_not_sent_again(answer: Any) -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            node.answers[apis.BROKER_HEARTBEAT] = answer
            with pytest.raises(OutcomeUnknown, match="may have been done"):
                await channel.send(heartbeat())
            assert beats(node) == 1
            node.answers[apis.BROKER_HEARTBEAT] = always(**FINE)
            assert (await channel.send(heartbeat())).error_code is ErrorCode.none

    run(main)


@pytest.mark.parametrize("answer", [hang_up, silence, always(**TIMED_OUT)])
def test_what_may_be_repeated_is_sent_again_until_it_is_answered(answer: Any) -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            node.answers[apis.BROKER_HEARTBEAT] = answer
            sent = asyncio.create_task(channel.send(heartbeat(repeatable=True, attempt_s=0.1)))
            await until(lambda: beats(node) >= 2)
            node.answers[apis.BROKER_HEARTBEAT] = always(**FINE)
            assert (await sent).error_code is ErrorCode.none

    run(main)


def test_one_lost_attempt_makes_the_whole_request_unknown() -> None:
    """After it, a NOT_CONTROLLER of another attempt does not make it definite again."""

    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:

            async def first_lost(_request: Request) -> dict[str, Any] | None:
                if beats(node) == 1:
                    await hang_up(_request)
                return {"throttle_time": NO_THROTTLE, **NOT_CONTROLLER}

            node.answers[apis.BROKER_HEARTBEAT] = first_lost
            with pytest.raises(OutcomeUnknown):
                await channel.send(heartbeat(repeatable=True, timeout_s=0.5))
            assert beats(node) > 1

    run(main)


def test_others_on_the_connection_are_answered_after_one_gave_up() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            gate = asyncio.Event()

            async def answer(_request: Request) -> dict[str, Any]:
                await gate.wait()
                return {"throttle_time": NO_THROTTLE, **FINE}

            node.answers[apis.BROKER_HEARTBEAT] = answer
            patient = asyncio.create_task(channel.send(heartbeat(number=2)))
            await until(lambda: beats(node) == 1)
            with pytest.raises(OutcomeUnknown):
                await channel.send(heartbeat(number=1, timeout_s=0.05))
            gate.set()
            assert (await patient).error_code is ErrorCode.none
            assert (await channel.send(heartbeat())).error_code is ErrorCode.none

    run(main)


def test_nobody_to_talk_to_is_definite() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            await node.server.close()
            with pytest.raises(Unreachable, match="no active controller was found"):
                await channel.send(heartbeat(timeout_s=0.2))

    run(main)


def test_an_api_that_is_not_served_is_definite() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            request = ChannelRequest(api_key=apis.ALTER_PARTITION, values={}, timeout_s=30)
            with pytest.raises(Unreachable, match="does not serve it"):
                await channel.send(request)

    run(main)


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "CHANNEL_REQUESTS_MAX", 3)

    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            node.answers[apis.BROKER_HEARTBEAT] = silence
            sent = [asyncio.create_task(channel.send(heartbeat())) for _ in range(3)]
            await until(lambda: channel._link is not None and channel._link.waiting == 3)
            with pytest.raises(Unreachable, match="3 requests wait already"):
                await channel.send(heartbeat())
            await channel.close()
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            assert all(isinstance(each, OutcomeUnknown) for each in outcomes)

    run(main)


def test_a_closed_channel_ends_who_waits_for_a_search() -> None:
    async def main() -> None:
        async with scripted() as (node,), channel_to([node]) as channel:
            lead([node], -1, epoch=1)
            sent = asyncio.create_task(channel.send(heartbeat()))
            await until(lambda: node.count(apis.METADATA) > 2)
            await channel.close()
            with pytest.raises(Unreachable, match="channel to the controller is closed"):
                await sent

    run(main)


def test_an_error_for_one_part_of_a_request_counts_as_well() -> None:
    """Some APIs have no place for an error of the whole request."""

    async def main() -> None:
        async with scripted(1) as (node,), channel_to([node]) as channel:
            topic = {"error_code": ErrorCode.not_controller, "error_message": None}
            none = {"topic_id": None, "num_partitions": 1, "replication_factor": 1, "configs": None}

            async def answer(_request: Request) -> dict[str, Any]:
                found = {"name": "a", **none, **topic}
                topic["error_code"] = ErrorCode.none
                return {"throttle_time": NO_THROTTLE, "topics": [found]}

            node.answers[apis.CREATE_TOPICS] = answer
            values = {"topics": [], "timeout": timedelta(0), "validate_only": False}
            request = ChannelRequest(api_key=apis.CREATE_TOPICS, values=values, timeout_s=30)
            assert (await channel.send(request)).topics[0].error_code is ErrorCode.none
            assert node.count(apis.CREATE_TOPICS) == 2

    run(main)


# -- finding ----------------------------------------------------------------------------------


def test_a_node_that_is_cut_off_and_names_an_old_leader_does_not_hold_it_up() -> None:
    async def main() -> None:
        async with scripted(3) as nodes, channel_to(nodes) as channel:
            lead(nodes[1:], 3, epoch=5)
            nodes[0].leader_id, nodes[0].epoch = 1, 4
            nodes[0].answers[apis.BROKER_HEARTBEAT] = hang_up
            nodes[2].answers[apis.BROKER_HEARTBEAT] = always(**FINE)
            for _ in range(5):
                answer = await channel.send(heartbeat(repeatable=True))
                assert answer.error_code is ErrorCode.none
            assert beats(nodes[0]) <= 1, "once it is known to be old, it is not asked again"

    run(main)


def test_epochs_never_go_back() -> None:
    async def main() -> None:
        async with scripted(1) as nodes:
            finder = ControllerFinder([nodes[0].place], random.Random(1))
            lead(nodes, 1, epoch=7)
            assert (await finder.find()).epoch == 7
            lead(nodes, 1, epoch=6)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await finder.find()

    run(main)


def test_controllers_that_were_not_configured_are_learned() -> None:
    async def main() -> None:
        async with scripted(2) as nodes:
            finder = ControllerFinder([nodes[0].place], random.Random(1))
            first = await finder.find()
            await nodes[0].server.close()
            lead(nodes, 2, epoch=2)
            assert (await finder.find(first)).node_id == 2

    run(main)


def test_a_search_that_lasts_is_one_warning_and_a_healthy_one_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_finder, "_PAUSE_S_MAX", 0.02)

    async def main() -> None:
        with structlog.testing.capture_logs() as lines:
            async with scripted(1) as nodes, channel_to(nodes) as channel:
                nodes[0].answers[apis.BROKER_HEARTBEAT] = always(**FINE)
                lead(nodes, -1, epoch=1)
                sent = asyncio.create_task(channel.send(heartbeat()))
                await until(lambda: nodes[0].count(apis.METADATA) > 10)
                lead(nodes, 1, epoch=2)
                await sent
                for _ in range(20):
                    await channel.send(heartbeat())
        told = [each["event"] for each in lines if each["module"].startswith("kraftpy.broker")]
        assert told == ["no_active_controller", "controller_found"]

    run(main)


def test_a_place_is_shown_as_people_write_it() -> None:
    assert str(Place("here", 9093)) == "here:9093"
    assert controller_finder.METADATA_TOPIC == "__cluster_metadata"


def test_pauses_grow_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff(0.1, 1.0, random.Random(1))
    pauses = [backoff.next_s() for _ in range(8)]
    for pause, middle in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0), strict=True):
        assert 0.75 * middle <= pause <= 1.25 * middle
    backoff.reset()
    assert backoff.next_s() <= 0.125
