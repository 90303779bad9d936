"""Metadata logs as columns, replayed by compiled loops that find what the rules must look at."""

from kraftpy.audit.kernel.replayer import Replayer

__all__ = ["Replayer"]
