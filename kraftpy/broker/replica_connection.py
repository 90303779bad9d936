"""A follower's connection to a leading broker: one question at a time, answers read in place.

What arrives lies in one buffer, which the records of an answer are views of: they are valid until
the next question is asked. A connection that fails once, or is late once, is done with: an answer
that comes after all must not be taken for another one's.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from kio.schema.errors import ErrorCode

from kraftpy.broker.receive_buffer import ReceiveBuffer
from kraftpy.errors import KraftError, Unreachable, WireError
from kraftpy.wire.apis import FETCH, VersionRange, api_name, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame
from kraftpy.wire.replica_fetch import (
    VERSION_MAX,
    VERSION_MIN,
    ReplicaAnswer,
    ReplicaFetch,
    read_replica_answer,
    replica_fetch,
)

_CLIENT_ID: Final = "kraftpy"
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
T = TypeVar("T")


class ReplicaConnection(asyncio.BufferedProtocol):
    """Made by `connect`. Close it."""

    def __init__(self, place: str, timeout_s: float) -> None:
        self.place = place
        self._timeout_s = timeout_s
        self._buffer = ReceiveBuffer(_ANSWER_BYTES_MAX)
        self._buffer.resize(_BUFFER_BYTES)
        self._frame: asyncio.Future[memoryview] | None = None
        self._transport: asyncio.Transport | None = None
        self._broken: KraftError | None = None
        self._correlation_id = 0
        self._versions: dict[int, VersionRange] = {}
        self._loop = asyncio.get_running_loop()

    @staticmethod
    async def connect(host: str, port: int, *, timeout_s: float) -> "ReplicaConnection":
        """Connect and agree on versions; Unreachable or WireError in one line."""
        place = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: ReplicaConnection(place, timeout_s), host, port
                )
        except TimeoutError:
            raise Unreachable(f"{place} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {place}: {error}") from None
        try:
            await connection._agree()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def close(self) -> None:
        self._break(Unreachable(f"the connection to {self.place} was closed"))

    # -- asking -------------------------------------------------------------------------------

    async def fetch(self, request: ReplicaFetch, *, wait_s: float) -> ReplicaAnswer:
        """`wait_s` is what the leader may take on top of the time that any answer may."""
        version = self._version(FETCH, VERSION_MAX)
        if version < VERSION_MIN:
            raise Unreachable(f"{self.place} serves Fetch up to {version}, not {VERSION_MIN}")
        self._correlation_id += 1
        frame = replica_fetch(request, version, self._correlation_id)
        answer = self._read(read_replica_answer, await self._exchange(frame, wait_s))
        self._check_number(answer.correlation_id)
        return answer

    async def ask(self, api_key: int, values: Mapping[str, Any]) -> Any:
        """Any other question."""
        return await self._ask(api_key, self._version(api_key, None), values)

    def _version(self, api_key: int, version_max: int | None) -> int:
        theirs = self._versions.get(api_key)
        if theirs is None:
            raise Unreachable(f"{self.place} does not serve {api_name(api_key)}")
        return theirs[1] if version_max is None else min(theirs[1], version_max)

    async def _agree(self) -> None:
        found = await self._ask(API_VERSIONS, 0, {})
        if found.error_code is not ErrorCode.none:
            raise WireError(f"{self.place} refuses ApiVersions: {found.error_code.name}")
        self._versions = {
            api.api_key: VersionRange(api.min_version, api.max_version) for api in found.api_keys
        }

    async def _ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        self._correlation_id += 1
        message: Any = build(request_type(api_key, version), values)
        frame = request_frame(message, api_key, version, self._correlation_id, _CLIENT_ID)
        answer = bytes(await self._exchange(frame, 0.0))
        kind = response_type(api_key, version)
        number, found = self._read(lambda data: read_response(data, kind, api_key), answer)
        self._check_number(number)
        return found

    def _read(self, read: Callable[[Any], T], frame: bytes | memoryview) -> T:
        try:
            return read(frame)
        except WireError as error:
            why = f"{self.place} does not speak Kafka's protocol: {error}"
            raise self._break(WireError(why)) from None

    def _check_number(self, number: int) -> None:
        if number != self._correlation_id:
            why = f"{self.place} does not speak Kafka's protocol: answers out of order"
            raise self._break(WireError(why))

    async def _exchange(self, frame: bytes | bytearray, wait_s: float) -> memoryview:
        """Send it; the next frame that comes. It lies in the buffer until the next call."""
        if self._broken is not None or self._transport is None:
            raise Unreachable(f"the connection to {self.place} has ended")
        assert self._frame is None, "one question at a time"
        self._make_room()
        limit_s = self._timeout_s + wait_s
        self._frame = self._loop.create_future()
        try:
            async with asyncio.timeout(limit_s):
                self._transport.write(frame)
                return await self._frame
        except TimeoutError:
            why = f"{self.place} does not answer within {limit_s:g} s"
            raise self._break(Unreachable(why)) from None
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._frame = None

    # -- the event loop's callbacks -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _size: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, count: int) -> None:
        self._buffer.received(count)
        asked = self._frame
        if asked is None or asked.done():
            self._break(WireError(f"{self.place} does not speak Kafka's protocol: nobody asked"))
            return
        try:
            frame = self._buffer.next_frame()
        except WireError as error:
            self._break(WireError(f"{self.place} does not speak Kafka's protocol: {error}"))
            return
        if frame is None:
            self._make_room()
        elif len(self._buffer):
            self._break(WireError(f"{self.place} does not speak Kafka's protocol: nobody asked"))
        else:
            asked.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._break(Unreachable(f"{self.place} closed the connection: {error or 'no reason'}"))

    def _make_room(self) -> None:
        if not self._buffer.make_room():
            # A bit more than is needed now, since the next answer may have a bit more.
            self._buffer.resize(-(-self._buffer.wanted // _BUFFER_BYTES) * _BUFFER_BYTES)

    def _break(self, error: KraftError) -> KraftError:
        """For good; the error, for whoever wants to raise it."""
        if self._broken is None:
            self._broken = error
            if self._transport is not None:
                self._transport.abort()
        if self._frame is not None and not self._frame.done():
            self._frame.set_exception(error)
        return error
