"""A broker's registration and heartbeats: from its start, fenced, to its controlled shutdown.

lifecycle_states.py has the states and the legal steps; this module does what leads from one to the
next. One task runs it. What always holds: the broker has one incarnation id from its start to its
end, and one epoch per registration; it asks to be unfenced only when its owner has said that it is
ready; every heartbeat tells how far the metadata was published here, and which directories failed.

A heartbeat is due every `broker.heartbeat.interval.ms`, and at once when something happens that the
controller should know: metadata while the broker waits to be caught up, readiness, a failed
directory, the wish to stop. A registration that the controller no longer knows is made again, with
the epoch that it had: the process lives, so nothing that it acknowledged was lost.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.backoff import Backoff
from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.lifecycle_states import (
    NOT_RUNNING,
    PENDING,
    SHUTTING_DOWN,
    STARTING,
    TRANSITIONS,
    BrokerState,
    HeartbeatAnswer,
    after_heartbeat,
    when_asked_to_stop,
)
from kraftpy.broker.metadata.publisher import MetadataPublisher
from kraftpy.clock import Clock
from kraftpy.config import Settings
from kraftpy.errors import FatalFault, OutcomeUnknown, Unreachable
from kraftpy.logs import get_logger
from kraftpy.metadata_log.features import supported_features
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.records import Endpoint
from kraftpy.types import Rng, Uuid, to_wire_uuid
from kraftpy.wire.apis import BROKER_HEARTBEAT, BROKER_REGISTRATION

log = get_logger(__name__)

NO_BROKER_EPOCH: Final = -1
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 1.0
# While it waits for its leaderships to be moved, the controller is asked more often.
_SHUTDOWN_INTERVAL_S: Final = 0.2
_REFUSED_FOR_NOW: Final = {
    ErrorCode.duplicate_broker_registration,  # The session of an earlier life has not ended yet.
    ErrorCode.throttling_quota_exceeded,
}
_REGISTRATION_IS_GONE: Final = {
    ErrorCode.stale_broker_epoch,
    ErrorCode.broker_id_not_registered,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker says of itself when it registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    end_points: tuple[Endpoint, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    previous_broker_epoch: int = NO_BROKER_EPOCH  # Of a registration that ended in order.


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleTiming:
    """The defaults are Kafka's."""

    heartbeat_interval_ms: int = 2000
    registration_timeout_ms: int = 60_000

    @staticmethod
    def of(settings: Settings) -> "LifecycleTiming":
        return LifecycleTiming(
            heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
            registration_timeout_ms=settings.initial_broker_registration_timeout_ms,
        )


