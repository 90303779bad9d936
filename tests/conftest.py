"""For every test: events are written as if nobody had configured them, and no machine is too slow.

Hypothesis would fail a test whose examples took long, which says something of what else the machine
does, and nothing of the code.
"""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _events_as_usual() -> Iterator[None]:
    """A command that ran in this process may have left a level that drops what others look for."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
