"""A client for one connection: asks in the newest version that both sides speak."""

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.errors import Unreachable, WireError
from kraftpy.wire.apis import VersionRange, api_name, request_type, response_type
from kraftpy.wire.codec import build
from kraftpy.wire.frames import FrameBuffer
from kraftpy.wire.headers import API_VERSIONS, read_response, request_frame

_CLIENT_ID: Final = "kraftpy"
_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_FIRST_API_VERSIONS: Final = 0  # Every server there ever was answers it.


class WireClient:
    """One connection, one request at a time. Every wait ends after `timeout_s`."""

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

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
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
        self._correlation_id += 1
        message: Any = build(request_type(api_key, version), values)
        frame = request_frame(message, api_key, version, self._correlation_id, _CLIENT_ID)
        try:
            async with asyncio.timeout(self._timeout_s + wait_s):
                self._writer.write(frame)
                await self._writer.drain()
                answer = await self._next_frame()
        except TimeoutError:
            limit_s = self._timeout_s + wait_s
            raise Unreachable(f"{self.place} does not answer within {limit_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.place} closed the connection: {_reason(error)}") from None
        return self._read(answer, api_key, version)

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

    def _read(self, frame: bytes, api_key: int, version: int) -> Any:
        try:
            correlation_id, message = read_response(frame, response_type(api_key, version), api_key)
        except WireError as error:
            raise WireError(f"{self.place} does not speak Kafka's protocol: {error}") from None
        if correlation_id != self._correlation_id:
            raise WireError(f"{self.place} does not speak Kafka's protocol: answers out of order")
        return message


def _reason(error: OSError) -> str:
    """In words, and without the addresses that asyncio puts in."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    # Several addresses, and none that works: asyncio gives them all in one text, without a number.
    return os.strerror(error.errno) if error.errno else "none of its addresses answers"
