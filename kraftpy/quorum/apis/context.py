"""What the handlers of the controller listener share."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from kraftpy.clock import Clock
from kraftpy.quorum.apis.observers import Observers
from kraftpy.quorum.log_view import MetadataView, Progress
from kraftpy.quorum.voters import Voter
from kraftpy.wire.apis import Request, VersionRange

T = TypeVar("T")

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)  # Kafka's.
METADATA_PARTITION_INDEX: Final = 0
NOBODY: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The quorum as its clients know it: they are told these addresses."""

    cluster_id: str
    voters: tuple[Voter, ...]

    def voter(self, node_id: int | None) -> Voter | None:
        return next((voter for voter in self.voters if voter.node_id == node_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One node's log, quorum and memory of observers."""

    view: MetadataView
    controllers: Controllers
    observers: Observers
    clock: Clock
    threads: Executor

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """For what takes the journal's lock or reads files: the event loop must not wait for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, function, *arguments)

    def leader_problem(self, progress: Progress, asked_epoch: int) -> ErrorCode | None:
        """Why a request for the leader of `asked_epoch`, or of any if that is -1, is refused."""
        if 0 <= asked_epoch < progress.epoch:
            return ErrorCode.fenced_leader_epoch
        if asked_epoch > progress.epoch:
            return ErrorCode.unknown_leader_epoch
        if progress.leader_id != self.view.node_id:
            return ErrorCode.not_leader_or_follower
        return None

    def current_leader(self, progress: Progress) -> dict[str, int]:
        leader_id = NOBODY if progress.leader_id is None else progress.leader_id
        return {"leader_id": leader_id, "leader_epoch": progress.epoch}

    def endpoints(self, node_id: int | None) -> list[dict[str, Any]]:
        """Where a node listens, for answers that send a client there."""
        voter = self.controllers.voter(node_id)
        if voter is None:
            return []
        return [{"node_id": voter.node_id, "host": voter.host, "port": voter.port, "rack": None}]


class Api(NamedTuple):
    """What is served under one API key. The handler gives the answer's frame."""

    versions: VersionRange
    handle: Callable[[Context, Request], Awaitable[bytearray]]


async def by_partition(
    topics: Any,
    name: str,
    index: str,
    answer: Callable[[Any, bool], Awaitable[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """An answer per partition of a request, under the topics of the request.

    `answer` is told whether the partition is the metadata log. That is so once at most: a request
    that names it a thousand times must not be given it a thousand times.
    """
    seen = False
    answers = []
    for topic in topics:
        known = getattr(topic, name) in (METADATA_TOPIC, METADATA_TOPIC_ID)
        partitions = []
        for partition in topic.partitions:
            number = getattr(partition, index)
            is_log = known and number == METADATA_PARTITION_INDEX and not seen
            seen = seen or is_log
            partitions.append({**await answer(partition, is_log), index: number})
        answers.append({name: getattr(topic, name), "partitions": partitions})
    return answers
