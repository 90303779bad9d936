"""One client of the broker, from accept to close.

Its life is a few callbacks of the event loop. Bytes arrive: every whole request among them is
handled where it lies. Produce and Fetch go to the data plane, which answers now or later, and more
of them are taken meanwhile; any other request is handled by a task, alone: what came before it has
been answered, and what comes after it waits, as it would in Kafka. Answers leave in the order of
the requests.

The order of effects when bytes arrived:
1. every whole request is handled, in place.
2. `end_of_input`: what is to be appended has been written, from the receive buffer.
3. the answers that are due leave. Before 2 an answer would speak of records that are not there.
4. the receive buffer is used again. Before 2 the records would be overwritten.

What one client can hold is bounded: the requests that are not answered, the bytes that it does not
take, the request that is arriving. At a bound nothing more is read from it until that is over; the
kernel's buffers then hold it back.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from kraftpy.broker.data_plane import Abandon, DataPlane, FetchAnswer
from kraftpy.broker.receive_buffer import ReceiveBuffer
from kraftpy.broker.request_memory import RequestMemory
from kraftpy.broker.send_queue import Piece, SendQueue
from kraftpy.broker.server_limits import BrokerLimits, Traffic
from kraftpy.errors import FatalFault, WireError
from kraftpy.logs import get_logger
from kraftpy.wire.apis import ApiTable, Request, read_request
from kraftpy.wire.fetch import (
    FETCH,
    FetchRequest,
    fetch_refusal,
    fetch_response,
    no_such_session,
    read_fetch,
)
from kraftpy.wire.produce import (
    PRODUCE,
    ProduceReader,
    ProduceRequest,
    ProduceResult,
    produce_response,
)

log = get_logger(__name__)

_START: Final = struct.Struct(">hh")
_READS_PER_CHECK_MAX: Final = 64
_NOTHING: Final[tuple[object, ...]] = ()


class Owner(Protocol):
    """What a connection asks of its server."""

    limits: BrokerLimits
    table: ApiTable
    data_plane: DataPlane
    memory: RequestMemory
    traffic: Traffic

    async def answer(self, request: Request, connection: "Connection") -> bytearray | None: ...

    def closed(self, connection: "Connection", reason: str, detail: str) -> None: ...

    def failed(self, fault: FatalFault) -> None: ...

    def shed_buffers(self) -> None: ...


class _Answer:
    """The place of one request among the answers; `pieces` is None until it has been answered."""

    __slots__ = ("_connection", "abandon", "pieces")

    _connection: "Connection"
    abandon: Abandon | None
    pieces: bytes | Sequence[Piece] | None


class _ProduceAnswer(_Answer):
    __slots__ = ("_request",)

    def __init__(self, connection: "Connection", request: ProduceRequest) -> None:
        self._connection = connection
        self._request = request
        self.abandon = self.pieces = None

    def respond(self, results: Sequence[ProduceResult]) -> None:
        assert self.pieces is None, "a request is answered once"
        self.pieces = produce_response(self._request, results)
        self._connection.wake()


class _NoAnswer:
    """For acks=0: an error closes the connection, anything else is silence."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def respond(self, results: Sequence[ProduceResult]) -> None:
        errors = [result.error_code for result in results if result.error_code]
        if errors:
            self._connection.doom("unacknowledged", f"error {errors[0]} with acks=0")


class _FetchAnswer(_Answer):
    __slots__ = ("_request",)

    def __init__(self, connection: "Connection", request: FetchRequest) -> None:
        self._connection = connection
        self._request = request
        self.abandon = self.pieces = None

    def respond(self, answer: FetchAnswer) -> None:
        assert self.pieces is None, "a request is answered once"
        if answer.error_code:
            self.pieces = fetch_refusal(self._request, answer.error_code, answer.throttle_ms)
        else:
            self.pieces = fetch_response(self._request, answer.partitions, answer.throttle_ms)
        self._connection.wake()


