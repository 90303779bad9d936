"""One partition that this broker hosts: its log, its replica machine, its producers, who waits.

Appends are placed first and written later, all that one input brought at once: a batch gets its
offset and its producer's state moves on when it is placed, so that the next one of the same input
is judged as it would be after the write. A write that fails takes the partition offline, and with
it all that was placed and never told to anyone.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.partition import Replica
from kraftpy.broker.producer_state import ProducedBatch, ProducerStates
from kraftpy.broker.validation import Accepted, AppendConfig
from kraftpy.broker.waiting import WaitingFetch, WaitingProduce
from kraftpy.storage.log import Log
from kraftpy.storage.request import PlacedBatch
from kraftpy.types import TopicId


class Placed(NamedTuple):
    """Where a client's batch stands, or stood already if it was sent before."""

    base_offset: int
    end_offset: int
    timestamp_ms: int  # Of the log's clock; -1 if records carry their own.
    leader_epoch: int


class Appended(NamedTuple):
    """Somebody waits for this to be committed."""

    end_offset: int
    leader_epoch: int
    operation: WaitingProduce
    slot: int


class Intake:
    """What producers appended to the partitions of a broker, for metrics."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0


class HostedPartition:
    """In the event loop only."""

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        replica: Replica,
        producers: ProducerStates,
        accepts: AppendConfig,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.replica = replica
        self.producers = producers
        self.accepts = accepts  # What a client's batch must be; the topic's configs change it.
        self.placed: list[PlacedBatch] = []
        # The last record that acks=all was answered for, and the epoch it was appended in.
        self.acked = (-1, -1)
        self._appended: deque[Appended] = deque()
        self._fetches: dict[WaitingFetch, None] = {}
        self._deletions: list[tuple[int, asyncio.Future[int]]] = []

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- a leader's appends -------------------------------------------------------------------

    def place(self, accepted: Accepted) -> Placed | ErrorCode:
        """Give a client's batch the next offset; it is written by `write`."""
        request = accepted.request
        found = self.producers.check(request.batches[0][1])
        epoch = self.replica.leader_epoch
        if isinstance(found, ProducedBatch):
            return Placed(found.base_offset, found.last_offset + 1, -1, epoch)
        if found is not ErrorCode.none:
            return found
        offset = self.placed[-1].header.end_offset if self.placed else self.log.end_offset
        (batch,) = request.place(offset, epoch)
        self.placed.append(batch)
        self.producers.append(batch.header)
        return Placed(offset, batch.header.end_offset, accepted.append_time_ms, epoch)

    def write(self, intake: Intake) -> None:
        """Put all that was placed into the log, with one write."""
        placed, self.placed = self.placed, []
        if placed:
            self.log.append_placed(placed)
            for header, _ in placed:
                intake.records += header.record_count
                intake.bytes += header.size

    # -- who waits ----------------------------------------------------------------------------

    def wait_for_commit(self, appended: Appended) -> None:
        self._appended.append(appended)

    def settle_appends(self) -> None:
        """Tell those whose records are committed now, or never will be as far as we know."""
        while self._appended:
            waiting = self._appended[0]
            code = self.replica.produce_outcome(waiting.end_offset, waiting.leader_epoch)
            if code is None and not waiting.operation.is_done:
                return
            self._appended.popleft()
            if code is ErrorCode.none:
                self.acked = (waiting.end_offset - 1, waiting.leader_epoch)
            if code is not None:
                waiting.operation.settle(waiting.slot, code)

    @property
    def has_deletions(self) -> bool:
        return bool(self._deletions)

    def wait_for_deletion(self, offset: int, deleted: "asyncio.Future[int]") -> None:
        self._deletions.append((offset, deleted))

    def settle_deletions(self, low_watermark: int) -> None:
        """Tell those whose records are gone from every live replica."""
        waiting, self._deletions = self._deletions, []
        for offset, deleted in waiting:
            if deleted.done():
                continue  # Nobody waits any more.
            if low_watermark >= offset:
                deleted.set_result(low_watermark)
            else:
                self._deletions.append((offset, deleted))

    def watch(self, fetch: WaitingFetch) -> None:
        self._fetches[fetch] = None

    def unwatch(self, fetch: WaitingFetch) -> None:
        self._fetches.pop(fetch, None)

    def waiting_fetches(self) -> Iterator[WaitingFetch]:
        """As of now: who is answered leaves the set meanwhile."""
        yield from tuple(self._fetches)
