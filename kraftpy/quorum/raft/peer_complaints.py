"""What peers did wrong: counted each time, and logged once in a while per peer and reason.

A peer with a wrong secret tries again for ever, and a stranger may as often as it likes; neither
may fill the log. What is also met in a healthy cluster, such as a node that is not up yet, is
logged only if it lasts.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kraftpy.clock import Clock
from kraftpy.limits import PEER_COMPLAINTS_MAX
from kraftpy.logs import get_logger

log = get_logger(__name__)

_LOGGED_AGAIN_MS: Final = 10 * 60 * 1000
_LASTING_MS: Final = 5000
_MAY_PASS: Final = frozenset(("unreachable", "lost"))


@dataclass(slots=True)
class _Complaint:
    first_ms: int
    logged_ms: int | None = None


class Complaints:
    """For one node."""

    def __init__(self, clock: Clock, node_id: int) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._node_id = node_id
        self._known: dict[tuple[str, str], _Complaint] = {}

    def note(self, reason: str, who: str, why: str) -> None:
        self.counts[reason] += 1
        now_ms = self._clock.monotonic_ms()
        key = reason, who
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= PEER_COMPLAINTS_MAX:
                self._forget_old(now_ms)
            if len(self._known) >= PEER_COMPLAINTS_MAX:
                return  # So many different strangers: the counts must do.
            known = self._known[key] = _Complaint(now_ms)
        if reason in _MAY_PASS and now_ms - known.first_ms < _LASTING_MS:
            return
        if known.logged_ms is None or now_ms - known.logged_ms >= _LOGGED_AGAIN_MS:
            known.logged_ms = now_ms
            log.warning(
                "peer_refused",
                node=self._node_id,
                peer=who,
                reason=reason,
                why=why,
                times=self.counts[reason],
            )

    def forgive(self, who: str) -> None:
        """It is here: had it been away, the next time is another matter."""
        for reason in _MAY_PASS:
            self._known.pop((reason, who), None)

    def _forget_old(self, now_ms: int) -> None:
        for key, known in list(self._known.items()):
            if now_ms - (known.logged_ms or known.first_ms) >= _LOGGED_AGAIN_MS:
                del self._known[key]
