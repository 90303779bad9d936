"""What the active controller does by itself, and when. Pure.

- sessions: brokers that were silent for longer than a session are fenced, one per tick: the next
  is due at once, and heartbeats that came meanwhile are heard before it;
- no-op: a record when the log was idle, so that observers see how far they are behind;
- balance: leadership goes back to preferred replicas;
- unclean: partitions without a leader get one where their topics allow it.

Time is the caller's monotonic clock. A tick that comes late means that the whole process stood
still, and heartbeats are waiting unread beside it: sessions then are given a moment, or every
broker would be fenced for what is no fault of theirs. Twice in a row they are not, so that a
controller which is always late still notices who is dead.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kraftpy.metadata_log.records import NoOpRecord
from kraftpy.quorum.control.decision import Decision, Situation
from kraftpy.quorum.control.elections import decide_balance, decide_unclean
from kraftpy.quorum.control.fencing import fence_expired
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.settings import ControllerSettings

_STALL_MS: Final = 500
_GRACE_MS: Final = 1000
# How soon it is looked again whether there is more to balance.
_AGAIN_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something to decide without being asked."""

    decide: Callable[[Situation], Decision | None]


def _no_op(_situation: Situation) -> Decision:
    return Decision(records=(NoOpRecord(),), response={}, own=True)


_SESSIONS: Final = Duty(decide=fence_expired)
_NO_OP: Final = Duty(decide=_no_op)
_BALANCE: Final = Duty(decide=decide_balance)
_UNCLEAN: Final = Duty(decide=decide_unclean)


class Duties:
    """The timers of one controller; `begin` sets them for an epoch."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._fence_not_before_ms = 0
        self._was_late = False
        self._no_op_ms: int | None = None
        self._balance_ms: int | None = None
        self._unclean_ms = 0
        self._expected_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        settings = self._settings
        self._fence_not_before_ms = now_ms
        self._expected_ms = None
        self._was_late = False
        self._unclean_ms = now_ms + settings.unclean_leader_election_interval_ms
        self._balance_ms = None
        if settings.auto_leader_rebalance_enable:
            self._balance_ms = now_ms + settings.leader_imbalance_check_interval_ms
        self.appended(now_ms)

    def appended(self, now_ms: int) -> None:
        """The log is not idle."""
        interval_ms = self._settings.metadata_max_idle_interval_ms
        self._no_op_ms = now_ms + interval_ms if interval_ms else None

    def unclean_elections_allowed(self, now_ms: int) -> None:
        """A setting has changed: who waits for that need not wait for the next round."""
        self._unclean_ms = now_ms

    def did(self, duty: Duty, now_ms: int) -> None:
        """A decision was made; there may be more to do."""
        if duty is _BALANCE:
            self._balance_ms = now_ms + _AGAIN_MS

    def next_due_ms(self, heartbeats: Heartbeats) -> int:
        """The first moment at which `due` may have something."""
        expiry_ms = heartbeats.next_expiry(self._settings.broker_session_timeout_ms)
        if expiry_ms is not None:
            expiry_ms = max(expiry_ms, self._fence_not_before_ms)
        times = (expiry_ms, self._no_op_ms, self._balance_ms, self._unclean_ms)
        self._expected_ms = min(time_ms for time_ms in times if time_ms is not None)
        return self._expected_ms

    def due(self, now_ms: int, *, is_idle: bool) -> Iterator[Duty]:
        """What to decide now. `is_idle`: nothing is on its way to the log."""
        self._notice_stall(now_ms)
        if now_ms >= self._fence_not_before_ms:
            yield _SESSIONS
        if self._no_op_ms is not None and now_ms >= self._no_op_ms:
            self.appended(now_ms)  # Also if something is on its way: that is no silence.
            if is_idle:
                yield _NO_OP
        settings = self._settings
        if self._balance_ms is not None and now_ms >= self._balance_ms:
            self._balance_ms = now_ms + settings.leader_imbalance_check_interval_ms
            yield _BALANCE
        if now_ms >= self._unclean_ms:
            self._unclean_ms = now_ms + settings.unclean_leader_election_interval_ms
            yield _UNCLEAN

    def _notice_stall(self, now_ms: int) -> None:
        expected_ms, self._expected_ms = self._expected_ms, None
        is_late = expected_ms is not None and now_ms - expected_ms > _STALL_MS
        if is_late and not self._was_late:
            self._fence_not_before_ms = now_ms + _GRACE_MS
        self._was_late = is_late