class Connection:
    """From accept to close."""

    def __init__(self, owner: Owner, sock: socket.socket, address: str) -> None:
        self.address = address
        self.buffer = ReceiveBuffer(owner.limits.frame_bytes_max)
        self._owner = owner
        self._sock = sock
        self._descriptor = sock.fileno()
        self._out = SendQueue(sock)
        self._read_produce = ProduceReader().read
        self._answers: deque[_Answer] = deque()
        self._alone: Request | None = None  # Waits for all answers before it.
        self._task: asyncio.Task[None] | None = None
        self._waits_for_memory = 0
        self._is_busy = False  # The last read filled the buffer.
        self._appending = False
        self._working = False
        self._awake = False
        self._reading = False
        self._writing = False
        self._ended = False  # The client sends no more.
        self._doom: tuple[str, str] | None = None
        self.is_closed = False
        self._handled = 0  # Requests.
        self._seen: tuple[object, ...] = _NOTHING
        self._seen_ms = 0
        self._largest = 0  # The most that the buffer held since the last sweep.
        self._loop = asyncio.get_running_loop()
        self._read_on()

    # -- the event loop's callbacks -----------------------------------------------------------

    def _on_readable(self) -> bool:
        """Receive once, and do what can be done with it; whether something came."""
        held_back = self._is_held_back()
        if not self.buffer.capacity:
            self.buffer.resize(self._owner.limits.buffer_bytes)
        try:
            if held_back:
                count = len(self._sock.recv(1, socket.MSG_PEEK))  # It may be the end.
            else:
                count = self._sock.recv_into(self.buffer.room())
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close("lost", str(error))
            return False
        if held_back or not count:
            # Only now, as most clients wait for their answer before they ask again.
            self._stop_reading()
            self._ended = not count
            self._go_on()
            return False
        self.buffer.received(count)
        self._is_busy = self.buffer.is_full
        self._largest = max(self._largest, len(self.buffer))
        self._owner.traffic.received += count
        self._work()
        return True

    def _on_writable(self) -> None:
        self._work()

    def _on_awake(self) -> None:
        self._awake = False
        self._work()

    # -- work ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """An answer is there. If nobody is at work here already, somebody will be soon."""
        if not (self._working or self._awake or self.is_closed):
            self._awake = True
            self._loop.call_soon(self._on_awake)

    def doom(self, reason: str, detail: str) -> None:
        """Close it when what can be sent has been sent."""
        self._doom = self._doom or (reason, detail)
        self.wake()

    def _work(self) -> None:
        """Handle and answer all that can be; then see to what comes next."""
        if self.is_closed:
            return
        self._working = True
        try:
            self._send_answers()
            while self._handle_frames():
                self._send_answers()
        except Exception as error:
            self._fail(error)
        finally:
            self._working = False
        if self._doom is not None:
            self.close(*self._doom)
        else:
            self._go_on()

    def _fail(self, error: Exception) -> None:
        """Whatever went wrong costs this connection; what a node cannot live with is passed on."""
        match error:
            case WireError():
                self._doom = ("malformed", str(error))
            case OSError():
                self._doom = ("lost", str(error))
            case FatalFault():
                self._doom = ("failed", str(error))
                self._owner.failed(error)
            case _:
                # A bug in what handles requests: it must not take other clients with it.
                self._doom = ("failed", repr(error))
                log.error("request_failed", address=self.address, exc_info=error)

    def _handle_frames(self) -> bool:
        """Handle the requests that are there and may be; whether there was one."""
        if self._doom is not None or self._is_held_back():
            return False
        handled = self._handled
        # Nothing else than their number can hold requests back while none but Produce is handled.
        last = handled + self._owner.limits.in_flight_max - len(self._answers)
        next_frame, handle = self.buffer.next_frame, self._handle
        try:
            while self._handled < last and self._doom is None:
                frame = next_frame()
                if frame is None:
                    break
                self._handled += 1
                if not handle(frame):
                    break
        except Exception as error:
            # What came before it was a request like any other: it is written and answered.
            self._fail(error)
        self._end_of_input()
        return self._handled > handled

    def _handle(self, frame: memoryview) -> bool:
        """Whether the next one may be looked at before anything is sent."""
        if len(frame) < _START.size:
            raise WireError(f"a request of {len(frame)} bytes")
        api_key, version = _START.unpack_from(frame)
        self._owner.traffic.requests[api_key] += 1
        served = self._owner.table.get(api_key)
        if served is not None and served[0] <= version <= served[1]:
            if api_key == PRODUCE:
                self._produce(self._read_produce(frame))
                return True
            if api_key == FETCH:
                # What was produced before it must be there to be fetched.
                self._end_of_input()
                self._fetch(read_fetch(frame))
                return False  # Its answer may be large: it is sent before the next one is made.
        self._alone = read_request(self._owner.table, bytes(frame))  # Refuses what is not served.
        return False

    def _produce(self, request: ProduceRequest) -> None:
        self._appending = True
        if request.acks == 0:
            self._owner.data_plane.produce(request, _NoAnswer(self).respond)
            return
        answer = _ProduceAnswer(self, request)
        self._answers.append(answer)
        self._owner.data_plane.produce(request, answer.respond)

    def _fetch(self, request: FetchRequest) -> None:
        answer = _FetchAnswer(self, request)
        self._answers.append(answer)
        if request.is_incremental:
            answer.pieces = no_such_session(request)
        else:
            answer.abandon = self._owner.data_plane.fetch(request, answer.respond)

    def _end_of_input(self) -> None:
        if self._appending:
            self._appending = False
            self._owner.data_plane.end_of_input()

    def _send_answers(self) -> None:
        """In the order of the requests, as far as they are known."""
        answers, out = self._answers, self._out
        small: list[bytes] = []
        while answers:
            pieces = answers[0].pieces
            if pieces is None:
                break
            answers.popleft()
            if type(pieces) is bytes:
                small.append(pieces)
                continue
            out.put((b"".join(small), *pieces))
            small.clear()
        if small:
            out.put((b"".join(small),))
        if out.unsent:
            before = out.sent
            drained = out.send()
            self._owner.traffic.sent += out.sent - before
            if drained == self._writing:
                self._set_writing(not drained)
        if self._alone is not None and self._task is None and not answers:
            self._task = self._loop.create_task(self._run(self._alone))

    def _set_writing(self, writing: bool) -> None:
        self._writing = writing
        if writing:
            self._loop.add_writer(self._descriptor, self._on_writable)
        else:
            self._loop.remove_writer(self._descriptor)

    async def _run(self, request: Request) -> None:
        """Answer the request that is alone."""
        try:
            answer = await self._owner.answer(request, self)
            if answer is not None:
                self._out.put((answer,))
        except Exception as error:
            self._fail(error)
        self._alone = self._task = None
        self._work()

    # -- what comes next ----------------------------------------------------------------------

    def _is_held_back(self) -> bool:
        """Whether it must wait before more of its requests are looked at."""
        return (
            self._alone is not None
            or len(self._answers) >= self._owner.limits.in_flight_max
            or self._out.unsent >= self._owner.limits.unsent_bytes_max
            or self._waits_for_memory > 0
        )

    def _go_on(self) -> None:
        if self._ended:  # The client may still listen, so what it asked for is answered.
            if not (self._answers or self._alone or self._out.unsent):
                self.close("closed")
            return
        if self._is_held_back():
            return
        if not self.buffer.make_room():
            self._grow()
        elif self._is_busy:
            self._grow_if_busy()
        if not self._reading and not self._is_held_back():
            self._read_on()

    def _read_on(self) -> None:
        self._reading = True
        self._loop.add_reader(self._descriptor, self._on_readable)

    def _stop_reading(self) -> None:
        self._reading = False
        self._loop.remove_reader(self._descriptor)

    # -- memory -------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Make room for the request that is arriving, which is larger than the buffer."""
        unit = self._owner.limits.buffer_bytes
        wanted = -(-self.buffer.wanted // unit) * unit  # So that a little more needs no other one.
        extra = self._extra(wanted) - self._extra(self.buffer.capacity)
        if extra > 0 and not self._owner.memory.try_take(extra):
            self._owner.shed_buffers()
            if not self._owner.memory.take(extra, self._memory_given):
                self._waits_for_memory = wanted
                return
        self.buffer.resize(wanted)

    def _memory_given(self) -> None:
        wanted, self._waits_for_memory = self._waits_for_memory, 0
        self.buffer.resize(wanted)
        self.wake()

    def _grow_if_busy(self) -> None:
        """A buffer that one read fills is too small to work on many requests at once."""
        limits = self._owner.limits
        wanted = min(2 * self.buffer.capacity, limits.buffer_bytes_busy)
        extra = self._extra(wanted) - self._extra(self.buffer.capacity)
        if extra > 0 and self._owner.memory.try_take(extra):
            self.buffer.resize(wanted)

    def _extra(self, capacity: int) -> int:
        """What of a buffer counts: every connection may have a small one."""
        return max(capacity - self._owner.limits.buffer_bytes, 0)

    def shed_buffer(self) -> None:
        """Give back a buffer that is larger than what it holds."""
        if self._working or self._waits_for_memory:
            return
        small = self._owner.limits.buffer_bytes
        if len(self.buffer) == 0 and self.buffer.capacity > small:
            extra = self._extra(self.buffer.capacity)
            self.buffer.resize(small)
            self._owner.memory.give_back(extra)

    # -- deadlines ----------------------------------------------------------------------------

    def check(self, now_ms: int) -> None:
        """Close it if it takes too long for what it is at; let go of memory that it does not use.

        Looked at once a second, so a deadline is late by that much and the hot path has no clock.
        """
        self._catch_up()
        if self.is_closed:
            return
        doing, limit_ms = self._doing()
        if doing != self._seen or limit_ms is None:
            self._seen, self._seen_ms = doing, now_ms
        elif now_ms - self._seen_ms > limit_ms:
            self.close("idle" if doing[0] == "idle" else "too_slow", f"{doing[0]} took too long")
            return
        if self._largest < self.buffer.capacity // 4 or self._owner.memory.is_wanted:
            self.shed_buffer()
        if not self._largest and not len(self.buffer) and self.buffer.capacity:
            self.shed_buffer()
            self.buffer.resize(0)
        self._largest = 0

    def _catch_up(self) -> None:
        """See the end of a connection that the event loop does not speak of any more.

        When a client sends and resets the connection at once, 1. libuv reports the error; 2. uvloop
        calls us a last time and forgets the socket; 3. what we receive is not the error but the
        data before it. So who was active is asked again.
        """
        for _ in range(_READS_PER_CHECK_MAX):
            if not (self._reading and self._largest and self._on_readable()):
                return

    def _doing(self) -> tuple[tuple[object, ...], int | None]:
        """What the client takes its time for, and how long it may; None: it is not its turn."""
        limits = self._owner.limits
        if self._out.unsent:
            return ("sending", self._out.sent), limits.departure_ms_max
        if self._answers or self._alone is not None or self._waits_for_memory:
            # Whoever answers keeps its own time; a client that sends no more gets one for all.
            return ("answering",), limits.departure_ms_max if self._ended else None
        if len(self.buffer):
            return ("arriving", self._handled), limits.arrival_ms(
                len(self.buffer), hurry=self._owner.memory.is_wanted
            )
        return ("idle", self._handled), limits.idle_ms_max

    # -- the end ------------------------------------------------------------------------------

    def close(self, reason: str, detail: str = "") -> None:
        """Let go of everything. Answers that are not sent are lost."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._reading:
            self._loop.remove_reader(self._descriptor)
        if self._writing:
            self._loop.remove_writer(self._descriptor)
        self._sock.close()
        if self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._task.cancel()
        abandoned = [answer.abandon for answer in self._answers if answer.pieces is None]
        self._answers.clear()
        self._owner.closed(self, reason, detail)
        if self._waits_for_memory:
            self._owner.memory.give_up(self._memory_given)
        self._owner.memory.give_back(self._extra(self.buffer.capacity))
        self.buffer = ReceiveBuffer(0)
        for abandon in abandoned:
            if abandon is not None:
                abandon()
