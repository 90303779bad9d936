"""Bytes between two connections that are one, under the rule of the link that they take.

Without a rule they are handed on as they come. With one, and before there is anybody to hand them
on to, they wait in a queue, in order, for a task that does what the rule says; the end of a
connection waits in the same queue.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections import deque
from typing import Any, Final, cast

_QUEUED_BYTES_MAX: Final = 64 * 1024
_LINGER_RESET: Final = struct.pack("ii", 1, 0)
_END: Final = b""  # In a queue: the connection is over.


class Link:
    """What holds for bytes that flow one way between two."""

    def __init__(self, rng: random.Random) -> None:
        self.rule: dict[str, Any] = {}
        self.moved = asyncio.Event()
        self._rng = rng
        self.bytes = 0

    async def wait_until_open(self) -> None:
        while self.rule.get("hold"):
            self.moved.clear()
            await self.moved.wait()

    async def pace(self, count: int) -> None:
        """The time that so many bytes take."""
        rule = self.rule
        delay_ms = rule.get("delay_ms", 0.0) + self._rng.random() * rule.get("jitter_ms", 0.0)
        if rate := rule.get("bytes_per_s"):
            delay_ms += 1000 * count / rate
        if delay_ms > 0:
            await asyncio.sleep(delay_ms / 1000)

    def cut(self, data: bytes) -> bytes | None:
        """What is left of the data, if this link is one that breaks off."""
        after = self.rule.get("cut_after")
        return None if after is None else data[: self._rng.randint(0, min(after, len(data)))]

    def change(self, rule: dict[str, Any]) -> None:
        self.rule = rule
        self.moved.set()


class Joined:
    """Two connections that are one: from who connected to the node that it wanted."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.transports: list[asyncio.Transport] = []
        self.over = asyncio.Event()

    def reset(self) -> None:
        """Both sides get an RST."""
        self.over.set()
        for transport in self.transports:
            sock = transport.get_extra_info("socket")
            if sock is not None:
                # One side may be closed by now; uvloop then has no descriptor: ValueError.
                with contextlib.suppress(OSError, ValueError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            transport.abort()

    def close(self) -> None:
        """Both sides get what was sent to them, and a FIN: half-closed is nothing Kafka knows."""
        self.over.set()
        for transport in self.transports:
            with contextlib.suppress(OSError, RuntimeError):
                transport.close()


class Side(asyncio.Protocol):
    """One of the two connections; what it receives goes over its link to the other side."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._joined: Joined
        self._link: Link
        self._other: asyncio.Transport
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_joined = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def join(self, joined: Joined, link: Link, other: asyncio.Transport) -> None:
        """From now on what comes is handed on."""
        self._joined, self._link, self._other = joined, link, other
        self._is_joined = True
        self._deliver_later()

    def data_received(self, data: bytes) -> None:
        if self._is_joined and self._task is None and not self._link.rule:
            self._hand_on(data)
        else:
            self._wait_with(data)

    def connection_lost(self, error: Exception | None) -> None:
        del error  # Broken or closed, the other side hears of it when the link lets it.
        if not (self._is_joined and self._joined.over.is_set()):
            self._wait_with(_END)

    def pause_writing(self) -> None:
        if self._is_joined and not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        if self._is_joined and not self._other.is_closing():
            self._other.resume_reading()

    def _hand_on(self, data: bytes) -> None:
        if not self._other.is_closing():
            with contextlib.suppress(RuntimeError):  # uvloop's, of what was reset just now.
                self._other.write(data)
                self._link.bytes += len(data)

    def _wait_with(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _QUEUED_BYTES_MAX and not self.transport.is_closing():
            self.transport.pause_reading()
        if self._is_joined:
            self._deliver_later()

    def _deliver_later(self) -> None:
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        """Until nothing waits."""
        link = self._link
        try:
            while self._waiting and not self._joined.over.is_set():
                data = self._waiting.popleft()
                await link.wait_until_open()
                if data == _END:
                    self._joined.close()
                    return
                await link.pace(len(data))
                await link.wait_until_open()
                left = link.cut(data)
                self._hand_on(data if left is None else left)
                if left is not None:
                    await asyncio.sleep(0)
                    self._joined.reset()
                    return
                self._waiting_bytes -= len(data)
                if self._waiting_bytes <= _QUEUED_BYTES_MAX and not self.transport.is_closing():
                    self.transport.resume_reading()
        finally:
            self._task = None
