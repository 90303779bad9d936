"""When and where to connect: one place to wait for each voter that this node connects to.

A voter connects to those with a lower id, so that there is never a choice between two connections.
A lost connection is tried again almost at once, since most often a process was restarted; then
with growing, random pauses. One that ends soon after it began counts as another failure, so that
two nodes that cannot get along do not keep each other busy.

Names are looked up in threads of their own: a name server that does not answer must not stop Raft.
"""

import random
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kraftpy.quorum.voters import Voter

_YOUNG_MS: Final = 1000
_YOUNG_RETRY_MS_MAX: Final = 1000

SocketAddress = tuple[socket.AddressFamily, Any]


@dataclass(slots=True)
class _Line:
    """One voter, and how it went so far."""

    voter: Voter
    due_ms: int
    pause_ms: int
    is_busy: bool = False  # Looking up, connecting or connected.
    found: list[SocketAddress] | None = None  # What a lookup has brought; empty: it failed.
    addresses: list[SocketAddress] = field(default_factory=list)


class Dialer:
    """Used by the thread that polls; lookups only leave their result in `found`."""

    def __init__(
        self,
        voters: Iterable[Voter],
        *,
        retry_ms_min: int,
        retry_ms_max: int,
        now_ms: int,
        rng: random.Random,
        wake: Callable[[], None],
    ) -> None:
        self._retry_ms_min = retry_ms_min
        self._retry_ms_max = retry_ms_max
        self._rng = rng
        self._wake = wake
        self._lines = {
            voter.node_id: _Line(voter, due_ms=now_ms, pause_ms=retry_ms_min) for voter in voters
        }

    def next_due_ms(self) -> int | None:
        """When there is something to do, if nothing else happens."""
        return min((line.due_ms for line in self._lines.values() if not line.is_busy), default=None)

    def due(self, now_ms: int) -> list[tuple[int, SocketAddress | None]]:
        """Whom to connect to now, and where; None: nobody knows where that is."""
        found: list[tuple[int, SocketAddress | None]] = []
        for node_id, line in self._lines.items():
            if not line.is_busy and line.due_ms <= now_ms:
                line.is_busy = True
                if line.addresses:  # Another one of those that the last lookup brought.
                    found.append((node_id, line.addresses.pop(0)))
                    continue
                self._look_up(line)
            if line.found is not None:
                line.addresses, line.found = line.found, None
                address = line.addresses.pop(0) if line.addresses else None
                found.append((node_id, address))
        return found

    def _look_up(self, line: _Line) -> None:
        voter = line.voter
        line.found = _addresses(voter.host, voter.port, socket.AI_NUMERICHOST) or None
        if line.found:
            return

        def look_up() -> None:
            line.found = _addresses(voter.host, voter.port, 0)
            self._wake()

        threading.Thread(target=look_up, name=f"look up {voter.host}", daemon=True).start()

    def ended(self, node_id: int, *, now_ms: int, lived_ms: int | None) -> None:
        """An attempt failed, or a connection ended after so long."""
        line = self._lines[node_id]
        if lived_ms is not None and lived_ms >= _YOUNG_MS:
            line.pause_ms = self._retry_ms_min
            line.addresses.clear()
        pause_ms_max = self._retry_ms_max if lived_ms is None else _YOUNG_RETRY_MS_MAX
        line.due_ms = now_ms + int(line.pause_ms * (0.5 + self._rng.random() / 2))
        line.pause_ms = min(2 * line.pause_ms, pause_ms_max)
        line.is_busy = False


def _addresses(host: str, port: int, flags: int) -> list[SocketAddress]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except OSError:  # socket.gaierror is one.
        return []
    return [(family, address) for family, _, _, _, address in answers]
