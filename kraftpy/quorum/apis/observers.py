"""Who follows the metadata log without a vote, as the leader of one epoch sees it. Pure.

An observer is whoever sends Fetch requests with an id that is no voter's. It is forgotten some time
after its last one. A new leader begins with nobody: what it says of one, it has seen itself.
"""

from dataclasses import dataclass
from uuid import UUID

from kraftpy.limits import OBSERVER_FORGET_MS, OBSERVERS_MAX


@dataclass(slots=True, kw_only=True)
class Observer:
    """One observer. Times are the leader's wall clock; -1 if it never was caught up."""

    observer_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    high_watermark_then: int  # At its last Fetch.


class Observers:
    """All of them."""

    def __init__(self) -> None:
        self._epoch = -1
        self._known: dict[int, Observer] = {}

    def note(
        self,
        observer_id: int,
        directory_id: UUID | None,
        *,
        epoch: int,
        fetch_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        """A Fetch: its sender has everything before `fetch_offset`."""
        self._begin(epoch)
        observer = self._known.get(observer_id)
        if observer is None:
            if len(self._known) >= OBSERVERS_MAX:
                self.current(epoch=epoch, now_ms=now_ms)
            if len(self._known) >= OBSERVERS_MAX:
                return
            observer = self._known[observer_id] = Observer(
                observer_id=observer_id,
                directory_id=directory_id,
                log_end_offset=fetch_offset,
                last_fetch_ms=now_ms,
                last_caught_up_ms=-1,
                high_watermark_then=high_watermark,
            )
        if fetch_offset >= high_watermark:
            observer.last_caught_up_ms = now_ms
        elif fetch_offset >= observer.high_watermark_then:
            # It has all that there was when it last asked: up to then it was caught up.
            observer.last_caught_up_ms = max(observer.last_caught_up_ms, observer.last_fetch_ms)
        observer.directory_id = directory_id
        observer.log_end_offset = fetch_offset
        observer.last_fetch_ms = now_ms
        observer.high_watermark_then = high_watermark

    def current(self, *, epoch: int, now_ms: int) -> list[Observer]:
        """Those who have fetched lately, by id."""
        self._begin(epoch)
        oldest_ms = now_ms - OBSERVER_FORGET_MS
        self._known = {
            observer_id: observer
            for observer_id, observer in self._known.items()
            if observer.last_fetch_ms >= oldest_ms
        }
        return [self._known[observer_id] for observer_id in sorted(self._known)]

    def _begin(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._known.clear()
