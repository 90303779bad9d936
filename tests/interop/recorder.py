"""A proxy between clients and brokers that notes which API versions are really sent.

It owns no protocol but the first bytes of a request (api key, version, correlation id, client id)
and of a response (correlation id, and of ApiVersions the error code). Bytes pass unchanged, unless
a test is `changing` answers. What always holds: a request is `served` once its answer has passed,
and `refused` if the broker closed the connection without one or told of an unsupported version.

Brokers advertise the proxy's ports, so that clients never find the way around it.
"""

import asyncio
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct(">hhih")
_PRODUCE: Final = 0
_API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_HOST: Final = "127.0.0.1"


class Sent(NamedTuple):
    """One kind of request, as one client sends it."""

    client: str
    api_key: int
    version: int


class _Waiting(NamedTuple):
    correlation_id: int
    sent: Sent


Change = Callable[[Sent, bytes], bytes]


def _as_it_is(_: Sent, body: bytes) -> bytes:
    return body


class Recorder:
    """Proxies in a thread of their own, and what passed through them."""

    def __init__(self) -> None:
        self.served: set[Sent] = set()
        self.refused: list[tuple[Sent, str]] = []
        self.change: Change = _as_it_is
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._pipes: set[asyncio.Task[None]] = set()

    def __enter__(self) -> "Recorder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def front(self, port: int) -> int:
        """A port in front of this one."""
        starting = asyncio.run_coroutine_threadsafe(self._listen(port), self._loop)
        return starting.result(30)

    def of(self, client: str) -> set[tuple[int, int]]:
        """What this client was served: (api key, version)."""
        return {(key, version) for name, key, version in list(self.served) if name == client}

    async def _listen(self, port: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._pipes.add(task)
            try:
                await self._proxy(reader, writer, port)
            finally:
                self._pipes.discard(task)

        server = await asyncio.start_server(connected, _HOST, 0)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _proxy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(_HOST, port)
        except OSError:
            writer.close()  # As if the broker itself were not there.
            return
        waiting: deque[_Waiting] = deque()
        asking = asyncio.ensure_future(_pipe(reader, to_writer, lambda b: self._ask(b, waiting)))
        answering = asyncio.ensure_future(
            _pipe(to_reader, writer, lambda b: self._answer(b, waiting))
        )
        try:
            await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                # The broker hung up first: whatever it has not answered, it never will.
                self.refused += [(each.sent, "connection closed") for each in waiting]
        finally:
            for task in (asking, answering):
                task.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
            writer.close()
            to_writer.close()

    @contextmanager
    def changing(self, change: Change) -> Iterator[None]:
        """In here, answers are what `change` makes of them."""
        self.change = change
        try:
            yield
        finally:
            self.change = _as_it_is

    def _ask(self, body: bytes, waiting: deque[_Waiting]) -> bytes:
        key, version, correlation_id, length = _HEAD.unpack_from(body)
        client = body[_HEAD.size : _HEAD.size + max(length, 0)].decode()
        sent = Sent(client, key, version)
        if key == _PRODUCE and _acks(body, version, _HEAD.size + max(length, 0)) == 0:
            self.served.add(sent)  # Nothing will be said of it.
        else:
            waiting.append(_Waiting(correlation_id, sent))
        return body

    def _answer(self, body: bytes, waiting: deque[_Waiting]) -> bytes:
        (correlation_id,) = struct.unpack_from(">i", body)
        expected, sent = waiting.popleft()
        if correlation_id != expected:
            self.refused.append((sent, f"answered as {correlation_id}, not {expected}"))
        elif sent.api_key == _API_VERSIONS and body[4:6] == struct.pack(">h", _UNSUPPORTED_VERSION):
            # Not a refusal: clients begin with the latest version they know and step down.
            return body
        else:
            self.served.add(sent)
        return self.change(sent, body)


def _acks(body: bytes, version: int, at: int) -> int:
    """Of a Produce request whose client id ends at `at`."""
    if version < 9:
        (length,) = struct.unpack_from(">h", body, at)
        at += 2 + max(length, 0)
    else:
        at += 1  # No tagged fields in the header: nobody sends any.
        at += max(body[at], 1)  # A transactional id of less than 127 bytes, or none.
    (found,) = struct.unpack_from(">h", body, at)
    assert isinstance(found, int)
    return found


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], bytes]
) -> None:
    """Frames from one side to the other until either goes."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack(">i", head)[0])
            body = note(body)
            writer.write(struct.pack(">i", len(body)) + body)
            await writer.drain()
