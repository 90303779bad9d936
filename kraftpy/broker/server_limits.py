"""What the clients of a broker may use of it, and what they have used. Pure."""

from collections import Counter
from dataclasses import dataclass

from kraftpy.config import Settings
from kraftpy.config_kinds import INT32_MAX, INT64_MAX
from kraftpy.limits import (
    BROKER_BUFFER_BYTES,
    BROKER_BUFFER_BYTES_BUSY,
    BROKER_REQUEST_BYTES_BUFFERED_MAX,
    BROKER_REQUESTS_IN_FLIGHT_MAX,
    BROKER_UNSENT_BYTES_MAX,
    CONNECTION_IDLE_MS_MAX,
    HURRIED_ARRIVAL_BYTES_PER_MS_MIN,
    HURRIED_ARRIVAL_MS_MAX,
    REQUEST_ARRIVAL_BYTES_PER_MS_MIN,
    SOCKET_REQUEST_BYTES_MAX,
)
from kraftpy.network.limits import ServerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits(ServerLimits):
    """The defaults are Kafka's where Kafka has the setting."""

    frame_bytes_max: int = SOCKET_REQUEST_BYTES_MAX
    connections_max: int = INT32_MAX
    connections_per_address_max: int = INT32_MAX
    buffered_bytes_max: int = BROKER_REQUEST_BYTES_BUFFERED_MAX
    idle_ms_max: int = CONNECTION_IDLE_MS_MAX
    in_flight_max: int = BROKER_REQUESTS_IN_FLIGHT_MAX
    unsent_bytes_max: int = BROKER_UNSENT_BYTES_MAX
    buffer_bytes: int = BROKER_BUFFER_BYTES
    buffer_bytes_busy: int = BROKER_BUFFER_BYTES_BUSY

    @staticmethod
    def of(settings: Settings) -> "BrokerLimits":
        buffered = settings.queued_max_request_bytes
        idle_ms = settings.connections_max_idle_ms
        return BrokerLimits(
            frame_bytes_max=settings.socket_request_max_bytes,
            connections_max=settings.max_connections,
            connections_per_address_max=settings.max_connections_per_ip,
            buffered_bytes_max=buffered if buffered > 0 else BROKER_REQUEST_BYTES_BUFFERED_MAX,
            idle_ms_max=idle_ms if idle_ms >= 0 else INT64_MAX,
        )

    def arrival_ms(self, received: int, *, hurry: bool) -> int:
        """How long a request may take of which this much is there. A byte now and then buys no
        time; a large request on a slow line has as much as it needs, unless others wait for the
        memory that it arrives in."""
        if hurry:
            fixed_ms = min(HURRIED_ARRIVAL_MS_MAX, self.arrival_ms_max)
            return fixed_ms + received // HURRIED_ARRIVAL_BYTES_PER_MS_MIN
        return self.arrival_ms_max + received // REQUEST_ARRIVAL_BYTES_PER_MS_MIN


class Traffic:
    """What went through a server, for metrics."""

    __slots__ = ("received", "requests", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.requests: Counter[int] = Counter()  # By API key.
