"""What recorded metadata logs must keep to, and who checks it."""

from kraftpy.audit.registering import register

__all__ = ["register"]
