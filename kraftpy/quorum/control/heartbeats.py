"""When each broker was last heard of and how far it has replayed, as the active controller counts.

Nothing here is replicated. A controller that becomes active makes a new Heartbeats of its image:
every session starts anew, since nobody can know when the previous controller last heard of whom.
So a living broker gets a whole session to find the new controller, and one that died during the
failover is still fenced after one session, though it never speaks to this controller
(KAFKA-18138).

Whoever replays records tells it what became of the brokers (`move`); whoever receives a heartbeat
tells it at once (`contact`), before the heartbeat waits for its decision, so that a busy controller
does not take a broker for dead.

What always holds: every registered broker is known, under its current epoch; exactly the unfenced
ones have a session; sessions are in the order of their last contact, the longest silent first.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from kraftpy.metadata_log.image import Broker, ClusterImage
from kraftpy.types import BrokerId

NO_OFFSET: Final = -1


class _Life:
    """One incarnation of a broker, as far as this controller has seen it."""

    __slots__ = (
        "broker_epoch",
        "contact_ms",
        "metadata_offset",
        "registration_offset",
        "shutdown_offset",
    )

    def __init__(self, broker_epoch: int, registration_offset: int, now_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.registration_offset = registration_offset
        self.contact_ms = now_ms
        self.metadata_offset = NO_OFFSET
        self.shutdown_offset = NO_OFFSET


class Heartbeats:
    """Bookkeeping of the active controller: changed only by it, read by decisions."""

    def __init__(self) -> None:
        self._lives: dict[BrokerId, _Life] = {}
        self._sessions: OrderedDict[BrokerId, _Life] = OrderedDict()
        self._now_ms: int | None = None

    @classmethod
    def of(cls, image: ClusterImage, now_ms: int) -> "Heartbeats":
        """Of a controller that becomes active with this image."""
        heartbeats = cls()
        heartbeats.move(image, image.brokers, now_ms)
        return heartbeats

    # -- what happens -------------------------------------------------------------------------

    def contact(
        self, broker_id: BrokerId, broker_epoch: int, metadata_offset: int, now_ms: int
    ) -> None:
        """A heartbeat arrived. One of an incarnation that is not the registered one is ignored:
        were it counted, a zombie would keep the session of its successor alive."""
        life = self._lives.get(broker_id)
        if life is None or life.broker_epoch != broker_epoch:
            return
        life.metadata_offset = metadata_offset
        if broker_id in self._sessions:
            life.contact_ms = self._clock(now_ms)
            self._sessions.move_to_end(broker_id)

    def move(self, image: ClusterImage, broker_ids: Iterable[BrokerId], now_ms: int) -> None:
        """Follow the image to its successor; `broker_ids` are those that may differ."""
        now_ms = self._clock(now_ms)
        for broker_id in sorted(broker_ids):
            broker = image.brokers.get(broker_id)
            if broker is None:
                self._lives.pop(broker_id, None)
                self._sessions.pop(broker_id, None)
            else:
                self._follow(broker, image.end_offset - 1, now_ms)

    def _follow(self, broker: Broker, last_offset: int, now_ms: int) -> None:
        broker_id = broker.broker_id
        life = self._lives.get(broker_id)
        if life is None or life.broker_epoch != broker.broker_epoch:
            # The registration is at this offset or, in a batch with more, before it. Of one that
            # an earlier controller decided no more is known; but the offset never moves again, so
            # that a busy log cannot keep a broker fenced (KAFKA-13959).
            life = self._lives[broker_id] = _Life(broker.broker_epoch, last_offset, now_ms)
            self._sessions.pop(broker_id, None)
        if broker.fenced:
            self._sessions.pop(broker_id, None)
            return
        if broker_id not in self._sessions:
            life.contact_ms = now_ms
            self._sessions[broker_id] = life
        if broker.in_controlled_shutdown and life.shutdown_offset == NO_OFFSET:
            life.shutdown_offset = last_offset

    def _clock(self, now_ms: int) -> int:
        """Times never go back, or the order of the sessions would not be that of contacts."""
        self._now_ms = now_ms if self._now_ms is None else max(now_ms, self._now_ms)
        return self._now_ms

    # -- sessions -----------------------------------------------------------------------------

    def has_session(self, broker_id: BrokerId, now_ms: int, session_timeout_ms: int) -> bool:
        """Whether the broker is unfenced and not silent for longer than a session."""
        life = self._sessions.get(broker_id)
        return life is not None and now_ms - life.contact_ms <= session_timeout_ms

    def expired(self, now_ms: int, session_timeout_ms: int) -> list[BrokerId]:
        """Unfenced brokers that were silent for longer than a session, the longest silent first."""
        found = []
        for broker_id, life in self._sessions.items():
            if now_ms - life.contact_ms <= session_timeout_ms:
                break
            found.append(broker_id)
        return found

    def next_expiry(self, session_timeout_ms: int) -> int | None:
        """The first moment at which `expired` names a broker if no more is heard of any."""
        life = next(iter(self._sessions.values()), None)
        return None if life is None else life.contact_ms + session_timeout_ms + 1

    # -- offsets ------------------------------------------------------------------------------

    def registration_offset(self, broker_id: BrokerId) -> int | None:
        """A broker that has replayed this offset has seen its own registration."""
        life = self._lives.get(broker_id)
        return None if life is None else life.registration_offset

    def may_finish_shutdown(self, broker_id: BrokerId) -> bool:
        """Whether every active broker has replayed the records that moved its leaders away.

        Until then some of them would still send clients, and their own fetches, to it.
        """
        life = self._sessions.get(broker_id)
        if life is None or life.shutdown_offset == NO_OFFSET:
            return True
        return all(
            other.metadata_offset >= life.shutdown_offset
            for other in self._sessions.values()
            if other.shutdown_offset == NO_OFFSET
        )
