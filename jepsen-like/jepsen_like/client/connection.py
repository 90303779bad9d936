"""One connection to one node: one request at a time, each answered, refused or lost.

Unsent means that not a byte of the request was given to the network. After any other failure the
connection is closed: an answer that comes late must not be taken for another request's.
"""

import asyncio
import itertools
import struct
from typing import Final

from jepsen_like.client.codec import BadAnswer
from jepsen_like.client.errors import Unanswered, Unsent

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CLIENT_ID: Final = b"jepsen-like"


class Connection:
    """Opened at the first request, and again after every failure."""

    def __init__(self, host: str, port: int, connect_s: float = 2.0) -> None:
        self.host = host
        self.port = port
        self._connect_s = connect_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._numbers = itertools.count(1)
        self._lock = asyncio.Lock()

    async def ask(
        self, api_key: int, version: int, body: bytes, timeout_s: float, *, flexible: bool = False
    ) -> bytes:
        """The answer's body, without its header."""
        async with self._lock:
            if self._streams is not None and self._streams[1].transport.is_closing():
                self.close()
            reader, writer = await self._open()
            number = next(self._numbers)
            head = struct.pack(">hhih", api_key, version, number, len(_CLIENT_ID)) + _CLIENT_ID
            frame = head + (b"\0" if flexible else b"") + body
            try:
                async with asyncio.timeout(timeout_s):
                    writer.write(struct.pack(">i", len(frame)) + frame)
                    await writer.drain()
                    return await self._answer(reader, number, flexible)
            except TimeoutError:
                self.close()
                raise Unanswered("timeout") from None
            # RuntimeError is uvloop's word for a connection that ended a moment ago.
            except (OSError, RuntimeError, asyncio.IncompleteReadError, BadAnswer) as error:
                self.close()
                raise Unanswered(f"connection: {type(error).__name__}") from None
            except BaseException:
                self.close()
                raise

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                async with asyncio.timeout(self._connect_s):
                    self._streams = await asyncio.open_connection(
                        self.host, self.port, limit=_ANSWER_BYTES_MAX
                    )
            except (OSError, TimeoutError) as error:
                raise Unsent(f"connect: {type(error).__name__}") from None
        return self._streams

    async def _answer(self, reader: asyncio.StreamReader, number: int, flexible: bool) -> bytes:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        if not 4 <= length <= _ANSWER_BYTES_MAX:
            raise BadAnswer(f"an answer of {length} bytes")
        frame = await reader.readexactly(length)
        (answered,) = struct.unpack_from(">i", frame)
        if answered != number:
            raise BadAnswer(f"the answer to {answered}, not to {number}")
        return frame[5:] if flexible else frame[4:]

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
