"""When each broker was last heard of, as the active controller counts it."""


class Heartbeats:
    """Not replicated: a controller that becomes active starts every session anew."""
