"""A clock that another process can put wrong: it reads an offset and a rate from a mapped file.

The file has 16 bytes: the offset of the wall clock in milliseconds (a signed integer) and the rate
of both clocks (a float, 1.0 is right), big-endian. Whoever writes it does so whenever it likes;
half-written numbers cannot be seen, since each is one aligned word.

What always holds: monotonic time never goes back, at any rate; a step of the offset moves the wall
clock only, as settimeofday does. A rate counts from the moment that this process first sees it.
"""

import mmap
import os
import struct
import threading
from typing import Final

from kraftpy.clock import Clock

_LAYOUT: Final = struct.Struct(">qd")
BYTES: Final = _LAYOUT.size
_RATES: Final = (0.01, 100.0)


def encode_skew(offset_ms: int, rate: float) -> bytes:
    """What the file holds."""
    return _LAYOUT.pack(offset_ms, rate)


class SkewedClock:
    """The machine's clock, seen through a file."""

    def __init__(self, path: str, real: Clock) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < BYTES:
                os.pwrite(descriptor, encode_skew(0, 1.0), 0)
            self._map = mmap.mmap(descriptor, BYTES, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._real = real
        self._lock = threading.Lock()
        self._seen_ms = self._passed_ms = float(real.monotonic_ms())
        self._drift_ms = 0.0

    def now_ms(self) -> int:
        with self._lock:
            offset_ms = self._look()
            return self._real.now_ms() + offset_ms + int(self._drift_ms)

    def monotonic_ms(self) -> int:
        with self._lock:
            self._look()
            return int(self._passed_ms)

    def _look(self) -> int:
        """Let the time since the last look pass at the rate of now; the offset."""
        offset_ms, rate = _LAYOUT.unpack(self._map[:BYTES])
        if not _RATES[0] <= rate <= _RATES[1]:
            rate = 1.0  # Also if it is not a number: comparisons with one are false.
        now_ms = float(self._real.monotonic_ms())
        passed_ms = max(0.0, now_ms - self._seen_ms) * rate
        self._drift_ms += passed_ms - max(0.0, now_ms - self._seen_ms)
        self._seen_ms = max(self._seen_ms, now_ms)
        self._passed_ms += passed_ms
        return int(offset_ms)
