"""AlterPartition: proposals of all leaders here, to the active controller, one request at a time.

While one is under way, others gather for the next. What the controller says of each partition goes
back to its machine, which decides what it means; an answer that did not come means "try again".

A proposal whose answer was lost may still be accepted, even if a second attempt is refused:
1. The first attempt waits in a connection that broke.
2. The second is refused, as a replica is not eligible.
3. The replica becomes eligible.
4. The first is taken up.
So a refusal frees a proposal only if no attempt of it was ever lost.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.hosted import HostedPartition
from kraftpy.broker.isr import AlterPartitionAnswer, IsrProposal, Verdict, verdict
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.types import BrokerId, to_wire_uuid
from kraftpy.wire.apis import ALTER_PARTITION

log = get_logger(__name__)

_RETRY_S: Final = 0.05
_TIMEOUT_S: Final = 10.0


class IsrChannel:
    """Lives in one event loop. Close it."""

    def __init__(
        self,
        manager: ReplicaManager,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._manager = manager
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._proposals: dict[HostedPartition, IsrProposal] = {}
        self._lost: dict[HostedPartition, IsrProposal] = {}  # An attempt of these was not answered.
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def propose(self, partition: HostedPartition, proposal: IsrProposal, *, again: bool) -> None:
        if again:
            self._loop.call_later(_RETRY_S, self._add, partition, proposal)
        else:
            self._add(partition, proposal)

    def _add(self, partition: HostedPartition, proposal: IsrProposal) -> None:
        if partition.replica.pending == proposal:  # Else metadata has settled it meanwhile.
            self._proposals[partition] = proposal
            self._work.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            proposals, self._proposals = self._proposals, {}
            answers = await self._ask(proposals)
            moment = self._manager.moment()
            for partition, proposal in proposals.items():
                answer = answers.get((partition.topic_id, partition.index))
                if answer is None or self._may_yet_be_accepted(partition, proposal, answer):
                    answer = AlterPartitionAnswer(error=ErrorCode.unknown_server_error)
                effects = partition.replica.alter_partition_answered(proposal, answer, moment)
                self._manager.carry_out(partition, effects)

    def _may_yet_be_accepted(
        self, partition: HostedPartition, proposal: IsrProposal, answer: AlterPartitionAnswer
    ) -> bool:
        if self._lost.get(partition) != proposal:
            self._lost.pop(partition, None)
            return False
        return verdict(answer.error) is Verdict.NOT_APPLIED

    async def _ask(
        self, proposals: dict[HostedPartition, IsrProposal]
    ) -> dict[tuple[bytes, int], AlterPartitionAnswer]:
        request = ChannelRequest(
            api_key=ALTER_PARTITION,
            values=_values(self._manager.broker_id, self._broker_epoch(), proposals),
            timeout_s=_TIMEOUT_S,
        )
        try:
            answer = await self._channel.send(request)
        except KraftError as error:
            self._lost.update(proposals)
            log.warning("isr_proposal_unanswered", partitions=len(proposals), why=str(error))
            return {}
        if answer.error_code is not ErrorCode.none:
            failed = AlterPartitionAnswer(error=answer.error_code)
            return {(each.topic_id, each.index): failed for each in proposals}
        return {
            (topic.topic_id.bytes, each.partition_index): _answer(each)
            for topic in answer.topics
            for each in topic.partitions
        }


def _values(
    broker_id: BrokerId, broker_epoch: int, proposals: dict[HostedPartition, IsrProposal]
) -> dict[str, Any]:
    topics: dict[bytes, list[dict[str, Any]]] = {}
    for partition, proposal in proposals.items():
        members = [
            {"broker_id": each.broker_id, "broker_epoch": each.broker_epoch}
            for each in proposal.isr
        ]
        topics.setdefault(partition.topic_id, []).append(
            {
                "partition_index": partition.index,
                "leader_epoch": proposal.leader_epoch,
                "new_isr": [each.broker_id for each in proposal.isr],
                "new_isr_with_epochs": members,
                "leader_recovery_state": proposal.leader_recovery_state,
                "partition_epoch": proposal.partition_epoch,
            }
        )
    return {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "topics": [
            {"topic_id": to_wire_uuid(topic_id), "partitions": partitions}
            for topic_id, partitions in topics.items()
        ],
    }


def _answer(found: Any) -> AlterPartitionAnswer:
    return AlterPartitionAnswer(
        error=found.error_code,
        leader_epoch=found.leader_epoch,
        partition_epoch=found.partition_epoch,
        isr=tuple(found.isr),
        leader_recovery_state=found.leader_recovery_state,
    )
