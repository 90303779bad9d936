"""Proposals of leaders on their way to the controller: gathered, answered, never freed early."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ChannelRequest
from kraftpy.broker.isr import IsrMember, IsrProposal
from kraftpy.broker.isr_channel import IsrChannel
from kraftpy.errors import KraftError, OutcomeUnknown
from tests.unit.broker.test_replica_manager import TOPIC_ID, Broker, until

NOT_APPLIED = ErrorCode.ineligible_replica


class Channel:
    """Answers as it is told, one request after the other."""

    def __init__(self, *answers: ErrorCode | KraftError) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def send(self, request: ChannelRequest) -> Any:
        self.asked.append(request.values)
        if not self._answers:
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, KraftError):
            raise answer
        partition = SimpleNamespace(
            partition_index=0,
            error_code=answer,
            leader_epoch=0,
            partition_epoch=1,
            isr=(1, 2),
            leader_recovery_state=0,
        )
        topic = SimpleNamespace(topic_id=UUID(bytes=TOPIC_ID), partitions=[partition])
        return SimpleNamespace(error_code=ErrorCode.none, topics=[topic])


async def proposed(broker: Broker, channel: Channel) -> IsrChannel:
    """A channel that has been given the proposal that follower 3 leaves the ISR."""
    found = IsrChannel(broker.manager, channel, lambda: 100)  # type: ignore[arg-type]
    broker.manager.isr_channel = found
    proposal = IsrProposal(
        leader_epoch=0,
        partition_epoch=0,
        isr=(IsrMember(1, 100), IsrMember(2, 200)),  # type: ignore[arg-type]
        leader_recovery_state=0,
    )
    broker.hosted.replica.pending = proposal
    found.propose(broker.hosted, proposal, again=False)
    return found


def test_an_accepted_proposal_becomes_the_isr() -> None:
    async def story() -> None:
        broker, channel = Broker(1, 2, 3), Channel(ErrorCode.none)
        isr_channel = await proposed(broker, channel)
        await until(lambda: broker.hosted.replica.isr == (1, 2))
        assert broker.hosted.replica.pending is None
        (topic,) = channel.asked[0]["topics"]
        assert topic["partitions"][0]["new_isr"] == [1, 2]
        await isr_channel.close()

    asyncio.run(story())


def test_a_refusal_frees_the_proposal() -> None:
    async def story() -> None:
        broker, channel = Broker(1, 2, 3), Channel(NOT_APPLIED)
        isr_channel = await proposed(broker, channel)
        await until(lambda: broker.hosted.replica.pending is None)
        assert broker.hosted.replica.isr == (1, 2, 3)
        await isr_channel.close()

    asyncio.run(story())


def test_a_refusal_frees_nothing_while_a_lost_attempt_may_yet_be_accepted() -> None:
    """Without this, the maximal ISR would forget a member that the controller counts."""

    async def story() -> None:
        broker = Broker(1, 2, 3)
        channel = Channel(OutcomeUnknown("lost"), NOT_APPLIED)
        isr_channel = await proposed(broker, channel)
        await until(lambda: len(channel.asked) == 3)
        assert broker.hosted.replica.pending is not None
        await isr_channel.close()

    asyncio.run(story())


def test_a_proposal_that_metadata_has_settled_is_not_sent_again() -> None:
    async def story() -> None:
        broker, channel = Broker(1, 2, 3), Channel()
        isr_channel = IsrChannel(broker.manager, channel, lambda: 100)  # type: ignore[arg-type]
        old = IsrProposal(leader_epoch=0, partition_epoch=0, isr=(), leader_recovery_state=0)
        isr_channel.propose(broker.hosted, old, again=False)
        await asyncio.sleep(0)
        assert channel.asked == []
        await isr_channel.close()

    asyncio.run(story())
