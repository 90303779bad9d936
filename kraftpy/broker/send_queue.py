"""Answers on their way out of one socket: bytes from memory, records straight from their files.

A file's bytes never come into the process. A slice keeps its file open until it has been sent, so
that a segment may be deleted meanwhile; should the file have been cut instead, the client cannot be
given what its answer announced, and the connection ends.
"""

import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from kraftpy.storage import LogSlice

Piece = bytes | bytearray | memoryview | LogSlice

_BUFFERS_AT_ONCE: Final = 64


class SendQueue:
    """In the order in which they were put in. `unsent` counts bytes, those in files too."""

    __slots__ = ("_descriptor", "_pieces", "_sock", "sent", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.unsent = 0
        self.sent = 0
        self._sock = sock
        self._descriptor = sock.fileno()
        self._pieces: deque[Piece] = deque()

    def put(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            size = piece.count if type(piece) is LogSlice else len(piece)  # type: ignore[arg-type]
            if size:
                self._pieces.append(piece)
                self.unsent += size

    def send(self) -> bool:
        """Send what the socket takes; whether that was everything. OSError: it is broken."""
        pieces = self._pieces
        try:
            while pieces:
                first = pieces[0]
                count = self._send_slice(first) if type(first) is LogSlice else self._send_bytes()
                self.sent += count
                self.unsent -= count
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _send_slice(self, piece: LogSlice) -> int:
        assert piece.file is not None
        count = os.sendfile(self._descriptor, piece.file.fileno(), piece.position, piece.count)
        if count == 0:
            raise OSError(f"{piece.file.path} ends before what was to be sent of it")
        if count == piece.count:
            self._pieces.popleft()
        else:
            rest = LogSlice(piece.file, piece.position + count, piece.count - count)
            self._pieces[0] = rest
        return count

    def _send_bytes(self) -> int:
        """As many pieces of memory as there are in a row."""
        pieces = self._pieces
        buffers: list[bytes | bytearray | memoryview] = []
        flags = 0
        for piece in islice(pieces, _BUFFERS_AT_ONCE):
            if type(piece) is LogSlice:
                flags = socket.MSG_MORE  # Records follow at once: let them share a packet.
                break
            buffers.append(piece)  # type: ignore[arg-type]
        if len(buffers) == 1:
            count = self._sock.send(buffers[0], flags)
        else:
            count = self._sock.sendmsg(buffers, (), flags)
        left = count
        for buffer in buffers:
            if left < len(buffer):
                if left:
                    pieces[0] = memoryview(buffer)[left:]
                break
            left -= len(buffer)
            pieces.popleft()
        return count
