"""What the clients of one listener may use of it. Pure."""

from dataclasses import dataclass

from kraftpy.limits import (
    CONNECTION_FIRST_BYTE_MS_MAX,
    CONNECTION_IDLE_MS_MAX,
    CONTROLLER_CONNECTIONS_MAX,
    CONTROLLER_CONNECTIONS_PER_ADDRESS_MAX,
    CONTROLLER_REQUEST_BYTES_MAX,
    REQUEST_ARRIVAL_MS_MAX,
    REQUEST_BYTES_BUFFERED_MAX,
    RESPONSE_DEPARTURE_MS_MAX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The defaults are a controller's."""

    frame_bytes_max: int = CONTROLLER_REQUEST_BYTES_MAX
    connections_max: int = CONTROLLER_CONNECTIONS_MAX
    connections_per_address_max: int = CONTROLLER_CONNECTIONS_PER_ADDRESS_MAX
    buffered_bytes_max: int = REQUEST_BYTES_BUFFERED_MAX
    first_byte_ms_max: int = CONNECTION_FIRST_BYTE_MS_MAX
    arrival_ms_max: int = REQUEST_ARRIVAL_MS_MAX
    departure_ms_max: int = RESPONSE_DEPARTURE_MS_MAX
    idle_ms_max: int = CONNECTION_IDLE_MS_MAX
