"""A client for one connection: asks in the newest version that both sides speak.

Requests may follow each other without waiting for answers; a server answers in order, so answers
are matched by their order and checked by their number. Whoever stops waiting leaves its place in
the line: a late answer is dropped there, and the others still get theirs.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.errors import KraftError, Unreachable, WireError
from kraftpy.wire.apis import VersionRange, api_name, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.frames import FrameBuffer
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame

_CLIENT_ID: Final = "kraftpy"
_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_CLOSE_S: Final = 1.0
_FIRST_API_VERSIONS: Final = 0  # Every server there ever was answers it.


class _Asked(NamedTuple):
    """A request that is not answered yet."""

    correlation_id: int
    api_key: int
    version: int
    answer: asyncio.Future[Any]


class WireClient:
    """One connection. Every wait ends after `timeout_s`."""

    def __init__(
        self,
        place: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
    ) -> None:
        self.place = place
        self.versions: dict[int, VersionRange] = {}
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._buffer = FrameBuffer(_RESPONSE_BYTES_MAX)
        self._correlation_id = 0
        self._asked: deque[_Asked] = deque()
        self._broken: KraftError | None = None
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read_answers())

    @staticmethod
    async def connect(host: str, port: int, *, timeout_s: float) -> "WireClient":
        """Connect and agree on versions; Unreachable or WireError in one line."""
        place = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            raise Unreachable(f"{place} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {place}: {_reason(error)}") from None
        client = WireClient(place, reader, writer, timeout_s)
        try:
            await client._agree()
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended: a request now would not be sent."""
        return self._broken is not None

    async def close(self) -> None:
        """Whoever still waits for an answer hears that there will be none."""
        self._break(Unreachable(f"the connection to {self.place} was closed"))
        self._reading.cancel()
        await asyncio.wait([self._reading])
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()  # The other side does not take what was sent last.
        except OSError:
            return  # It is closed, whatever the other side did.

    async def ask(
        self,
        api_key: int,
        values: Mapping[str, Any],
        *,
        version_max: int | None = None,
        wait_s: float = 0.0,
    ) -> Any:
        """Send a request and wait for its answer; `wait_s` is what the server may take on top."""
        theirs = self.versions.get(api_key)
        if theirs is None:
            raise Unreachable(f"{self.place} does not serve {api_name(api_key)}")
        version = theirs.max_version if version_max is None else min(theirs[1], version_max)
        return await self._ask(api_key, version, values, wait_s)

    async def _agree(self) -> None:
        found = await self._ask(API_VERSIONS, _FIRST_API_VERSIONS, {}, 0.0)
        if found.error_code is not ErrorCode.none:
            raise WireError(f"{self.place} refuses ApiVersions: {found.error_code.name}")
        self.versions = {
            api.api_key: VersionRange(api.min_version, api.max_version) for api in found.api_keys
        }

    async def _ask(
        self, api_key: int, version: int, values: Mapping[str, Any], wait_s: float
    ) -> Any:
        if self._broken is not None:
            raise _again(self._broken)
        if self._writer.transport.is_closing():
            # A reset that the reading task has not heard of yet. uvloop would raise RuntimeError.
            raise Unreachable(f"{self.place} closed the connection")
        self._correlation_id += 1
        message: Any = build(request_type(api_key, version), values)
        frame = request_frame(message, api_key, version, self._correlation_id, _CLIENT_ID)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asked.append(_Asked(self._correlation_id, api_key, version, answer))
        limit_s = self._timeout_s + wait_s
        try:
            async with asyncio.timeout(limit_s):
                self._writer.write(frame)
                await self._writer.drain()
                return await answer
        except TimeoutError:
            raise Unreachable(f"{self.place} does not answer within {limit_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.place} closed the connection: {_reason(error)}") from None
        finally:
            answer.cancel()  # Nothing, if it was given; and nobody else looks at it.

    # -- answers ------------------------------------------------------------------------------

    async def _read_answers(self) -> None:
        """Until the connection ends, or what comes is not Kafka's protocol."""
        try:
            while True:
                self._take(await self._next_frame())
        except KraftError as error:
            self._break(error)
        except OSError as error:
            self._break(Unreachable(f"{self.place} closed the connection: {_reason(error)}"))

    async def _next_frame(self) -> bytes:
        try:
            while (frame := self._buffer.next_frame()) is None:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise Unreachable(f"{self.place} closed the connection without an answer")
                self._buffer.feed(data)
        except WireError:
            raise WireError(f"{self.place} does not speak Kafka's protocol") from None
        return frame

    def _take(self, frame: bytes) -> None:
        if not self._asked:
            raise WireError(f"{self.place} does not speak Kafka's protocol: nobody asked")
        asked = self._asked[0]
        try:
            response = response_type(asked.api_key, asked.version)
            correlation_id, message = read_response(frame, response, asked.api_key)
        except WireError as error:
            raise WireError(f"{self.place} does not speak Kafka's protocol: {error}") from None
        if correlation_id != asked.correlation_id:
            raise WireError(f"{self.place} does not speak Kafka's protocol: answers out of order")
        self._asked.popleft()
        if not asked.answer.done():
            asked.answer.set_result(message)

    def _break(self, error: KraftError) -> None:
        if self._broken is None:
            self._broken = error
            self._writer.close()
        while self._asked:
            answer = self._asked.popleft().answer
            if not answer.done():
                answer.set_exception(_again(error))


def _again(error: KraftError) -> KraftError:
    """The same for somebody else: an exception that is raised twice mixes up its traces."""
    return type(error)(str(error))


def _reason(error: OSError) -> str:
    """In words, and without the addresses that asyncio puts in."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    # Several addresses, and none that works: asyncio gives them all in one text, without a number.
    return os.strerror(error.errno) if error.errno else "none of its addresses answers"
