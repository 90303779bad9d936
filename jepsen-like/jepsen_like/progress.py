"""One line that says how a run is going: in place on a terminal, now and then elsewhere."""

import sys
from collections import Counter
from typing import TextIO

_EVERY_S = 10.0


class Progress:
    """Counts what it is told."""

    def __init__(self, out: TextIO = sys.stderr, *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._live = out.isatty()
        self._said_s = -_EVERY_S
        self.counts: Counter[str] = Counter()
        self.faults = 0
        self.phase = "start"
        self.last_fault = ""
        self._window: list[tuple[float, int]] = []

    @property
    def total(self) -> int:
        """Operations that have ended."""
        return sum(self.counts[kind] for kind in ("ok", "fail", "info"))

    def show(self, now_s: float) -> None:
        """Say how it stands; on no terminal only every few seconds."""
        total = self.total
        self._window = [*self._window[-20:], (now_s, self.counts["ok"])]
        if self._quiet or (not self._live and now_s - self._said_s < _EVERY_S):
            return
        self._said_s = now_s
        (first_s, first_ok), (last_s, last_ok) = self._window[0], self._window[-1]
        rate = (last_ok - first_ok) / (last_s - first_s) if last_s > first_s else 0.0
        share = 100 * self.counts["ok"] / total if total else 0.0
        line = (
            f"{now_s:6.1f} s  {self.phase:7} {total:7} ops {rate:6.0f} ok/s {share:5.1f} % ok "
            f"{self.counts['info']:5} unknown {self.faults:4} faults  {self.last_fault:.40}"
        )
        self._out.write(f"\r{line:110}" if self._live else line + "\n")
        self._out.flush()

    def done(self, line: str) -> None:
        if not self._quiet:
            self._out.write(("\n" if self._live else "") + line + "\n")
            self._out.flush()
