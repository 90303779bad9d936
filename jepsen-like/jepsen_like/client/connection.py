"""One connection to one node: one request at a time, each answered, refused or lost.

Unsent means that not a byte of the request was given to the network. After any other failure the
connection is closed: an answer that comes late must not be taken for another request's.
"""

import asyncio
import itertools
import struct
from typing import Final, cast

from jepsen_like.client.codec import BadAnswer
from jepsen_like.client.errors import Unanswered, Unsent

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CLIENT_ID: Final = b"jepsen-like"
_HEAD: Final = struct.Struct(">ihhih")
_LENGTH: Final = struct.Struct(">i")


class Connection:
    """Opened at the first request, and again after every failure."""

    def __init__(self, host: str, port: int, connect_s: float = 2.0) -> None:
        self.host = host
        self.port = port
        self._connect_s = connect_s
        self._answers: _Answers | None = None
        self._numbers = itertools.count(1)
        self._lock = asyncio.Lock()

    async def ask(
        self, api_key: int, version: int, body: bytes, timeout_s: float, *, flexible: bool = False
    ) -> bytes:
        """The answer's body, without its header."""
        async with self._lock:
            if self._answers is not None and self._answers.transport.is_closing():
                self.close()
            answers = await self._open()
            number = next(self._numbers)
            tags = b"\0" if flexible else b""
            length = _HEAD.size - 4 + len(_CLIENT_ID) + len(tags) + len(body)
            head = _HEAD.pack(length, api_key, version, number, len(_CLIENT_ID))
            try:
                frame = await answers.ask(b"".join((head, _CLIENT_ID, tags, body)), timeout_s)
                (answered,) = _LENGTH.unpack_from(frame)
                if answered != number:
                    raise BadAnswer(f"the answer to {answered}, not to {number}")
            except TimeoutError:
                self.close()
                raise Unanswered("timeout") from None
            # RuntimeError is uvloop's word for a connection that ended a moment ago.
            except (OSError, RuntimeError, BadAnswer) as error:
                self.close()
                raise Unanswered(f"connection: {type(error).__name__}") from None
            except BaseException:
                self.close()
                raise
            return frame[5:] if flexible else frame[4:]

    async def _open(self) -> "_Answers":
        if self._answers is None:
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(self._connect_s):
                    _, self._answers = await loop.create_connection(_Answers, self.host, self.port)
            except (OSError, TimeoutError) as error:
                raise Unsent(f"connect: {type(error).__name__}") from None
        return self._answers

    def close(self) -> None:
        if self._answers is not None:
            self._answers.transport.abort()
            self._answers = None


class _Answers(asyncio.Protocol):
    """The frames that come, each for whoever asked last."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._data = bytearray()
        self._awaited: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes, timeout_s: float) -> bytes:
        """The next frame, without its length. TimeoutError, OSError or BadAnswer if none comes."""
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[bytes] = loop.create_future()
        self._awaited = awaited
        timer = loop.call_later(timeout_s, self._fail, TimeoutError())
        try:
            self.transport.write(request)
            return await awaited
        finally:
            timer.cancel()
            self._awaited = None

    def _fail(self, error: Exception) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the connection has ended"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack_from(self._data)
        if not 4 <= length <= _ANSWER_BYTES_MAX:
            self._fail(BadAnswer(f"an answer of {length} bytes"))
        elif len(self._data) >= _LENGTH.size + length:
            frame = bytes(self._data[_LENGTH.size : _LENGTH.size + length])
            del self._data[: _LENGTH.size + length]
            if self._awaited is not None and not self._awaited.done():
                self._awaited.set_result(frame)
