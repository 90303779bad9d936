"""What the server asks of those who store records: the one interface of the hot path.

The server reads requests in place and calls these functions in the event loop, one at a time; each
answers by calling `respond`, at once or later, in whichever order. The server sees to it that the
client gets its answers in the order of its requests.

What always holds:
- the records of a request lie in the receive buffer until `end_of_input` returns, and may be
  changed in place until then. Afterwards their bytes belong to another request.
- `respond` is called once at most for a request. It may be called after the client has gone.
- nothing that a client sees of an append leaves before `end_of_input` of its input returned.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kraftpy.storage import LogSlice
from kraftpy.wire.fetch import FetchedPartition, FetchRequest
from kraftpy.wire.produce import ProduceRequest, ProduceResult


class FetchAnswer(NamedTuple):
    """One result per partition, in the order of the request; or why there are none."""

    partitions: Sequence[FetchedPartition[LogSlice]]
    throttle_ms: int = 0
    error_code: int = 0


# One result per partition, in the order of the request. With acks=0 nothing is sent, and nobody
# waits for the call; but a result with an error closes the connection, which is how such a
# producer learns, as in Kafka, that it must find the leader again.
RespondToProduce = Callable[[Sequence[ProduceResult]], None]
RespondToFetch = Callable[[FetchAnswer], None]
# Called when the client went away before it was answered: there is nobody left to answer.
Abandon = Callable[[], None]


class DataPlane(Protocol):
    """Appends and reads. In the event loop; nothing here waits."""

    def produce(self, request: ProduceRequest, respond: RespondToProduce) -> None:
        """Take the batches; what is needed of them is written when `end_of_input` returns."""
        ...

    def end_of_input(self) -> None:
        """No more requests in this receive buffer: write what is to be appended, all at once."""
        ...

    def fetch(self, request: FetchRequest, respond: RespondToFetch) -> Abandon | None:
        """Read, now or when there is enough; if not now, how to call it off."""
        ...
