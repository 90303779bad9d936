"""One epoch of being the active controller: what was decided, what is on its way, who waits.

The image here is the speculative one: what is committed and all that was decided on top of it. It
lives as long as the epoch; whoever leads next begins with what is committed.

Two kinds of answers wait:
- of a write, for the outcome of its own batch (of the last one, if there are several: without the
  end of its metadata transaction nothing of it counts). The outcome is awaited even after the
  epoch: it says whether the write happened, did not, or may yet.
- of a read, until all that it saw is committed, so that nobody is told of what is lost later; and
  until it is proven that this controller led after the read had come. The commit of an earlier
  batch is no such proof: the acknowledgements that made it may have been under way while another
  controller was elected and answered others.

Reads wrote nothing: when the epoch ends they are refused, and can be sent to the next controller.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.limits import CONTROLLER_BYTES_IN_FLIGHT_MAX, CONTROLLER_IN_FLIGHT_MAX
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.quorum.control.decision import ControlApi, Values
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.controller_events import Event
from kraftpy.quorum.proposal import Proposal

Answer = Callable[[Values], None]


class Asked(NamedTuple):
    """A request and where its answer goes, which is told exactly once and does not raise."""

    api: ControlApi
    message: Any
    answer: Answer

    def refuse(self, error_code: ErrorCode, why: str | None) -> None:
        self.answer(self.api.refuse(self.message, error_code, why))


@dataclass(slots=True, eq=False)
class Write:
    """Batches on their way. `asked` is None where the controller decided by itself."""

    asked: Asked | None
    values: Values
    events: list[Event]
    size: int  # Of the batches, in bytes.


@dataclass(slots=True, eq=False)
class Read:
    """An answer that is known but may not be told yet."""

    asked: Asked
    values: Values
    end_offset: int
    is_committed: bool = False
    is_proven: bool = False


@dataclass(slots=True, eq=False)
class Tenure:
    """Changed by its Controller only."""

    epoch: int
    image: ClusterImage
    index: PartitionIndex
    heartbeats: Heartbeats
    committed_end_offset: int
    writes: dict[Write, None] = field(default_factory=dict)  # In order, as `reads`.
    reads: dict[Read, None] = field(default_factory=dict)
    _uncommitted_reads: deque[Read] = field(default_factory=deque)
    _bytes: int = 0

    @staticmethod
    def of(epoch: int, image: ClusterImage, index: PartitionIndex, now_ms: int) -> "Tenure":
        """The image is all that is committed, up to the batch that began this epoch."""
        assert index.image is image
        return Tenure(
            epoch=epoch,
            image=image,
            index=index,
            heartbeats=Heartbeats.of(image, now_ms),
            committed_end_offset=image.end_offset,
        )

    def is_full(self, *, current: bool) -> bool:
        """Whether so much waits that a request must not join it.

        Heartbeats have room of their own: were they refused because admins are busy, living
        brokers would be taken for dead, and moving their leaders would be more work still.
        """
        count_max = CONTROLLER_IN_FLIGHT_MAX if current else 2 * CONTROLLER_IN_FLIGHT_MAX
        count = len(self.writes) + len(self.reads)
        return count >= count_max or (current and self._bytes > CONTROLLER_BYTES_IN_FLIGHT_MAX)

    # -- writes -------------------------------------------------------------------------------

    def adopt(self, proposal: Proposal, write: Write, now_ms: int) -> None:
        """From now on decisions see it."""
        self.image = proposal.image
        self.index.move(proposal.image, proposal.changes)
        self.heartbeats.move(proposal.image, proposal.changes.brokers, now_ms)
        self.writes[write] = None
        self._bytes += write.size

    def settle(self, write: Write) -> None:
        """Its outcome is known, whatever it is."""
        del self.writes[write]
        self._bytes -= write.size

    # -- reads --------------------------------------------------------------------------------

    def add_read(self, read: Read) -> None:
        read.is_committed = read.end_offset <= self.committed_end_offset
        self.reads[read] = None
        if not read.is_committed:
            self._uncommitted_reads.append(read)
        self._answer_if_ready(read)

    def committed(self, end_offset: int) -> None:
        self.committed_end_offset = end_offset
        waiting = self._uncommitted_reads
        while waiting and waiting[0].end_offset <= end_offset:
            read = waiting.popleft()
            read.is_committed = True
            self._answer_if_ready(read)

    def proven(self, read: Read) -> None:
        read.is_proven = True
        self._answer_if_ready(read)

    def _answer_if_ready(self, read: Read) -> None:
        if read.is_committed and read.is_proven and read in self.reads:
            del self.reads[read]
            read.asked.answer(read.values)

    def refuse_reads(self, why: str) -> None:
        """The epoch is over."""
        reads, self.reads = self.reads, {}
        self._uncommitted_reads.clear()
        for read in reads:
            read.asked.refuse(ErrorCode.not_controller, why)