class BrokerLifecycle:
    """Run `run` in a task; FatalFault there ends the broker."""

    def __init__(
        self,
        identity: BrokerIdentity,
        channel: ControllerChannel,
        publisher: MetadataPublisher,
        timing: LifecycleTiming,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.state: BrokerState = NOT_RUNNING
        self.broker_epoch = NO_BROKER_EPOCH
        self._identity = identity
        self._channel = channel
        self._cache = publisher.cache
        self._timing = timing
        self._clock = clock
        self._rng = rng
        self._previous_epoch = identity.previous_broker_epoch
        self._is_ready = False
        self._failed_dirs: set[Uuid] = set()
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        publisher.subscribe(self._published)

    # -- for the rest of the broker -----------------------------------------------------------

    def ready(self) -> None:
        """Logs are open and clients can be served: ask to be unfenced."""
        self._is_ready = True
        self._wake.set()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report it; whoever had replicas there is no longer in sync."""
        if directory_id in self._identity.log_dirs:
            self._failed_dirs.add(directory_id)
            self._wake.set()

    async def reached(self, reached: Callable[[BrokerState], bool]) -> BrokerState:
        """Wait for a state."""
        while not reached(self.state):
            self._changed.clear()
            await self._changed.wait()
        return self.state

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Have leaderships moved away, for a bounded time; whether all of them were.

        Returns when the broker may close its logs, which is in any case.
        """
        self._move(when_asked_to_stop(self.state))
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self.reached(lambda state: state in (SHUTTING_DOWN, NOT_RUNNING))
            return True
        except TimeoutError:
            log.warning("controlled_shutdown_gave_up", after_s=timeout_s)
            self._move(SHUTTING_DOWN)
            return False

    # -- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Register, then send heartbeats until the broker may stop."""
        self._move(STARTING)
        while self.state is not SHUTTING_DOWN:
            if self.broker_epoch == NO_BROKER_EPOCH:
                await self._register()
                # What is asked before its own registration is replayed here cannot be granted.
                await self._cache.reached(self.broker_epoch + 1, self._interval_s)
            self._wake.clear()
            was_heard = await self._heartbeat()
            await self._pause(self._interval_s if was_heard else _FIRST_PAUSE_S)

    @property
    def _interval_s(self) -> float:
        return self._timing.heartbeat_interval_ms / 1000

    async def _pause(self, interval_s: float) -> None:
        if self.state is PENDING:
            interval_s = min(interval_s, _SHUTDOWN_INTERVAL_S)
        if self.state is SHUTTING_DOWN or self.broker_epoch == NO_BROKER_EPOCH:
            return
        try:
            async with asyncio.timeout(interval_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _published(self, _before: ClusterImage, _after: ClusterImage, _changes: Changes) -> None:
        if self.state in (STARTING, PENDING):
            self._wake.set()

    def _move(self, state: BrokerState) -> None:
        if state is self.state:
            return
        why = TRANSITIONS[self.state].get(state)
        assert why is not None, f"from {self.state.name} to {state.name}"
        before, self.state = self.state, state
        broker_id = self._identity.broker_id
        log.info("broker_state_changed", node=broker_id, was=before.name, now=state.name, why=why)
        self._changed.set()

    # -- registration -------------------------------------------------------------------------

    async def _register(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._timing.registration_timeout_ms
        backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, self._rng)
        why = ""
        while self.state is not SHUTTING_DOWN:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise FatalFault(
                    f"broker {self._identity.broker_id} could not register within "
                    f"{self._timing.registration_timeout_ms} ms: {why}"
                )
            try:
                answer = await self._channel.send(self._registration(left_ms / 1000))
            except (Unreachable, OutcomeUnknown) as error:
                why = str(error)
                await asyncio.sleep(backoff.next_s())
                continue
            if answer.error_code is ErrorCode.none:
                self._registered(answer.broker_epoch)
                return
            if answer.error_code not in _REFUSED_FOR_NOW:
                raise self._refused(answer.error_code)
            if not why:
                name = answer.error_code.name
                log.info("registration_delayed", node=self._identity.broker_id, error=name)
            why = f"the controller answers {answer.error_code.name}"
            await asyncio.sleep(backoff.next_s())

    def _registered(self, broker_epoch: int) -> None:
        self.broker_epoch = self._previous_epoch = broker_epoch
        log.info("broker_registered", node=self._identity.broker_id, broker_epoch=broker_epoch)

    def _refused(self, error_code: ErrorCode) -> FatalFault:
        identity = self._identity
        detail = {
            ErrorCode.inconsistent_cluster_id: f"its directories are of {identity.cluster_id}",
            ErrorCode.unsupported_version: "the cluster's features are newer than this release",
        }.get(error_code, "its listeners, directories or features are not acceptable")
        return FatalFault(
            f"the controller refuses to register broker {identity.broker_id}: "
            f"{error_code.name}: {detail}"
        )

    def _registration(self, timeout_s: float) -> ChannelRequest:
        identity = self._identity
        features = [
            {
                "name": each.name,
                "min_supported_version": each.min_supported_version,
                "max_supported_version": each.max_supported_version,
            }
            for each in supported_features()
        ]
        listeners = [
            {
                "name": each.name,
                "host": each.host,
                "port": each.port,
                "security_protocol": each.security_protocol,
            }
            for each in identity.end_points
        ]
        usable = [each for each in identity.log_dirs if each not in self._failed_dirs]
        values = {
            "broker_id": identity.broker_id,
            "cluster_id": identity.cluster_id,
            "incarnation_id": to_wire_uuid(identity.incarnation_id),
            "listeners": listeners,
            "features": features,
            "rack": identity.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": [to_wire_uuid(each) for each in usable or identity.log_dirs],
            "previous_broker_epoch": self._previous_epoch,
        }
        return ChannelRequest(
            api_key=BROKER_REGISTRATION, values=values, timeout_s=timeout_s, repeatable=True
        )

    # -- heartbeats ---------------------------------------------------------------------------

    async def _heartbeat(self) -> bool:
        """Whether the active controller has heard it."""
        try:
            answer: Any = await self._channel.send(self._heartbeat_request())
        except (Unreachable, OutcomeUnknown) as error:
            log.debug("heartbeat_failed", node=self._identity.broker_id, reason=str(error))
            return False
        if answer.error_code in _REGISTRATION_IS_GONE:
            self._lose_registration(answer.error_code)
        elif answer.error_code is ErrorCode.none and self.state is not SHUTTING_DOWN:
            told = HeartbeatAnswer(answer.is_caught_up, answer.is_fenced, answer.should_shut_down)
            self._move(after_heartbeat(self.state, told))
        return True

    def _lose_registration(self, error_code: ErrorCode) -> None:
        broker_id, name = self._identity.broker_id, error_code.name
        log.warning("registration_is_gone", node=broker_id, epoch=self.broker_epoch, error=name)
        if self.state in (PENDING, SHUTTING_DOWN):
            self._move(SHUTTING_DOWN)  # Whoever is not registered leads nothing.
            return
        self.broker_epoch = NO_BROKER_EPOCH
        self._move(STARTING)

    def _heartbeat_request(self) -> ChannelRequest:
        failed = [each for each in self._identity.log_dirs if each in self._failed_dirs]
        values = {
            "broker_id": self._identity.broker_id,
            "broker_epoch": self.broker_epoch,
            "current_metadata_offset": self._cache.end_offset - 1,
            "want_fence": not self._is_ready,
            "want_shut_down": self.state is PENDING,
            "offline_log_dirs": [to_wire_uuid(each) for each in failed],
        }
        return ChannelRequest(
            api_key=BROKER_HEARTBEAT,
            values=values,
            timeout_s=self._interval_s,
            attempt_s=min(self._interval_s, 2.0),
            repeatable=True,
        )
